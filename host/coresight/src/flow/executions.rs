//! Executions of blocks, passed in batches: most packets of a trace are atoms of known blocks.

use super::blocks::BlockId;

/// Execution of a block: its number, and whether its last instruction was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution(u32);

impl Execution {
    /// Creates the execution of a block by its number; `is_taken` tells whether its last instruction was taken.
    #[inline]
    pub fn new(block: BlockId, is_taken: bool) -> Self {
        Execution(block << 1 | u32::from(is_taken))
    }

    /// Number of the block.
    #[inline]
    pub fn block(self) -> BlockId {
        self.0 >> 1
    }

    /// Whether its last instruction was taken, for a branch, or executed.
    #[inline]
    pub fn is_taken(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Maximum number of atoms in a packet.
pub(super) const MOST: usize = 24;
