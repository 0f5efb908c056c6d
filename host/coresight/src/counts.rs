//! Execution counts of straight runs and branches, for hot spots, coverage and profiles without an event for each
//! instruction or range.
//!
//! Streams are decoded independently, and long ones in parts, so that several threads can share the work; see
//! [`of_buffer`].

mod counter;
mod parts;

pub use parts::{Cut, of_buffer, of_buffer_cut};

use crate::doubts::Doubts;
use crate::element::Last;
use crate::instruction::Class;
use crate::isa::Isa;
use crate::memory::View;

/// Execution counts of one stream or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Number of packets.
    pub packets: u64,
    /// Number of ranges of instructions.
    pub ranges: u64,
    /// Instructions.
    pub instructions: u64,
    /// Number of instructions on an unknown path.
    pub without_path: u64,
    /// Number of exceptions.
    pub exceptions: u64,
    /// Distinct runs, by thread and address.
    pub runs: Vec<Run>,
    /// Taken branches whose target only the trace gives, by thread and addresses. Direct branches are part of the runs.
    pub jumps: Vec<Jump>,
    /// Trace that was not followed, and conflicts between trace and code.
    pub doubts: Doubts,
}

/// Straight run of instructions with its execution count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Thread, if known.
    pub thread: Option<u32>,
    /// View of the memory at the time.
    pub view: View,
    /// Address of the first instruction.
    pub start: u64,
    /// End address of the last instruction.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// The last instruction.
    pub last: Last,
    /// Target of the last instruction, if it is a direct branch.
    pub target: Option<u64>,
    /// Number of executions.
    pub executions: u64,
    /// Number of executions in which its last instruction, if a branch, was taken.
    pub taken: u64,
}

impl Run {
    fn key(&self) -> (Option<u32>, View, u64, u64, Isa, u32) {
        let Run {
            thread,
            view,
            start,
            end,
            isa,
            count,
            ..
        } = *self;
        (thread, view, start, end, isa, count)
    }

    /// Address of the last instruction.
    pub fn last_address(&self) -> u64 {
        self.end.wrapping_sub(u64::from(self.last.size))
    }

    /// Whether the last instruction is a branch.
    pub fn is_branch(&self) -> bool {
        matches!(self.last.class, Class::Branch | Class::Indirect)
    }
}

/// Taken branch with its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// Thread, if known.
    pub thread: Option<u32>,
    /// View of the memory at the time.
    pub view: View,
    /// Address of the branch.
    pub from: u64,
    /// Target; 0 if unknown, because the trace ends or stops there.
    pub to: u64,
    /// Number of times taken.
    pub count: u64,
}

impl Counts {
    /// Adds the counts of another stream.
    pub fn add(&mut self, other: Counts) {
        self.append(other);
        self.merge();
    }

    /// Appends the counts of another stream without sorting or merging runs and jumps.
    fn append(&mut self, other: Counts) {
        self.packets += other.packets;
        self.ranges += other.ranges;
        self.instructions += other.instructions;
        self.without_path += other.without_path;
        self.exceptions += other.exceptions;
        self.doubts.add(other.doubts);
        self.runs.extend(other.runs);
        self.jumps.extend(other.jumps);
    }

    /// Sorts runs and jumps, and merges equal ones.
    fn merge(&mut self) {
        // Runs are large, so sort their indexes instead, by the last part of the key first.
        let mut order: Vec<(u64, u32)> = (0..).zip(&self.runs).map(|(at, _)| (0, at)).collect();
        let parts: [fn(&Run) -> u64; 3] = [
            |run| run.start,
            |run| number(run.view),
            |run| run.thread.map_or(0, |number| u64::from(number) + 1),
        ];
        for part in parts {
            for (number, at) in &mut order {
                *number = self.runs.get(*at as usize).map_or(0, part);
            }
            sort_by_number(&mut order);
        }
        let mut runs: Vec<Run> = Vec::with_capacity(order.len());
        let sorted = order.iter();
        runs.extend(sorted.filter_map(|(_, index)| self.runs.get(*index as usize)));
        let is_same_start =
            |a: &Run, b: &Run| (a.start, a.thread, a.view) == (b.start, b.thread, b.view);
        for same in runs.chunk_by_mut(is_same_start) {
            same.sort_unstable_by_key(|run| (run.end, run.isa, run.count));
        }
        runs.dedup_by(|next, run| {
            let is_same = run.start == next.start && run.key() == next.key();
            if is_same {
                run.executions += next.executions;
                run.taken += next.taken;
                run.target = run.target.or(next.target);
            }
            is_same
        });
        self.runs = runs;
        self.jumps.sort_by_key(|jump| {
            let thread = jump.thread.map_or(0, |number| u64::from(number) + 1);
            (pair(thread, number(jump.view)), pair(jump.from, jump.to))
        });
        self.jumps.dedup_by(|next, jump| {
            let key = |jump: &Jump| (jump.thread, jump.view, jump.from, jump.to);
            let is_same = key(jump) == key(next);
            if is_same {
                jump.count += next.count;
            }
            is_same
        });
    }
}

/// Number of distinct runs in all of these.
pub fn distinct<'c>(all: impl Iterator<Item = &'c Counts> + Clone) -> usize {
    if let (1, Some(only)) = (all.clone().count(), all.clone().next()) {
        return only.runs.len();
    }
    let mut keys: Vec<_> = all.flat_map(|it| &it.runs).map(Run::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// Sorts indexes by number, and keeps the order of equal numbers. Goes byte by byte from the lowest (a radix sort), and
/// omits the bytes that are the same in all numbers: addresses of code are many in few images, and most traces have one
/// thread and one view.
fn sort_by_number(order: &mut Vec<(u64, u32)>) {
    let first = order.first().map_or(0, |(number, _)| *number);
    let numbers = order.iter().map(|(number, _)| number);
    let differing = numbers.fold(0, |bits, number| bits | number ^ first);
    if differing == 0 {
        return;
    }
    let mut sorted = order.clone();
    for shift in (0..u64::BITS).step_by(8) {
        if differing >> shift & 0xff == 0 {
            continue;
        }
        let byte = |number: u64| (number >> shift) as usize & 0xff;
        let mut slots = [0; 256];
        for (number, _) in order.iter() {
            slots[byte(*number)] += 1;
        }
        let mut next = 0;
        for slot in &mut slots {
            next += std::mem::replace(slot, next);
        }
        for entry in order.iter() {
            let slot = &mut slots[byte(entry.0)];
            sorted[*slot] = *entry;
            *slot += 1;
        }
        std::mem::swap(order, &mut sorted);
    }
}

/// Combines two numbers into one with the first in the upper half.
fn pair(first: u64, second: u64) -> u128 {
    u128::from(first) << 64 | u128::from(second)
}

/// Number with the same order as the view.
fn number(view: View) -> u64 {
    u64::from(view.program()) << 32 | u64::from(view.change())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_sorted_by_all_bytes_of_their_numbers() {
        let mut state = 1u64;
        for shift in [0, 8, 40, 63] {
            let mut random = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                // Both halves, and a few values only with a large shift.
                (state ^ state >> 29) >> shift
            };
            let mut order: Vec<(u64, u32)> = (0..1000).map(|index| (random(), index)).collect();
            let mut expected = order.clone();
            expected.sort();
            sort_by_number(&mut order);
            assert_eq!(order, expected);
        }
        sort_by_number(&mut Vec::new());
    }
}
