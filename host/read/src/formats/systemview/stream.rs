//! Stream of packets with their times.

use std::io::{self, Read};

use kymo_event::Time;
use kymo_systemview::scan::{Arguments, UNKNOWN};
use kymo_systemview::{Beginning, Form, Packet, Payload, Piece, Problem, SYNC, Scan, decode, file};

use crate::bytes::Bytes;

/// Returns whether bytes begin with the synchronization of a stream, or with a part of it.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    let Some(behind) = bytes.strip_prefix(&SYNC) else {
        return false;
    };
    let Ok(start) = decode(behind, Form::default(), Payload::default()) else {
        return false;
    };
    let rest = behind.get(start.bytes..).unwrap_or_default();
    let init = decode(rest, Form::default(), Payload::default());
    start.packet == Packet::TraceStart
        && match init {
            Ok(init) => matches!(init.packet, Packet::Init { .. }),
            Err(error) => error.problem == Problem::Incomplete && rest.first() == Some(&24),
        }
}

/// Number of bytes at the start of a stream without synchronization that may be the rest of a packet.
pub(super) const CUT: u64 = 512;

/// Returns the offset of a stream's synchronization.
pub(super) fn start_in(bytes: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(SYNC.len() + 1);
    let mut from = 0;
    while let Some(found) = windows.position(|it| it.ends_with(&[10]) && it.starts_with(&SYNC)) {
        let at = from + found;
        if is_start(bytes.get(at..).unwrap_or_default()) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns whether packets of a stream without synchronization begin here, behind at most the rest of a truncated
/// packet: a number of them without damage in between.
pub(super) fn packets_begin(bytes: &[u8]) -> bool {
    const PACKETS: usize = 32;
    let mut scan = Scan::default();
    let mut packets = 0;
    while packets < PACKETS {
        let rest = usize::try_from(scan.offset())
            .ok()
            .and_then(|at| bytes.get(at..));
        match scan.next(rest.unwrap_or_default(), true, UNKNOWN) {
            Some(Piece::Record(_)) => packets += 1,
            Some(Piece::Damage {
                offset: 0,
                bytes,
                problem,
            }) if bytes < CUT || problem == Problem::Cut => {}
            _ => return false,
        }
    }
    true
}

/// Source of bytes.
enum Input {
    /// Part of a file.
    Bytes { bytes: Bytes, end: usize },
    /// Stream without a known end.
    Reader {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
        ended: bool,
        /// Whether the text header of files may still arrive.
        at_start: bool,
    },
}

/// Number of bytes per read.
const READ: usize = 1 << 16;

/// Next element of a stream.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Packet with this number of bytes.
    Packet {
        size: usize,
        form: Form,
        payload: Payload,
    },
    /// Bytes that are not a packet.
    Damage { bytes: u64, problem: Problem },
}

/// Next element with its time and offset.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) time: Time,
    /// Offset in the file or in the received bytes.
    pub(super) offset: u64,
    /// Whether the packet is from the second core of a two-core stream.
    pub(super) of_second: bool,
    pub(super) next: Next,
    /// Offset of its bytes in the buffer.
    at: usize,
}

/// One stream of packets.
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) core: Option<u32>,
    input: Input,
    scan: Scan,
    /// Position of the scan in the bytes or the buffer.
    at: usize,
    /// Offset of the bytes or the buffer in the file.
    base: u64,
    clock: Clock,
    pending: Option<Pending>,
}

/// Conversion of ticks to times.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    frequency: Option<u32>,
    /// Time from which this frequency is valid, in nanoseconds, and the ticks since then.
    since: i64,
    ticks: u64,
}

impl Clock {
    fn add(&mut self, delta: u32) {
        self.ticks = self.ticks.saturating_add(delta.into());
    }

    fn time(&self) -> Time {
        // Without a known frequency, ticks are treated as nanoseconds.
        let frequency = u128::from(self.frequency.unwrap_or(1_000_000_000).max(1));
        let ns = u128::from(self.ticks) * 1_000_000_000 / frequency;
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        Time(self.since.saturating_add(ns))
    }

