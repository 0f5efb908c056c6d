//! Queue of switches that wait for the last records of the outgoing task.
//!
//! The kernel records `sched_switch` before it switches. Until it has switched, the outgoing task records further
//! events on that CPU (functions of the scheduler, a `kernel_stack`, a `tlb_flush`), which would look like a switch
//! back to it. So the rows of a switch wait here until the CPU has a record of another task. All rows behind them wait,
//! too, including those of other CPUs, because times stay in order. The switch is output behind the last row of this
//! tail, at its time.
//!
//! Lists of all records keep their order and do not use this queue.

use std::collections::VecDeque;

use kymo_event::{Cpu, Duration, RowKind, ThreadId, Time};

use super::output::Out;

/// Time after which a row does not belong to a tail, which usually lasts a few microseconds. The tail continues,
/// however, while a call that began in it is open: a virtual machine may pause anywhere for any time.
const LONGEST: Duration = Duration(1_000_000);

/// Largest number of waiting rows.
const MOST: usize = 1 << 16;

/// Waiting rows in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Tails {
    rows: VecDeque<Out>,
    /// Number of the first row, counted over all rows.
    first: u64,
    /// At most one switch for each CPU.
    switches: Vec<Switch>,
}

/// Switch whose tail may continue.
#[derive(Debug)]
struct Switch {
    cpu: Cpu,
    time: Time,
    /// Time of the last row of its tail.
    latest: Time,
    /// Number of calls that began in the tail and have not ended.
    calls: u32,
    /// Outgoing thread; `None` for the idle task.
    left: Option<ThreadId>,
    /// Number of its first row, and number of its rows: one for each thread.
    begin: u64,
    count: u64,
    /// Number of the last row of its tail.
    last: Option<u64>,
}

/// Returns whether a row is part of a switch.
#[inline]
pub(super) const fn is_switch(kind: RowKind) -> bool {
    matches!(kind, RowKind::SwitchedIn | RowKind::SwitchedOut)
}

