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

    /// The sum of the calls of a row.
    pub fn sum(&self, callee: Callee) -> Duration {
        self.0.get(&callee).copied().unwrap_or_default()
    }
}

/// The average of the calls of a row, of which this is the sum: rounded down; 0 if there is none.
pub fn average(sum: Duration, row: &Row) -> Duration {
    Duration(sum.0.checked_div(row.count).unwrap_or(0))
}
