//! Rows of function graphs that wait until the exits of calls before them tell when those calls began.
//!
//! The kernel takes the time of a call (`calltime`) before it writes the record of its entry, and the time of its end
//! (`rettime`) before it writes that of its exit; the record of the exit has both. A call lasts from one to the other, so
//! the row of its entry waits here for its exit, and all rows behind it with it.

use std::collections::VecDeque;

use kymo_event::{StreamId, Time};

use super::output::Out;

/// So many rows wait at most, which a ring of 2^15 has room for. A call that lasts longer begins at the time of its record.
const MOST: usize = 32_000;

/// So many rows are looked at for the place of one that happened before its record was written.
const LOOKED_AT: usize = 1 << 12;

/// The number of a row, by the order in which rows came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

/// Rows in the order in which they are given out.
#[derive(Debug)]
pub(super) struct Held {
    rows: VecDeque<Out>,
    /// Whether rows stay in the order of their records, as lists of these have them.
    stay: bool,
    /// The number of the first of them.
    first: u64,
    /// The time of the last row of each lane.
    last: Vec<Time>,
    /// Calls whose entries were given out before their exits came.
    early: u64,
    /// Entries that wait and have changed places: their numbers before, and since. For the caller to take.
    pub(super) moved: Vec<(Number, Number)>,
}

impl Held {
    /// Without rows. `stay`: they keep the order of their records, so that some begin or end a little late.
    pub(super) const fn new(stay: bool) -> Self {
        Self {
            rows: VecDeque::new(),
            stay,
            first: 0,
            last: Vec::new(),
            early: 0,
            moved: Vec::new(),
        }
    }

    /// Takes the next row.
    #[inline]
    pub(super) fn add(&mut self, mut out: Out) {
        out.before = std::mem::replace(self.last(out.row.stream), out.time());
        self.rows.push_back(out);
    }

    /// Takes an entry whose exit will tell when the call began.
    #[inline]
    pub(super) fn add_entry(&mut self, mut out: Out) -> Number {
        let number = Number(self.first + self.rows.len() as u64);
        out.waits = true;
        self.add(out);
        number
    }

    /// Takes an exit of a call that ended at `end`, before its record was written. Its entry is `entry`: the call
    /// began at that time.
    #[inline]
    pub(super) fn add_exit(&mut self, mut out: Out, end: Time, entry: Option<(Number, Time)>) {
        let mut end = end;
        if let Some((number, begin)) = entry
            && let Some(index) = self.release(number)
        {
            self.put_back(index, begin);
            end = end.max(begin);
        }
        let stay = self.stay;
        let last = self.last(out.row.stream);
        out.before = *last;
        if end < out.before && end < out.time() && !stay {
            *last = out.time();
            self.rows.push_back(out);
            return self.move_back(self.rows.len() - 1, end);
        }
        out.row.time = end.max(out.before).min(out.time());
        *last = out.time();
        self.rows.push_back(out);
    }

    /// An entry waits no longer: no exit will tell of it. Its place, if it has not been given out.
    #[inline]
    pub(super) fn release(&mut self, number: Number) -> Option<usize> {
        let index = usize::try_from(number.0.checked_sub(self.first)?).ok()?;
        self.rows.get_mut(index)?.waits = false;
        Some(index)
    }

    /// The next row that waits for none, or for which too many wait; any if no more come. To be [taken](Self::pop).
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

    /// Takes away what [`next`](Self::next) gave.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.first += u64::from(self.rows.pop_front().is_some());
    }

    /// Whether no row is left.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many calls were so long that their entries were given out before their exits came.
    pub(super) const fn early(&self) -> u64 {
        self.early
    }

    /// The time of the last row of a lane.
    #[inline]
    fn last(&mut self, stream: StreamId) -> &mut Time {
        let lane = stream.0 as usize;
        if self.last.len() <= lane {
            self.grow(lane);
        }
        &mut self.last[lane]
    }

    #[cold]
    fn grow(&mut self, lane: usize) {
        self.last.resize(lane + 1, Time(i64::MIN));
    }

    /// Gives an entry an earlier time, and the place that it has by that among the rows of its lane.
    #[inline]
    fn put_back(&mut self, index: usize, time: Time) {
        let is_last = index + 1 == self.rows.len();
        let Some(out) = self.rows.get_mut(index) else {
            return;
        };
        if time >= out.time() {
            return;
        }
        if time < out.before && !self.stay {
            return self.move_back(index, time);
        }
        out.row.time = time.max(out.before).min(out.time());
        if is_last {
            let (stream, time) = (out.row.stream, out.time());
            *self.last(stream) = time;
        }
    }

    /// Moves a row in front of rows of its lane that were recorded before it, as far as its task had the CPU there:
    /// something happened between the call and the writing of its record, an interrupt or a switch to another task.
    #[cold]
    fn move_back(&mut self, index: usize, time: Time) {
        let Some(row) = self.rows.get(index) else {
            return;
        };
        let (lane, task, recorded) = (row.row.stream, row.pid, row.time());
        let (mut passed, mut wanted, mut place) = (Vec::new(), 0, recorded);
        for at in (0..index).rev().take(LOOKED_AT) {
            let Some(other) = self.rows.get(at) else {
                break;
            };
            if other.row.stream != lane {
                continue;
            }
            // Behind a loss, or within a call that is still open, nothing goes back further.
            let is_end = other.pid.is_none() || other.waits && other.pid == task;
            if is_end || other.pid == task || passed.is_empty() {
                // It may stand behind this one.
                (wanted, place) = (passed.len(), other.time());
            }
            if is_end || other.time() <= time {
                break;
            }
            passed.push(at);
        }
        let time = time.max(place).min(recorded);
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
    use kymo_event::Cpu;

    use super::*;

    /// A row of a task on a CPU.
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
            // Switched to task 2, which calls something and is switched away.
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
