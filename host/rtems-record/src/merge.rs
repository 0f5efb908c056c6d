//! Merge of all processors' records in order of time.
//!
//! A target sends the rings of its processors in rounds. Everything that it sends of one processor is newer than
//! everything sent of the others when that ring was read last. Records up to that time can be output, so a capture of
//! any length needs memory for a few rounds only.

use crate::Record;

/// Largest difference between the uptimes of two processors.
const SKEW_NS: i64 = 100_000;

/// Waiting records of one processor, and a bound for its later ones.
#[derive(Debug)]
pub(crate) struct Queue {
    records: Vec<Record>,
    /// Number of records that were output.
    given: usize,
    /// Earliest time of records to come.
    fetched_at: i64,
    /// Whether the other processors need not wait for it.
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

    /// Notes that its ring was read when `latest` was the latest time of all processors.
    pub fn fetched(&mut self, latest: i64) {
        self.fetched_at = self.fetched_at.max(latest.saturating_sub(SKEW_NS));
        self.released = false;
    }

    pub const fn fetched_at(&self) -> i64 {
        self.fetched_at
    }

    /// Returns the earliest time of records to come. `last` is the time of the processor's last record.
    pub fn bound(&self, last: Option<i64>) -> i64 {
        if self.released {
            return i64::MAX;
        }
        last.map_or(self.fetched_at, |last| last.max(self.fetched_at))
    }

    /// Ends the queue: no more records come.
    pub const fn end(&mut self) {
        self.released = true;
    }

    /// Releases the others from waiting, because there is no memory to wait until its ring is read again.
    pub const fn release(&mut self) {
        self.released = true;
    }

    pub const fn is_released(&self) -> bool {
        self.released
    }

    /// Returns the number of waiting records.
    pub const fn len(&self) -> usize {
        self.records.len() - self.given
    }

    /// Returns the time of its first record ever.
    pub const fn first_time(&self) -> Option<i64> {
        self.first_time
    }

    #[inline]
    fn next_time(&self) -> i64 {
        self.records.get(self.given).map_or(i64::MAX, |it| it.time)
    }

    /// Returns whether it has a record up to `bound`.
    fn is_ready(&self, bound: i64) -> bool {
        self.len() > 0 && self.next_time() <= bound
    }

    /// Outputs the records up to `bound`.
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

/// Moves all records up to `bound` to `out`, in order of time. At equal times the lower processor comes first.
pub(crate) fn merge<'q>(
    queues: impl Iterator<Item = &'q mut Queue>,
    bound: i64,
    out: &mut Vec<Record>,
) {
    let mut queues: Vec<_> = queues.filter(|queue| queue.is_ready(bound)).collect();
    loop {
        // Finds the first queue, and how far it may be output before another one is next.
        let (mut first, mut time, mut until) = (None, i64::MAX, bound);
        for (place, queue) in queues.iter().enumerate() {
            let next = queue.next_time();
            if first.is_none() || next < time {
                if first.is_some() {
                    // The queue that was first has a lower number, so it comes first at equal times.
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
