//! Puts whole calls, which come in the order of their ends, into the order of their beginnings.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use kymo_event::{Cpu, RowKind, StreamId, Time};

use super::output::Out;

/// When a row is to be given out: by time; at one time exits before entries, the exits of deeper calls first and the
/// entries of deeper calls last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    time: Time,
    phase: u8,
    depth: u32,
    number: u64,
}

/// A call that has ended: its depth, its beginning and its end.
type Span = (u32, Time, Time);

/// Rows of whole calls, and of what comes between them.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    waiting: BinaryHeap<Reverse<(Key, usize)>>,
    /// What waits, by the places in `waiting`.
    outs: Vec<Option<Out>>,
    free: Vec<usize>,
    number: u64,
    /// What has been given out goes up to this time, by stream.
    given: HashMap<StreamId, Time>,
    /// How many calls began before that, and were cut.
    pub(super) cut_calls: u64,
    /// The calls of each task (of each CPU, for idle ones) that ended since the last one further out.
    inner: HashMap<(Option<i32>, Option<Cpu>), Vec<Span>>,
}

/// Tasks whose last calls are remembered.
const MOST_TASKS: usize = 1 << 16;

/// So many calls of a task are remembered, and at most twice as many: those of a call whose end never comes.
const MOST_CALLS: usize = 1 << 8;

/// Times of calls that are computed from the record's time and a duration may be wrong by so much: whatever came between
/// the end of the call and the writing of its record.
const JITTER: i64 = 10_000_000;

/// Text has microseconds, and durations more digits.
const ROUNDING: i64 = 1_000;

impl Sorter {
    /// Takes a row; of a call, with its depth among those of its task.
    pub(super) fn add(&mut self, out: Out, depth: u32) {
        let (phase, depth) = match out.row.kind {
            RowKind::Exit => (0, u32::MAX - depth),
            RowKind::Enter => (2, depth),
            _ => (1, 0),
        };
        let key = Key {
            time: out.row.time,
            phase,
            depth,
            number: self.number,
        };
        self.number += 1;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.outs.push(None);
                self.outs.len() - 1
            }
        };
        if let Some(slot) = self.outs.get_mut(place) {
            *slot = Some(out);
        }
        self.waiting.push(Reverse((key, place)));
    }

    /// How many rows wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Gives out the first of them.
    pub(super) fn pop(&mut self) -> Option<Out> {
        let Reverse((key, place)) = self.waiting.pop()?;
        self.free.push(place);
        let out = self.outs.get_mut(place)?.take()?;
        self.given.insert(out.row.stream, key.time);
        Some(out)
    }

    /// Makes a call enclose those that it made, and begin behind the one before it, where times are not exact; and no
    /// earlier than what has been given out.
    pub(super) fn nest(&mut self, enter: &mut Out, exit: &mut Out, depth: u32) {
        if self.inner.len() > MOST_TASKS {
            self.inner.clear();
        }
        let task = match enter.pid {
            Some(1..) => (enter.pid, None),
            _ => (enter.pid, enter.row.cpu()),
        };
        let inner = self.inner.entry(task).or_default();
        let mut begin = enter.row.time;
        let recorded = exit.row.time;
        let duration = recorded.0.saturating_sub(begin.0);
        let is_near = |one: Time, other: Time| one.0.saturating_sub(other.0) <= JITTER;
        // An interrupt between a return and the reading of the clock for it is as deep as the call that it cuts into.
        let cuts_in = |from: Time| from.0.saturating_sub(begin.0) > ROUNDING;
        let is_further_out = |(inner, from, _): &Span| match inner.cmp(&depth) {
            Ordering::Less => true,
            Ordering::Equal => !cuts_in(*from),
            Ordering::Greater => false,
        };
        let further_out = inner.iter().rposition(is_further_out);
        let behind = further_out.map_or(0, |place| place + 1);
        let before = further_out.and_then(|place| inner.get(place));
        let before = before.map_or(begin, |(_, _, end)| *end);
        // What ended before it began was called by another one, whose end is missing.
        let (mut first, mut last) = (Time(i64::MAX), Time(i64::MIN));
        for span in inner.split_off(behind) {
            let (_, from, to) = span;
            if to > begin && is_near(begin, from) {
                (first, last) = (first.min(from), last.max(to));
            } else {
                inner.push(span);
            }
        }
        if begin < before && is_near(before, begin) {
            begin = before.min(recorded);
        }
        begin = begin.min(first);
        // It has ended when its record is written. (The exit says how long it took.)
        let mut end = Time(begin.0.saturating_add(duration)).min(recorded);
        if end < last && is_near(last, end) {
            end = last;
        }
        if inner.len() >= 2 * MOST_CALLS {
            inner.drain(..MOST_CALLS);
        }
        inner.push((depth, begin, end));
        enter.row.time = begin;
        exit.row.time = end;
        self.cut(enter, exit);
    }

    /// Lets a call begin no earlier than what has been given out, and end behind its beginning.
    pub(super) fn cut(&mut self, enter: &mut Out, exit: &mut Out) {
        if let Some(given) = self.given.get(&enter.row.stream)
            && enter.row.time < *given
        {
            enter.row.time = *given;
            self.cut_calls += 1;
        }
        let least = Time(enter.row.time.0.saturating_add(1));
        exit.row.time = exit.row.time.max(least);
    }
}
