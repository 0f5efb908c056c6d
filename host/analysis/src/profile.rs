//! Profile: count, total and self time of each function.
//!
//! - *count* is the number of calls in the window whose entry or exit was seen. Where events were lost, calls may be
//!   missing of which neither was seen: [`Bounds::missing_calls`] is their maximum. An entry and an exit after a loss
//!   that may not belong together count as one call and may be two; a call that is open where a window begins may
//!   have ended in an earlier loss: [`Row::uncounted`].
//! - *total* is the time in a function and its callees on its own thread, without preemption and without interrupts;
//!   recursion counts once. *self* is the same without callees. Calls that are open at the end of the trace or the
//!   window, or when recording stops, count with their time up to there.
//! - Where events were lost, both are lower bounds: of a call that was open then, only the time up to the loss is
//!   certain. [`Row::total_max`] and [`Row::self_max`] are the times as seen. [`Bounds`] has upper bounds.
//! - *min*, *max* and *average* are those of complete calls: seen from begin to end, each with its own duration.
//!   Where only the exit was seen and the source states the duration, that counts, with a doubt, because it is wall
//!   time.
//!
//! A call whose exit was lost seems to be open until the end, and all further calls of its function seem to be
//! recursive ones within it. Its part of the total is the larger of two values: its certain time, and that of the
//! calls within it that ended.

use kymo_event::{Duration, EventKind, EventRef, FunctionId, InterruptId};

use crate::calls::{Ahead, Callee, Counts, End, How, Repair, Step};
use crate::recursion::Recursion;
use crate::replay::{Observer, Origin};

/// Sum divided by count, rounded to the nearest nanosecond; 0 if the count is 0.
pub fn average(sum: Duration, count: u64) -> Duration {
    let rounded = sum.0.saturating_add(count / 2);
    Duration(rounded.checked_div(count).unwrap_or(0))
}

/// Totals of one function (or interrupt). See the [module](self) for the definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Calls whose entry or exit was seen, at least.
    pub count: u64,
    /// Further ends that [may not count](End::uncounted).
    pub uncounted: u64,
    /// Calls that are [complete](End::is_complete).
    pub complete: u64,
    /// Time in the function and its callees; a lower bound.
    pub total: Duration,
    /// The same as seen, including time that may not be its own.
    pub total_max: Duration,
    /// Time in the function itself; a lower bound.
    pub self_time: Duration,
    /// The same as seen.
    pub self_max: Duration,
    /// The durations of [`complete`](Self::complete) calls, including recursive ones.
    pub sum: Duration,
    /// The shortest of [`complete`](Self::complete) calls.
    pub min: Duration,
    /// The longest of [`complete`](Self::complete) calls.
    pub max: Duration,
    /// Calls that ended by a recorded `longjmp`. Their end is as certain as an exit.
    pub jumped: u64,
    /// Calls that an exception, or a `longjmp` without a record, abandoned. They are taken to end with the call that
    /// caught it.
    pub unwound: u64,
    /// Calls whose exit is among the lost events.
    pub lost: u64,
    /// Calls that returned, with a [`Doubt`](crate::calls::Doubt).
    pub doubtful: u64,
    /// Calls, of all, whose time is in doubt because of a clock: it has no upper bound, and may be too short even for
    /// a complete call.
    pub clock: u64,
    /// Calls, of all, whose end was not seen and for which the source states a minimum, so that their time has no
    /// upper bound.
    pub unseen_ends: u64,
    /// Exits whose enter was not seen and whose duration the source does not state: they have no time.
    pub orphans: u64,
    /// Calls whose end or duration the source does not record: they have no time.
    pub without_end: u64,
    /// Calls for which only the exit was seen and the source states the wall time. They are among the
    /// [`complete`](Self::complete) ones, and may have been shorter on the processor. (Calls whose times are certain
    /// are not among them.)
    pub stated: u64,
    /// Calls that were open when recording was turned off, or at the end of the window or the trace.
    pub open: u64,
    /// Calls that were open when the window began or ended.
    pub clipped: u64,
    /// Clipped calls whose end is within the window.
    pub clipped_at_begin: u64,
}

impl Row {
    /// Adds the end of a call; `within` is the time of calls of the same function that ended within it and may count
    /// in its place.
    fn add(&mut self, end: &End, within: Duration) {
        self.count += u64::from(!end.uncounted);
        self.uncounted += u64::from(end.uncounted);
        let (Some(duration), Some(self_time)) = (end.duration, end.self_time) else {
            match end.is_untimed() {
                true => self.without_end += 1,
                false => self.orphans += 1,
            }
            return;
        };
        self.self_max += self_time;
        // The time of a recursive call is part of the outer call of its function.
        if !end.recursive {
            self.total_max += duration;
        }
        if end.how == How::Returned && !end.doubt.any() && !end.clipped {
            if !end.recursive {
                self.total += duration;
            }
            self.self_time += self_time;
            self.add_complete(duration);
            return;
        }
        self.add_doubtful(*end, within);
    }

