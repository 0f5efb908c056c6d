//! The table of fdd, Tim Bird's "function duration dump" (version 0.7.0), with its meaning: for those who have scripts and
//! habits made for it. [`profile`](crate::profile) is the better table.
//!
//! What differs from it, all as fdd does it:
//! - Times are by the clock on the wall, and recursion counts as often as it occurs.
//! - Callers are found among the calls of one processor, sorted by the time they began: the caller of a call is the last
//!   one of its thread that had not ended by then, if its recorded depth is one less. A call whose caller is elsewhere (on
//!   another processor, or filtered away by a threshold) is nobody's, so *local* times are too long there.
//! - The *longest sub-routine* is the one with the largest total of the whole trace, not under this caller, in whole
//!   microseconds; of equal ones the first.
//! - Durations have the seven digits that the kernel prints, and go through the floating point arithmetic of its Python,
//!   which now and then takes a nanosecond off.

use std::collections::HashMap;
use std::hash::Hash;

use kymo_event::{Cpu, Duration, Time};

/// A call as fdd's input has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FddCall<F> {
    /// The processor it ended on.
    pub cpu: Cpu,
    /// What tells its thread from others.
    pub thread: u64,
    /// When it began.
    pub begin: Time,
    /// How long it took.
    pub duration: Duration,
    /// How deep it was, from 1.
    pub depth: u32,
    /// What was called.
    pub function: F,
}

impl<F> FddCall<F> {
    /// A call whose duration is what fdd makes of it.
    #[must_use]
    pub fn as_fdd_reads_it(self) -> Self {
        // Microseconds as the kernel prints them, with seven digits, to seconds, to nanoseconds.
        let digits = (self.duration.0 / 1_000).checked_ilog10().unwrap_or(0) + 1;
        let unit = 10_u64.pow(digits.saturating_sub(4).min(3));
        let printed = self.duration.0 / unit * unit;
        let seconds = printed as f64 / 1e3 / 1e6;
        Self {
            duration: Duration((seconds * 1e9) as u64),
            ..self
        }
    }

    const fn end(&self) -> Time {
        Time(self.begin.0.saturating_add_unsigned(self.duration.0))
    }
}

/// What fdd says of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FddRow<F> {
    /// The function.
    pub function: F,
    /// Its calls.
    pub count: u64,
    /// Their durations.
    pub total: Duration,
    /// The durations of the calls that they made, as far as these were found.
    pub sub: Duration,
    /// The shortest call.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Of the functions it called the one with the largest total in the whole trace, and how often it called it.
    pub longest_sub: Option<(F, u64)>,
    /// All functions that it called, and how often, in the order of first sight.
    pub subs: Vec<(F, u64)>,
}

impl<F> FddRow<F> {
    /// What the calls took without those they made.
    pub fn local(&self) -> Duration {
        self.total - self.sub
    }

    /// The average of its calls, rounded down.
    pub fn average(&self) -> Duration {
        Duration(self.total.0.checked_div(self.count).unwrap_or(0))
    }
}

/// The table, and what could not be put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FddTable<F> {
    /// In the order in which functions were first called, processor by processor.
    pub rows: Vec<FddRow<F>>,
    /// Calls whose caller was not found although they are not the outermost.
    pub missing_callers: u64,
    /// Of these, those that began while another call of their thread was open.
    pub not_a_caller: u64,
}

/// Puts calls into the order in which fdd lists them: by processor, and by the time they began. Of those that began at
/// one time, the one that was recorded first comes first.
pub fn sort<F>(calls: &mut [FddCall<F>]) {
    calls.sort_by_key(|call| (call.cpu, call.begin));
}

