//! The profile: where the time went, function by function.
//!
//! It has the meaning of the table that a target keeps by itself, so that over a capture without
//! loss the two agree: *total* is the time in a function and its callees on its own thread, without
//! the time when the thread was preempted and without interrupts; recursion counts once in the
//! total; every call counts in *count*, *min* and *max*, with its own duration. Calls that a
//! `longjmp` left end there, or, where the trace has no mark of it, with the exit that shows it; they
//! count.
//!
//! What was not seen whole is kept apart, so that a count can be shown as 4 210 ± 37: see
//! [`Row::uncertain`].

use kymo_event::Duration;

use crate::calls::{Callee, End, How, Repair, Step};
use crate::hash::FastMap;

/// What is known of one function (or interrupt). See the fields for what counts where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Calls whose begin and end are known or inferred: those that returned, that a `longjmp` left
    /// ([`jumped`](Self::jumped)), that were found to be left behind ([`unwound`](Self::unwound)),
    /// or whose exit was lost ([`lost`](Self::lost)).
    pub count: u64,
    /// Time in the function and what it called, recursion counted once.
    pub total: Duration,
    /// Time in the function itself.
    pub self_time: Duration,
    /// The shortest of [`count`](Self::count) calls.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Of [`count`](Self::count): calls that a `longjmp` left which the trace tells of. Their end is
    /// as certain as an exit.
    pub jumped: u64,
    /// Of [`count`](Self::count): calls that an exception, or a `longjmp` that the trace does not
    /// tell of, left behind. Their end is taken to be that of the call that caught it.
    pub unwound: u64,
    /// Of [`count`](Self::count): calls whose exit is among the lost events.
    pub lost: u64,
    /// Of [`count`](Self::count): calls that returned, with a [`Doubt`](crate::calls::Doubt).
    pub doubtful: u64,
    /// Beside [`count`](Self::count): exits whose enter nobody saw.
    pub orphans: u64,
    /// Beside [`count`](Self::count): calls that were open when recording was turned off or the
    /// trace ended.
    pub open: u64,
    /// Time in calls that were open at the end, up to there; not in [`total`](Self::total).
    pub open_total: Duration,
    /// Time in calls that were open at the end, without their callees; not in
    /// [`self_time`](Self::self_time).
    pub open_self: Duration,
}

impl Row {
    fn add(&mut self, end: &End) {
        let (Some(duration), Some(self_time)) = (end.duration, end.self_time) else {
            self.orphans += 1;
            return;
        };
        // The time of a call below which the same function is open is part of that call's.
        let once = if end.recursive { Duration(0) } else { duration };
        if matches!(end.how, How::Open | How::RecordingOff) {
            self.open += 1;
            self.open_total += once;
            self.open_self += self_time;
            return;
        }
        self.min = if self.count == 0 {
            duration
        } else {
            self.min.min(duration)
        };
        self.max = self.max.max(duration);
        self.count += 1;
        self.total += once;
        self.self_time += self_time;
        match end.how {
            How::Jumped => self.jumped += 1,
            How::Repaired(Repair::Unwound) => self.unwound += 1,
            How::Repaired(Repair::Lost) => self.lost += 1,
            _ => self.doubtful += u64::from(end.doubt.any()),
        }
    }

    /// [`total`](Self::total) by [`count`](Self::count), rounded down; 0 if there is none.
    pub fn average(&self) -> Duration {
        Duration(self.total.0.checked_div(self.count).unwrap_or(0))
    }

    /// By how many calls [`count`](Self::count) may be wrong, either way: those that were repaired,
    /// are in doubt, were open at the end, or ended without a begin.
    pub const fn uncertain(&self) -> u64 {
        self.unwound + self.lost + self.doubtful + self.orphans + self.open
    }
}

/// A table of [`Row`]s, filled step by step.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    rows: FastMap<Callee, Row>,
}

impl Profile {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a step; only ends matter, and self time that turns out not to have passed.
    pub fn add(&mut self, step: &Step<'_>) {
        match step {
            Step::End(end) => self.rows.entry(end.callee).or_default().add(end),
            Step::ClockAhead { callee, by, .. } => {
                let row = self.rows.entry(*callee).or_default();
                row.self_time = Duration(row.self_time.0.saturating_sub(by.0));
            }
            _ => {}
        }
    }

    /// The rows: functions in the order of their addresses, then interrupts by number.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (Callee, &Row)> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .map(|(callee, row)| (*callee, row))
            .collect();
        rows.sort_unstable_by_key(|(callee, _)| *callee);
        rows.into_iter()
    }

    /// The row of one function or interrupt.
    pub fn row(&self, callee: Callee) -> Option<&Row> {
        self.rows.get(&callee)
    }
}
