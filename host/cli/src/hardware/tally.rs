//! Execution counts of instructions and outcomes of branches, derived from the counts of runs.

use std::collections::BTreeMap;
use std::rc::Rc;

use kymo_coresight::counts::Run;
use kymo_coresight::isa::Isa;

use super::counting::{Counted, steps_of};
use super::program::{Loaded, Program, Programs};

/// Execution count of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Executions.
    pub count: u64,
    /// Outcomes, if it is a branch and was the last instruction of a run.
    pub branch: Option<Taken>,
    /// Instruction set.
    pub isa: Isa,
}

/// Outcomes of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Executions in which it was taken.
    pub taken: u64,
    /// Executions in which it was not taken.
    pub not_taken: u64,
    /// Whether it is a conditional instruction, or was not taken at least once.
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

/// Adds the executions of a function's instructions by one source. `tallies` is keyed by address.
pub fn tally(
    tallies: &mut BTreeMap<u64, Tally>,
    counted: &Counted<'_>,
    function: &Loaded,
    programs: &mut Programs,
) {
    let (start, end) = (function.start, function.end);
    let runs = &counted.counts.runs;
    for run in runs.iter().filter(|run| run.start < end && run.end > start) {
        // Another file can have these addresses in another process or at another time.
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
