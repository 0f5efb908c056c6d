//! Queue of function-graph rows that wait for the exits of earlier calls, which contain the start times of these calls.
//!
//! The kernel reads a call's start time (`calltime`) before it writes the record of the entry, and the end time
//! (`rettime`) before it writes the record of the exit. Only the exit's record has both times. A call lasts from one to
//! the other, so the row of its entry waits for its exit, and all rows behind it wait, too.

use std::collections::VecDeque;

use kymo_event::{StreamId, Time};

use super::output::Out;

/// Largest number of waiting rows; they fit into a ring of 2^15. A longer call begins at the time of its entry's
/// record.
const MOST: usize = 32_000;

/// Average number of rows that are examined per row to find the place of a row that happened before its record was
/// written. Hardly any row moves, but thousands of rows of other CPUs may be in between.
const LOOKED_AT: u64 = 64;

/// Tolerated time between the beginning of a call and the record of its entry, in nanoseconds.
const NEAR: i64 = 20_000;

/// The number of a row, by the order in which rows came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

/// Rows in output order.
#[derive(Debug)]
pub(super) struct Held {
    rows: VecDeque<Out>,
    /// Whether rows stay in the order of their records, as lists of records need them.
    stay: bool,
    /// Number of the first row.
    first: u64,
    /// Time of the last row of each CPU buffer.
    last: Vec<Time>,
    /// Number of calls whose entries were output before their exits arrived.
    early: u64,
    /// Calls whose entries could not go back as far as they began.
    late: u64,
    /// How many rows have been [looked at](LOOKED_AT).
    looked_at: u64,
    /// Waiting entries that moved: their old and new numbers. The caller takes them.
    pub(super) moved: Vec<(Number, Number)>,
}

impl Held {
    /// Creates an empty queue. With `stay`, rows keep the order of their records, so some begin or end slightly late.
    pub(super) const fn new(stay: bool) -> Self {
        Self {
            rows: VecDeque::new(),
            stay,
            first: 0,
            last: Vec::new(),
            early: 0,
            late: 0,
            looked_at: 0,
            moved: Vec::new(),
        }
    }

    /// Adds a row.
    #[inline]
    pub(super) fn add(&mut self, mut out: Out) {
        out.before = std::mem::replace(self.last(out.row.stream), out.time());
        self.rows.push_back(out);
    }

    /// Adds an entry whose exit will contain the start of the call.
    #[inline]
    pub(super) fn add_entry(&mut self, mut out: Out) -> Number {
        let number = self.next_number();
        out.waits = true;
        self.add(out);
        number
    }

    /// Returns the number of the next added row.
    #[inline]
    pub(super) fn next_number(&self) -> Number {
        Number(self.first + self.rows.len() as u64)
    }

    /// Cancels a row, if it was not output yet.
    pub(super) fn take_back(&mut self, number: Number) {
        let index = number.0.checked_sub(self.first);
        let row = index.and_then(|index| self.rows.get_mut(usize::try_from(index).ok()?));
        if let Some(row) = row {
            row.is_void = true;
        }
    }

    /// Adds an exit of a call that ended at `end`, before its record was written. `entry` is its entry, and the start
    /// of the call.
    #[inline]
    pub(super) fn add_exit(&mut self, mut out: Out, end: Time, entry: Option<(Number, Time)>) {
        // If the start or end cannot be moved to its time, the row states the duration.
        let stated = entry.and_then(|(_, begin)| end.since(begin));
        let stated = stated.filter(|stated| stated.0 > 0);
        let mut end = end;
        let mut begun = None;
        if let Some((number, begin)) = entry
            && let Some(index) = self.release(number)
        {
            begun = self.put_back(index, begin);
            end = end.max(begin);
        }
        let stay = self.stay;
        let last = self.last(out.row.stream);
        out.before = *last;
        *last = out.time();
        if end < out.before && end < out.time() && !stay {
            if let Some(stated) = stated {
                out.row = out.row.took(stated);
            }
            self.rows.push_back(out);
            return self.move_back(self.rows.len() - 1, end);
        }
        out.row.time = end.max(out.before).min(out.time());
        if let Some(stated) = stated
            && begun.is_none_or(|begun| out.time().since(begun) != Some(stated))
        {
            out.row = out.row.took(stated);
        }
        self.rows.push_back(out);
    }

    /// Lets an entry stop waiting, because no exit will arrive for it. Returns its index, if it was not output yet.
    #[inline]
    pub(super) fn release(&mut self, number: Number) -> Option<usize> {
        let index = usize::try_from(number.0.checked_sub(self.first)?).ok()?;
        self.rows.get_mut(index)?.waits = false;
        Some(index)
    }

