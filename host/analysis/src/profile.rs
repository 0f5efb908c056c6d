//! The profile: where the time went, function by function.
//!
//! It has the meaning of the table that a target keeps by itself, so that over a capture without
//! loss the two agree: *total* is the time in a function and its callees on its own thread, without
//! the time when the thread was preempted and without interrupts; recursion counts once in the
//! total; every call counts in *count*, *min* and *max*, with its own duration. Calls that a
//! `longjmp` left end there, or, where the trace has no mark of it, with the exit that shows it; they
//! count.
//!
//! A call whose exit is among what was lost seems to be open until the end, and all further calls of its function to be
//! recursive ones within it. Their time would be in no total at all, so where there was a loss, those that are whole are
//! in the total, and the one that seems open is not. (Without a loss it is open, and its time its own: so the target's
//! table has it. The time of the function itself can then be more than the total.)
//!
//! What was not seen whole is kept apart, so that a count can be shown as 4 210 ± 37: see
//! [`Row::uncertain`].

use kymo_event::Duration;

use crate::calls::{Callee, End, How, Repair, Step};
use crate::hash::FastMap;
use crate::within::Within;

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
    /// Time in calls that were open at the end, up to there, without what of it is in [`total`](Self::total).
    pub open_total: Duration,
    /// Time in calls that were open at the end, without their callees; not in
    /// [`self_time`](Self::self_time).
    pub open_self: Duration,
}

impl Row {
    /// Takes the end of a call; `within` is the time of calls of the same function that ended within it, if they
    /// are to count in its place.
    fn add(&mut self, end: &End, within: Duration) {
        let (Some(duration), Some(self_time)) = (end.duration, end.self_time) else {
            self.orphans += 1;
            return;
        };
        // The time of a call below which the same function is open is part of that call's.
        let once = if end.recursive { Duration(0) } else { duration };
        if matches!(end.how, How::Open | How::RecordingOff) {
            self.open += 1;
            self.open_total += once - within;
            self.total += within;
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
    /// The times of recursive calls that have ended.
    within: Within<Duration>,
}

impl Profile {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a step; only ends matter, and self time that turns out not to have passed.
    pub fn add(&mut self, step: &Step<'_>) {
        match step {
            Step::End(end) => {
                let within = self.within.end(end, end.duration.unwrap_or_default());
                self.rows.entry(end.callee).or_default().add(end, within);
            }
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

#[cfg(test)]
mod tests {
    use kymo_event::{Addr, Time};

    use super::*;
    use crate::calls::{CallId, Doubt, TrackId};

    /// Ends of one function's calls: depth, duration, whether there was a loss, and how. The one at depth 0 is the
    /// outermost.
    fn row(ends: &[(u32, u64, bool, How)]) -> Row {
        let callee = Callee::Function(Addr(1));
        let mut profile = Profile::new();
        for (depth, duration, loss, how) in ends {
            let end = End {
                track: TrackId(0),
                call: CallId(0),
                callee,
                time: Time(0),
                depth: *depth,
                begin: Some(Time(0)),
                wall: None,
                duration: Some(Duration(*duration)),
                self_time: Some(Duration(1)),
                how: *how,
                doubt: Doubt {
                    loss: *loss,
                    clock: false,
                    interrupt: false,
                },
                recursive: *depth > 0,
            };
            profile.add(&Step::End(end));
        }
        *profile.row(callee).expect("a row")
    }

    #[test]
    fn recursion_counts_once() {
        let row = row(&[
            (2, 10, false, How::Returned),
            (1, 30, false, How::Returned),
            (0, 50, false, How::Returned),
            (0, 5, true, How::Open),
        ]);
        assert_eq!((row.total, row.count), (Duration(55 - 5), 3));
        assert_eq!(row.open_total, Duration(5));
    }

    #[test]
    fn calls_within_one_that_seems_open_after_a_loss_count_in_its_place() {
        let ends = |loss| {
            [
                (3, 10, loss, How::Returned),
                (1, 30, loss, How::Returned),
                (1, 20, false, How::Returned),
                (4, 7, false, How::Returned),
                (2, 90, loss, How::Open),
                (0, 100, loss, How::Open),
            ]
        };
        let lossy = row(&ends(true));
        assert_eq!(
            (lossy.total, lossy.open_total),
            (Duration(57), Duration(43))
        );
        // Of an open one the time is its own: as a target has it in its table.
        let whole = row(&ends(false));
        assert_eq!(
            (whole.total, whole.open_total),
            (Duration(0), Duration(100))
        );
        assert_eq!((whole.count, whole.self_time), (4, Duration(4)));
    }
}
