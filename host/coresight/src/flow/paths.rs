//! Cache of paths: the blocks that the atoms of one packet execute from a start block on. Code runs in loops, so nearly
//! all packets of a trace follow a known path.

use super::blocks::{Block, BlockId};
use super::executions::Execution;
use crate::element::Leave;
use crate::etmv4::Atoms;

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

/// Blocks that the atoms of a packet execute. Only the last can have an unknown successor.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    from: BlockId,
    atoms: Atoms,
    /// Index of its first execution among those of all paths.
    first: u32,
    /// Number of its executions, one for each atom.
    pub(super) len: u8,
    /// Whether one of them is a direct call, whose target is not in the trace.
    pub(super) calls: bool,
    pub(super) ends: End,
    /// Whether its last instruction is no branch, or one that was not taken.
    pub falls: bool,
    /// End address of its last instruction.
    pub end: u64,
    /// Address of the indirect branch at its end, if any.
    pub branch: Option<u64>,
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
        ends: End,
        calls: bool,
        last: &Block,
    ) {
        if self.all.len() == MOST {
            return;
        }
        let is_branch = matches!(ends, End::Behind(_));
        let is_taken = executions.last().is_some_and(|last| last.is_taken());
        self.all.push(Path {
            from,
            atoms,
            first: self.executions.len() as u32,
            len: executions.len() as u8,
            calls,
            ends,
            falls: last.range(0, is_taken).leave() == Leave::Next,
            end: last.end,
            branch: is_branch.then(|| last.end.wrapping_sub(u64::from(last.last.size))),
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
