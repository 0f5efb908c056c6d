//! Advice on functions to exclude from a recording, so that the same buffer holds more time.
//!
//! Short functions that are called often fill a buffer and show little: most of their self time is recording
//! overhead. [`Advisor`] counts the events and self times of each function, and the durations of calls. From these
//! follow the short functions ([`Advice::short`]), how long the buffer holds without them ([`Advice::without`]), and
//! how many calls a duration threshold keeps, and how long the buffer holds those ([`Advice::thresholds`]). Memory grows with functions, not with events.

use std::cmp::Reverse;

use kymo_event::{Duration, FunctionId, Recorded, RecordingCost, Time};

use crate::calls::{Callee, How, Step};
use crate::replay::{Observer, Origin};
use crate::spread::Spread;

/// A function is short if its typical self time is at most this multiple of the shortest one, which is mostly
/// recording overhead.
const SHORT: u64 = 4;
/// Minimum number of complete calls for which a function's typical self time is meaningful.
const ENOUGH: u64 = 16;
/// A function with less than 1/`WORTH` of all events is not worth excluding.
const WORTH: u64 = 100;
/// Maximum number of functions advised for exclusion.
const MOST: usize = 20;
/// Percentage of all events at which no further functions are excluded, so that the remaining recording is still
/// useful.
const MOST_EVENTS: u64 = 90;

/// Percentage of the recording overhead of a whole call that is saved when the target's filter excludes the call,
/// because the filter still looks it up. (34 and 53 were measured on a Cortex-M3, with programs of two kinds.)
const FILTERED: u64 = 42;

/// Contents of a recording: the number of records of each kind, and their relative sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Entries.
    pub enters: Records,
    /// Exits, or whole calls.
    pub exits: Records,
    /// Timestamps between events that are far apart.
    pub times: Records,
    /// All others.
    pub others: Records,
    /// The size of a whole call in duration mode, as in [`Records::size`].
    pub call_size: u64,
}

/// Records of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The number of records.
    pub count: u64,
    /// The bytes of each, or 1 if unknown.
    pub size: u64,
}

impl Records {
    const fn bytes(self) -> u64 {
        self.count.saturating_mul(self.size)
    }
}

impl Filled {
    /// The number of records other than timestamps.
    const fn events(&self) -> u64 {
        self.enters.count + self.exits.count + self.others.count
    }

    /// The bytes of all records.
    const fn bytes(&self) -> u64 {
        self.enters.bytes() + self.exits.bytes() + self.times.bytes() + self.others.bytes()
    }

    /// The bytes that remain without `enters` entries and `exits` exits. At most one timestamp per event remains.
    fn without(&self, enters: u64, exits: u64) -> u64 {
        let less = |records: Records, count: u64| Records {
            count: records.count.saturating_sub(count),
            ..records
        };
        let mut left = Self {
            enters: less(self.enters, enters),
            exits: less(self.exits, exits),
            ..*self
        };
        left.times.count = left.times.count.min(left.events());
        left.bytes()
    }

    /// The bytes of a recording in duration mode with so many calls. At most one timestamp per event remains.
    fn of_calls(&self, calls: u64) -> u64 {
        let mut left = Self {
            enters: Records::default(),
            exits: Records {
                count: calls,
                size: self.call_size,
            },
            ..*self
        };
        left.times.count = left.times.count.min(left.events());
        left.bytes()
    }
}

/// Collects the counts for [`Advice`].
#[derive(Clone, Debug, Default)]
pub struct Advisor {
    /// Indexed by [`FunctionId`].
    functions: Vec<Counted>,
    /// Wall times of complete calls.
    walls: Spread,
    self_time: Duration,
    /// Per track: the end of the last call, and its depth; `None` if another event came last.
    ended: Vec<Option<(Time, u32)>>,
    /// Time from the end of a call to the begin of the next one at the same depth.
    apart: Spread,
    /// Whether calls are one record each, at their ends (duration mode), instead of an enter and an exit.
    pub whole_calls: bool,
}

/// Counts of one function.
#[derive(Clone, Debug, Default)]
struct Counted {
    enters: u64,
    exits: u64,
    self_time: Duration,
    /// The self times of complete calls.
    selves: Spread,
}

