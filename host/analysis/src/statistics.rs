//! What a table of functions can say besides the [profile](crate::profile): how durations are spread, and times by
//! the clock on the wall, with what passed while a thread did not run.
//!
//! It is apart from the profile because it costs more for each call, and most tables don't ask for it.

use kymo_event::Duration;

use crate::calls::{Callee, Step, TrackId};
use crate::spread::Spread;

/// Which time of a call is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// That in which its thread had the processor: without preemption, and without interrupts.
    #[default]
    OnCpu,
    /// That from begin to end.
    Wall,
}

/// What is known of one function (or interrupt).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistic {
    /// The durations of complete calls, by the [`Measure`] that was chosen.
    pub spread: Spread,
    /// By the clock on the wall, as far as it was seen.
    pub wall: WallTimes,
}

/// Times by the clock on the wall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WallTimes {
    /// In the function and what it called; recursion counts once.
    pub total: Duration,
    /// In the function itself: without what it called, with what interrupted it.
    pub self_time: Duration,
    /// Of its complete calls, each with its own duration.
    pub sum: Duration,
    /// How many these are.
    pub complete: u64,
    /// The shortest of them.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

/// A table of [`Statistic`]s, filled step by step.
#[derive(Debug, Default)]
pub struct Statistics {
    measure: Measure,
    /// By [`FunctionId`](kymo_event::FunctionId).
    functions: Vec<Statistic>,
    /// By [`InterruptId`](kymo_event::InterruptId).
    interrupts: Vec<Statistic>,
    unknown: Statistic,
    /// For each open call of a track, outermost first, the time by the wall of the calls that it made.
    open: Vec<Vec<Duration>>,
}

impl Statistics {
    /// An empty table; `measure` is that of which durations are spread.
    pub fn new(measure: Measure) -> Self {
        Self {
            measure,
            ..Self::default()
        }
    }

    /// Takes a step.
    pub fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Begin(begin) => self.open(begin.track).push(Duration(0)),
            Step::End(end) => {
                let Some(wall) = end.wall.filter(|_| end.begin.is_some()) else {
                    return;
                };
                let open = self.open(end.track);
                let callees = open.pop().unwrap_or_default();
                if let Some(caller) = open.last_mut() {
                    *caller += wall;
                }
                let measure = self.measure;
                let Statistic { spread, wall: of } = self.entry(end.callee);
                of.self_time += wall - callees;
                if !end.recursive {
                    of.total += wall;
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
            _ => {}
        }
    }

    fn open(&mut self, track: TrackId) -> &mut Vec<Duration> {
        let index = track.0 as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, Vec::new);
        }
        &mut self.open[index]
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

    /// What is known of a function or interrupt; `None` for one that was not called.
    pub fn of(&self, callee: Callee) -> Option<&Statistic> {
        match callee {
            Callee::Function(function) => self.functions.get(function.0 as usize),
            Callee::Interrupt(interrupt) => self.interrupts.get(interrupt.0 as usize),
            Callee::Unknown => Some(&self.unknown),
        }
    }
}
