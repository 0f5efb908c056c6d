//! Statistics of functions beyond the [profile](crate::profile): distribution of durations, and wall times, which
//! include the time when a thread did not run.
//!
//! Separate from the profile because it costs more per call, and most tables do not need it.

use kymo_event::Duration;

use crate::by_wall::ByWall;
use crate::calls::{Callee, End, Step, TrackId};
use crate::spread::Spread;

/// The kind of time that is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Processor time of the call's thread: without preemption and without interrupts.
    #[default]
    OnCpu,
    /// Wall time from begin to end.
    Wall,
}

/// Statistics of one function (or interrupt).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistic {
    /// The durations of complete calls, by the chosen [`Measure`].
    pub spread: Spread,
    /// Wall times.
    pub wall: WallTimes,
    /// Whether the trace has switches of a thread that called it, or it was called in an interrupt. Otherwise it is
    /// unknown which part of the wall time it did not run.
    pub switched: bool,
}

/// Wall times of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WallTimes {
    /// Time in the function and its callees, a lower bound; recursion counts once. Of a call in doubt, only the
    /// certain part ([`End::sure`](crate::calls::End::sure)) counts.
    pub total: Duration,
    /// The same as seen.
    pub total_max: Duration,
    /// Time in the function itself, a lower bound: without its callees, with preemption and interrupts.
    pub self_time: Duration,
    /// The same as seen.
    pub self_max: Duration,
    /// The durations of its complete calls, including recursive ones.
    pub sum: Duration,
    /// The number of complete calls.
    pub complete: u64,
    /// The shortest complete call.
    pub min: Duration,
    /// The longest complete call.
    pub max: Duration,
}

/// A table of [`Statistic`]s, filled step by step.
#[derive(Debug, Default)]
pub struct Statistics {
    measure: Measure,
    /// Indexed by [`FunctionId`](kymo_event::FunctionId).
    functions: Vec<Statistic>,
    /// Indexed by [`InterruptId`](kymo_event::InterruptId).
    interrupts: Vec<Statistic>,
    unknown: Statistic,
    by_wall: ByWall,
    /// Whether it is known when each track runs, indexed by [`TrackId`].
    switched: Vec<bool>,
}

impl Statistics {
    /// Creates an empty table; `measure` selects the durations of [`Statistic::spread`].
    pub fn new(measure: Measure) -> Self {
        Self {
            measure,
            ..Self::default()
        }
    }

