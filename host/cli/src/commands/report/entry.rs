//! Row of a table of functions.

use std::rc::Rc;

use kymo_analysis::calls::Callee;
use kymo_analysis::compensation::Compensation;
use kymo_analysis::profile::{self, Row};
use kymo_analysis::schedule::RunTime;
use kymo_analysis::statistics::{Measure, Statistic};
use kymo_analysis::titles;
use kymo_event::{Addr, Duration, Identities, InterruptKind, Irq, Stack};
use kymo_symbols::{Location, Symbols};

use super::by::{By, Key};
use crate::names::Names;

/// One row of the table.
pub struct Entry {
    /// The function, or the number of the group of calls.
    pub callee: Callee,
    pub place: Place,
    /// The values of its properties; the last one is the row's name.
    pub labels: Vec<(By, Rc<str>)>,
    /// Its key, unless rows are functions.
    pub key: Key,
    /// The number of its thread, if any.
    pub thread: Option<String>,
    pub location: Option<Location>,
    /// The file that contains the function, without directories, if the trace has it.
    pub object: Option<String>,
    pub row: Row,
    /// Upper bound on the number of calls; `None` if unknown.
    pub count_max: Option<u64>,
    /// Upper bounds on the times; `None` if unknown.
    pub total_max: Option<Duration>,
    pub self_max: Option<Duration>,
    /// The average of its complete calls, each with its own duration.
    pub average: Duration,
    /// The recording overhead that was subtracted.
    pub taken: Option<Taken>,
    /// Distribution of durations, and wall times, if a column needs them.
    pub statistic: Option<Statistic>,
    /// Whether its times are wall times.
    pub by_wall: bool,
    /// Whether its wall times have no upper bound, because lost events may belong to calls with long waits.
    pub wall_is_unbounded: bool,
    /// Time in which it did not run although it had been entered; only with `statistic`.
    pub off_cpu: Option<Duration>,
    /// Whether `off_cpu` is uncertain, because the processor time in it is a bound.
    pub off_cpu_in_doubt: bool,
    /// Its callers and callees, if a column needs them.
    pub relations: Relations,
    /// The number of its call sites, if a column needs it.
    pub call_sites: Option<u64>,
    /// The run time of a thread, an interrupt or a processor.
    pub run: Option<Run>,
}

/// Run time of a thread, an interrupt or a processor.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub time: RunTime,
    /// The time to which the run time is relative; `None` for an idle thread, and where it is unknown what ran.
    pub span: Option<Duration>,
    /// Whether the run time is a lower bound, because in parts of the trace it is unknown what ran.
    pub at_least: bool,
    /// Its number on the target.
    pub number: Option<String>,
    pub priority: Option<i64>,
    pub stack: Option<Stack>,
}

/// The mapped file that contains a function, without directories.
pub fn object(callee: Callee, identities: &Identities) -> Option<String> {
    let Callee::Function(id) = callee else {
        return None;
    };
    let function = identities.function(id)?;
    let space = identities.space(function.space)?;
    let path = &space.mappings.get(space.file_of(function)? as usize)?.path;
    Some(path.rsplit('/').next().unwrap_or(path).to_owned())
}

/// Callers and callees of a function.
#[derive(Default)]
pub struct Relations {
    /// Number of functions that call it.
    pub callers: u64,
    /// Number of functions that it calls.
    pub callees: u64,
    /// The callee with the most time under it.
    pub child: Option<Child>,
}

/// A callee under one caller.
pub struct Child {
    pub name: Rc<str>,
    /// Its time under this caller.
    pub time: Duration,
    /// Its calls by this caller.
    pub count: u64,
}

/// Address of a function or number of an interrupt on its target. Rows that are otherwise equal are sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Function(Addr),
    /// A function without an address.
    Name,
    Interrupt(InterruptKind, Irq),
    Unknown,
}

/// The subtracted overhead of a function, and the maximum error of the rest in either direction.
pub struct Taken {
    pub total: Duration,
    pub total_bound: Duration,
    pub self_time: Duration,
    pub self_bound: Duration,
    /// Whether the overhead exceeded the time.
    pub below_zero: bool,
    /// Whether it did so only for its callees.
    pub callees_below_zero: bool,
}

