//! How often each instruction ran, and where its branch went: counts of runs, spread over their instructions.

use std::collections::BTreeMap;

use kymo_coresight::instruction::Class;
use kymo_coresight::isa::Isa;

use super::counting::{Counted, steps_of};

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

/// Adds what a source ran from `start` to `end`, by address.
pub fn tally(tallies: &mut BTreeMap<u64, Tally>, counted: &Counted<'_>, start: u64, end: u64) {
    let runs = &counted.counts.runs;
    for run in runs.iter().filter(|run| run.start < end && run.end > start) {
        for address in steps_of(counted.code, run) {
            if !(start..end).contains(&address) {
                continue;
            }
            let tally = tallies.entry(address).or_default();
            tally.count += run.executions;
            tally.isa = run.isa;
            let is_branch = matches!(run.last.class, Class::Branch | Class::Indirect);
            if is_branch && address == run.last_address() {
                let branch = tally.branch.get_or_insert_default();
                branch.taken += run.taken;
                branch.not_taken += run.executions - run.taken;
                branch.is_conditional |= run.last.is_conditional || branch.not_taken > 0;
            }
        }
    }
}
