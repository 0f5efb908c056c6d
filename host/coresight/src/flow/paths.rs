//! Paths: what the atoms of one packet execute from a block on, remembered as a whole. Code runs in loops, so nearly all packets
//! of a trace follow a path that is known.

use super::blocks::{Block, BlockId};
use super::executions::Execution;
use crate::element::Leave;
use crate::etmv4::Atoms;

/// Number of a path.
pub type PathId = u32;

/// Most paths that are remembered, so that memory is bounded: about 10 MB. What has no path is followed block by block.
const MOST: usize = 1 << 17;

/// No path.
const NONE: PathId = PathId::MAX;

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To a block, at which the next atom finds execution.
    At(BlockId),
    /// Behind an indirect branch that was taken, of which only the trace knows the target.
    Behind(BlockId),
}

/// Blocks that the atoms of a packet execute, none of which but the last leaves open where it leads.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    from: BlockId,
    atoms: Atoms,
    /// Its executions among those of all paths.
    first: u32,
    /// How many they are, each of one atom.
    pub(super) len: u8,
    /// Whether one of them is a call, of which the trace does not say the target.
    pub(super) calls: bool,
    pub(super) ends: End,
    /// Whether its last instruction leads to the next one: it is no branch, or was not taken.
    pub falls: bool,
    /// Address behind its last instruction.
    pub end: u64,
    /// Address of the indirect branch with which it ends, if it does.
    pub branch: Option<u64>,
}

/// The paths that are remembered.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// A power of two of them, at least twice as many as there are paths.
    slots: Vec<PathId>,
    all: Vec<Path>,
    executions: Vec<Execution>,
}

fn hash(from: BlockId, atoms: Atoms) -> usize {
    let key = u64::from(from) << 32 | u64::from(atoms.bits) << 5 | u64::from(atoms.count);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl Paths {
    /// The path of atoms from a block on.
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

    /// Remembers one that is not known yet.
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

    /// What a path executes.
    #[inline]
    pub fn executions(&self, path: &Path) -> &[Execution] {
        let first = path.first as usize;
        self.executions
            .get(first..first + usize::from(path.len))
            .unwrap_or_default()
    }

    /// A path by its number.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.all.get(id as usize)
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        *self = Paths::default();
    }
}