/// Makes the table of calls in the order in which they were recorded: the processor of the first one comes first.
pub fn table<F: Copy + Eq + Hash>(calls: &mut [FddCall<F>]) -> FddTable<F> {
    let mut cpus: HashMap<Cpu, usize> = HashMap::new();
    for call in calls.iter() {
        let next = cpus.len();
        cpus.entry(call.cpu).or_insert(next);
    }
    calls.sort_by_key(|call| (cpus.get(&call.cpu).copied(), call.begin));
    let mut places: HashMap<F, usize> = HashMap::new();
    let mut rows: Vec<FddRow<F>> = Vec::new();
    let mut subs: HashMap<(usize, usize), u64> = HashMap::new();
    let mut order: Vec<(usize, usize)> = Vec::new();
    let (mut missing_callers, mut not_a_caller) = (0, 0);
    let mut stacks: HashMap<u64, Vec<(FddCall<F>, usize)>> = HashMap::new();
    let mut cpu = None;
    for call in calls.iter() {
        if cpu.replace(call.cpu) != Some(call.cpu) {
            stacks.clear();
        }
        let place = *places.entry(call.function).or_insert(rows.len());
        if place == rows.len() {
            rows.push(FddRow {
                function: call.function,
                count: 0,
                total: Duration(0),
                sub: Duration(0),
                min: call.duration,
                max: call.duration,
                longest_sub: None,
                subs: Vec::new(),
            });
        }
        let row = &mut rows[place];
        row.count += 1;
        row.total += call.duration;
        row.min = row.min.min(call.duration);
        row.max = row.max.max(call.duration);
        let stack = stacks.entry(call.thread).or_default();
        while stack
            .last()
            .is_some_and(|(open, _)| open.depth >= call.depth)
        {
            stack.pop();
        }
        while stack
            .last()
            .is_some_and(|(open, _)| open.end() < call.begin)
        {
            stack.pop();
        }
        if call.depth > 1 {
            match stack.last() {
                Some((open, caller)) if open.begin < call.begin && open.depth + 1 == call.depth => {
                    rows[*caller].sub += call.duration;
                    let count = subs.entry((*caller, place)).or_insert_with(|| {
                        order.push((*caller, place));
                        0
                    });
                    *count += 1;
                }
                open => {
                    missing_callers += 1;
                    not_a_caller += u64::from(open.is_some());
                }
            }
        }
        stack.push((*call, place));
    }
    let us = |duration: Duration| duration.0 / 1_000;
    for (caller, callee) in order {
        let total = us(rows[callee].total);
        let longer = match rows[caller].longest_sub {
            Some((known, _)) => us(rows[places[&known]].total) < total,
            None => true,
        };
        let count = subs[&(caller, callee)];
        let function = rows[callee].function;
        rows[caller].subs.push((function, count));
        if longer {
            rows[caller].longest_sub = Some((function, count));
        }
    }
    FddTable {
        rows,
        missing_callers,
        not_a_caller,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cpu: u32, thread: u64, begin: i64, duration: u64, depth: u32) -> FddCall<u32> {
        FddCall {
            cpu: Cpu(cpu),
            thread,
            begin: Time(begin),
            duration: Duration(duration),
            depth,
            function: depth,
        }
    }

    #[test]
    fn callers_are_one_level_up_on_the_same_processor() {
        let mut calls = [
            call(0, 1, 30, 10, 2),
            call(0, 1, 0, 100, 1),
            call(0, 1, 31, 5, 3),
            // Its caller was filtered away.
            call(0, 1, 50, 5, 3),
            // And this one's is on another processor.
            call(1, 1, 60, 5, 2),
        ];
        let table = table(&mut calls);
        let of = |function| {
            let row = table.rows.iter().find(|row| row.function == function);
            let row = row.expect("a row");
            (row.count, row.total.0, row.sub.0, row.longest_sub)
        };
        assert_eq!(of(1), (1, 100, 10, Some((2, 1))));
        assert_eq!(of(2), (2, 15, 5, Some((3, 1))));
        assert_eq!(of(3), (2, 10, 0, None));
        assert_eq!((table.missing_callers, table.not_a_caller), (2, 1));
    }

    #[test]
    fn durations_lose_what_its_arithmetic_loses() {
        let read = |ns| call(0, 0, 0, ns, 1).as_fdd_reads_it().duration.0;
        assert_eq!(read(12_669), 12_669);
        assert!(read(16_139_407).abs_diff(16_139_400) <= 1);
        assert!(read(1_234_567_890).abs_diff(1_234_567_000) <= 1);
        let lost = (1..2_000).filter(|ns| read(*ns) != *ns).count();
        assert!((1..500).contains(&lost), "{lost}");
        assert!((1..2_000).all(|ns| read(ns).abs_diff(ns) <= 1));
    }
}
