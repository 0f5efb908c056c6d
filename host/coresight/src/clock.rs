//! Times of trace events, interpolated between the sparse timestamps or cycle counts of a trace.
//!
//! A trace unit traces each instruction, but emits a time only every few hundred instructions. Events between two times
//! are placed in proportion to the instructions executed between them. The error is at most the distance of the two
//! times; the clock keeps the widest such distance for reports. If the trace has no times, instruction counts replace
//! them.
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
#[cfg(test)]
mod tests;

pub use base::{first_timestamp, measure};

use crate::perf::TimeConversion;

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
    /// Time and instructions up to the next time, if any.
    length: Option<(u64, u64)>,
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
    /// Time and instructions of the last interval without gaps.
    rate: Option<(u64, u64)>,
    /// Sum of time and instructions of all such intervals.
    traced: (u64, u64),
    /// Time and instructions of the interval with the least time per instruction, used until an interval without gaps
    /// is known.
    quickest: Option<(u64, u64)>,
    cycles: u64,
    latest: i64,
    /// Last time of the trace, kept across pauses.
    reported: Option<i64>,
    /// Offset added to timestamps since they went back.
    shift: i64,
    /// Longest distance between two times of the trace.
    pub widest: u64,
    /// Number of steps back in time.
    pub backward: u64,
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

    /// Adds a timestamp of the trace.
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

    /// Adds the number of cycles since the last count.
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
        if !is_exact {
            self.widest = self.widest.max(passed);
        }
        if !self.gaps.is_empty() {
            // Intervals with gaps do not define the rate.
            self.note_quickest(passed, executed);
        } else if executed > 0 {
            self.rate = Some((passed, executed));
            self.traced.0 = self.traced.0.saturating_add(passed);
            self.traced.1 = self.traced.1.saturating_add(executed);
        }
        self.interval(Some((passed, executed)), out);
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

    /// Keeps the interval with the least time per instruction.
    fn note_quickest(&mut self, passed: u64, executed: u64) {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let is_quicker = self.quickest.is_none_or(|(time, instructions)| {
            product(passed, instructions) < product(time, executed)
        });
        if passed > 0 && executed > 0 && is_quicker {
            self.quickest = Some((passed, executed));
        }
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
        self.interval(None, out);
    }

    /// Places the events of the current interval. An interval with gaps needs a rate; if none is known, it waits for
    /// the next interval without gaps.
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
            // Times never decrease within a stream; steps back are counted elsewhere.
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

    /// Adds a pause: the trace unit is off, or its trace is lost.
    pub fn pause(&mut self, out: &mut Vec<Placed<T>>) {
        // Cycle counts include the pause, so they need no break.
        if self.measure == Measure::Timestamps {
            self.extrapolate(out);
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
                "timestamps of the trace; between two, instructions take equally long, and the rest is of what was not traced"
            }
            Measure::Cycles => "cycles, source after source: the trace has no timestamps",
            Measure::Instructions => "instructions, source after source: the trace has no time",
        }
    }
}