/// Advice for a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The short and frequent functions, most events first.
    pub short: Vec<Short>,
    /// The recording without them; `None` if there are none, or no other events.
    pub without: Option<Without>,
    /// The calls that a duration threshold keeps, by rising threshold.
    pub thresholds: Vec<Threshold>,
    /// The self time of all functions.
    pub self_time: Duration,
}

/// A function that is short and frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Its id.
    pub function: FunctionId,
    /// Its enters and exits, or whole calls.
    pub events: u64,
    /// The part of `events` that are exits or whole calls.
    pub exits: u64,
    /// The number of its entries.
    pub calls: u64,
    /// Its self time over all calls.
    pub self_time: Duration,
    /// The self time of its median call.
    pub typical: Duration,
}

/// A recording without the short functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Without {
    /// The number of excluded events.
    pub events: u64,
    /// The self time of the excluded functions.
    pub self_time: Duration,
    /// How long a recording without them the same buffer holds.
    pub holds: Duration,
    /// The part of that time by which the program runs faster because nothing is recorded there; `None` if the trace
    /// does not report the overhead.
    pub saved: Option<Duration>,
}

/// The effect of a duration threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The threshold.
    pub threshold: Duration,
    /// The number of calls that last at least `threshold`, to within 1 % of it.
    pub calls: u64,
    /// How long a recording of these calls the same buffer holds, if the program took as long. It takes less where more
    /// was recorded before, so this is a lower bound.
    pub holds: Duration,
}

impl Observer for Advisor {
    #[inline]
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        match step {
            Step::Begin(begin) => {
                let track = begin.track.0 as usize;
                if let Some((time, depth)) = self.ended.get_mut(track).and_then(Option::take)
                    && depth == begin.depth
                    && let Some(apart) = begin.time.since(time)
                {
                    self.apart.add(apart);
                }
                if let Callee::Function(function) = begin.callee {
                    self.function(function).enters += 1;
                }
            }
            Step::End(end) => {
                let track = end.track.0 as usize;
                if self.ended.len() <= track {
                    self.ended.resize(track + 1, None);
                }
                self.ended[track] = Some((end.time, end.depth));
                let self_time = end.sure_self.unwrap_or_default();
                self.self_time += self_time;
                let Callee::Function(function) = end.callee else {
                    return;
                };
                let complete = end.is_complete() && !end.doubt.any();
                let counted = self.function(function);
                counted.exits += u64::from(matches!(end.how, How::Returned | How::Orphan));
                counted.self_time += self_time;
                if complete {
                    counted.selves.add(self_time);
                    self.walls.add(end.wall.unwrap_or_default());
                }
            }
            _ => {}
        }
    }
}

