//! When things happened, for a trace that tells times only now and then, or never.
//!
//! A trace unit says what executed, instruction by instruction, and the time every few hundred instructions at most. What
//! lies between two times is spread by the instructions in between: it is right to within the time between the two, and
//! the widest of those is kept for people to know. Where the trace has no time, instructions stand in its place.
//!
//! Nothing is spread over a pause, in which the trace unit was off or its trace is lost: what ran before it follows the clock
//! before it, what ran behind it the clock behind it. Where a filter kept the trace unit from tracing (a kernel that is not
//! traced, threads that are not), its clock went on: what ran before and behind such a gap keeps the rate, and what is left of the time is
//! the gap's.
//!
//! Where timestamps go back (a reset of the target starts their generator anew, or a packet is damaged), time goes on
//! by the rate so far, and what follows keeps its distance from there: a [`Clock`] counts such steps. Behind a pause the trace's
//! own times are taken again, if they are beyond all before.

mod base;
#[cfg(test)]
mod tests;

pub use base::{first_timestamp, measure};

use crate::perf::TimeConversion;

/// What times are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Instructions.
    Instructions,
    /// Cycle counts.
    Cycles,
    /// Timestamps.
    Timestamps,
}

/// Things that wait for their time, at most. Behind so many they are placed by the rate so far.
const PENDING: usize = 1 << 22;

/// Things that wait for a first rate, at most. Behind so many the least time an instruction so far is taken for it.
const WAITING: usize = 1 << 16;

/// The time of what comes before any time is known.
pub const UNKNOWN: i64 = i64::MIN;

/// A point of which both are known: instructions so far, and the time.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    instructions: u64,
    time: i64,
}

/// Something that has its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// Where the clock puts it, between the times before and behind it.
    pub time: i64,
    /// The last time of the trace before it; [`UNKNOWN`] if there is none.
    pub earliest: i64,
    /// The first time of the trace behind it; the greatest there is if there is none, up to a pause.
    pub latest: i64,
    /// What was reported.
    pub what: T,
}

/// Things behind a time of the trace, up to the next one, a pause, or the end.
#[derive(Debug)]
struct Interval<T> {
    from: Option<Anchor>,
    /// Time and instructions up to the next time; `None` if there is none.
    length: Option<(u64, u64)>,
    things: Vec<(u64, T)>,
    /// Where among them nothing was traced for a while.
    gaps: Vec<usize>,
}

/// Gives times to things that are reported with the number of instructions before them.
#[derive(Debug)]
pub struct Clock<T> {
    measure: Measure,
    conversion: Option<TimeConversion>,
    /// What is taken off timestamps that are not converted.
    origin: u64,
    /// Things behind the last anchor.
    pending: Vec<(u64, T)>,
    /// Where among them nothing was traced for a while.
    gaps: Vec<usize>,
    /// Intervals with gaps that wait for a first rate, and those behind them.
    waiting: Vec<Interval<T>>,
    /// How many things wait in them.
    waits: usize,
    last: Option<Anchor>,
    /// Time and instructions of the interval before in which all was traced.
    rate: Option<(u64, u64)>,
    /// The same of all such intervals.
    traced: (u64, u64),
    /// The same of the interval with the least time an instruction, for as long as there was none such.
    quickest: Option<(u64, u64)>,
    cycles: u64,
    latest: i64,
    /// The last time of the trace, also over a pause.
    reported: Option<i64>,
    /// What is added to timestamps since they went back.
    shift: i64,
    /// The longest time between two times of the trace.
    pub widest: u64,
    /// How often time went back.
    pub backward: u64,
}

impl<T> Clock<T> {
    /// Begins a source. `origin` is taken off timestamps that are not converted.
    pub fn new(measure: Measure, conversion: Option<TimeConversion>, origin: u64) -> Self {
        let start = Anchor {
            instructions: 0,
            time: 0,
        };
        Clock {
            measure,
            conversion,
            origin,
            pending: Vec::new(),
            gaps: Vec::new(),
            waiting: Vec::new(),
            waits: 0,
            last: (measure == Measure::Cycles).then_some(start),
            rate: None,
            traced: (0, 0),
            quickest: None,
            cycles: 0,
            latest: i64::MIN,
            reported: None,
            shift: 0,
            widest: 0,
            backward: 0,
        }
    }

    /// Something happens behind so many instructions.
    pub fn push(&mut self, instructions: u64, what: T, out: &mut Vec<Placed<T>>) {
        if self.measure == Measure::Instructions {
            let time = instructions.cast_signed();
            out.push(Placed {
                time,
                earliest: time,
                latest: time,
                what,
            });
            return;
        }
        self.pending.push((instructions, what));
        if self.pending.len() >= PENDING {
            self.extrapolate(out);
        }
    }

