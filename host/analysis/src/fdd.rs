//! Table of fdd, Tim Bird's "function duration dump" (version 0.7.0), with the same semantics, for users who have
//! scripts made for it. [`profile`](crate::profile) is the better table.
//!
//! Differences from the profile, all as in fdd:
//! - Times are wall times, and recursion counts as often as it occurs.
//! - Callers are searched among the calls of one processor, sorted by begin: the caller of a call is the last one of
//!   its thread that had not ended by then, if its recorded depth is one less. A call whose caller is elsewhere (on
//!   another processor, or removed by a threshold) has none, so *local* times are too long there.
//! - The *longest sub-routine* is the one with the largest total in the whole trace, not under this caller, in whole
//!   microseconds; of equal ones the first.
//! - Durations have the seven digits that the kernel prints, and pass through the floating-point arithmetic of fdd's
//!   Python, which occasionally subtracts a nanosecond.

use std::collections::HashMap;
use std::hash::Hash;

use kymo_event::{Cpu, Duration, Time};

/// A call in the form of fdd's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FddCall<F> {
    /// The processor it ended on.
    pub cpu: Cpu,
    /// An identifier of its thread.
    pub thread: u64,
    /// The time of its begin.
    pub begin: Time,
    /// Its duration.
    pub duration: Duration,
    /// Its depth, from 1.
    pub depth: u32,
    /// The function that was called.
    pub function: F,
}

impl<F> FddCall<F> {
    /// The call with the duration that fdd derives.
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

/// The row of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FddRow<F> {
    /// The function.
    pub function: F,
    /// The number of its calls.
    pub count: u64,
    /// The sum of their durations.
    pub total: Duration,
    /// The sum of the durations of their callees, as far as these were found.
    pub sub: Duration,
    /// The shortest call.
    pub min: Duration,
    /// The longest call.
    pub max: Duration,
    /// The callee with the largest total in the whole trace, and the number of its calls from here.
    pub longest_sub: Option<(F, u64)>,
    /// All callees with the number of their calls from here, in order of first appearance.
    pub subs: Vec<(F, u64)>,
}

impl<F> FddRow<F> {
    /// The time of the calls without their callees.
    pub fn local(&self) -> Duration {
        self.total - self.sub
    }

    /// The average of its calls, rounded down.
    pub fn average(&self) -> Duration {
        Duration(self.total.0.checked_div(self.count).unwrap_or(0))
    }
}

/// The table, and counts of calls without a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FddTable<F> {
    /// In the order in which functions were first called, processor by processor.
    pub rows: Vec<FddRow<F>>,
    /// Calls whose caller was not found although they are not outermost.
    pub missing_callers: u64,
    /// The part of these that began while another call of their thread was open.
    pub not_a_caller: u64,
}

/// Sorts calls into fdd's order: by processor, and by begin. Of calls with the same begin, the one recorded first
/// comes first.
pub fn sort<F>(calls: &mut [FddCall<F>]) {
    calls.sort_by_key(|call| (call.cpu, call.begin));
}

/// Builds the table from calls in recorded order: the processor of the first call comes first.
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
