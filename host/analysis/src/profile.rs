//! The profile: where the time went, function by function.
//!
//! - *count* is of all calls in the window whose entry or exit was seen. Calls of which neither was seen can be
//!   missing where events were lost: [`Bounds::missing_calls`] says how many at most. An entry and an exit that do not
//!   belong to each other for certain, behind a loss, count as one call, and may be two; and what is open where a window
//!   begins may have ended in a loss before: [`Row::uncounted`].
//! - *total* is the time in a function and its callees on its own thread, without the time when the thread
//!   was preempted and without interrupts; recursion counts once. *self* is that without callees. Calls that are
//!   open at the end of the trace or of the window, or when recording stops, count with their time up to there.
//! - Where events were lost, both are lower bounds: of a call that was open then, only the time up to the loss
//!   is certain. [`Row::total_max`] and [`Row::self_max`] are the times as they were seen. [`Bounds`] has upper bounds.
//! - *min*, *max* and *average* are those of complete calls: seen from begin to end, each with its own
//!   duration. Where only the exit was seen and the source states how long the call took, that is its duration, with a doubt:
//!   it is by the wall.
//!
//! A call whose exit is among what was lost seems to be open until the end, and all further calls of its
//! function to be recursive ones within it. In the total count its certain time, or that of those within it
//! that ended, whichever is more.

use kymo_event::{Duration, EventKind, EventRef, FunctionId, InterruptId};

use crate::calls::{Callee, Counts, End, How, Repair, Step};
use crate::recursion::Recursion;
use crate::replay::{Observer, Origin};

/// A sum by a count, rounded to the nearest nanosecond; 0 if there is none.
pub fn average(sum: Duration, count: u64) -> Duration {
    let rounded = sum.0.saturating_add(count / 2);
    Duration(rounded.checked_div(count).unwrap_or(0))
}

/// What is known of one function (or interrupt). See the [module](self) for what counts where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Calls whose entry or exit was seen, at least.
    pub count: u64,
    /// Ends besides that [may not count](End::uncounted).
    pub uncounted: u64,
    /// Of these: calls that were seen from begin to end.
    pub complete: u64,
    /// Time in the function and what it called, at least.
    pub total: Duration,
    /// The same as far as it was seen: with time that is not certain to be its own.
    pub total_max: Duration,
    /// Time in the function itself, at least.
    pub self_time: Duration,
    /// The same as far as it was seen.
    pub self_max: Duration,
    /// The durations of [`complete`](Self::complete) calls, also of those within each other.
    pub sum: Duration,
    /// The shortest of [`complete`](Self::complete) calls.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Calls that a `longjmp` left which the trace tells of. Their end is as certain as an exit.
    pub jumped: u64,
    /// Calls that an exception, or a `longjmp` that the trace does not tell of, left behind. Their end is
    /// taken to be that of the call that caught it.
    pub unwound: u64,
    /// Calls whose exit is among the lost events.
    pub lost: u64,
    /// Calls that returned, with a [`Doubt`](crate::calls::Doubt).
    pub doubtful: u64,
    /// Of all: calls whose time is in doubt because of a clock, so that it has no upper bound, and a
    /// complete call's may be too short.
    pub clock: u64,
    /// Of all: calls that nobody saw end and that took at least as long as the source states, so that their time has no
    /// upper bound.
    pub unseen_ends: u64,
    /// Exits whose enter nobody saw, and of which the source does not state how long their calls took: they have no time.
    pub orphans: u64,
    /// Calls of which the source does not tell when they ended, or how long they took: they have no time.
    pub without_end: u64,
    /// Calls of which only the exit was seen, and of which the source states how long they took by the wall: they are among the
    /// [`complete`](Self::complete) ones, and may have been shorter on the processor. (One that is certain is no such call.)
    pub stated: u64,
    /// Calls that were open when recording was turned off, the window ended, or the trace.
    pub open: u64,
    /// Calls that were open when the window began or ended.
    pub clipped: u64,
    /// Of those, calls whose end is within the window.
    pub clipped_at_begin: u64,
}

impl Row {
    /// Takes the end of a call; `within` is the time of calls of the same function that ended within it, if they
    /// are to count in its place.
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
        // The time of a call below which the same function is open is part of that call's.
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

    /// The row when all of its calls have ended: of two lower bounds of the total, the better one.
    fn whole(&self) -> Self {
        Self {
            total: self.total.max(self.self_time),
            ..*self
        }
    }

