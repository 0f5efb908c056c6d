//! The average duration of a function's calls, where calls can lie within each other.
//!
//! The total of a function counts recursion once, so by the number of its calls it would give an
//! average that can be below the shortest call. The average that stands between the shortest and
//! the longest is that of all calls, each with its own duration.

use std::collections::HashMap;

use kymo_analysis::calls::{Callee, How, Step};
use kymo_analysis::profile::Row;
use kymo_event::Duration;

/// The sum of every function's calls, each with its own duration.
#[derive(Debug, Default)]
pub struct Averages(HashMap<Callee, Duration>);

impl Averages {
    /// Takes a step; only the ends of calls count that [`Row::count`] counts.
    pub fn add(&mut self, step: &Step<'_>) {
        if let Step::End(end) = step
            && let (Some(duration), Some(_)) = (end.duration, end.self_time)
            && !matches!(end.how, How::Open | How::RecordingOff)
        {
            *self.0.entry(end.callee).or_default() += duration;
        }
    }

    /// The average of the calls of a row, rounded down; 0 if there is none. `cost` is what is to be
    /// taken off their sum.
    pub fn of(&self, callee: Callee, row: &Row, cost: Duration) -> Duration {
        let sum = self.0.get(&callee).copied().unwrap_or_default() - cost;
        Duration(sum.0.checked_div(row.count).unwrap_or(0))
    }
}
