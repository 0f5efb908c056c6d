//! Puts whole calls, which come in the order of their ends, into the order of their beginnings.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

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

/// Beginnings and ends, by depth.
type Spans = BTreeMap<u32, (Time, Time)>;

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
    /// The calls of each task (of each CPU, for idle ones) that ended since the last one further out: beginning of the
    /// first, end of the last, by depth.
    inner: HashMap<(Option<i32>, Option<Cpu>), Spans>,
}

/// Tasks whose last calls are remembered.
const MOST_TASKS: usize = 1 << 16;

/// The depth that calls are told apart by: a kernel's return stack has 50 places (`FTRACE_RETFUNC_DEPTH`), and what a call
/// is compared with goes up with it.
const DEEPEST: u32 = 1 << 8;

/// Times of calls that are computed from the record's time and a duration may be wrong by so much: whatever came between
/// the end of the call and the writing of its record.
const JITTER: i64 = 10_000_000;

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
        let depth = depth.min(DEEPEST);
        if self.inner.len() > MOST_TASKS {
            self.inner.clear();
        }
        let task = match enter.pid {
            Some(1..) => (enter.pid, None),
            _ => (enter.pid, enter.row.cpu()),
        };
        let inner = self.inner.entry(task).or_default();
        let mut begin = enter.row.time;
        let duration = exit.row.time.0.saturating_sub(begin.0);
        let is_near = |one: Time, other: Time| one.0.saturating_sub(other.0) <= JITTER;
        let deeper = inner.split_off(&(depth.saturating_add(1)));
        let before = inner.values().map(|(_, last)| *last).max();
        if let Some(last) = before
            && begin < last
            && is_near(last, begin)
        {
            begin = last;
        }
        let first = deeper.values().map(|(first, _)| *first).min();
        if let Some(first) = first
            && begin > first
            && is_near(begin, first)
        {
            begin = first;
        }
        let mut end = Time(begin.0.saturating_add(duration));
        let last = deeper.values().map(|(_, last)| *last).max();
        if let Some(last) = last
            && end < last
            && is_near(last, end)
        {
            end = last;
        }
        let first = inner.get(&depth).map_or(begin, |(first, _)| *first);
        let first = first.min(begin);
        inner.insert(depth, (first, end));
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
