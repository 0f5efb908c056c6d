//! Times of trace events, interpolated between the sparse timestamps or cycle counts of a trace.
//!
//! A trace unit traces each instruction, but emits a time only every few hundred instructions. Events between two times
//! are placed in proportion to the cycles counted between them, or, without cycle counts, to the instructions executed
//! between them. The error is at most the distance of the two times; the clock keeps the widest such distance for
//! reports. If the trace has no times, instruction counts replace them.
//!
//! Interpolation never crosses a pause, in which the trace unit was off or its trace is lost: events before a pause
//! follow the clock before it, and events after the pause follow the clock after it. While a filter suppresses tracing
//! (an untraced kernel, untraced threads), the clock keeps running: events before and after such a gap keep the rate,
//! and the gap gets the rest of the time.
//!
//! If timestamps go back (a reset of the target restarts their generator, or a packet is damaged), time continues at
//! the rate so far, and later times keep their distances from there; a [`Clock`] counts such steps. After a pause, the
//! trace's own times apply again if they are later than all before.

mod base;
mod cycles;
mod rate;
#[cfg(test)]
mod tests;

pub use base::{first_timestamp, measure};

use crate::element::Element;
use crate::perf::TimeConversion;
use cycles::Counts;
use rate::Rate;

/// Base of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Instructions.
    Instructions,
    /// Cycle counts.
    Cycles,
    /// Timestamps.
    Timestamps,
}

/// Limit of events that wait for the next time. Beyond it, they are placed by the rate so far.
const PENDING: usize = 1 << 22;

/// Limit of events that wait for a first rate. Beyond it, the least time per instruction so far serves as the rate.
const WAITING: usize = 1 << 16;

/// Time of events before the first known time.
pub const UNKNOWN: i64 = i64::MIN;

/// Point with a known instruction count and a known time.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    instructions: u64,
    time: i64,
}

/// Event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// Interpolated time.
    pub time: i64,
    /// Last time of the trace before it; [`UNKNOWN`] if there is none.
    pub earliest: i64,
    /// First time of the trace after it; `i64::MAX` if there is none before the next pause.
    pub latest: i64,
    /// The event.
    pub what: T,
}

/// Events after a time of the trace, up to the next time, a pause, or the end.
#[derive(Debug)]
struct Interval<T> {
    from: Option<Anchor>,
    /// Time and instructions, or cycles, up to the next time, if any.
    length: Option<(u64, u64)>,
    /// Whether positions are by cycles, from [`cycles::BASE`]; otherwise they are by instructions.
    is_by_cycles: bool,
    things: Vec<(u64, T)>,
    /// Indexes of events before which nothing was traced for a while.
    gaps: Vec<usize>,
}

/// Assigns times to events, given the number of instructions before each.
#[derive(Debug)]
pub struct Clock<T> {
    measure: Measure,
    conversion: Option<TimeConversion>,
    /// Offset subtracted from timestamps that are not converted.
    origin: u64,
    /// Events after the last anchor.
    pending: Vec<(u64, T)>,
    /// Indexes of events before which nothing was traced for a while.
    gaps: Vec<usize>,
    /// Intervals with gaps that wait for a first rate, and all intervals after them.
    waiting: Vec<Interval<T>>,
    /// Number of events in them.
    waits: usize,
    last: Option<Anchor>,
    /// Time per instruction.
    by_instructions: Rate,
    /// Time per cycle.
    by_cycles: Rate,
    /// Whether the next count does not include that of a timestamp: PTM counts from the last count of any packet (PFT,
    /// IHI 0035B, 4.4), ETMv4 from the last cycle count packet.
    pub restarts_at_timestamps: bool,
    /// Cycle counts since the last anchor, if times are timestamps.
    counts: Counts,
    cycles: u64,
    latest: i64,
    /// Last time of the trace, kept across pauses.
    reported: Option<i64>,
    /// Offset added to timestamps since they went back.
    shift: i64,
    /// Longest distance between two times of the trace.
    pub widest: u64,
    /// Whether cycle counts spread the events in it.
    pub is_widest_by_cycles: bool,
    /// Number of steps back in time.
    pub backward: u64,
    /// Number of times that the trace has.
    pub times: u64,
}