    /// The trace tells a timestamp.
    pub fn timestamp(&mut self, instructions: u64, ticks: u64, out: &mut Vec<Placed<T>>) {
        if self.measure == Measure::Timestamps {
            let time = match self.conversion {
                Some(conversion) => conversion.nanoseconds(ticks).cast_signed(),
                None => {
                    let time = i128::from(ticks) - i128::from(self.origin);
                    i64::try_from(time).unwrap_or(i64::MAX)
                }
            };
            if self.last.is_none() && self.reported.is_none_or(|reported| time >= reported) {
                self.shift = 0;
            }
            let time = time.saturating_add(self.shift);
            self.anchor(Anchor { instructions, time }, out);
        }
    }

    /// The trace tells how many cycles passed since the last count.
    pub fn cycles(&mut self, instructions: u64, cycles: u32, out: &mut Vec<Placed<T>>) {
        if self.measure == Measure::Cycles {
            self.cycles += u64::from(cycles);
            let time = self.cycles.cast_signed();
            self.anchor(Anchor { instructions, time }, out);
        }
    }

    fn anchor(&mut self, mut next: Anchor, out: &mut Vec<Placed<T>>) {
        if self.reported.is_some_and(|reported| next.time < reported) {
            self.step_back(&mut next, out);
        }
        self.reported = Some(next.time);
        let Some(last) = self.last else {
            // What came before the first time waits for the second one, which tells the rate. No time passed in gaps before it.
            self.gaps.clear();
            self.last = Some(next);
            return;
        };
        let passed = next.time.abs_diff(last.time);
        let executed = next.instructions.saturating_sub(last.instructions);
        // Of a single packet between two timestamps the second one is the time (ITM).
        let is_exact = self.measure == Measure::Timestamps
            && executed == 1
            && self.pending.len() <= 1
            && self.pending.iter().all(|(at, _)| *at == next.instructions);
        if !is_exact {
            self.widest = self.widest.max(passed);
        }
        if !self.gaps.is_empty() {
            // The gaps are no part of the rate.
            self.note_quickest(passed, executed);
        } else if executed > 0 {
            self.rate = Some((passed, executed));
            self.traced.0 = self.traced.0.saturating_add(passed);
            self.traced.1 = self.traced.1.saturating_add(executed);
        }
        self.interval(Some((passed, executed)), out);
        self.last = Some(next);
    }

    /// The timestamp went back: what came before it follows the clock before it, and it is where that clock is by then.
    fn step_back(&mut self, next: &mut Anchor, out: &mut Vec<Placed<T>>) {
        self.backward += 1;
        let reported = self.reported.unwrap_or(next.time);
        // Behind a pause it is not known how much ran before the first thing that waits.
        let (since, from) = match (self.last, self.pending.first()) {
            (Some(last), _) => (last.instructions, reported),
            (None, first) => {
                let since = first.map_or(next.instructions, |(at, _)| *at);
                (since, reported.max(self.latest))
            }
        };
        let ran = u128::from(next.instructions.saturating_sub(since));
        let (passed, executed) = self.rate.or(self.quickest).unwrap_or((0, 1));
        let ran = ran * u128::from(passed) / u128::from(executed.max(1));
        let ran = u64::try_from(ran).unwrap_or(u64::MAX);
        if self.last.is_some() {
            self.extrapolate(out);
            self.last = None;
        }
        let time = from.saturating_add_unsigned(ran).max(self.latest);
        self.shift = self.shift.saturating_add(time.saturating_sub(next.time));
        next.time = time;
    }

    /// Keeps the interval with the least time an instruction.
    fn note_quickest(&mut self, passed: u64, executed: u64) {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let is_quicker = self.quickest.is_none_or(|(time, instructions)| {
            product(passed, instructions) < product(time, executed)
        });
        if passed > 0 && executed > 0 && is_quicker {
            self.quickest = Some((passed, executed));
        }
    }

    /// Nothing was traced for a while, in which the clock went on.
    pub fn gap(&mut self) {
        let at = self.pending.len();
        if self.measure == Measure::Timestamps && self.gaps.last() != Some(&at) {
            self.gaps.push(at);
        }
    }

    /// Gives everything its time by the rate so far.
    fn extrapolate(&mut self, out: &mut Vec<Placed<T>>) {
        self.gaps.clear();
        self.interval(None, out);
    }

