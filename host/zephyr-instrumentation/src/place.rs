//! Which of several places do records begin at?
//!
//! The structure of a record alone doesn't tell: behind a short name there are zeros, zero is a type, and
//! so one byte too early every record fits as well, with addresses and times that are shifted. What
//! records at the right place have, and others don't: functions and threads that were seen before, calls
//! that return, times that go on from those before.

use crate::scan::END;
use crate::{Kind, Layout, Record, RecordType};

/// So many records are looked at from a place on.
pub(crate) const WINDOW: usize = 12;

/// So many records before a place, and of the dump's first, are what is known there.
const BEFORE: usize = 32;

/// A place that is to replace the expected one has to be better by so much: a point a record.
pub(crate) const MARGIN: usize = WINDOW;

/// Calls within one program reach no further, as a rule.
pub(crate) const REACH: u64 = 1 << 28;

/// A minute, about, in nanoseconds.
pub(crate) const MINUTE: u64 = 1 << 36;

/// A sixteenth of a second, about.
const MOMENT: u64 = 1 << 26;

/// The points of a record of which nothing is doubtful.
const ALL: usize = 16;

/// Records that follow one another, by the offsets where they begin and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    from: usize,
    to: usize,
}

/// A place in a dump, with what was found before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub(crate) at: usize,
    /// The first records of the dump, up to the first damage.
    first: Run,
    /// The last records, since the last damage.
    last: Run,
}

impl Position {
    /// The offset of the place.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// Whether there is a record right before it.
    pub(crate) const fn in_step(&self) -> bool {
        self.last.to == self.at && self.last.from < self.at
    }

    /// A record of so many bytes was found there.
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

    /// So many bytes there were none.
    pub(crate) const fn damage(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// What the records before a place say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<'a> {
    functions: Vec<u64>,
    threads: Vec<(u64, &'a [u8])>,
    /// The time of the last record.
    time: Option<u64>,
}

impl<'a> Known<'a> {
    /// What is known at a place of a dump up to which the records were found.
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

    /// Whether the record here is of a thread with its name that was seen before.
    pub(crate) fn has_thread(&self, layout: &Layout, bytes: &[u8]) -> bool {
        layout
            .record(bytes)
            .is_some_and(|record| self.threads.contains(&(record.thread, record.name)))
    }

    /// Whether a record looks like the first of a thread: it has a name that can be read, lies where no other one
    /// does, and calls and times are near each other.
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

    /// How much speaks for records from the start of `bytes` on, and how many of them there are; up to so
    /// many are looked at.
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

    /// What speaks for a record of a trace.
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
        // Control blocks of threads are made of words.
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

    /// What speaks for an entry of a profile: functions lie near each other and are there once.
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