    fn add_complete(&mut self, duration: Duration) {
        self.min = match self.complete {
            0 => duration,
            _ => self.min.min(duration),
        };
        self.max = self.max.max(duration);
        self.complete += 1;
        self.sum += duration;
    }

    /// The rest of [`add`](Self::add) for calls that did not simply return.
    #[cold]
    fn add_doubtful(&mut self, end: End, within: Duration) {
        if !end.recursive {
            self.total += end.sure.unwrap_or_default().max(within);
        }
        self.self_time += end.sure_self.unwrap_or_default();
        if let Some(duration) = end.duration.filter(|_| end.is_complete()) {
            self.add_complete(duration);
        }
        self.clock += u64::from(end.doubt.clock);
        self.unseen_ends += u64::from(end.doubt.unseen_end);
        self.clipped += u64::from(end.clipped);
        self.clipped_at_begin += u64::from(end.clipped && end.how != How::Open);
        match end.how {
            How::Jumped => self.jumped += 1,
            How::Repaired(Repair::Unwound) => self.unwound += 1,
            How::Repaired(Repair::Lost) => self.lost += 1,
            How::Open | How::RecordingOff => self.open += 1,
            How::Orphan if end.is_certain() => {}
            How::Orphan => self.stated += 1,
            _ => self.doubtful += u64::from(end.doubt.any()),
        }
    }

    /// The row after all calls have ended: uses the better of two lower bounds of the total.
    fn whole(&self) -> Self {
        Self {
            total: self.total.max(self.self_time),
            ..*self
        }
    }

    /// All ends of calls in the row, counted or not.
    pub const fn ends(&self) -> u64 {
        self.count.saturating_add(self.uncounted)
    }

    /// Calls of unknown duration.
    pub const fn without_time(&self) -> u64 {
        self.orphans + self.without_end
    }

    /// The average of [`complete`](Self::complete) calls, each with its own duration, so that it lies between the
    /// shortest and the longest; rounded to the nearest nanosecond, 0 if there is none.
    pub fn average(&self) -> Duration {
        average(self.sum, self.complete)
    }
}

/// Upper bounds on what lost events can add to the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of missing calls of any function: those whose entries were lost and whose exits were not seen.
    /// `None` if the source does not record how many events were lost.
    pub missing_calls: Option<u64>,
    /// Calls that are in no row because they were too deep to follow; their time is in rows of others.
    pub too_deep: u64,
    /// Whether some of the missing calls were lost before the window.
    pub before: bool,
    /// Processor time that can't be attributed to a function for certain. `None` if nothing was lost.
    pub uncertain: Option<Duration>,
    /// Processor time in total; `None` if it is unknown how long a processor ran in a loss.
    pub ran: Option<Duration>,
}

impl Bounds {
    /// The bounds for a whole trace or window with this profile.
    pub fn of(counts: &Counts, profile: &Profile) -> Self {
        let sure = profile.rows().map(|(_, row)| row.self_time);
        let sure = sure.fold(Duration(0), |sum, time| sum + time);
        Self {
            missing_calls: (counts.unknown_gaps == 0).then_some(counts.missing_calls),
            too_deep: counts.too_deep,
            before: counts.losses_before > 0,
            uncertain: (counts.losses + counts.losses_before > 0).then(|| counts.ran - sure),
            ran: (counts.unbounded_gaps == 0).then_some(counts.ran),
        }
    }

    /// The upper bound of a row's count; `None` if unknown.
    pub fn count(&self, row: &Row) -> Option<u64> {
        let missing = self.missing_calls?.saturating_add(self.too_deep);
        Some(row.ends().saturating_add(missing))
    }

    /// The upper bound of a row's total; `None` if a clock is in doubt, the end of a call was not seen, or calls were
    /// too deep to follow.
    pub fn total(&self, row: &Row) -> Option<Duration> {
        let most = match self.uncertain {
            Some(_) => self.ran?.max(row.total_max),
            None => row.total_max,
        };
        (row.clock + row.unseen_ends == 0 && self.too_deep == 0).then_some(most)
    }

    /// The upper bound of a row's self time, under the same conditions.
    pub fn self_time(&self, row: &Row) -> Option<Duration> {
        let most = match self.uncertain {
            Some(uncertain) => self.ran.map(|_| row.self_time + uncertain)?,
            None => row.self_max,
        };
        (row.clock + row.unseen_ends == 0 && self.too_deep == 0).then_some(most)
    }
}

