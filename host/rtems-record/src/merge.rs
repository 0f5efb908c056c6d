//! The records of all processors in the order of time.
//!
//! A target sends the ring of one processor after that of another, again and again. What it sends of one was made
//! after everything that had been sent of others when that one was fetched last; so much can be given out at a time,
//! and a capture of any length needs no more memory than a few rounds.

use crate::Record;

/// How much the uptimes of two processors may differ.
const SKEW_NS: i64 = 100_000;

/// The records of one processor that wait, and what is known of those to come.
#[derive(Debug)]
pub(crate) struct Queue {
    records: Vec<Record>,
    /// How many of them were given out.
    given: usize,
    /// Everything that is still to come is not from before this time.
    fetched_at: i64,
    /// The others do not wait for it.
    released: bool,
    first_time: Option<i64>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            given: 0,
            fetched_at: i64::MIN,
            released: false,
            first_time: None,
        }
    }
}

impl Queue {
    #[inline]
    pub fn push(&mut self, record: Record) {
        if self.first_time.is_none() {
            self.first_time = Some(record.time);
        }
        self.records.push(record);
    }

    /// Its ring was read when `latest` was the latest time of all.
    pub fn fetched(&mut self, latest: i64) {
        self.fetched_at = self.fetched_at.max(latest.saturating_sub(SKEW_NS));
        self.released = false;
    }

    pub const fn fetched_at(&self) -> i64 {
        self.fetched_at
    }

    /// From when on records may still come, the last of which was made at `last`.
    pub fn bound(&self, last: Option<i64>) -> i64 {
        if self.released {
            return i64::MAX;
        }
        last.map_or(self.fetched_at, |last| last.max(self.fetched_at))
    }

    /// No more come.
    pub const fn end(&mut self) {
        self.released = true;
    }

    /// There is no room to wait for it until its ring is read again.
    pub const fn release(&mut self) {
        self.released = true;
    }

    pub const fn is_released(&self) -> bool {
        self.released
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.records.len() - self.given
    }

    /// The time of the first of all.
    pub const fn first_time(&self) -> Option<i64> {
        self.first_time
    }

    #[inline]
    fn next_time(&self) -> i64 {
        self.records.get(self.given).map_or(i64::MAX, |it| it.time)
    }

    /// Whether there is one that is not behind `bound`.
    fn is_ready(&self, bound: i64) -> bool {
        self.len() > 0 && self.next_time() <= bound
    }

    /// Gives out what is not behind `bound`.
    fn give(&mut self, bound: i64, out: &mut Vec<Record>) {
        let waiting = self.records.get(self.given..).unwrap_or(&[]);
        let count = waiting
            .iter()
            .take_while(|record| record.time <= bound)
            .count();
        out.extend_from_slice(waiting.get(..count).unwrap_or(&[]));
        self.given += count;
        if self.given == self.records.len() {
            self.records.clear();
            self.given = 0;
        } else if self.given > 1 << 12 && self.given * 2 > self.records.len() {
            self.records.drain(..self.given);
            self.given = 0;
        }
    }
}

/// Moves all records that are not behind `bound` to `out`, in the order of time. At one time the lower processor is first.
pub(crate) fn merge<'q>(
    queues: impl Iterator<Item = &'q mut Queue>,
    bound: i64,
    out: &mut Vec<Record>,
) {
    let mut queues: Vec<_> = queues.filter(|queue| queue.is_ready(bound)).collect();
    loop {
        // The first of all, and how far it may go before another one comes.
        let (mut first, mut time, mut until) = (None, i64::MAX, bound);
        for (place, queue) in queues.iter().enumerate() {
            let next = queue.next_time();
            if first.is_none() || next < time {
                if first.is_some() {
                    // What stood first so far stands behind: at the same time it is not first.
                    until = until.min(time.saturating_sub(1));
                }
                (first, time) = (Some(place), next);
            } else {
                until = until.min(next);
            }
        }
        let Some(queue) = first.and_then(|first| queues.get_mut(first)) else {
            return;
        };
        queue.give(until.max(time), out);
        if !queue.is_ready(bound)
            && let Some(first) = first
        {
            queues.remove(first);
        }
    }
}