impl Entry {
    /// A row with only its name and counts.
    pub fn new(callee: Callee, place: Place, labels: Vec<(By, Rc<str>)>, row: Row) -> Self {
        Self {
            callee,
            place,
            labels,
            key: Key::default(),
            thread: None,
            location: None,
            object: None,
            row,
            count_max: None,
            total_max: None,
            self_max: None,
            average: row.average(),
            taken: None,
            statistic: None,
            by_wall: false,
            wall_is_unbounded: false,
            off_cpu: None,
            off_cpu_in_doubt: false,
            relations: Relations::default(),
            call_sites: None,
            run: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.labels.last().map_or("", |(_, label)| label)
    }

    /// The value of a property.
    pub fn label(&self, by: By) -> Option<&str> {
        let mut labels = self.labels.iter();
        let found = labels.find(|(of, _)| *of == by);
        found.map(|(_, label)| &**label)
    }

    /// Its run time as a thread, an interrupt or a processor.
    pub fn run_mut(&mut self) -> &mut Run {
        self.run.get_or_insert_default()
    }

    /// Subtracts the recording overhead in the calls of `callee`.
    pub fn compensate(&mut self, compensation: &Compensation, callee: Callee) {
        let charged = compensation.charged(callee);
        let row = &mut self.row;
        let left = charged.left(row);
        let taken = Taken {
            total: row.total - left.total,
            total_bound: compensation.bound(&charged.total),
            self_time: charged.self_time.cost(),
            self_bound: compensation.bound(&charged.self_time),
            below_zero: charged.self_time.cost() > row.self_time
                || (left.total == Duration(0) && charged.total.cost() > row.total),
            callees_below_zero: left.callees_below_zero && left.total > Duration(0),
        };
        self.average = profile::average(left.each, row.complete);
        self.total_max = self.total_max.map(|most| most - taken.total);
        self.self_max = self.self_max.map(|most| most - taken.self_time);
        (row.total, row.self_time) = (left.total, left.self_time);
        (row.min, row.max) = (charged.min, charged.max);
        self.taken = Some(taken);
    }

    /// Adds the distribution of durations and the wall times. With [`Measure::Wall`] the wall times replace those on
    /// the processor. `is_lossy` means that events were lost.
    pub fn measure(&mut self, statistic: &Statistic, measure: Measure, is_lossy: bool) {
        self.wall_is_unbounded = is_lossy;
        self.off_cpu_in_doubt = self.is_at_least(self.row.total, self.total_max);
        let mut statistic = statistic.clone();
        let (wall, row) = (&mut statistic.wall, &mut self.row);
        // Time on the processor is part of the wall time, so the larger of the two lower bounds applies.
        wall.self_time = wall.self_time.max(row.self_time);
        wall.total = wall.total.max(row.total).max(wall.self_time);
        wall.total_max = wall.total_max.max(wall.total);
        wall.self_max = wall.self_max.max(wall.self_time);
        let wall = *wall;
        let off_cpu = wall.total - row.total;
        // Without switches in the trace, it is unknown whether the function ran all the time.
        self.off_cpu = (statistic.switched || off_cpu > Duration(0)).then_some(off_cpu);
        self.statistic = Some(statistic);
        if measure == Measure::OnCpu {
            return;
        }
        self.by_wall = true;
        (row.total, row.self_time) = (wall.total, wall.self_time);
        (row.min, row.max) = (wall.min, wall.max);
        self.average = profile::average(wall.sum, wall.complete);
        let most = |known: Option<Duration>, wall| known.filter(|_| !is_lossy).map(|_| wall);
        self.total_max = most(self.total_max, wall.total_max);
        self.self_max = most(self.self_max, wall.self_max);
    }

    /// Whether the source records the end or duration of none of its calls.
    pub const fn is_without_ends(&self) -> bool {
        self.row.without_end > 0 && self.row.without_end == self.row.ends()
    }

    /// Whether a time is a lower bound: see [`is_at_least`].
    pub fn is_at_least(&self, time: Duration, most: Option<Duration>) -> bool {
        is_at_least(&self.row, time, most)
    }
}

/// Whether a time of a row is a lower bound: calls were open, clipped or of unknown duration, or lost events may have
/// hidden more.
pub fn is_at_least(row: &Row, time: Duration, most: Option<Duration>) -> bool {
    row.open + row.without_time() + row.clipped > 0 || most != Some(time)
}

/// Returns a row's place on the target, its name and its source location.
pub fn describe(
    callee: Callee,
    names: &Names<'_>,
    symbols: &Symbols,
    identities: &Identities,
) -> (Place, Rc<str>, Option<Location>) {
    match callee {
        Callee::Function(id) => {
            let function = identities.function(id);
            let address = function.and_then(|function| function.address);
            let location = function.and_then(|function| symbols.location_of(function));
            let place = address.map_or(Place::Name, Place::Function);
            (place, names.function(identities, id), location)
        }
        Callee::Interrupt(id) => {
            let found = identities.interrupts().get(id.0 as usize);
            let kind = found.map(|found| found.kind).unwrap_or_default();
            let place = Place::Interrupt(kind, identities.irq(id));
            (place, titles::interrupt(identities, id).into(), None)
        }
        Callee::Unknown => (Place::Unknown, "(unknown)".into(), None),
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::FunctionId;

    use super::*;

    /// A call whose times are uncertain: its self time is a lower bound of the total, also for wall times.
    #[test]
    fn what_ran_is_no_longer_than_the_wall() {
        let row = Row {
            count: 2,
            total: Duration(155),
            self_time: Duration(155),
            ..Row::default()
        };
        let callee = Callee::Function(FunctionId(0));
        for measure in [Measure::OnCpu, Measure::Wall] {
            let mut entry = Entry::new(callee, Place::Name, Vec::new(), row);
            let mut statistic = Statistic::default();
            statistic.wall.total = Duration(153);
            statistic.wall.self_time = Duration(155);
            statistic.wall.total_max = Duration(160);
            entry.measure(&statistic, measure, false);
            let wall = entry.statistic.as_ref().unwrap().wall;
            assert_eq!((wall.total, wall.total_max), (Duration(155), Duration(160)));
            assert_eq!(
                (entry.row.total, entry.row.self_time),
                (wall.total, wall.self_time)
            );
            assert_eq!(entry.off_cpu, None);
        }
    }
}