impl Advisor {
    fn function(&mut self, function: FunctionId) -> &mut Counted {
        let index = function.0 as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, Counted::default);
        }
        &mut self.functions[index]
    }

    /// The advice for a recording with the contents `filled` and the length `span`. `costs` is the recording overhead
    /// that the trace reports. Only functions for which `optional` is true can be excluded.
    pub fn advise(
        &self,
        filled: &Filled,
        span: Duration,
        costs: &[RecordingCost],
        optional: impl Fn(FunctionId) -> bool,
    ) -> Advice {
        let events = filled.events();
        let short = self.short(events, optional);
        let left_out: u64 = short.iter().map(|short| short.events).sum();
        let without = (left_out > 0 && left_out < events).then(|| {
            let (pair, records) = match self.whole_calls {
                true => (self.filtered(), 1),
                false => (overhead(costs), 2),
            };
            let saved = pair.map(|pair| {
                let calls = u128::from(left_out / records);
                let ps = calls * u128::from(pair);
                Duration(u64::try_from(ps / 1000).unwrap_or(u64::MAX)).min(span)
            });
            // The program does the same work in less time, so the buffer holds more of it.
            let run = u128::from((span - saved.unwrap_or_default()).0);
            let exits: u64 = short.iter().map(|short| short.exits).sum();
            let enters = if self.whole_calls {
                0
            } else {
                left_out - exits
            };
            let left = filled.without(enters, exits).max(1);
            let holds = run * u128::from(filled.bytes()) / u128::from(left);
            Without {
                events: left_out,
                self_time: short
                    .iter()
                    .fold(Duration(0), |sum, short| sum + short.self_time),
                holds: Duration(u64::try_from(holds).unwrap_or(u64::MAX)),
                saved,
            }
        });
        Advice {
            short,
            without,
            thresholds: self.thresholds(filled, span),
            self_time: self.self_time,
        }
    }

    /// The time saved by each call that a target's filter excludes, in picoseconds: a part of the recording overhead,
    /// estimated from the shortest times between calls.
    fn filtered(&self) -> Option<u64> {
        let apart = self.apart.percentile(5.0);
        let apart = apart.filter(|apart| self.apart.count() >= ENOUGH && apart.0 > 0)?;
        Some(apart.0.saturating_mul(1000 * FILTERED / 100))
    }

    fn short(&self, events: u64, optional: impl Fn(FunctionId) -> bool) -> Vec<Short> {
        let typical = |counted: &Counted| {
            let median = counted.selves.percentile(50.0);
            median.filter(|_| counted.selves.count() >= ENOUGH)
        };
        let Some(shortest) = self.functions.iter().filter_map(typical).min() else {
            return Vec::new();
        };
        // A clock too coarse for the shortest functions shows them with zero time.
        let limit = Duration(shortest.0.max(1).saturating_mul(SHORT));
        let functions = self.functions.iter().zip(0..).filter_map(|(counted, id)| {
            let typical = typical(counted)?;
            let its = match self.whole_calls {
                true => counted.exits,
                false => counted.enters + counted.exits,
            };
            let function = FunctionId(id);
            let worth = typical <= limit && its >= events.div_ceil(WORTH);
            (worth && optional(function)).then_some(Short {
                function,
                events: its,
                exits: counted.exits,
                calls: counted.enters,
                self_time: counted.self_time,
                typical,
            })
        });
        let mut short: Vec<Short> = functions.collect();
        short.sort_by_key(|short| (Reverse(short.events), short.function));
        let mut before = 0;
        short.retain(|short| {
            let more = before * 100 < events * MOST_EVENTS;
            before += short.events;
            more
        });
        short.truncate(MOST);
        short
    }

    /// Powers of ten from a microsecond up, as far as they divide the calls.
    fn thresholds(&self, filled: &Filled, span: Duration) -> Vec<Threshold> {
        let all = self.walls.count();
        let powers = (3..=10).map(|power| Duration(10u64.pow(power)));
        let counted = powers.map(|threshold| {
            let calls = self.walls.count_from(threshold);
            let left = filled.of_calls(calls).max(1);
            let holds = u128::from(span.0) * u128::from(filled.bytes()) / u128::from(left);
            Threshold {
                threshold,
                calls,
                holds: Duration(u64::try_from(holds).unwrap_or(u64::MAX)),
            }
        });
        counted.filter(|it| (1..all).contains(&it.calls)).collect()
    }
}

/// The overhead of recording a call, its enter and its exit, in picoseconds.
fn overhead(costs: &[RecordingCost]) -> Option<u64> {
    let of = |recorded| {
        let costs = costs.iter().filter(|cost| cost.recorded == recorded);
        let usual = costs.min_by_key(|cost| cost.from)?;
        Some(usual.before.0 + usual.after.0)
    };
    Some(of(Recorded::Enter)? + of(Recorded::Exit)?)
}

#[cfg(test)]
mod tests {
    use kymo_event::{Picoseconds, Time};

    use super::*;
    use crate::calls::{Begin, CallId, Doubt, End, TrackId};

    /// Calls of a function, each with this self time, within nothing.
    fn call(advisor: &mut Advisor, function: u32, times: u64, self_time: u64) {
        let callee = Callee::Function(FunctionId(function));
        for _ in 0..times {
            let begin = Begin {
                track: TrackId(0),
                call: CallId(0),
                callee,
                time: Time(0),
                depth: 0,
                call_site: None,
                caller: None,
                clipped: false,
                cpu: None,
                thread: None,
            };
            advisor.step(None, Step::Begin(begin));
            let took = Some(Duration(self_time));
            let end = End {
                track: TrackId(0),
                call: CallId(0),
                callee,
                time: Time(0),
                depth: 0,
                begin: Some(Time(0)),
                wall: took,
                duration: took,
                self_time: took,
                sure: took,
                sure_self: took,
                how: How::Returned,
                doubt: Doubt::default(),
                recursive: false,
                clipped: false,
                uncounted: false,
                wall_is_stated: false,
            };
            advisor.step(None, Step::End(end));
        }
    }

    /// So many records of one size.
    fn equal(enters: u64, exits: u64) -> Filled {
        let records = |count| Records { count, size: 1 };
        Filled {
            enters: records(enters),
            exits: records(exits),
            call_size: 1,
            ..Filled::default()
        }
    }

