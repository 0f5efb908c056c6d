//! Cost of a row: the instructions of each call that its function made.

use crate::bench::listing::{Function, Instruction, Listing};
use crate::bench::machine::Machine;
use kymo_targets::run::{Error, Result};

/// A call: the addresses of its instructions, from the first one of the callee to its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call(pub Vec<u64>);

/// Returns the calls that `row` made, each checked against the listing. Instructions outside the listing are ignored,
/// because they are not the program's: the kernel's clock (vDSO), which Linux maps into every process, runs a loop for
/// each second by which the counter of `device/bench/step.c` differs from the real one.
///
/// # Errors
/// If the log has a sequence that can't have been executed.
pub fn calls(executed: &[u64], listing: &Listing, row: &Function) -> Result<Vec<Call>> {
    let inside = |address: u64| (row.address..row.address + row.size).contains(&address);
    let mut calls = Vec::new();
    let mut outside: Option<Vec<u64>> = None;
    let mut returns_to = None;
    for pair in executed.windows(2) {
        let &[from, to] = pair else { continue };
        match &mut outside {
            None if inside(from) && !inside(to) => {
                listing.check(from, to)?;
                // The row's own return leaves the row too, to its caller.
                let name = listing.instruction(from).map_or("", |it| it.name.as_str());
                if name.starts_with("bl") || name.starts_with("call") || name.starts_with("jal") {
                    returns_to = listing.after(from);
                    outside = Some(vec![to]);
                }
            }
            None => {}
            Some(call) => {
                listing.check(from, to)?;
                if Some(to) == returns_to {
                    calls.push(Call(std::mem::take(call)));
                    outside = None;
                } else if listing.instruction(to).is_some() {
                    call.push(to);
                }
            }
        }
    }
    if calls.is_empty() {
        return Err(Error::new(format!("{} called nothing", row.name)));
    }
    Ok(calls)
}

/// Joins consecutive calls into events of `together` calls.
///
/// # Errors
/// If the number of calls is not a multiple of `together`.
pub fn events(calls: Vec<Call>, together: usize) -> Result<Vec<Call>> {
    if !calls.len().is_multiple_of(together.max(1)) {
        let what = format!("{} calls, {together} an event", calls.len());
        return Err(Error::new(what));
    }
    let event = |calls: &[Call]| Call(calls.iter().flat_map(|call| call.0.clone()).collect());
    Ok(calls.chunks(together.max(1)).map(event).collect())
}

impl Call {
    /// The number of instructions.
    pub fn instructions(&self) -> usize {
        self.0.len()
    }

    /// The longest run of instructions with interrupts masked: from the one after the masking instruction to the
    /// unmasking one, inclusive.
    pub fn masked(&self, listing: &Listing, machine: &Machine) -> usize {
        let (mut longest, mut since) = (0, None);
        for (n, address) in self.0.iter().enumerate() {
            let Some(instruction) = listing.instruction(*address) else {
                continue;
            };
            if machine.masks(instruction) {
                since = since.or(Some(n));
            } else if machine.unmasks(instruction)
                && let Some(since) = since.take()
            {
                longest = longest.max(n - since);
            }
        }
        longest
    }

    /// The first of its instructions that locks memory: an exclusive access, or an atomic read-modify-write.
    pub fn locks<'a>(&self, listing: &'a Listing) -> Option<&'a Instruction> {
        let instructions = self.0.iter().filter_map(|at| listing.instruction(*at));
        instructions.into_iter().find(|it| it.locks())
    }

    /// The total size in bytes of the functions that it executed.
    pub fn code(&self, listing: &Listing) -> u64 {
        let mut functions: Vec<_> = self
            .0
            .iter()
            .filter_map(|address| listing.function_at(*address))
            .map(|function| (function.address, function.size))
            .collect();
        functions.sort_unstable();
        functions.dedup();
        functions.iter().map(|(_, size)| size).sum()
    }
}
