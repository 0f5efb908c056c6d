//! Cache of paths: the blocks that the atoms of one packet execute from a start block on. Code runs in loops, so nearly
//! all packets of a trace follow a known path.

use super::blocks::{Block, BlockId};
use super::executions::Execution;
use crate::element::Leave;
use crate::etmv4::Atoms;
use crate::isa::Isa;

/// Number of a path.
pub type PathId = u32;

/// Limit of cached paths, which bounds memory to about 10 MB. Atoms without a path are followed block by block.
const MOST: usize = 1 << 17;

/// No path.
const NONE: PathId = PathId::MAX;

/// End of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Before a block, which the next atom executes.
    At(BlockId),
    /// After a taken indirect branch, whose target only the trace gives.
    Behind(BlockId),
}

/// Execution after a path or a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub end: End,
    /// Start address of the next block, or end address of the indirect branch.
    pub address: u64,
    /// Instruction set there.
    pub isa: Isa,
}

/// Blocks that the atoms of a packet execute. Only the last can have an unknown successor.
///
/// Has what following it needs of its blocks, in one cache line: blocks are many and large, and most packets follow a
/// known path.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Path {
    from: BlockId,
    atoms: Atoms,
    /// Index of its first execution among those of all paths.
    first: u32,
    /// Number of its executions, one for each atom.
    pub(super) len: u8,
    /// Whether one of them is a direct call, whose target is not in the trace.
    pub(super) calls: bool,
    pub(super) reached: Reached,
    /// Whether its last instruction is no branch, or one that was not taken.
    pub falls: bool,
    /// Address of its first instruction.
    pub start: u64,
    /// End address of its last instruction.
    pub end: u64,
    /// Size of its last instruction.
    last_size: u8,
}

impl Path {
    /// Address of the indirect branch at its end, if any.
    #[inline]
    pub fn branch(&self) -> Option<u64> {
        let is_branch = matches!(self.reached.end, End::Behind(_));
        is_branch.then(|| self.end.wrapping_sub(u64::from(self.last_size)))
    }
}

/// Cached paths.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// Slots, a power of two and at least twice the number of paths.
    slots: Vec<PathId>,
    all: Vec<Path>,
    executions: Vec<Execution>,
}

fn hash(from: BlockId, atoms: Atoms) -> usize {
    let key = u64::from(from) << 32 | u64::from(atoms.bits) << 5 | u64::from(atoms.count);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl Paths {
    /// Finds the path of atoms from a block on.
    #[inline]
    pub(super) fn find(&self, from: BlockId, atoms: Atoms) -> Option<(PathId, &Path)> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = hash(from, atoms) & mask;
        loop {
            let id = *self.slots.get(slot)?;
            let path = self.all.get(id as usize)?;
            if path.from == from && path.atoms == atoms {
                return Some((id, path));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Adds a path that is not cached yet.
    pub(super) fn add(
        &mut self,
        (from, atoms): (BlockId, Atoms),
        executions: &[Execution],
        reached: Reached,
        calls: bool,
        (first, last): (&Block, &Block),
    ) {
        if self.all.len() == MOST {
            return;
        }
        let is_taken = executions.last().is_some_and(|last| last.is_taken());
        self.all.push(Path {
            from,
            atoms,
            first: self.executions.len() as u32,
            len: executions.len() as u8,
            calls,
            reached,
            falls: last.range(0, is_taken).leave() == Leave::Next,
            start: first.start,
            end: last.end,
            last_size: last.last.size,
        });
        self.executions.extend_from_slice(executions);
        if self.slots.len() < 2 * self.all.len() {
            self.slots.clear();
            self.slots
                .resize((4 * self.all.len()).next_power_of_two().max(64), NONE);
            (0..self.all.len()).for_each(|id| self.place(id));
        } else {
            self.place(self.all.len() - 1);
        }
    }

    fn place(&mut self, id: usize) {
        let Some(path) = self.all.get(id) else { return };
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = hash(path.from, path.atoms) & mask;
        while self.slots.get(slot).is_some_and(|known| *known != NONE) {
            slot = (slot + 1) & mask;
        }
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = id as PathId;
        }
    }

    /// Executions of a path.
    #[inline]
    pub fn executions(&self, path: &Path) -> &[Execution] {
        let first = path.first as usize;
        self.executions
            .get(first..first + usize::from(path.len))
            .unwrap_or_default()
    }

    /// Path by its number.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.all.get(id as usize)
    }

    /// Removes all paths.
    pub(super) fn clear(&mut self) {
        *self = Paths::default();
    }
}
