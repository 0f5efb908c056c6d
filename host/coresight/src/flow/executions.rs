//! Executions of blocks, handed on several at once: most packets of a trace are atoms of blocks that are known.

use super::blocks::BlockId;

/// One execution of a block: its number, and whether its last instruction was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution(u32);

impl Execution {
    /// Of a block, by its number, and whether its last instruction was taken.
    #[inline]
    pub fn new(block: BlockId, is_taken: bool) -> Self {
        Execution(block << 1 | u32::from(is_taken))
    }

    /// The block.
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

/// Most atoms of a packet.
pub(super) const MOST: usize = 24;