    /// Returns the next row if it does not wait, or if too many rows wait for it; with `is_over`, any row.
    /// [`pop`](Self::pop) removes it.
    #[inline]
    pub(super) fn next(&mut self, is_over: bool) -> Option<&mut Out> {
        let count = self.rows.len();
        let out = self.rows.front_mut()?;
        if out.waits && !is_over {
            if count <= MOST {
                return None;
            }
            self.early += 1;
        }
        Some(out)
    }

    /// Removes the row that [`next`](Self::next) returned.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.first += u64::from(self.rows.pop_front().is_some());
    }

    /// Returns whether there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the number of calls so long that their entries were output before their exits arrived.
    pub(super) const fn early(&self) -> u64 {
        self.early
    }

    /// Number of calls that begin more than 20 us late, because the rows before their entries are output already, or
    /// belong to another task.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }

    /// The time of the last row of a CPU buffer.
    #[inline]
    fn last(&mut self, stream: StreamId) -> &mut Time {
        let cpu_buffer = stream.0 as usize;
        if self.last.len() <= cpu_buffer {
            self.grow(cpu_buffer);
        }
        &mut self.last[cpu_buffer]
    }

    #[cold]
    fn grow(&mut self, cpu_buffer: usize) {
        self.last.resize(cpu_buffer + 1, Time(i64::MIN));
    }

    /// Sets an earlier time for an entry, and moves it to its place among the rows of its CPU buffer. Returns its time,
    /// if it did not move.
    #[inline]
    fn put_back(&mut self, index: usize, time: Time) -> Option<Time> {
        let is_last = index + 1 == self.rows.len();
        let out = self.rows.get_mut(index)?;
        if time >= out.time() {
            return Some(out.time());
        }
        if time < out.before && !self.stay {
            self.move_back(index, time);
            return None;
        }
        out.row.time = time.max(out.before).min(out.time());
        let (stream, time) = (out.row.stream, out.time());
        if is_last {
            *self.last(stream) = time;
        }
        Some(time)
    }

    /// Moves a row in front of rows of its CPU buffer that were recorded earlier, as long as its task had the CPU then.
    /// Such rows come from an interrupt, or a switch to another task, between the call and the writing of its record.
    #[cold]
    fn move_back(&mut self, index: usize, time: Time) {
        let Some(row) = self.rows.get(index) else {
            return;
        };
        let (cpu_buffer, task, recorded) = (row.row.stream, row.pid, row.time());
        let before = row.before;
        let (mut passed, mut wanted, mut place) = (Vec::new(), 0, before);
        let arrived = self.first + self.rows.len() as u64;
        let most = (LOOKED_AT * arrived).saturating_sub(self.looked_at);
        let mut is_first = index as u64 <= most;
        for at in (0..index).rev().take(most as usize) {
            self.looked_at += 1;
            let Some(other) = self.rows.get(at) else {
                break;
            };
            if other.row.stream != cpu_buffer {
                continue;
            }
            // Losses, missing exits and open calls of the same task are limits.
            let is_open = other.waits && other.pid == task;
            let is_end = other.pid.is_none() || is_open || other.is_gap();
            if is_end || other.pid == task || passed.is_empty() {
                // The row may follow this one.
                (wanted, place) = (passed.len(), other.time());
            }
            if is_end || other.time() <= time {
                is_first = false;
                break;
            }
            passed.push(at);
        }
        // All earlier rows of the CPU buffer have been output.
        let oldest = passed.last().and_then(|at| self.rows.get(*at));
        if let Some(oldest) = oldest.filter(|oldest| is_first && oldest.pid == task) {
            (wanted, place) = (passed.len(), oldest.before);
        }
        let begun = time;
        let time = time.max(place).min(recorded);
        self.late += u64::from(time.0.saturating_sub(begun.0) > NEAR);
        let mut at = index;
        for to in passed.into_iter().take(wanted) {
            self.rows.swap(at, to);
            if let Some(row) = self.rows.get_mut(at) {
                row.before = row.before.max(time);
                if row.waits {
                    let number = |place: usize| Number(self.first + place as u64);
                    self.moved.push((number(to), number(at)));
                }
            }
            at = to;
        }
        if let Some(row) = self.rows.get_mut(at) {
            row.row.time = time;
        }
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{Cpu, Duration, Gap};

    use super::super::output::gap;
    use super::*;

    /// Returns a row of a task on a CPU.
    fn out(time: i64, cpu: u32, pid: i32) -> Out {
        let row = kymo_event::Row::new(kymo_event::RowKind::Other, Time(time), StreamId(cpu));
        Out::new(row.at(Some(Cpu(cpu)), None), Some(pid), None)
    }

    fn given(held: &mut Held) -> Vec<(i64, Option<i32>)> {
        let mut given = Vec::new();
        while let Some(out) = held.next(true) {
            given.push((out.row.time.0, out.pid));
            held.pop();
        }
        given
    }

    #[test]
    fn an_entry_and_what_follows_wait_for_its_exit() {
        let mut held = Held::new(false);
        let outer = held.add_entry(out(10, 0, 1));
        let inner = held.add_entry(out(20, 0, 1));
        held.add(out(21, 1, 2));
        held.add_exit(out(30, 0, 1), Time(28), Some((inner, Time(18))));
        assert!(held.next(false).is_none());
        held.add_exit(out(40, 0, 1), Time(38), Some((outer, Time(8))));
        assert_eq!(
            given(&mut held),
            [
                (8, Some(1)),
                (18, Some(1)),
                (21, Some(2)),
                (28, Some(1)),
                (38, Some(1))
            ]
        );
        assert_eq!(held.early(), 0);
    }

    #[test]
    fn an_entry_that_another_task_came_before_goes_back_to_its_own() {
        for stay in [false, true] {
            let mut held = Held::new(stay);
            held.add(out(5, 0, 1));
            // A switch to task 2, which calls a function and is switched away.
            held.add(out(12, 0, 2));
            let other = held.add_entry(out(14, 0, 2));
            held.add(out(20, 0, 1));
            let entry = held.add_entry(out(25, 0, 1));
            held.add_exit(out(30, 0, 1), Time(29), Some((entry, Time(10))));
            let expected = match stay {
                false => [(5, 1), (10, 1), (12, 2), (14, 2), (20, 1), (29, 1)],
                true => [(5, 1), (12, 2), (14, 2), (20, 1), (20, 1), (29, 1)],
            };
            if !stay {
                let [(before, since)] = held.moved[..] else {
                    panic!("{:?}", held.moved)
                };
                assert_eq!((before, since), (other, Number(other.0 + 1)));
                assert_eq!(held.release(since), Some(3));
            }
            assert_eq!(
                given(&mut held),
                expected.map(|(time, pid)| (time, Some(pid)))
            );
        }
    }

    #[test]
    fn an_entry_goes_in_front_of_all_that_has_not_been_given_out() {
        let mut held = Held::new(false);
        held.add(out(5, 0, 1));
        assert_eq!(held.next(false).map(|out| out.row.time), Some(Time(5)));
        held.pop();
        // An interrupt, recorded before the call that it interrupted.
        let handler = held.add_entry(out(12, 0, 1));
        held.add_exit(out(14, 0, 1), Time(14), Some((handler, Time(11))));
        let entry = held.add_entry(out(25, 0, 1));
        held.add_exit(out(30, 0, 1), Time(29), Some((entry, Time(3))));
        let expected = [5, 11, 14, 29].map(|time| (time, Some(1)));
        assert_eq!(given(&mut held), expected);
    }

    #[test]
    fn nothing_goes_back_behind_a_missing_exit() {
        let mut held = Held::new(false);
        held.add(out(5, 0, 1));
        let mut missing = gap(
            Gap::MissingExit { ago: Duration(3) },
            Time(6),
            StreamId(0),
            Some(Cpu(0)),
        );
        missing.pid = Some(1);
        held.add(missing);
        held.add(out(12, 0, 1));
        let entry = held.add_entry(out(25, 0, 1));
        held.add_exit(out(30, 0, 1), Time(29), Some((entry, Time(3))));
        let expected = [5, 6, 6, 12, 29].map(|time| (time, Some(1)));
        assert_eq!(given(&mut held), expected);
    }

    #[test]
    fn an_entry_that_the_task_of_elsewhere_recorded_stays() {
        let mut held = Held::new(false);
        held.add(out(5, 0, 2));
        let entry = held.add_entry(out(25, 0, 1));
        held.add_exit(out(30, 0, 1), Time(29), Some((entry, Time(3))));
        let expected = [(5, Some(2)), (5, Some(1)), (29, Some(1))];
        assert_eq!(given(&mut held), expected);
    }

    #[test]
    fn too_many_rows_do_not_wait() {
        let mut held = Held::new(false);
        let entry = held.add_entry(out(1, 0, 1));
        for time in 0..MOST as i64 {
            assert!(held.next(false).is_none());
            held.add(out(2 + time, 0, 1));
        }
        assert_eq!(held.next(false).map(|out| out.row.time), Some(Time(1)));
        held.pop();
        assert_eq!((held.early(), held.release(entry)), (1, None));
    }
}
