//! A whole stream of packets, with whatever lies between them.
//!
//! Streams are damaged in practice: raw memory of the target in the middle of a recording, blocks that a debug probe
//! lost, reports of a telnet server, the beginning of a ring that was overwritten. [`Scan`] passes over what are no
//! packets and says so, each place with its offset and size. Of the bytes that could be packets it believes those
//! that look like their stream (it has had their tasks, interrupts and events before): where a packet is odd, those behind it decide.

use crate::begin::{Begin, begin};
use crate::decode::{Decoded, decode};
use crate::error::Problem;
use crate::packet::{Form, Length, Packet};
use crate::plausible::{Known, LONG, Oddity};
use crate::{SYNC, encode};

/// A packet at its place in a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Where it begins, in bytes from the start of the stream.
    pub offset: u64,
    /// What it says.
    pub packet: Packet<'a>,
    /// Ticks since the packet before.
    pub delta: u32,
    /// How it was written.
    pub form: Form,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece<'a> {
    /// Ten zero bytes.
    Sync {
        /// Where they begin.
        offset: u64,
    },
    /// A packet.
    Record(Record<'a>),
    /// Bytes that are no packets.
    Damage {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        bytes: u64,
        /// Why the first of them are no packet.
        problem: Problem,
    },
}

/// Packets behind an odd one that decide about it.
const LOOK_AHEAD: usize = 16;

/// Packets that have to follow each other behind damage.
const RUN: usize = 8;

/// Bytes of damage that are told at once at most.
const DAMAGE: usize = 1 << 16;

/// Reads a stream piece by piece. It keeps no bytes: whoever calls it does.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    offset: u64,
    form: Form,
    known: Known,
    beginning: Beginning,
}

/// How a stream begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beginning {
    /// Nothing of it was read.
    #[default]
    Open,
    /// With a packet that is certain: at its start, or behind bytes that were passed over ([`Problem::Cut`]).
    Certain,
    /// It was cut, and its bytes do not show where its packets begin: the first ones are a guess.
    Guessed,
}

/// Packets that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Packets that are not odd.
    good: usize,
    /// Packets with something new.
    new: usize,
    strange: usize,
    end: End,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// There are as many packets as were asked for.
    #[default]
    Full,
    /// At the ten zeros of a synchronization.
    Sync,
    /// At the end of the bytes.
    Bytes,
    /// At bytes that are no packet.
    Damage,
}

/// How many numbers the payload of an event has, by its id. It is asked where the stream does not tell
/// ([`Length::Id`]).
pub type Arguments<'f> = &'f dyn Fn(u32) -> Option<usize>;

/// Knows of no event how many numbers it has.
pub const UNKNOWN: Arguments<'static> = &|_| None;

impl Scan {
    /// A scan of a stream of which something is known, such as that its ids tell the core.
    pub fn with_form(form: Form) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// Where in the stream the next piece begins.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// How the stream begins, once its first piece was given.
    pub const fn beginning(&self) -> Beginning {
        self.beginning
    }

    /// How the target writes packets, as far as it is known.
    pub const fn form(&self) -> Form {
        self.form
    }

