//! How often each instruction ran, and where its branch went: counts of runs, spread over their instructions.

use std::collections::BTreeMap;
use std::rc::Rc;

use kymo_coresight::counts::Run;
use kymo_coresight::isa::Isa;

use super::counting::{Counted, steps_of};
use super::program::{Loaded, Program, Programs};

/// How often an instruction ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Executions.
    pub count: u64,
    /// How often it was taken, if it is a branch that executed as the last of a run.
    pub branch: Option<Taken>,
    /// Its instruction set.
    pub isa: Isa,
}

/// What a branch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How often it was taken.
    pub taken: u64,
    /// How often it was not.
    pub not_taken: u64,
    /// Whether it can be not taken.
    pub is_conditional: bool,
}

impl Tally {
    /// Adds the executions of an instruction in a run.
    pub fn add(&mut self, run: &Run, address: u64) {
        self.count += run.executions;
        self.isa = run.isa;
        if run.is_branch() && address == run.last_address() {
            let branch = self.branch.get_or_insert_default();
            branch.taken += run.taken;
            branch.not_taken += run.executions - run.taken;
            branch.is_conditional |= run.last.is_conditional || branch.not_taken > 0;
        }
    }
}

/// Adds what a source ran of a function, by address.
pub fn tally(
    tallies: &mut BTreeMap<u64, Tally>,
    counted: &Counted<'_>,
    function: &Loaded,
    programs: &mut Programs,
) {
    let (start, end) = (function.start, function.end);
    let runs = &counted.counts.runs;
    for run in runs.iter().filter(|run| run.start < end && run.end > start) {
        // Another file can be at these addresses, in another process or at another time.
        let place = programs.place(counted.code.seen(run.view), run.start.max(start));
        let is_other = |own: &Rc<Program>| {
            place
                .as_ref()
                .is_some_and(|place| !Rc::ptr_eq(own, &place.program))
        };
        if function.program.as_ref().is_some_and(is_other) {
            continue;
        }
        for address in steps_of(counted.code, run) {
            if !(start..end).contains(&address) {
                continue;
            }
            tallies.entry(address).or_default().add(run, address);
        }
    }
}