impl Tails {
    /// Returns whether rows other than switches need not wait.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub(super) fn add(&mut self, out: Out) {
        let number = self.first + self.rows.len() as u64;
        self.end_long(out.time());
        match out.row.cpu() {
            Some(cpu) => self.take(&out, cpu, number),
            None if out.is_gap() => self.end(),
            None => {}
        }
        self.rows.push_back(out);
        if self.rows.len() > MOST {
            self.end();
        }
    }

    /// Updates the switch of a row's CPU.
    fn take(&mut self, out: &Out, cpu: Cpu, number: u64) {
        let kind = out.row.kind;
        if let Some(place) = self.switches.iter().position(|it| it.cpu == cpu)
            && let Some(open) = self.switches.get_mut(place)
        {
            if kind == RowKind::SwitchedIn
                && open.left.is_some()
                && (open.count, open.begin + 1, open.time) == (1, number, out.time())
            {
                open.count = 2;
                return;
            }
            let is_ended = match out.pid {
                Some(_) => is_switch(kind) || out.row.thread() != open.left,
                None => out.is_gap(),
            };
            if !is_ended {
                if out.pid.is_some() {
                    (open.last, open.latest) = (Some(number), out.time());
                    match kind {
                        RowKind::Enter => open.calls += 1,
                        RowKind::Exit => open.calls = open.calls.saturating_sub(1),
                        _ => {}
                    }
                }
                return;
            }
            self.end_one(place);
        }
        if is_switch(kind) {
            self.switches.push(Switch {
                cpu,
                time: out.time(),
                latest: out.time(),
                calls: 0,
                left: out.row.thread().filter(|_| kind == RowKind::SwitchedOut),
                begin: number,
                count: 1,
                last: None,
            });
        }
    }

    /// Ends the switches that have waited too long.
    fn end_long(&mut self, now: Time) {
        let is_late = |it: &Switch| now.since(it.latest).is_some_and(|it| it > LONGEST);
        let is_long = |it: &Switch| it.calls == 0 && is_late(it);
        while let Some(place) = self.switches.iter().position(is_long) {
            self.end_one(place);
        }
    }

    /// Ends all switches.
    pub(super) fn end(&mut self) {
        while !self.switches.is_empty() {
            self.end_one(0);
        }
    }

    /// Ends a switch: its rows move after the last row of its tail.
    fn end_one(&mut self, place: usize) {
        let Switch {
            begin, count, last, ..
        } = self.switches.swap_remove(place);
        let Some(last) = last else { return };
        let index = |number: u64| (number - self.first) as usize;
        let (from, to) = (index(begin), index(last));
        let rows = self.rows.make_contiguous();
        let Some(rows) = rows.get_mut(from..=to) else {
            return;
        };
        rows.rotate_left(count as usize);
        let (tail, moved) = rows.split_at_mut(rows.len() - count as usize);
        let time = tail.last().map_or(Time(i64::MIN), Out::time);
        for out in moved {
            out.row.time = out.row.time.max(time);
        }
        let move_down = |number: &mut u64| {
            if (begin..=last).contains(number) {
                *number -= count;
            }
        };
        for other in &mut self.switches {
            move_down(&mut other.begin);
            other.last.iter_mut().for_each(move_down);
        }
    }

    /// Returns the next row that does not wait.
    pub(super) fn pop(&mut self) -> Option<Out> {
        let waits = self.switches.iter().map(|it| it.begin).min();
        if waits.is_some_and(|waits| waits <= self.first) {
            return None;
        }
        let out = self.rows.pop_front()?;
        self.first += 1;
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{Gap, Row, StreamId};

    use super::super::output::gap;
    use super::*;

    /// Returns a row of a thread, whose number is that of its task; 0 is the idle task.
    fn out(kind: RowKind, time: i64, cpu: u32, pid: u32) -> Out {
        let thread = (pid > 0).then_some(ThreadId(pid));
        let row = Row::new(kind, Time(time), StreamId(cpu));
        Out::new(row.at(Some(Cpu(cpu)), thread), Some(pid as i32), None)
    }

    fn record(time: i64, cpu: u32, pid: u32) -> Out {
        out(RowKind::Other, time, cpu, pid)
    }

    fn switch(time: i64, cpu: u32, from: u32, to: u32) -> Vec<Out> {
        let mut rows = Vec::new();
        if from > 0 {
            rows.push(out(RowKind::SwitchedOut, time, cpu, from));
        }
        if to > 0 {
            rows.push(out(RowKind::SwitchedIn, time, cpu, to));
        }
        rows
    }

    /// Kind, time, CPU and thread of the output rows.
    fn given(rows: impl IntoIterator<Item = Out>) -> Vec<(char, i64, u32, u32)> {
        let mut tails = Tails::default();
        let mut given = Vec::new();
        let mut take = |tails: &mut Tails| {
            while let Some(Out { row, .. }) = tails.pop() {
                let kind = match row.kind {
                    RowKind::SwitchedOut => 'o',
                    RowKind::SwitchedIn => 'i',
                    _ => '-',
                };
                let thread = row.thread().map_or(0, |thread| thread.0);
                given.push((kind, row.time.0, row.cpu().unwrap().0, thread));
            }
        };
        for out in rows {
            tails.add(out);
            take(&mut tails);
        }
        tails.end();
        take(&mut tails);
        assert!(tails.is_empty());
        given
    }

    #[test]
    fn a_switch_is_done_behind_the_last_record_of_the_task_that_leaves() {
        let mut rows = switch(10, 0, 1, 2);
        rows.extend([record(11, 0, 1), record(12, 1, 9), record(13, 0, 1)]);
        rows.extend([record(14, 1, 9), record(15, 0, 2)]);
        let expected = [
            ('-', 11, 0, 1),
            ('-', 12, 1, 9),
            ('-', 13, 0, 1),
            ('o', 13, 0, 1),
            ('i', 13, 0, 2),
            ('-', 14, 1, 9),
            ('-', 15, 0, 2),
        ];
        assert_eq!(given(rows), expected);
    }

    #[test]
    fn the_idle_task_has_a_tail_and_none_follows_it_for_long() {
        let mut rows = switch(10, 0, 0, 2);
        rows.push(record(11, 0, 0));
        rows.extend(switch(20, 0, 2, 0));
        rows.push(record(21, 0, 2));
        rows.push(record(21 + 2_000_000, 0, 2));
        let expected = [
            ('-', 11, 0, 0),
            ('i', 11, 0, 2),
            ('-', 21, 0, 2),
            ('o', 21, 0, 2),
            ('-', 2_000_021, 0, 2),
        ];
        assert_eq!(given(rows), expected);
    }

    #[test]
    fn a_call_within_a_tail_takes_as_long_as_it_takes() {
        let mut rows = switch(10, 0, 1, 2);
        rows.push(out(RowKind::Exit, 11, 0, 1));
        rows.push(out(RowKind::Enter, 12, 0, 1));
        rows.push(record(13, 1, 9));
        rows.push(out(RowKind::Exit, 9_000_012, 0, 1));
        // The next row is as near as ever.
        rows.extend([record(9_000_013, 0, 1), record(9_000_014, 0, 2)]);
        let expected = [
            ('-', 11, 0, 1),
            ('-', 12, 0, 1),
            ('-', 13, 1, 9),
            ('-', 9_000_012, 0, 1),
            ('-', 9_000_013, 0, 1),
            ('o', 9_000_013, 0, 1),
            ('i', 9_000_013, 0, 2),
            ('-', 9_000_014, 0, 2),
        ];
        assert_eq!(given(rows), expected);
    }

    #[test]
    fn switches_of_several_cpus_wait_side_by_side() {
        let mut rows = switch(10, 0, 1, 2);
        rows.extend(switch(11, 1, 3, 4));
        rows.extend([record(12, 0, 1), record(13, 1, 3), record(14, 0, 2)]);
        rows.extend([record(15, 1, 3), record(16, 1, 4)]);
        let expected = [
            ('-', 12, 0, 1),
            ('o', 12, 0, 1),
            ('i', 12, 0, 2),
            ('-', 13, 1, 3),
            ('-', 14, 0, 2),
            ('-', 15, 1, 3),
            ('o', 15, 1, 3),
            ('i', 15, 1, 4),
            ('-', 16, 1, 4),
        ];
        assert_eq!(given(rows), expected);
    }

    #[test]
    fn behind_a_loss_and_with_too_many_rows_nothing_waits() {
        let mut rows = switch(10, 0, 1, 2);
        let lost = Gap::Discarded { events: Some(1) };
        rows.push(gap(lost, Time(11), StreamId(0), Some(Cpu(0))));
        rows.push(record(12, 0, 1));
        let found = given(rows);
        assert_eq!(found[..2], [('o', 10, 0, 1), ('i', 10, 0, 2)]);

        let mut tails = Tails::default();
        for out in switch(10, 0, 1, 2) {
            tails.add(out);
        }
        for time in 2..=MOST as i64 {
            assert!(tails.pop().is_none());
            tails.add(record(11 + time, 1, 9));
        }
        assert!(tails.pop().is_some());
    }
}