    /// The next piece. `bytes` begin at [`offset`](Self::offset); `ended` says that no more will come behind them.
    ///
    /// `None` at the end, or if more bytes are needed. A stream that goes on can need a few kilobytes to tell.
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        ended: bool,
        arguments: Arguments<'_>,
    ) -> Option<Piece<'a>> {
        if bytes.is_empty() {
            return None;
        }
        match self.sync(bytes, ended) {
            Some(true) => {
                let offset = self.offset;
                self.offset += SYNC.len() as u64;
                self.beginning = Beginning::Certain;
                return Some(Piece::Sync { offset });
            }
            Some(false) => {}
            None => return None,
        }
        match log_line(bytes, ended) {
            Line::Whole(size) => {
                let offset = self.offset;
                self.offset += size as u64;
                return Some(Piece::Damage {
                    offset,
                    bytes: size as u64,
                    problem: Problem::Log,
                });
            }
            Line::Begun => return None,
            Line::No => {}
        }
        if self.beginning == Beginning::Open {
            match begin(bytes, self.form, ended, arguments) {
                Begin::More => return None,
                Begin::Unknown => self.beginning = Beginning::Guessed,
                Begin::At(skipped, known) => {
                    self.beginning = Beginning::Certain;
                    self.known = known;
                    if skipped > 0 {
                        let offset = self.offset;
                        self.offset += skipped as u64;
                        return Some(Piece::Damage {
                            offset,
                            bytes: skipped as u64,
                            problem: Problem::Cut,
                        });
                    }
                }
            }
        }
        let problem = match self.decode(bytes, arguments) {
            Ok(decoded) => match self.judge(bytes, &decoded, ended, arguments) {
                Some(true) => return Some(self.accept(bytes, decoded)),
                Some(false) => Problem::Implausible,
                None => return None,
            },
            Err(Problem::Incomplete) if !ended && bytes.len() < DAMAGE => return None,
            Err(problem) => problem,
        };
        // Where a stream was cut within its last packet, parts of that often look like packets.
        let is_cut = problem == Problem::Incomplete;
        let skipped = self.resynchronize(bytes, ended, is_cut, arguments)?;
        let offset = self.offset;
        self.offset += skipped as u64;
        Some(Piece::Damage {
            offset,
            bytes: skipped as u64,
            problem,
        })
    }

    fn accept<'a>(&mut self, bytes: &'a [u8], decoded: Decoded<'a>) -> Piece<'a> {
        let record = Record {
            offset: self.offset,
            packet: decoded.packet,
            delta: decoded.delta,
            form: decoded.form,
            bytes: bytes.get(..decoded.bytes).unwrap_or_default(),
        };
        self.form = decoded.form;
        self.known.learn(&record.packet);
        self.offset += decoded.bytes as u64;
        Piece::Record(record)
    }

    /// Whether the bytes begin with a synchronization; `None` if more bytes have to tell.
    fn sync(&self, bytes: &[u8], ended: bool) -> Option<bool> {
        match bytes.get(..SYNC.len()) {
            Some(start) if start == SYNC => match bytes.get(SYNC.len()) {
                // Recording starts behind it. At the start of a stream nothing else is zero.
                Some(next) => Some(*next == TRACE_START || self.offset == 0),
                None => ended.then_some(true),
            },
            Some(_) => Some(false),
            None if bytes.iter().all(|byte| *byte == 0) && !ended => None,
            None => Some(false),
        }
    }

    fn decode<'a>(
        &self,
        bytes: &'a [u8],
        arguments: Arguments<'_>,
    ) -> Result<Decoded<'a>, Problem> {
        decode_with(bytes, self.form, &self.known, arguments)
    }

    /// Whether to believe a packet; `None` if more bytes have to tell.
    fn judge(
        &self,
        bytes: &[u8],
        decoded: &Decoded<'_>,
        ended: bool,
        arguments: Arguments<'_>,
    ) -> Option<bool> {
        let oddity = oddity(&self.known, decoded);
        if oddity == Oddity::None {
            return Some(true);
        }
        let behind = bytes.get(decoded.bytes..).unwrap_or_default();
        let mut known = self.known.clone();
        known.learn(&decoded.packet);
        let run = run(behind, decoded.form, known, LOOK_AHEAD, arguments);
        if run.end == End::Bytes && !ended && behind.len() < DAMAGE {
            return None;
        }
        if self.offset == 0 && self.is_rest(bytes, decoded, arguments) {
            return Some(false);
        }
        let is_followed = run.end != End::Damage || run.good >= 2;
        let is_new = oddity == Oddity::New;
        if is_new && (!is_followed || run.strange > 2) {
            return Some(false);
        }
        // Does a packet begin within this one, and others behind it? Of one with something new, that has to be certain.
        let end = if is_new {
            decoded.bytes
        } else {
            decoded.bytes.max(4)
        };
        for at in 1..end.min(bytes.len()) {
            let rest = bytes.get(at..).unwrap_or_default();
            if is_new && !self.begins_twice(rest, end - at, arguments) {
                continue;
            }
            match self.is_run(rest, ended, false, arguments)? {
                Some(Oddity::None) => return Some(false),
                Some(_) if !is_new => return Some(false),
                _ => {}
            }
        }
        if is_new {
            return Some(true);
        }
        let is_usual = run.good >= 3 * (run.strange + 1) || run.end == End::Bytes;
        Some(is_followed && is_usual && self.known.packets > 0)
    }

    /// Whether the first bytes of a stream are the rest of a cut packet and a whole one: read together they are an event
    /// that no packet behind them has, while the packets behind have the like of the whole one.
    fn is_rest(&self, bytes: &[u8], decoded: &Decoded<'_>, arguments: Arguments<'_>) -> bool {
        if !matches!(decoded.packet, Packet::Event { .. }) {
            return false;
        }
        let mut known = self.known.clone();
        let (mut at, mut form) = (decoded.bytes, decoded.form);
        for _ in 0..LOOK_AHEAD {
            let rest = bytes.get(at..).unwrap_or_default();
            let Ok(next) = decode_with(rest, form, &known, arguments) else {
                break;
            };
            known.learn(&next.packet);
            at += next.bytes;
            form = next.form;
        }
        let is_known = |decoded: &Decoded<'_>| oddity(&known, decoded) == Oddity::None;
        !is_known(decoded)
            && (1..decoded.bytes).any(|start| {
                let rest = bytes.get(start..).unwrap_or_default();
                self.decode(rest, arguments).is_ok_and(|inner| {
                    let is_whole = start + inner.bytes == decoded.bytes;
                    // Packets of one byte and a time fit anywhere.
                    is_whole && inner.bytes > 2 && is_known(&inner)
                })
            })
    }

    /// Whether two whole packets are in the first `within` bytes.
    fn begins_twice(&self, bytes: &[u8], within: usize, arguments: Arguments<'_>) -> bool {
        let mut at = 0;
        (0..2).all(|_| {
            let rest = bytes.get(at..).unwrap_or_default();
            self.decode(rest, arguments).is_ok_and(|decoded| {
                at += decoded.bytes;
                at <= within && oddity(&self.known, &decoded) == Oddity::None
            })
        })
    }

    /// Whether packets begin here that look like those of the stream, and how odd the oddest of them is; `is_cut`: as many
    /// as a whole run has. The outer `None`: more bytes have to tell.
    fn is_run(
        &self,
        bytes: &[u8],
        ended: bool,
        is_cut: bool,
        arguments: Arguments<'_>,
    ) -> Option<Option<Oddity>> {
        if let Some((zeros, [TRACE_START, ..])) = bytes.split_at_checked(SYNC.len())
            && zeros == SYNC
        {
            return Some(Some(Oddity::None));
        }
        let fresh = self.known.packets < 64;
        let first = match self.decode(bytes, arguments) {
            Ok(first) => first,
            Err(Problem::Incomplete) if !ended && bytes.len() < MARGIN => return None,
            Err(_) => return Some(None),
        };
        let oddity = oddity(&self.known, &first);
        if oddity == Oddity::Strange || oddity == Oddity::New && !fresh {
            return Some(None);
        }
        let run = run(bytes, self.form, self.known.clone(), RUN, arguments);
        let new = if fresh { RUN } else { 1 };
        if run.strange > 0 || run.new > new {
            return Some(None);
        }
        if run.end == End::Bytes && !ended {
            return None;
        }
        let is_long = match run.end {
            End::Full | End::Sync => true,
            End::Bytes => !is_cut && run.good + run.new >= 1,
            End::Damage => run.good >= RUN - 2,
        };
        let oddity = match run.new {
            0 => Oddity::None,
            _ => Oddity::New,
        };
        Some(is_long.then_some(oddity))
    }

    /// Bytes up to the next packets that look like those of the stream; `None` if more bytes have to tell.
    fn resynchronize(
        &self,
        bytes: &[u8],
        ended: bool,
        is_cut: bool,
        arguments: Arguments<'_>,
    ) -> Option<usize> {
        let end = bytes.len().min(DAMAGE);
        let mut found = None;
        for at in 1..end {
            // A run with something new may begin a few bytes too early.
            if found.is_some_and(|found| at > found + CLOSE) {
                return found;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            match self.is_run(rest, ended, is_cut, arguments)? {
                Some(Oddity::None) => return Some(at),
                Some(_) => found = found.or(Some(at)),
                None => {}
            }
        }
        match ended || end == DAMAGE {
            true => Some(found.unwrap_or(end)),
            false => None,
        }
    }
}

