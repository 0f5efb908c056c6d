//! The passes over events that fill a table.

use std::collections::HashSet;
use std::sync::Arc;

use kymo_analysis::by_wall::ByWall;
use kymo_analysis::call_tree::CallTree;
use kymo_analysis::calls::{Begin, Callee, Step};
use kymo_analysis::groups::Groups;
use kymo_analysis::profile::Profile;
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_analysis::schedule::Schedule;
use kymo_analysis::statistics::{Measure, Statistics};
use kymo_event::{Addr, Batch, TraceInfo};
use kymo_symbols::Symbols;

use super::by::{Key, Keys};
use super::columns::{Column, Needs};
use super::doubts::Missing;
use crate::commands::compensated;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::Trace;

/// Analyses from which the table is made.
#[derive(Default)]
pub struct Shown {
    pub profile: Profile,
    pub missing: Missing,
}

impl Observer for Shown {
    #[inline(always)]
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        if let Step::Event { event, .. } = &step {
            self.missing.add(*event);
        }
        self.profile.step(origin, step);
    }
}

/// The same with analyses that only some columns need.
struct Detailed<'d> {
    shown: &'d mut Shown,
    details: &'d mut Details,
    info: &'d TraceInfo,
}

impl Observer for Detailed<'_> {
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        if let Some(statistics) = &mut self.details.statistics {
            statistics.step(&step);
        }
        if let Some(tree) = &mut self.details.tree {
            match &mut self.details.by_wall {
                Some(by_wall) => tree.step(self.info, &by_wall.step(step)),
                None => tree.step(self.info, &step),
            }
        }
        if let Some(sites) = &mut self.details.sites
            && let Step::Begin(Begin {
                callee,
                call_site: Some(site),
                ..
            }) = &step
        {
            sites.insert((*callee, *site));
        }
        self.shown.step(origin, step);
    }
}

/// Grouping of calls by a property other than their function.
pub struct Grouping<'s> {
    pub groups: Groups<Key>,
    pub keys: Keys<'s>,
}

/// An observer with groups in the place of functions.
struct Grouper<'g, 's> {
    grouping: &'g mut Grouping<'s>,
    out: Detailed<'g>,
}

impl Observer for Grouper<'_, '_> {
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        let Grouping { groups, keys } = self.grouping;
        let info = self.out.info;
        let step = groups.step(step, |call| keys.of(call, info));
        self.out.step(origin, step);
    }
}

/// Analyses that only some columns need.
#[derive(Default)]
pub struct Details {
    pub statistics: Option<Statistics>,
    pub tree: Option<CallTree>,
    /// Converts the tree's times to wall times, if these are wanted.
    by_wall: Option<ByWall>,
    /// The call sites of each callee.
    pub sites: Option<HashSet<(Callee, Addr)>>,
}

impl Details {
    pub fn needed(columns: &[&Column], measure: Measure) -> Self {
        let needs = |needs| columns.iter().any(|column| column.needs == needs);
        let statistics = needs(Needs::Statistics) || measure == Measure::Wall;
        Self {
            statistics: statistics.then(|| Statistics::new(measure)),
            tree: needs(Needs::Relations).then(|| CallTree::new(false)),
            by_wall: (measure == Measure::Wall).then(ByWall::default),
            sites: needs(Needs::CallSites).then(HashSet::new),
        }
    }

    const fn any(&self) -> bool {
        self.statistics.is_some() || self.tree.is_some() || self.sites.is_some()
    }
}

/// The replays for a table.
pub struct TableReplay<'s> {
    pub replay: Replay,
    pub shown: Shown,
    pub details: Details,
    /// The grouping, if rows are not functions.
    pub grouping: Option<Grouping<'s>>,
    /// The run times, if rows are threads, interrupts or processors.
    pub schedule: Option<Schedule>,
    /// The profile of the whole window, unless all of it is shown: percentages are relative to it.
    pub all: Option<(Replay, Profile)>,
    /// The charges of recording overhead. Overhead is subtracted from sums, which are right, and not from each call,
    /// where it can exceed the time. So the table needs the recorded times with the charges beside them.
    pub charges: Option<Replay>,
}

impl<'s> TableReplay<'s> {
    pub fn new(
        trace: &Trace,
        symbols: &Arc<Symbols>,
        part: &Part,
        compensate: bool,
        details: Details,
        grouping: Option<Grouping<'s>>,
    ) -> Result<Self, Report> {
        let info = trace.info();
        let window_alone = Options {
            window: part.window(),
            ..Options::default()
        };
        if compensate {
            compensated::check(info)?;
            if part.chooses_calls() {
                return Err(Report::new(
                    "--compensate takes the cost off whole functions, and these options choose single calls",
                )
                .help("--begin and --end go with it, and `kymo show --compensate` takes the others"));
            }
        }
        let charged = Options {
            compensate: true,
            ..window_alone.clone()
        };
        Ok(Self {
            replay: Replay::new(info, symbols, part.replay()),
            shown: Shown::default(),
            details,
            grouping,
            schedule: None,
            all: part.chooses_calls().then(|| {
                let replay = Replay::new(info, symbols, window_alone);
                (replay, Profile::new())
            }),
            charges: compensate.then(|| Replay::new(info, symbols, charged)),
        })
    }

    /// Processes the next events. Returns whether more are needed.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> bool {
        if let Some((replay, profile)) = &mut self.all {
            replay.batch_to(info, batch, profile);
        }
        if let Some(charges) = &mut self.charges {
            charges.batch(info, batch, &mut |_, _| {});
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.batch(info, batch);
        }
        if self.details.any() || self.grouping.is_some() {
            return self.detailed(info, |replay, mut out| match &mut out {
                Out::Functions(detailed) => replay.batch_to(info, batch, detailed),
                Out::Groups(grouper) => replay.batch_to(info, batch, grouper),
            });
        }
        self.replay.batch_to(info, batch, &mut self.shown)
    }

    pub fn finish(&mut self, info: &TraceInfo) {
        if let Some((replay, profile)) = &mut self.all {
            replay.finish_to(info, profile);
        }
        if let Some(charges) = &mut self.charges {
            charges.finish(info, &mut |_, _| {});
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.finish(info);
        }
        self.detailed(info, |replay, mut out| match &mut out {
            Out::Functions(detailed) => replay.finish_to(info, detailed),
            Out::Groups(grouper) => replay.finish_to(info, grouper),
        });
    }

    /// Passes the replay to the observer of its steps.
    fn detailed<T>(
        &mut self,
        info: &TraceInfo,
        go: impl FnOnce(&mut Replay, Out<'_, 's>) -> T,
    ) -> T {
        let detailed = Detailed {
            shown: &mut self.shown,
            details: &mut self.details,
            info,
        };
        let out = match &mut self.grouping {
            Some(grouping) => Out::Groups(Grouper {
                grouping,
                out: detailed,
            }),
            None => Out::Functions(detailed),
        };
        go(&mut self.replay, out)
    }
}

/// The observer of the steps.
enum Out<'g, 's> {
    Functions(Detailed<'g>),
    Groups(Grouper<'g, 's>),
}
