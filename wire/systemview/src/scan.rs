//! Scans a whole stream of packets, with damage between them.
//!
//! Streams are damaged in practice: raw memory of the target in the middle of a recording, blocks that a debug probe
//! lost, reports of a telnet server, the overwritten start of a ring. [`Scan`] skips bytes that are not packets and
//! reports each such piece with its offset and size. Of the bytes that could be packets it accepts those that match the
//! stream, whose tasks, interrupts and events occurred before. If a packet is odd, the following packets decide.

use crate::begin::{Begin, begin};
use crate::decode::{Decoded, decode};
use crate::error::Problem;
use crate::packet::{Form, Length, Packet, Payload};
use crate::plausible::{Known, LONG, Oddity};
use crate::{SYNC, encode};

/// A packet with its position in a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Offset in bytes from the start of the stream.
    pub offset: u64,
    /// The packet.
    pub packet: Packet<'a>,
    /// Ticks since the previous packet.
    pub delta: u32,
    /// The form in which it was written.
    pub form: Form,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece<'a> {
    /// Ten zero bytes.
    Sync {
        /// Offset of the first byte.
        offset: u64,
    },
    /// A packet.
    Record(Record<'a>),
    /// Bytes that are not packets.
    Damage {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Reason why the first of them are not a packet.
        problem: Problem,
    },
}

/// Number of packets after an odd one that decide about it.
const LOOK_AHEAD: usize = 16;

/// Number of consecutive packets that are required after damage.
const RUN: usize = 8;

/// Maximum number of bytes of damage that are reported at once.
const DAMAGE: usize = 1 << 16;

/// Reads a stream piece by piece. The caller keeps the bytes.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    offset: u64,
    form: Form,
    known: Known,
    beginning: Beginning,
}

/// Start of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beginning {
    /// No byte was read yet.
    #[default]
    Open,
    /// A packet that is certain: at the stream's start, or after skipped bytes ([`Problem::Cut`]).
    Certain,
    /// The stream was truncated, and its bytes do not determine where packets begin: the first ones are a guess.
    Guessed,
}

/// Consecutive packets.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Number of packets that are not odd.
    good: usize,
    /// Number of packets with something new.
    new: usize,
    strange: usize,
    end: End,
}

/// End of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// The requested number of packets was read.
    #[default]
    Full,
    /// The ten zeros of a synchronization follow.
    Sync,
    /// The bytes end.
    Bytes,
    /// Bytes follow that are not a packet.
    Damage,
}

/// Function that returns what an event's payload holds, by its id. Called if the stream does not contain the length
/// ([`Length::Id`]).
pub type Arguments<'f> = &'f dyn Fn(u32) -> Option<Payload>;

/// Returns `None` for every event.
pub const UNKNOWN: Arguments<'static> = &|_| None;

impl Scan {
    /// Creates a scan of a stream whose form is partly known, for example that its ids contain the core.
    pub fn with_form(form: Form) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// Returns the offset of the next piece in the stream.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how the stream begins, once its first piece was read.
    pub const fn beginning(&self) -> Beginning {
        self.beginning
    }

    /// Returns the form of the target's packets, as far as it is known.
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Returns the next piece. `bytes` begin at [`offset`](Self::offset); `ended` means that no more bytes will follow
    /// them.
    ///
    /// Returns `None` at the end, or if more bytes are needed. In a stream that continues it may need a few kilobytes
    /// to decide.
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
        // If a stream ends within its last packet, parts of that packet often look like packets.
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