const TRACE_START: u8 = 10;

/// Whether bytes are a line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// One of so many bytes, with its end.
    Whole(usize),
    /// So far; more bytes have to tell.
    Begun,
    No,
}

/// The longest line of a log that is recognised.
const LONGEST_LINE: usize = 1 << 10;

/// Whether bytes begin with a line as ESP-IDF logs: `I (1234) tag: text`, with colours or without. Some packets look like the
/// beginning of one, and none like all of it.
fn log_line(bytes: &[u8], ended: bool) -> Line {
    let more = if ended { Line::No } else { Line::Begun };
    let line = bytes.get(..LONGEST_LINE).unwrap_or(bytes);
    let mut at = 0;
    // `ESC [ 0 ; 3 2 m`
    if line.starts_with(b"\x1b[") {
        let colour = line.get(2..).unwrap_or_default();
        let digits = colour
            .iter()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b';'));
        let end = 2 + digits.count();
        match line.get(end) {
            Some(b'm') => at = end + 1,
            Some(_) => return Line::No,
            None => return more,
        }
    }
    let rest = line.get(at..).unwrap_or_default();
    let Some((level, rest)) = rest.split_first() else {
        return more;
    };
    if !b"EWIDV".contains(level) {
        return Line::No;
    }
    // Of the parts of a line, each has to be there as far as the bytes go.
    let start = b" (";
    if !rest.starts_with(start) {
        return if start.starts_with(rest) {
            more
        } else {
            Line::No
        };
    }
    let rest = rest.get(start.len()..).unwrap_or_default();
    let time = rest
        .iter()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b':'));
    let time = time.count();
    let behind = rest.get(time..).unwrap_or_default();
    let close = b") ";
    if !behind.starts_with(close) {
        return if close.starts_with(behind) {
            more
        } else {
            Line::No
        };
    }
    if time == 0 {
        return Line::No;
    }
    let text = behind.get(close.len()..).unwrap_or_default();
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\r' | 0x1b | b' '..=b'~' | 0x80..);
    let length = text.iter().take_while(|byte| is_text(byte)).count();
    match text.get(length) {
        Some(b'\n') => Line::Whole(line.len() - text.len() + length + 1),
        Some(_) => Line::No,
        None if line.len() == LONGEST_LINE => Line::No,
        None => more,
    }
}