/// Whether an event reports lost events.
pub(crate) fn is_loss(event: EventRef<'_>) -> bool {
    match event.event.map(|event| &event.kind) {
        Some(EventKind::Gap(gap)) => gap.is_loss(),
        _ => false,
    }
}

/// Sums of calls that returned with times exactly as measured, which are nearly all. Kept apart because they add to
/// most fields of a [`Row`] alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain {
    count: u64,
    /// The durations of calls that were not recursive, and (`nested`) of those that were.
    total: Duration,
    nested: Duration,
    self_time: Duration,
    min: Duration,
    max: Duration,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            count: 0,
            total: Duration(0),
            nested: Duration(0),
            self_time: Duration(0),
            min: Duration(u64::MAX),
            max: Duration(0),
        }
    }
}

impl Plain {
    #[inline(always)]
    fn add(&mut self, duration: Duration, self_time: Duration, recursive: bool) {
        self.count += 1;
        self.self_time += self_time;
        if recursive {
            self.nested += duration;
        } else {
            self.total += duration;
        }
        self.min = self.min.min(duration);
        self.max = self.max.max(duration);
    }
}

/// Totals of one function: calls that simply returned, and all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    plain: Plain,
    others: Row,
}

impl Sums {
    /// The complete row; `None` if it is empty.
    fn row(&self) -> Option<Row> {
        if *self == Self::default() {
            return None;
        }
        let Self { plain, others } = self;
        let mut row = *others;
        if plain.count > 0 {
            row.min = match row.complete {
                0 => plain.min,
                _ => row.min.min(plain.min),
            };
            row.max = row.max.max(plain.max);
        }
        row.count += plain.count;
        row.complete += plain.count;
        row.total += plain.total;
        row.total_max += plain.total;
        row.self_time += plain.self_time;
        row.self_max += plain.self_time;
        row.sum += plain.total + plain.nested;
        Some(row.whole())
    }

    /// Subtracts excess time, which did not pass. (It stays in the least and the longest duration.)
    fn take_off(&mut self, ahead: &Ahead) {
        let by = ahead.by;
        let (plain, others) = (&mut self.plain, &mut self.others);
        if ahead.own {
            let rest = by - plain.self_time;
            plain.self_time = plain.self_time - by;
            others.self_time = others.self_time - rest;
            others.self_max = others.self_max - rest;
        }
        let of_plain = match ahead.recursive {
            true => &mut plain.nested,
            false => &mut plain.total,
        };
        let rest = by - *of_plain;
        *of_plain = *of_plain - by;
        others.sum = others.sum - rest;
        if !ahead.recursive {
            others.total = others.total - rest;
            others.total_max = others.total_max - rest;
        }
    }
}

/// A table of [`Row`]s, filled step by step.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Indexed by [`FunctionId`](kymo_event::FunctionId).
    functions: Vec<Sums>,
    /// Indexed by [`InterruptId`](kymo_event::InterruptId).
    interrupts: Vec<Sums>,
    unknown: Sums,
    /// The times of recursive calls that have ended.
    recursion: Recursion<Duration>,
}

impl Profile {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes a step; only ends matter, and excess time that a clock charged.
    #[inline(always)]
    pub fn add(&mut self, step: &Step<'_>) {
        match step {
            Step::End(end) => {
                let is_plain = end.how == How::Returned && !end.doubt.any() && !end.clipped;
                if let Callee::Function(function) = end.callee
                    && let (Some(duration), Some(self_time)) = (end.duration, end.self_time)
                    && is_plain
                    && !self.recursion.is_lossy()
                    && let Some(sums) = self.functions.get_mut(function.0 as usize)
                {
                    sums.plain.add(duration, self_time, end.recursive);
                } else {
                    self.add_other(*end);
                }
            }
            Step::ClockAhead(ahead) => self.sums(ahead.callee).take_off(ahead),
            Step::Event { event, .. } if is_loss(*event) => self.recursion.lose(),
            _ => {}
        }
    }

    /// Adds the end of a function's first call, of a call that did not simply return, or of any call after the first
    /// loss.
    #[cold]
    fn add_other(&mut self, end: End) {
        let within = self.recursion.end(&end, end.sure.unwrap_or_default());
        self.sums(end.callee).others.add(&end, within);
    }

    /// The sums of a callee, created if missing.
    #[inline(always)]
    fn sums(&mut self, callee: Callee) -> &mut Sums {
        let (table, index) = match callee {
            Callee::Function(function) => (&mut self.functions, function.0 as usize),
            Callee::Interrupt(interrupt) => (&mut self.interrupts, interrupt.0 as usize),
            Callee::Unknown => return &mut self.unknown,
        };
        if table.len() <= index {
            grow(table, index);
        }
        &mut table[index]
    }