    /// Returns whether the bytes begin with a synchronization; `None` if more bytes are needed to decide.
    fn sync(&self, bytes: &[u8], ended: bool) -> Option<bool> {
        match bytes.get(..SYNC.len()) {
            Some(start) if start == SYNC => match bytes.get(SYNC.len()) {
                // A recording starts after it. At the start of a stream there are no other zeros.
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

    /// Returns whether to accept a packet; `None` if more bytes are needed to decide.
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
        // Check whether a packet begins within this one, and others after it. For a packet with something new, that
        // must be certain.
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

    /// Returns whether the first bytes of a stream are the rest of a cut packet followed by a whole one. Read together
    /// they are an event that no later packet has, while later packets are similar to the whole one.
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

    /// Returns whether the first `within` bytes contain two whole packets.
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

    /// Returns whether packets begin here that match the stream, and the highest oddity among them; with `is_cut` a
    /// whole run of them is required. The outer `None`: more bytes are needed to decide.
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
        // The last of many zeros may look like an empty packet.
        let is_rest = first.packet == Packet::Nop;
        if is_rest || oddity == Oddity::Strange || oddity == Oddity::New && !fresh {
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

    /// Returns the number of bytes up to the next packets that match the stream; `None` if more bytes are needed to
    /// decide.
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
    /// A line of this many bytes, including its end.
    Whole(usize),
    /// The bytes so far are the start of a line; more bytes are needed to decide.
    Begun,
    No,
}

/// Maximum length of a log line that is recognised.
const LONGEST_LINE: usize = 1 << 10;

/// Returns whether bytes begin with a log line of ESP-IDF: `I (1234) tag: text`, with or without colours. Some packets
/// look like the start of such a line, but none like all of it.
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
    // Each part of a line must match as far as the bytes go.
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

/// A packet of usual size fits into this many bytes.
const MARGIN: usize = 2 * LONG;

/// Distance in bytes within which a more likely start of packets is preferred to a less likely one.
const CLOSE: usize = 24;

/// Judges a packet with its timestamp.
fn oddity(known: &Known, decoded: &Decoded<'_>) -> Oddity {
    // It lets time go on. Without that, it is two zeros, of which foreign bytes have many.
    if decoded.packet == Packet::Nop && (1..LONG_TIME).contains(&decoded.delta) {
        return Oddity::New;
    }
    let time = match decoded.delta >= LONG_TIME {
        true => Oddity::New,
        false => Oddity::None,
    };
    known.oddity(&decoded.packet).max(time)
}

/// Limit of usual intervals in ticks: in few streams a second or more passes between two packets.
pub(crate) const LONG_TIME: u32 = 1 << 28;

/// Reads the consecutive packets from here on.
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

/// Decodes a packet whose payload's length may only follow from the packets after it.
pub(crate) fn decode_with<'a>(
    bytes: &'a [u8],
    form: Form,
    known: &Known,
    arguments: Arguments<'_>,
) -> Result<Decoded<'a>, Problem> {
    /// Maximum number of arguments that targets send.
    const ARGUMENTS: u32 = 16;
    let first = decode(bytes, form, Payload::default()).map_err(|error| error.problem)?;
    let Packet::Event { id, payload } = first.packet else {
        return Ok(first);
    };
    if form.length != Length::Id || !payload.is_empty() {
        return Ok(first);
    }
    if let Some(payload) = arguments(id) {
        return decode(bytes, form, payload).map_err(|error| error.problem);
    }
    for count in 0..=ARGUMENTS {
        let decoded =
            decode(bytes, form, Payload::numbers(count)).map_err(|error| error.problem)?;
        let rest = bytes.get(decoded.bytes..).unwrap_or_default();
        if is_followed(rest, form, known) {
            return Ok(decoded);
        }
    }
    Err(Problem::Implausible)
}

/// Returns whether plausible packets follow, with ids instead of lengths.
fn is_followed(bytes: &[u8], form: Form, known: &Known) -> bool {
    let mut rest = bytes;
    for _ in 0..4 {
        match decode(rest, form, Payload::default()) {
            // An id that is repeated as a length: nearly certain, and its length is not needed.
            Ok(next) if matches!(next.packet, Packet::Event { .. }) => return true,
            Ok(next) if known.oddity(&next.packet) == Oddity::Strange => return false,
            Ok(next) => rest = rest.get(next.bytes..).unwrap_or_default(),
            Err(error) => return error.problem == Problem::Incomplete,
        }
    }
    true
}

/// Returns whether re-encoding a record yields the same bytes: those of [`encode()`], at most 64 KiB.
pub fn is_written_again(record: &Record<'_>, scratch: &mut [u8]) -> bool {
    let size = encode(&record.packet, record.delta, record.form, scratch);
    size.is_ok_and(|size| scratch.get(..size) == Some(record.bytes))
}