/// A packet of usual size is whole in so many bytes.
const MARGIN: usize = 2 * LONG;

/// Packets are looked for so many bytes behind others that are a little less likely.
const CLOSE: usize = 24;

/// How odd a packet with its time is.
fn oddity(known: &Known, decoded: &Decoded<'_>) -> Oddity {
    let time = match decoded.delta >= LONG_TIME {
        true => Oddity::New,
        false => Oddity::None,
    };
    known.oddity(&decoded.packet).max(time)
}

/// A second or more passes between two packets of few streams.
pub(crate) const LONG_TIME: u32 = 1 << 28;

/// The packets that follow each other from here on.
fn run(bytes: &[u8], form: Form, mut known: Known, most: usize, arguments: Arguments<'_>) -> Run {
    let (mut run, mut form, mut rest) = (Run::default(), form, bytes);
    for _ in 0..most {
        if rest.starts_with(&SYNC) {
            run.end = End::Sync;
            return run;
        }
        let decoded = match decode_with(rest, form, &known, arguments) {
            Ok(decoded) => decoded,
            Err(Problem::Incomplete) => {
                run.strange += usize::from(rest.len() >= MARGIN);
                run.end = End::Bytes;
                return run;
            }
            Err(_) => {
                run.end = End::Damage;
                return run;
            }
        };
        match oddity(&known, &decoded) {
            Oddity::None => run.good += 1,
            Oddity::New => run.new += 1,
            Oddity::Strange => run.strange += 1,
        }
        known.learn(&decoded.packet);
        form = decoded.form;
        rest = rest.get(decoded.bytes..).unwrap_or_default();
    }
    run
}

/// Decodes a packet whose payload may be as long as only the packets behind it tell.
pub(crate) fn decode_with<'a>(
    bytes: &'a [u8],
    form: Form,
    known: &Known,
    arguments: Arguments<'_>,
) -> Result<Decoded<'a>, Problem> {
    /// Arguments that targets send at most.
    const ARGUMENTS: usize = 16;
    let first = decode(bytes, form, 0).map_err(|error| error.problem)?;
    let Packet::Event { id, payload } = first.packet else {
        return Ok(first);
    };
    if form.length != Length::Id || !payload.is_empty() {
        return Ok(first);
    }
    if let Some(count) = arguments(id) {
        return decode(bytes, form, count).map_err(|error| error.problem);
    }
    for count in 0..=ARGUMENTS {
        let decoded = decode(bytes, form, count).map_err(|error| error.problem)?;
        let rest = bytes.get(decoded.bytes..).unwrap_or_default();
        if is_followed(rest, form, known) {
            return Ok(decoded);
        }
    }
    Err(Problem::Implausible)
}

/// Whether packets follow that are not strange, with ids in the place of lengths.
fn is_followed(bytes: &[u8], form: Form, known: &Known) -> bool {
    let mut rest = bytes;
    for _ in 0..4 {
        match decode(rest, form, 0) {
            // Id and id again: nearly certain, and how long it is need not be known.
            Ok(next) if matches!(next.packet, Packet::Event { .. }) => return true,
            Ok(next) if known.oddity(&next.packet) == Oddity::Strange => return false,
            Ok(next) => rest = rest.get(next.bytes..).unwrap_or_default(),
            Err(error) => return error.problem == Problem::Incomplete,
        }
    }
    true
}

/// Whether a record is written the same way again: bytes that [`encode()`] gives, of at most 64 KiB.
pub fn is_written_again(record: &Record<'_>, scratch: &mut [u8]) -> bool {
    let size = encode(&record.packet, record.delta, record.form, scratch);
    size.is_ok_and(|size| scratch.get(..size) == Some(record.bytes))
}
