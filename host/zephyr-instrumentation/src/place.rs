//! Resynchronisation: chooses the offset at which records begin, among several candidates.
//!
//! The structure of a record is not enough: a short name is followed by zeros, zero is a valid type, and so at an
//! offset one byte too early every record fits as well, with shifted addresses and times. Records at the right offset
//! have known functions and threads, calls that return, and times that continue from earlier ones.

use crate::scan::END;
use crate::{Kind, Layout, Record, RecordType};

/// Number of records scored from an offset on.
pub(crate) const WINDOW: usize = 12;

/// Number of records before an offset, and at the start of the dump, that provide known values.
const BEFORE: usize = 32;

/// Margin by which another offset must score higher than the expected one: a point per record.
pub(crate) const MARGIN: usize = WINDOW;

/// Maximum distance of calls within one program, as a rule.
pub(crate) const REACH: u64 = 1 << 28;

/// About a minute, in nanoseconds.
pub(crate) const MINUTE: u64 = 1 << 36;

/// About a sixteenth of a second.
const MOMENT: u64 = 1 << 26;

/// Points of a record without doubtful values.
const ALL: usize = 16;

/// Consecutive records, by the offsets of their begin and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    from: usize,
    to: usize,
}

/// Position in a dump, with the records found before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub(crate) at: usize,
    /// The first records of the dump, up to the first damage.
    first: Run,
    /// The last records, after the last damage.
    last: Run,
}

impl Position {
    /// The offset in the dump.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// Whether a record ends directly before it.
    pub(crate) const fn in_step(&self) -> bool {
        self.last.to == self.at && self.last.from < self.at
    }

    /// Advances past a record of this size.
    pub(crate) fn record(&mut self, bytes: usize) {
        if !self.in_step() {
            self.last.from = self.at;
        }
        let only = self.first.to == self.first.from || self.first.from == self.last.from;
        self.at += bytes;
        self.last.to = self.at;
        if only {
            self.first = self.last;
        }
    }

    /// Advances past damaged bytes.
    pub(crate) const fn damage(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// Values known from the records before an offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<'a> {
    functions: Vec<u64>,
    threads: Vec<(u64, &'a [u8])>,
    /// The time of the last record.
    time: Option<u64>,
}

impl<'a> Known<'a> {
    /// Collects the known values at a position of a dump.
    pub(crate) fn before(body: &'a [u8], layout: Layout, position: &Position) -> Self {
        let mut known = Self::default();
        let size = layout.size();
        let run = |range: Run| body.get(range.from..range.to).unwrap_or_default();
        let first = run(position.first).chunks_exact(size).take(BEFORE);
        let last = run(position.last).rchunks_exact(size).take(BEFORE);
        let last: Vec<_> = last.collect();
        for bytes in first.chain(last.into_iter().rev()) {
            known.add(&layout, bytes);
        }
        known
    }

    fn add(&mut self, layout: &Layout, bytes: &'a [u8]) {
        let function = if let Some(record) = layout.record(bytes) {
            let thread = (record.thread, record.name);
            if !self.threads.contains(&thread) {
                self.threads.push(thread);
            }
            self.time = Some(record.time_ns);
            record.callee
        } else if let Some(entry) = layout.entry(bytes) {
            entry.function
        } else {
            return;
        };
        if !self.functions.contains(&function) {
            self.functions.push(function);
        }
    }

    /// Whether the record is of a known thread with its known name.
    pub(crate) fn has_thread(&self, layout: &Layout, bytes: &[u8]) -> bool {
        layout
            .record(bytes)
            .is_some_and(|record| self.threads.contains(&(record.thread, record.name)))
    }

    /// Whether a record looks like the first of a thread: it has a plain name, a word-aligned control block at an
    /// unknown address, a nearby call, and a plausible time.
    pub(crate) fn may_begin(&self, record: &Record<'_>) -> bool {
        let readable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let first = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let mut threads = self.threads.iter();
        let passed = self.time.map(|time| record.time_ns.abs_diff(time));
        record.name.first().is_some_and(first)
            && record.name.iter().all(readable)
            && record.thread.is_multiple_of(4)
            && threads.all(|(thread, _)| *thread != record.thread)
            && record.callee.abs_diff(record.caller) < REACH
            && passed.is_none_or(|passed| passed < MINUTE)
    }

    /// Scores the records from the start of `bytes` on, and counts them, up to a limit.
    pub(crate) fn score(&self, layout: &Layout, bytes: &'a [u8], records: usize) -> (usize, usize) {
        let mut here = Self {
            time: self.time,
            ..Self::default()
        };
        let mut entered = Vec::new();
        let (mut rest, mut score) = (bytes, 0);
        for count in 0..records {
            if rest.starts_with(END) {
                return (score + (records - count) * ALL, records);
            }
            let next = rest.split_at_checked(layout.size());
            let Some((bytes, next)) = next.filter(|(bytes, _)| layout.fits(bytes)) else {
                return (score, count);
            };
            score += match layout.kind() {
                Kind::Trace => self.points(&here, &mut entered, layout, bytes),
                Kind::Profile => self.entry_points(&here, layout, bytes),
            };
            here.add(layout, bytes);
            rest = next;
        }
        (score, records)
    }

    /// Points of a record of a trace.
    fn points(&self, here: &Self, entered: &mut Vec<u64>, layout: &Layout, bytes: &[u8]) -> usize {
        let Some(record) = layout.record(bytes) else {
            return 0;
        };
        let passed = here.time.map(|time| record.time_ns.abs_diff(time));
        let thread = (record.thread, record.name);
        let known = |known: &Self| {
            usize::from(known.functions.contains(&record.callee))
                + usize::from(known.threads.contains(&thread))
        };
        let returns = match record.kind {
            RecordType::Entry => {
                entered.push(record.callee);
                false
            }
            RecordType::Exit => entered.contains(&record.callee),
            RecordType::SwitchedIn | RecordType::SwitchedOut => false,
        };
        let named =
            record.name.first().is_none_or(u8::is_ascii_alphanumeric) && record.has_plain_name();
        // Control blocks of threads are word-aligned.
        let aligned = record.thread % 4 == 0;
        1 + usize::from(record.callee.abs_diff(record.caller) < REACH)
            + usize::from(passed.is_none_or(|passed| passed < MINUTE))
            + usize::from(passed.is_none_or(|passed| passed < MOMENT))
            + usize::from(passed != Some(0))
            + usize::from(aligned)
            + 2 * known(self)
            + known(here)
            + 2 * usize::from(named)
            + 2 * usize::from(returns)
    }

    /// Points of an entry of a profile: functions are near each other and occur once.
    fn entry_points(&self, here: &Self, layout: &Layout, bytes: &[u8]) -> usize {
        let Some(entry) = layout.entry(bytes) else {
            return 0;
        };
        let near = |known: &Self| {
            let mut functions = known.functions.iter();
            functions.any(|function| function.abs_diff(entry.function) < REACH)
        };
        let twice =
            self.functions.contains(&entry.function) || here.functions.contains(&entry.function);
        let odd = |known: &Self| known.functions.iter().all(|function| function & 1 == 1);
        1 + 4 * usize::from(near(self))
            + 2 * usize::from(near(here))
            + 2 * usize::from(!twice)
            + 2 * usize::from(odd(self) && entry.function & 1 == 1)
    }
}