    fn set(&mut self, frequency: u32) {
        if frequency == 0 || self.frequency == Some(frequency) {
            return;
        }
        if self.frequency.is_some() {
            self.since = self.time().0;
            self.ticks = 0;
        }
        self.frequency = Some(frequency);
    }
}

/// Returns the frequency in a packet, or in the packet behind the start of a recording.
fn frequency(packet: &Packet<'_>, behind: &[u8], form: Form) -> Option<u32> {
    match *packet {
        Packet::Init { frequency, .. } => Some(frequency),
        Packet::TraceStart => match decode(behind, form, Payload::default()).ok()?.packet {
            Packet::Init { frequency, .. } => Some(frequency),
            _ => None,
        },
        _ => None,
    }
}

impl Stream {
    /// Creates a stream for a part of a file.
    pub(super) fn new(
        name: &str,
        core: Option<u32>,
        bytes: Bytes,
        range: std::ops::Range<u64>,
        form: Form,
    ) -> Self {
        let [at, end] =
            [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let end = end.min(bytes.len());
        Self {
            input: Input::Bytes { bytes, end },
            at: at.min(end),
            scan: Scan::with_form(form),
            ..Self::empty(name, core)
        }
    }

    /// Creates a stream for a reader.
    pub(super) fn of_reader(name: &str, reader: Box<dyn Read + Send>) -> Self {
        let input = Input::Reader {
            reader,
            buffer: Vec::new(),
            ended: false,
            at_start: true,
        };
        Self {
            input,
            ..Self::empty(name, None)
        }
    }

    fn empty(name: &str, core: Option<u32>) -> Self {
        Self {
            name: name.to_owned(),
            core,
            input: Input::Bytes {
                bytes: Bytes::from(Vec::new()),
                end: 0,
            },
            scan: Scan::default(),
            at: 0,
            base: 0,
            clock: Clock::default(),
            pending: None,
        }
    }

    /// Returns a stream with the same bytes, to look ahead; `None` if it cannot be read twice.
    pub(super) fn again(&self) -> Option<Self> {
        let Input::Bytes { bytes, end } = &self.input else {
            return None;
        };
        Some(Self {
            input: Input::Bytes {
                bytes: bytes.clone(),
                end: *end,
            },
            at: self.at,
            scan: Scan::with_form(self.scan.form()),
            ..Self::empty(&self.name, self.core)
        })
    }

    /// Returns whether each packet states which of two cores it is from.
    pub(super) fn is_of_two_cores(&self) -> bool {
        self.scan.form().second_core.is_some()
    }

    /// Returns whether the position of its first packets is a guess.
    pub(super) fn is_guess(&self) -> bool {
        self.scan.beginning() == Beginning::Guessed
    }

    /// Returns the frequency in Hz, if it is known.
    pub(super) fn frequency(&self) -> Option<u32> {
        self.clock.frequency
    }

    /// Sets the frequency.
    pub(super) fn set_frequency(&mut self, frequency: u32) {
        self.clock.set(frequency);
    }

    /// Returns the available bytes.
    fn bytes(&self) -> &[u8] {
        match &self.input {
            Input::Bytes { bytes, end } => bytes.get(..*end).unwrap_or(bytes),
            Input::Reader { buffer, .. } => buffer,
        }
    }

    /// Reads the next element, unless it is there already. Without `may_read`, waits for no more bytes.
    ///
    /// # Errors
    /// If reading fails.
    pub(super) fn advance(
        &mut self,
        arguments: Arguments<'_>,
        may_read: bool,
    ) -> io::Result<Ahead> {
        loop {
            if let Some(pending) = &self.pending {
                return Ok(Ahead::At(pending.time));
            }
            self.skip_text();
            let ended = match &self.input {
                Input::Bytes { .. } => true,
                Input::Reader { ended, .. } => *ended,
            };
            let bytes = match &self.input {
                Input::Bytes { bytes, end } => bytes.get(self.at..*end),
                Input::Reader {
                    at_start: true,
                    ended: false,
                    ..
                } => None,
                Input::Reader { buffer, .. } => buffer.get(self.at..),
            };
            let bytes = bytes.unwrap_or_default();
            let offset = self.base + self.at as u64;
            let at = self.at;
            let mut of_second = false;
            let next = match self.scan.next(bytes, ended, arguments) {
                Some(Piece::Sync { .. }) => {
                    self.at += SYNC.len();
                    continue;
                }
                Some(Piece::Record(record)) => {
                    let behind = bytes.get(record.bytes.len()..).unwrap_or_default();
                    of_second = record.form.second_core == Some(true);
                    if let Some(frequency) = frequency(&record.packet, behind, record.form) {
                        self.clock.set(frequency);
                    }
                    self.clock.add(record.delta);
                    self.at += record.bytes.len();
                    Next::Packet {
                        size: record.bytes.len(),
                        form: record.form,
                        payload: match record.packet {
                            Packet::Event { payload, .. } => Payload::Bytes(payload.len()),
                            _ => Payload::default(),
                        },
                    }
                }
                Some(Piece::Damage {
                    bytes: count,
                    problem,
                    ..
                }) => {
                    self.at += usize::try_from(count).unwrap_or(usize::MAX);
                    if ended && bytes.iter().all(|byte| *byte == 0) {
                        // Unused part of a buffer or a transfer.
                        continue;
                    }
                    Next::Damage {
                        bytes: count,
                        problem,
                    }
                }
                None if ended => return Ok(Ahead::Ended),
                None if !may_read => return Ok(Ahead::Wait),
                None => {
                    self.read()?;
                    continue;
                }
            };
            self.pending = Some(Pending {
                time: self.clock.time(),
                offset,
                of_second,
                next,
                at,
            });
        }
    }

    /// Skips the text header of files, once it is complete.
    fn skip_text(&mut self) {
        let Input::Reader {
            buffer,
            at_start: at_start @ true,
            ended,
            ..
        } = &mut self.input
        else {
            return;
        };
        if buffer.first() == Some(&b';') {
            match file::header(buffer) {
                // The last line may be incomplete.
                Some(header) if header.text.len() < buffer.len() || *ended => {
                    self.at = header.text.len();
                    self.scan = Scan::with_form(header.form());
                }
                None if *ended || buffer.len() > READ => {}
                _ => return,
            }
            *at_start = false;
        } else if !buffer.is_empty() || *ended {
            *at_start = false;
        }
    }

    /// Reads more bytes, and drops consumed ones.
    fn read(&mut self) -> io::Result<()> {
        let Input::Reader {
            reader,
            buffer,
            ended,
            ..
        } = &mut self.input
        else {
            return Ok(());
        };
        buffer.drain(..self.at.min(buffer.len()));
        self.base += self.at as u64;
        self.at = 0;
        let old = buffer.len();
        buffer.resize(old + READ, 0);
        let read = loop {
            match reader.read(buffer.get_mut(old..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        buffer.truncate(old + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => *ended = true,
            Ok(_) => {}
            Err(error) => {
                *ended = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes the next element.
    pub(super) fn take(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// Returns the bytes of a packet that is next or was just taken.
    pub(super) fn packet_bytes(&self, pending: &Pending) -> &[u8] {
        let Next::Packet { size, .. } = pending.next else {
            return &[];
        };
        self.bytes()
            .get(pending.at..pending.at + size)
            .unwrap_or_default()
    }

    /// Returns a packet that is next or was just taken.
    pub(super) fn packet(&self, pending: &Pending) -> Option<Packet<'_>> {
        let Next::Packet { form, payload, .. } = pending.next else {
            return None;
        };
        let decoded = decode(self.packet_bytes(pending), form, payload);
        Some(decoded.ok()?.packet)
    }

    /// Returns the offset of the scan in the file.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }
}

/// State of a stream's look-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// The next element has this time.
    At(Time),
    /// More bytes have to arrive.
    Wait,
    /// The stream has ended.
    Ended,
}