    #[test]
    fn timestamps_go_with_the_events_that_need_them() {
        // Nine of ten calls are left out; each has an entry of 3 bytes, a timestamp of 8 and an exit of 1.
        let mut advisor = Advisor::default();
        call(&mut advisor, 0, 900, 50);
        call(&mut advisor, 1, 100, 100_000);
        let records = |count, size| Records { count, size };
        let filled = Filled {
            enters: records(1000, 3),
            exits: records(1000, 1),
            times: records(1000, 8),
            others: records(0, 7),
            call_size: 18,
        };
        let advice = advisor.advise(&filled, Duration(1_000_000), &[], |_| true);
        // 200 events are left, with a timestamp each.
        let expected = 1_000_000 * 12_000 / (300 + 100 + 200 * 8);
        assert_eq!(advice.without.unwrap().holds, Duration(expected));
        // 100 calls are left, of 18 bytes and a timestamp each.
        let threshold = advice.thresholds[0];
        assert_eq!(
            (threshold.threshold, threshold.calls),
            (Duration(1000), 100)
        );
        let expected = 1_000_000 * 12_000 / (100 * 18 + 100 * 8);
        assert_eq!(threshold.holds, Duration(expected));
    }

    fn cost(recorded: Recorded) -> RecordingCost {
        RecordingCost {
            recorded,
            from: Duration(0),
            before: Picoseconds(20_000),
            after: Picoseconds(30_000),
            uncertainty: Picoseconds(0),
        }
    }

    #[test]
    fn short_and_frequent_functions_are_left_out() {
        let mut advisor = Advisor::default();
        call(&mut advisor, 0, 400, 50);
        call(&mut advisor, 1, 30, 100_000);
        call(&mut advisor, 2, 20, 150);
        // Too rare to be worth it.
        call(&mut advisor, 3, 4, 40);
        let costs = [cost(Recorded::Enter), cost(Recorded::Exit)];
        let filled = equal(454, 454);
        let advice = advisor.advise(&filled, Duration(4_000_000), &costs, |_| true);
        let functions: Vec<u32> = advice.short.iter().map(|it| it.function.0).collect();
        assert_eq!(functions, [0, 2]);
        let without = advice.without.unwrap();
        assert_eq!((without.events, without.self_time), (840, Duration(23_000)));
        // 420 calls of 100 ns each are not recorded: 3.958 ms hold 68 events, and the buffer holds 908.
        assert_eq!(without.saved, Some(Duration(42_000)));
        assert_eq!(without.holds, Duration(3_958_000 * 908 / 68));
        let calls = advice
            .thresholds
            .iter()
            .map(|it| (it.threshold.0, it.calls));
        assert_eq!(
            calls.collect::<Vec<_>>(),
            [(1000, 30), (10_000, 30), (100_000, 30)]
        );

        let advice = advisor.advise(&filled, Duration(4_000_000), &[], |id| id.0 != 0);
        let functions: Vec<u32> = advice.short.iter().map(|it| it.function.0).collect();
        assert_eq!(functions, [2]);
        assert_eq!(advice.without.unwrap().saved, None);
    }

    #[test]
    fn whole_calls_are_one_event_each() {
        let mut advisor = Advisor::default();
        call(&mut advisor, 0, 400, 50);
        call(&mut advisor, 1, 30, 100_000);
        advisor.whole_calls = true;
        let costs = [cost(Recorded::Enter), cost(Recorded::Exit)];
        let advice = advisor.advise(&equal(0, 430), Duration(4_000_000), &costs, |_| true);
        let without = advice.without.unwrap();
        assert_eq!((without.events, without.saved), (400, None));
        assert_eq!(without.holds, Duration(4_000_000 * 430 / 30));
    }

    #[test]
    fn something_is_left() {
        let mut advisor = Advisor::default();
        call(&mut advisor, 0, 950, 50);
        call(&mut advisor, 1, 50, 50);
        let advice = advisor.advise(&equal(1000, 1000), Duration(1_000_000), &[], |_| true);
        assert_eq!(advice.short.len(), 1);
        assert_eq!(advice.without.unwrap().holds, Duration(20_000_000));
        let nothing = Advisor::default().advise(&Filled::default(), Duration(0), &[], |_| true);
        assert_eq!(nothing, Advice::default());
    }
}