    /// Processes a step.
    pub fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Track { track, info } if !info.is_thread() => self.switched(*track),
            Step::State {
                track,
                recorded: true,
                ..
            } => self.switched(*track),
            Step::Begin(begin) => self.by_wall.begin(begin.track),
            Step::End(end) => self.end(end),
            _ => {}
        }
    }

    fn end(&mut self, end: &End) {
        let by_wall = self.by_wall.end(end);
        let Some(wall) = end.wall else {
            return;
        };
        let measure = self.measure;
        let switched = self.switched.get(end.track.0 as usize) == Some(&true);
        let Statistic {
            spread,
            wall: of,
            switched: known,
        } = self.entry(end.callee);
        *known |= switched;
        of.self_max += by_wall.self_time.unwrap_or_default();
        of.self_time += by_wall.sure_self.unwrap_or_default();
        if !end.recursive {
            of.total_max += wall;
            of.total += by_wall.sure.unwrap_or_default();
        }
        if end.is_complete() {
            of.min = match of.complete {
                0 => wall,
                _ => of.min.min(wall),
            };
            of.max = of.max.max(wall);
            of.complete += 1;
            of.sum += wall;
            match measure {
                Measure::OnCpu => spread.add(end.duration.unwrap_or_default()),
                Measure::Wall => spread.add(wall),
            }
        }
    }

    #[cold]
    fn switched(&mut self, track: TrackId) {
        let index = track.0 as usize;
        if self.switched.len() <= index {
            self.switched.resize(index + 1, false);
        }
        self.switched[index] = true;
    }

    fn entry(&mut self, callee: Callee) -> &mut Statistic {
        let (table, index) = match callee {
            Callee::Function(function) => (&mut self.functions, function.0 as usize),
            Callee::Interrupt(interrupt) => (&mut self.interrupts, interrupt.0 as usize),
            Callee::Unknown => return &mut self.unknown,
        };
        if table.len() <= index {
            table.resize_with(index + 1, Statistic::default);
        }
        &mut table[index]
    }

    /// The statistics of a function or interrupt; `None` for one that was not called.
    pub fn of(&self, callee: Callee) -> Option<&Statistic> {
        match callee {
            Callee::Function(function) => self.functions.get(function.0 as usize),
            Callee::Interrupt(interrupt) => self.interrupts.get(interrupt.0 as usize),
            Callee::Unknown => Some(&self.unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{FunctionId, Time};

    use super::*;
    use crate::calls::{Begin, CallId, Doubt, How};

    const OUTER: Callee = Callee::Function(FunctionId(0));
    const INNER: Callee = Callee::Function(FunctionId(1));

    fn begin(callee: Callee, depth: u32) -> Step<'static> {
        Step::Begin(Begin {
            track: TrackId(0),
            call: CallId(depth.into()),
            callee,
            time: Time(0),
            depth,
            call_site: None,
            caller: None,
            clipped: false,
            cpu: None,
            thread: None,
        })
    }

    /// The end of a call with these times by the wall and on a processor, of which so much is certain.
    fn end(callee: Callee, depth: u32, wall: u64, duration: u64, sure: u64) -> Step<'static> {
        Step::End(End {
            track: TrackId(0),
            call: CallId(depth.into()),
            callee,
            time: Time(0),
            depth,
            begin: Some(Time(0)),
            wall: Some(Duration(wall)),
            duration: Some(Duration(duration)),
            self_time: Some(Duration(duration)),
            sure: Some(Duration(sure)),
            sure_self: Some(Duration(sure)),
            how: How::Returned,
            doubt: Doubt::default(),
            recursive: false,
            clipped: false,
            uncounted: false,
            wall_is_stated: false,
        })
    }

    #[test]
    fn the_wall_goes_on_while_a_thread_waits() {
        let mut statistics = Statistics::new(Measure::OnCpu);
        for step in [
            begin(OUTER, 0),
            begin(INNER, 1),
            end(INNER, 1, 50, 20, 20),
            begin(INNER, 1),
            end(INNER, 1, 40, 30, 10),
            end(OUTER, 0, 200, 100, 100),
        ] {
            statistics.step(&step);
        }
        let outer = statistics.of(OUTER).expect("a row").wall;
        assert_eq!(
            (outer.total, outer.self_time),
            (Duration(200), Duration(110))
        );
        assert_eq!((outer.min, outer.max), (Duration(200), Duration(200)));
        let inner = statistics.of(INNER).expect("a row");
        // Of the second call only 10 ns are certain.
        assert_eq!(inner.wall.total, Duration(60));
        assert_eq!(inner.wall.total_max, Duration(90));
        assert_eq!(
            (inner.wall.min, inner.wall.max),
            (Duration(40), Duration(50))
        );
        assert_eq!(inner.spread.percentile(100.0), Some(Duration(30)));
        assert!(!inner.switched, "no switch of the thread was seen");
        statistics.step(&Step::State {
            track: TrackId(0),
            time: Time(0),
            cpu: None,
            running: true,
            recorded: true,
        });
        statistics.step(&begin(INNER, 0));
        statistics.step(&end(INNER, 0, 1, 1, 1));
        assert!(statistics.of(INNER).is_some_and(|inner| inner.switched));
        let mut by_wall = Statistics::new(Measure::Wall);
        by_wall.step(&begin(INNER, 0));
        by_wall.step(&end(INNER, 0, 50, 20, 20));
        let spread = &by_wall.of(INNER).expect("a row").spread;
        assert_eq!(spread.percentile(50.0), Some(Duration(50)));
    }
}