    /// All ends of calls in the row.
    pub const fn ends(&self) -> u64 {
        self.count.saturating_add(self.uncounted)
    }

    /// Calls of which it is not known how long they took.
    pub const fn without_time(&self) -> u64 {
        self.orphans + self.without_end
    }

    /// The average of [`complete`](Self::complete) calls, each with its own duration, so that it lies between the
    /// shortest and the longest; rounded to the nearest nanosecond, 0 if there is none.
    pub fn average(&self) -> Duration {
        average(self.sum, self.complete)
    }
}

/// How much what was lost can add to the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// How many calls of any function can be missing: those whose entries are among the lost events, and of whose exits nothing
    /// was seen. `None` if the source does not say how many events were lost.
    pub missing_calls: Option<u64>,
    /// How many calls are in no row, being too deep to follow: their time is in rows of others.
    pub too_deep: u64,
    /// Whether some of the missing ones were lost in front of the window.
    pub before: bool,
    /// Time of processors of which it is not certain in which function it passed. `None` if nothing was lost.
    pub uncertain: Option<Duration>,
    /// All time of processors; `None` if it is not known how long one of them ran in a loss.
    pub ran: Option<Duration>,
}

impl Bounds {
    /// The bounds after a whole trace or window, whose table this is.
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

    /// How many calls a row's function had at most; `None` if that is not known.
    pub fn count(&self, row: &Row) -> Option<u64> {
        let missing = self.missing_calls?.saturating_add(self.too_deep);
        Some(row.ends().saturating_add(missing))
    }

    /// How much its total can be at most; `None` if a clock is in doubt, nobody saw a call end, or calls were too deep to follow.
    pub fn total(&self, row: &Row) -> Option<Duration> {
        let most = match self.uncertain {
            Some(_) => self.ran?.max(row.total_max),
            None => row.total_max,
        };
        (row.clock + row.unseen_ends == 0 && self.too_deep == 0).then_some(most)
    }

    /// The same of its self time.
    pub fn self_time(&self, row: &Row) -> Option<Duration> {
        let most = match self.uncertain {
            Some(uncertain) => self.ran.map(|_| row.self_time + uncertain)?,
            None => row.self_max,
        };
        (row.clock + row.unseen_ends == 0 && self.too_deep == 0).then_some(most)
    }
}

/// Whether an event tells of lost events.
pub(crate) fn is_loss(event: EventRef<'_>) -> bool {
    match event.event.map(|event| &event.kind) {
        Some(EventKind::Gap(gap)) => gap.is_loss(),
        _ => false,
    }
}

/// The calls of a function that returned with times as they were measured: nearly all. They are added up apart,
/// for they add to most fields of a [`Row`] alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain {
    count: u64,
    /// The durations of calls that were not within another one of the same function, and of those that were.
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

/// What is known of one function: its calls that simply returned, and all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    plain: Plain,
    others: Row,
}

impl Sums {
    /// The whole row; `None` if there is nothing in it.
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

    /// Of the time that was charged to the function itself, so much did not pass.
    fn take_off(&mut self, by: Duration) {
        let rest = by - self.plain.self_time;
        self.plain.self_time = self.plain.self_time - by;
        self.others.self_time = self.others.self_time - rest;
        self.others.self_max = self.others.self_max - rest;
    }
}

/// A table of [`Row`]s, filled step by step.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By [`FunctionId`](kymo_event::FunctionId).
    functions: Vec<Sums>,
    /// By [`InterruptId`](kymo_event::InterruptId).
    interrupts: Vec<Sums>,
    unknown: Sums,
    /// The times of recursive calls that have ended.
    recursion: Recursion<Duration>,
}

impl Profile {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a step; only ends matter, and self time that turns out not to have passed.
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
            Step::ClockAhead { callee, by, .. } => self.sums(*callee).take_off(*by),
            Step::Event { event, .. } if is_loss(*event) => self.recursion.lose(),
            _ => {}
        }
    }

    /// Takes the end of the first call of a function, of one that did not simply return, or not before the first loss.
    #[cold]
    fn add_other(&mut self, end: End) {
        let within = self.recursion.end(&end, end.sure.unwrap_or_default());
        self.sums(end.callee).others.add(&end, within);
    }

    /// What is known of a callee, made if there is nothing.
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

    /// The rows of what was called, in the order of first sight: functions, then interrupts.
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