impl<T> Clock<T> {
    /// Creates the clock of a source. `origin` is subtracted from timestamps that are not converted.
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
            by_instructions: Rate::default(),
            by_cycles: Rate::default(),
            restarts_at_timestamps: false,
            counts: Counts::default(),
            cycles: 0,
            latest: i64::MIN,
            reported: None,
            shift: 0,
            widest: 0,
            is_widest_by_cycles: false,
            backward: 0,
            times: 0,
        }
    }

    /// Base of its times.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// Adds an event after this number of instructions.
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

    /// Adds a timestamp of the trace, without a cycle count.
    pub fn timestamp(&mut self, instructions: u64, ticks: u64, out: &mut Vec<Placed<T>>) {
        self.timestamp_with_cycles(instructions, ticks, None, out);
    }

    /// Adds a timestamp of the trace. `cycles` have passed since the last count; the next count includes them unless it
    /// [restarts](Self::restarts_at_timestamps).
    pub fn timestamp_with_cycles(
        &mut self,
        instructions: u64,
        ticks: u64,
        mut cycles: Option<u32>,
        out: &mut Vec<Placed<T>>,
    ) {
        if let Some(count) = cycles
            && self.restarts_at_timestamps
        {
            self.cycles(instructions, count, out);
            cycles = Some(0);
        }
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
            self.anchor(Anchor { instructions, time }, cycles, out);
        }
    }

    /// Adds the number of cycles since the last count.
    pub fn cycles(&mut self, instructions: u64, cycles: u32, out: &mut Vec<Placed<T>>) {
        if self.measure == Measure::Cycles {
            self.cycles += u64::from(cycles);
            let time = self.cycles.cast_signed();
            self.anchor(Anchor { instructions, time }, None, out);
        } else if self.measure == Measure::Timestamps {
            self.counts.add(self.pending.len(), instructions, cycles);
        }
    }

    /// Adds the cycle count of an element, if it has one. Those of timestamps come with
    /// [these](Clock::timestamp_with_cycles).
    pub fn count(&mut self, instructions: u64, element: &Element, out: &mut Vec<Placed<T>>) {
        let cycles = match element {
            // The trace unit does not know the count: up to the next timestamp, cycles say nothing.
            Element::Cycles(0) if self.measure == Measure::Timestamps => {
                return self.counts.unknown();
            }
            Element::Cycles(cycles) => Some(*cycles),
            Element::Range(range) => range.cycles,
            Element::TraceOn { cycles, .. } => *cycles,
            Element::Context(context) => context.cycles,
            _ => None,
        };
        if let Some(cycles) = cycles {
            self.cycles(instructions, cycles, out);
        }
    }

    fn anchor(&mut self, mut next: Anchor, since_count: Option<u32>, out: &mut Vec<Placed<T>>) {
        self.times += 1;
        if self.reported.is_some_and(|reported| next.time < reported) {
            self.step_back(&mut next, out);
        }
        self.reported = Some(next.time);
        let place = self.pending.len();
        let cycles = self.counts.timestamp(place, next.instructions, since_count);
        let Some(last) = self.last else {
            self.counts.begin(since_count);
            // Events before the first time wait for the second one, which gives the rate. Gaps before it take no time.
            self.gaps.clear();
            self.last = Some(next);
            return;
        };
        let passed = next.time.abs_diff(last.time);
        let executed = next.instructions.saturating_sub(last.instructions);
        // A single packet between two timestamps gets the second one (ITM).
        let is_exact = self.measure == Measure::Timestamps
            && executed == 1
            && self.pending.len() <= 1
            && self.pending.iter().all(|(at, _)| *at == next.instructions);
        if !is_exact && passed > self.widest {
            (self.widest, self.is_widest_by_cycles) = (passed, cycles.is_some());
        }
        let has_gaps = !self.gaps.is_empty();
        self.by_instructions.add(passed, executed, has_gaps);
        if let Some(cycles) = cycles {
            self.by_cycles.add(passed, cycles, has_gaps);
        }
        self.interval(
            Some((passed, cycles.unwrap_or(executed))),
            cycles.is_some(),
            out,
        );
        self.counts.go_on(since_count);
        self.last = Some(next);
    }

    /// Handles a timestamp that went back: earlier events follow the clock before it, and the timestamp becomes the
    /// time of that clock.
    fn step_back(&mut self, next: &mut Anchor, out: &mut Vec<Placed<T>>) {
        self.backward += 1;
        let reported = self.reported.unwrap_or(next.time);
        // After a pause, the instructions before the first pending event are unknown.
        let (since, from) = match (self.last, self.pending.first()) {
            (Some(last), _) => (last.instructions, reported),
            (None, first) => {
                let since = first.map_or(next.instructions, |(at, _)| *at);
                (since, reported.max(self.latest))
            }
        };
        let ran = u128::from(next.instructions.saturating_sub(since));
        let (passed, executed) = self.by_instructions.recent();
        let ran = ran * u128::from(passed) / u128::from(executed.max(1));
        let ran = u64::try_from(ran).unwrap_or(u64::MAX);
        if self.last.is_some() {
            self.extrapolate(out);
            self.counts.pause();
            self.last = None;
        }
        let time = from.saturating_add_unsigned(ran).max(self.latest);
        self.shift = self.shift.saturating_add(time.saturating_sub(next.time));
        next.time = time;
    }

    /// Adds a gap: nothing was traced for a while, but the clock kept running.
    pub fn gap(&mut self) {
        let at = self.pending.len();
        if self.measure == Measure::Timestamps && self.gaps.last() != Some(&at) {
            self.gaps.push(at);
        }
    }

    /// Places all pending events by the rate so far.
    fn extrapolate(&mut self, out: &mut Vec<Placed<T>>) {
        self.gaps.clear();
        self.interval(None, self.counts.are_known(), out);
        self.counts.restart();
    }

    /// Places the events of the current interval. An interval with gaps needs a rate; if none is known, it waits for
    /// the next interval without gaps.
    fn interval(
        &mut self,
        length: Option<(u64, u64)>,
        is_by_cycles: bool,
        out: &mut Vec<Placed<T>>,
    ) {
        let mut interval = Interval {
            from: self.last,
            length,
            is_by_cycles,
            things: std::mem::take(&mut self.pending),
            gaps: std::mem::take(&mut self.gaps),
        };
        if is_by_cycles {
            self.counts.convert(&mut interval.things);
        }
        let is_open = !self.rate(is_by_cycles).is_known()
            && (!interval.gaps.is_empty() || !self.waiting.is_empty());
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

    fn rate(&self, is_by_cycles: bool) -> &Rate {
        match is_by_cycles {
            true => &self.by_cycles,
            false => &self.by_instructions,
        }
    }

    /// Places all events that wait for a rate.
    fn settle(&mut self, out: &mut Vec<Placed<T>>) {
        self.waits = 0;
        for interval in std::mem::take(&mut self.waiting) {
            self.place(interval, out);
        }
    }

    /// Places the events of an interval by the rate so far; its gaps share the rest of the time. Returns the emptied
    /// list for reuse.
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
        let begin = match interval.is_by_cycles {
            true => cycles::BASE,
            false => from.instructions,
        };
        let rate = self.rate(interval.is_by_cycles);
        let ((time, amount), off) = match interval.length {
            None => (rate.recent(), 0),
            Some((passed, executed)) if interval.gaps.is_empty() => ((passed, executed.max(1)), 0),
            Some((passed, executed)) => {
                let (time, amount) = rate.overall();
                let ran = u128::from(executed) * u128::from(time) / u128::from(amount.max(1));
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
            let apart = i128::from(at) - i128::from(begin);
            let spread = apart * i128::from(time) / i128::from(amount);
            let time = i128::from(from.time) + spread + since.cast_signed();
            let time = i64::try_from(time).unwrap_or(i64::MAX);
            // Times never decrease within a stream; steps back are counted elsewhere.
            self.latest = self.latest.max(time);
            let (earliest, latest) = match at < begin {
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

    /// Adds a pause: the trace unit is off, or its trace is lost.
    pub fn pause(&mut self, out: &mut Vec<Placed<T>>) {
        // Cycle counts include the pause, so they need no break.
        if self.measure == Measure::Timestamps {
            self.extrapolate(out);
            self.counts.pause();
            self.last = None;
        }
    }

    /// Ends the trace. Places `last_time` at the trace's last time if instructions follow it, whose times are
    /// extrapolated.
    pub fn finish(&mut self, last_time: Option<T>, out: &mut Vec<Placed<T>>) {
        let last = self.last.map_or(u64::MAX, |last| last.instructions);
        if let Some(last_time) = last_time
            && self.pending.last().is_some_and(|(at, _)| *at > last)
        {
            let before = self.pending.partition_point(|(at, _)| *at < last);
            self.pending.insert(before, (last, last_time));
            self.counts.insert(before, last);
        }
        self.extrapolate(out);
        self.settle(out);
    }
}

impl Measure {
    /// Description of the times for users.
    pub fn about(self) -> &'static str {
        match self {
            Measure::Timestamps => {
                "timestamps of the trace; between two, instructions take as long as cycle counts say, or else equally long, and the rest is of what was not traced"
            }
            Measure::Cycles => "cycles, source after source: the trace has no timestamps",
            Measure::Instructions => "instructions, source after source: the trace has no time",
        }
    }
}
