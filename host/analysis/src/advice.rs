//! What to leave out of a recording, so that the same buffer holds more time.
//!
//! Short functions that are called often fill a buffer and tell little: their own time is mostly what recording takes.
//! [`Advisor`] counts the events and the self times of each function, and how long calls last. From that follows which
//! functions are short ([`Advice::short`]), how long the buffer holds without them ([`Advice::without`]), and how many
//! calls a duration threshold leaves ([`Advice::thresholds`]). Memory grows with functions, not with events.

use std::cmp::Reverse;

use kymo_event::{Duration, FunctionId, Recorded, RecordingCost, Time};

use crate::calls::{Callee, How, Step};
use crate::replay::{Observer, Origin};
use crate::spread::Spread;

/// A function is short if its typical self time is at most so many times that of the shortest one, which is little
/// but the overhead of recording.
const SHORT: u64 = 4;
/// Complete calls that a function needs before its typical self time means something.
const ENOUGH: u64 = 16;
/// A function with fewer than one in so many of all events is not worth leaving out.
const WORTH: u64 = 100;
/// Functions that are advised to be left out, at most.
const MOST: usize = 20;
/// Percent of all events from which on no more functions are left out: what remains should still tell something.
const MOST_EVENTS: u64 = 90;

/// Of what recording a whole call takes, so many hundredths are saved where the target's filter leaves the call out: it
/// still looks for it. (34 and 53 were measured on a Cortex-M3, by programs of two kinds.)
const FILTERED: u64 = 42;

/// What a recording is filled with: how many records there are of each kind, and how large they are beside each other.
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
}

/// Records of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// How many.
    pub count: u64,
    /// The bytes of each, or 1 where these are not known.
    pub size: u64,
}

impl Records {
    const fn bytes(self) -> u64 {
        self.count.saturating_mul(self.size)
    }
}

impl Filled {
    /// All records but timestamps.
    const fn events(&self) -> u64 {
        self.enters.count + self.exits.count + self.others.count
    }

    /// The bytes of all.
    const fn bytes(&self) -> u64 {
        self.enters.bytes() + self.exits.bytes() + self.times.bytes() + self.others.bytes()
    }

    /// The bytes that remain without `enters` entries and `exits` exits; at most one timestamp an event remains.
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
}

/// Counts what advice follows from.
#[derive(Clone, Debug, Default)]
pub struct Advisor {
    /// By [`FunctionId`].
    functions: Vec<Counted>,
    /// From begin to end, of complete calls.
    walls: Spread,
    self_time: Duration,
    /// By track: when the last call ended, and its depth; `None` if something else came last.
    ended: Vec<Option<(Time, u32)>>,
    /// From the end of a call to the beginning of the next one beside it.
    apart: Spread,
    /// Calls are one record each, at their ends (duration mode), not an enter and an exit.
    pub whole_calls: bool,
}

/// What was counted of one function.
#[derive(Clone, Debug, Default)]
struct Counted {
    enters: u64,
    exits: u64,
    self_time: Duration,
    /// The self times of complete calls.
    selves: Spread,
}

/// What there is to say about a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The functions that are short and frequent, those with most events first.
    pub short: Vec<Short>,
    /// What the buffer holds without them; `None` if there are none, or nothing else.
    pub without: Option<Without>,
    /// What a duration threshold leaves, by rising threshold.
    pub thresholds: Vec<Threshold>,
    /// The self time of all functions.
    pub self_time: Duration,
}

/// A function that is short and frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Which.
    pub function: FunctionId,
    /// Its enters and exits, or whole calls.
    pub events: u64,
    /// Of these, exits, or whole calls.
    pub exits: u64,
    /// How often it was entered.
    pub calls: u64,
    /// Its self time, in all calls.
    pub self_time: Duration,
    /// The self time of its median call.
    pub typical: Duration,
}

/// A recording without the short functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Without {
    /// The events that are left out.
    pub events: u64,
    /// The self time of the functions that are left out.
    pub self_time: Duration,
    /// For how long the buffer that holds this recording holds one without them.
    pub holds: Duration,
    /// How much of that the program runs faster because nothing is recorded there; `None` if the trace does not
    /// tell what recording takes.
    pub saved: Option<Duration>,
}

/// What a duration threshold leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The threshold.
    pub threshold: Duration,
    /// The calls that last at least so long, to 1 % of the threshold.
    pub calls: u64,
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

    /// What follows for a recording that is `filled` so and spans `span`. `costs` is what the trace tells of the
    /// overhead of recording; only functions for which `optional` is true can be left out.
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
            // The program runs through the same in less time, and there is room for more of it.
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
            thresholds: self.thresholds(),
            self_time: self.self_time,
        }
    }

    /// What is saved by each call that a target's filter leaves out, in picoseconds: a part of what recording takes, as the
    /// shortest times between calls show it.
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
        // A clock that is coarser than the shortest functions shows them as nothing.
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

    /// Powers of ten from a microsecond on, as far as they divide the calls.
    fn thresholds(&self) -> Vec<Threshold> {
        let all = self.walls.count();
        let powers = (3..=10).map(|power| Duration(10u64.pow(power)));
        let counted = powers.map(|threshold| Threshold {
            threshold,
            calls: self.walls.count_from(threshold),
        });
        counted.filter(|it| (1..all).contains(&it.calls)).collect()
    }
}

/// What recording a call takes, its enter and its exit, in picoseconds.
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
        };
        let advice = advisor.advise(&filled, Duration(1_000_000), &[], |_| true);
        // 200 events are left, with a timestamp each.
        let expected = 1_000_000 * 12_000 / (300 + 100 + 200 * 8);
        assert_eq!(advice.without.unwrap().holds, Duration(expected));
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
