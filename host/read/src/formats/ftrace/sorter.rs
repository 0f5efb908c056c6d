//! Sorts whole calls, which arrive in order of their ends, into the order of their beginnings.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use kymo_event::{Cpu, RowKind, StreamId, Time};

use super::output::Out;

/// Sort key of a row: by time. At equal times exits precede entries, exits of deeper calls come first, and entries of
/// deeper calls come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    time: Time,
    phase: u8,
    depth: u32,
    number: u64,
}

/// Completed call: its depth, start and end.
type Span = (u32, Time, Time);

/// Queue of the rows of whole calls, and of the rows between them.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    waiting: BinaryHeap<Reverse<(Key, usize)>>,
    /// Waiting rows, by their indices in `waiting`.
    outs: Vec<Option<Out>>,
    free: Vec<usize>,
    number: u64,
    /// Time up to which rows were output, by stream.
    given: HashMap<StreamId, Time>,
    /// Number of calls that began before that time, and were truncated.
    pub(super) cut_calls: u64,
    /// Calls of each task (of each CPU, for idle tasks) that ended since the last one further out.
    inner: HashMap<(Option<i32>, Option<Cpu>), Vec<Span>>,
}

/// Largest number of tasks whose last calls are kept.
const MOST_TASKS: usize = 1 << 16;

/// Number of calls of a task that are kept, and half of the maximum. It bounds the calls within a call that never ends.
const MOST_CALLS: usize = 1 << 8;

/// Largest error, in ns, of times that are computed from the record's time and a duration: the time between the end of
/// the call and the writing of its record.
const JITTER: i64 = 10_000_000;

/// Largest rounding error in ns. Text has microseconds, and durations have more digits.
const ROUNDING: i64 = 1_000;

impl Sorter {
    /// Adds a row. `depth` is the depth of a call among those of its task.
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

    /// Returns the number of waiting rows.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Outputs the first row.
    pub(super) fn pop(&mut self) -> Option<Out> {
        let Reverse((key, place)) = self.waiting.pop()?;
        self.free.push(place);
        let out = self.outs.get_mut(place)?.take()?;
        self.given.insert(out.row.stream, key.time);
        Some(out)
    }

    /// Adjusts inexact times of a call: it must enclose its callees, begin after the previous call, and not begin
    /// before the last output.
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
        // An interrupt between a return and the reading of the clock for it has the depth of the interrupted call.
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
        // A call that ended before this one began was made by another one, whose end is missing.
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
        // It has ended when its record is written. The exit states the duration.
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

    /// Truncates a call at the last output, and makes it end after its start.
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
