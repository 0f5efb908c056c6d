//! Hash table from start addresses to block numbers.

use super::{Block, BlockId, NONE};
use crate::isa::Isa;
use crate::memory::{MemorySpace, View};

/// Index of blocks by their starts. The keys are in the blocks, so a lookup reads one slot and one block.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    /// Slots, a power of two and at least twice the number of blocks; [`NONE`] marks an empty one.
    slots: Vec<BlockId>,
    len: usize,
}

/// Start of a block: address, instruction set and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub address: u64,
    pub space: MemorySpace,
    pub isa: Isa,
    pub view: View,
}

impl Key {
    fn of(block: &Block) -> Self {
        Key {
            address: block.start,
            space: block.space,
            isa: block.isa,
            view: block.view,
        }
    }

    #[inline]
    fn hash(&self) -> u64 {
        let view = u64::from(self.view.program()) << 32 | u64::from(self.view.change());
        let state = u64::from(self.space.0) << 56 | (self.isa as u64) << 48;
        let mixed = self.address ^ state ^ view.rotate_left(20);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Starts {
    /// Slot of a key: the one that contains it, or the empty one for it.
    #[inline]
    fn slot(&self, blocks: &[Block], key: &Key) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let mut slot = (key.hash() >> 32) as usize & mask;
        while let Some(block) = self.slots.get(slot).and_then(|id| blocks.get(*id as usize))
            && Key::of(block) != *key
        {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[inline]
    pub fn find(&self, blocks: &[Block], key: &Key) -> Option<BlockId> {
        let id = *self.slots.get(self.slot(blocks, key))?;
        (id != NONE).then_some(id)
    }

    /// Adds the last block.
    pub fn add(&mut self, blocks: &[Block]) {
        if self.slots.len() <= 2 * blocks.len() {
            self.slots.clear();
            self.slots
                .resize((4 * blocks.len()).next_power_of_two().max(64), NONE);
            self.len = 0;
        }
        while let Some(block) = blocks.get(self.len) {
            let slot = self.slot(blocks, &Key::of(block));
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = self.len as BlockId;
            }
            self.len += 1;
        }
    }
}