    /// All rows that are not empty: functions in order of first appearance, then interrupts.
    pub fn rows(&self) -> impl Iterator<Item = (Callee, Row)> {
        let functions = (0..).zip(&self.functions);
        let functions = functions.map(|(id, row)| (Callee::Function(FunctionId(id)), row));
        let interrupts = (0..).zip(&self.interrupts);
        let interrupts = interrupts.map(|(id, row)| (Callee::Interrupt(InterruptId(id)), row));
        functions
            .chain(interrupts)
            .chain([(Callee::Unknown, &self.unknown)])
            .filter_map(|(callee, sums)| Some((callee, sums.row()?)))
    }

    /// The row of one function or interrupt.
    pub fn row(&self, callee: Callee) -> Option<Row> {
        match callee {
            Callee::Function(function) => self.functions.get(function.0 as usize)?.row(),
            Callee::Interrupt(interrupt) => self.interrupts.get(interrupt.0 as usize)?.row(),
            Callee::Unknown => self.unknown.row(),
        }
    }
}

#[cold]
fn grow(table: &mut Vec<Sums>, index: usize) {
    table.resize(index + 1, Sums::default());
}

impl Observer for Profile {
    #[inline(always)]
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        self.add(&step);
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{FunctionId, Time};

    use super::*;
    use crate::calls::{CallId, Doubt, TrackId};

    /// Ends of one function's calls: depth, duration, whether there was a loss, and how. The one at depth 0 is the
    /// outermost.
    fn row(ends: &[(u32, u64, bool, How)]) -> Row {
        let callee = Callee::Function(FunctionId(1));
        let mut profile = Profile::new();
        if ends.iter().any(|(_, _, loss, _)| *loss) {
            profile.recursion.lose();
        }
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
                sure: Some(Duration(if *loss { 0 } else { *duration })),
                sure_self: Some(Duration(u64::from(!*loss))),
                how: *how,
                doubt: Doubt {
                    loss: *loss,
                    clock: false,
                    interrupt: false,
                    unseen_end: false,
                },
                recursive: *depth > 0,
                clipped: false,
                uncounted: false,
                wall_is_stated: false,
            };
            profile.add(&Step::End(end));
        }
        profile.row(callee).expect("a row")
    }

    #[test]
    fn recursion_counts_once() {
        let row = row(&[
            (2, 10, false, How::Returned),
            (1, 30, false, How::Returned),
            (0, 50, false, How::Returned),
            (0, 5, true, How::Open),
        ]);
        assert_eq!((row.total, row.count), (Duration(50), 4));
        assert_eq!((row.total_max, row.complete), (Duration(55), 3));
        assert_eq!(
            (row.min, row.average(), row.max),
            (Duration(10), Duration(30), Duration(50))
        );
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
            (lossy.total, lossy.total_max),
            (Duration(27), Duration(100))
        );
        let whole = row(&ends(false));
        assert_eq!(
            (whole.total, whole.total_max),
            (Duration(100), Duration(100))
        );
        assert_eq!((whole.count, whole.complete), (6, 4));
    }

    #[test]
    fn what_was_lost_bounds_all_rows() {
        let mut profile = Profile::new();
        let row = Row {
            count: 1,
            complete: 1,
            total: Duration(30),
            total_max: Duration(30),
            self_time: Duration(10),
            self_max: Duration(10),
            ..Row::default()
        };
        profile.sums(Callee::Unknown).others = row;
        let whole = Counts {
            ran: Duration(100),
            ..Counts::default()
        };
        let bounds = Bounds::of(&whole, &profile);
        assert_eq!(bounds.total(&row), Some(Duration(30)));
        assert_eq!(bounds.self_time(&row), Some(Duration(10)));
        let lossy = Counts {
            losses: 1,
            missing_calls: 3,
            ..whole
        };
        let bounds = Bounds::of(&lossy, &profile);
        assert_eq!(bounds.count(&row), Some(4));
        assert_eq!(bounds.total(&row), Some(Duration(100)));
        assert_eq!(bounds.self_time(&row), Some(Duration(100)));
        let unknown = Counts {
            unknown_gaps: 1,
            ..lossy
        };
        assert_eq!(Bounds::of(&unknown, &profile).count(&row), None);
        let clock = Row { clock: 1, ..row };
        assert_eq!(bounds.self_time(&clock), None);
        let deep = Counts {
            too_deep: 1000,
            ..whole
        };
        let bounds = Bounds::of(&deep, &profile);
        assert_eq!(bounds.count(&row), Some(1001));
        assert_eq!((bounds.total(&row), bounds.self_time(&row)), (None, None));
    }
}