    /// Gives the things of an interval their times. Where the rate decides which part of it was not traced, and none is known
    /// yet, it waits for the next interval in which all was traced.
    fn interval(&mut self, length: Option<(u64, u64)>, out: &mut Vec<Placed<T>>) {
        let interval = Interval {
            from: self.last,
            length,
            things: std::mem::take(&mut self.pending),
            gaps: std::mem::take(&mut self.gaps),
        };
        let is_open = self.traced.1 == 0 && (!interval.gaps.is_empty() || !self.waiting.is_empty());
        if is_open && interval.things.is_empty() {
            return;
        }
        if is_open {
            self.waits += interval.things.len();
            self.waiting.push(interval);
            if self.waits >= WAITING {
                self.settle(out);
            }
            return;
        }
        self.settle(out);
        self.pending = self.place(interval, out);
    }

    /// Gives everything that waits for a rate its time.
    fn settle(&mut self, out: &mut Vec<Placed<T>>) {
        self.waits = 0;
        for interval in std::mem::take(&mut self.waiting) {
            self.place(interval, out);
        }
    }

    /// Sets the times in an interval, by the rate that is known so far; gaps share the rest of the interval. Gives the
    /// empty list of things back.
    fn place(&mut self, mut interval: Interval<T>, out: &mut Vec<Placed<T>>) -> Vec<(u64, T)> {
        let Some(from) = interval.from else {
            let things = interval.things.drain(..);
            out.extend(things.map(|(_, what)| Placed {
                time: UNKNOWN,
                earliest: UNKNOWN,
                latest: i64::MAX,
                what,
            }));
            return interval.things;
        };
        let ((time, instructions), off) = match interval.length {
            None => (self.rate.or(self.quickest).unwrap_or((0, 1)), 0),
            Some((passed, executed)) if interval.gaps.is_empty() => ((passed, executed.max(1)), 0),
            Some((passed, executed)) => {
                let traced = Some(self.traced).filter(|(_, instructions)| *instructions > 0);
                let (time, instructions) = traced.or(self.quickest).unwrap_or((0, 1));
                let ran = u128::from(executed) * u128::from(time) / u128::from(instructions.max(1));
                let ran = u64::try_from(ran).unwrap_or(passed).min(passed);
                ((ran, executed.max(1)), passed - ran)
            }
        };
        let next = interval.length.map_or(i64::MAX, |(passed, _)| {
            from.time.saturating_add_unsigned(passed)
        });
        let all = interval.gaps.len().max(1) as u64;
        let mut gaps = interval.gaps.drain(..).peekable();
        let (mut passed, mut since) = (0u64, 0u128);
        for (place, (at, what)) in interval.things.drain(..).enumerate() {
            while gaps.next_if(|gap| *gap <= place).is_some() {
                passed += 1;
                since = u128::from(off) * u128::from(passed) / u128::from(all);
            }
            let apart = i128::from(at) - i128::from(from.instructions);
            let spread = apart * i128::from(time) / i128::from(instructions);
            let time = i128::from(from.time) + spread + since.cast_signed();
            let time = i64::try_from(time).unwrap_or(i64::MAX);
            // Streams go on only; a step back is counted.
            self.latest = self.latest.max(time);
            let (earliest, latest) = match at < from.instructions {
                true => (UNKNOWN, from.time),
                false => (from.time, next),
            };
            out.push(Placed {
                time: self.latest,
                earliest: earliest.min(self.latest),
                latest: latest.max(self.latest),
                what,
            });
        }
        interval.things
    }

    /// The trace pauses: the trace unit is off, or its trace is lost.
    pub fn pause(&mut self, out: &mut Vec<Placed<T>>) {
        // Cycles are counted from the last count on, which a pause is part of.
        if self.measure == Measure::Timestamps {
            self.extrapolate(out);
            self.last = None;
        }
    }

    /// The trace ends. `last_time` is put where its last time is, if instructions follow: their times are extrapolated.
    pub fn finish(&mut self, last_time: Option<T>, out: &mut Vec<Placed<T>>) {
        let last = self.last.map_or(u64::MAX, |last| last.instructions);
        if let Some(last_time) = last_time
            && self.pending.last().is_some_and(|(at, _)| *at > last)
        {
            let before = self.pending.partition_point(|(at, _)| *at < last);
            self.pending.insert(before, (last, last_time));
        }
        self.extrapolate(out);
        self.settle(out);
    }
}

impl Measure {
    /// What times are, for people.
    pub fn about(self) -> &'static str {
        match self {
            Measure::Timestamps => {
                "timestamps of the trace; between two, instructions take equally long, and the rest is of what was not traced"
            }
            Measure::Cycles => "cycles, source after source: the trace has no timestamps",
            Measure::Instructions => "instructions, source after source: the trace has no time",
        }
    }
}
