//! Instruction flow: packets and code become elements.
//!
//! The walk from one waypoint to the next is the same for all protocols and all of its cost; [`Blocks`] does it once for
//! each address and memory space. A block is a straight run of instructions up to its waypoint. It remembers the blocks
//! that follow if its branch is taken or not, so that an atom costs a look into an array; only targets that the trace
//! alone knows are looked up by address.

mod blocks;
mod etmv4;
mod return_stack;

pub use blocks::{Block, BlockId, Blocks, Stop};
pub use etmv4::{EtmV4Flow, EtmV4Options};

use crate::element::Element;

/// Where elements go.
pub trait Sink {
    /// Takes an element. `at` is the position in the stream of the packet from which it comes.
    fn element(&mut self, at: usize, element: Element);
}

impl Sink for Vec<(usize, Element)> {
    fn element(&mut self, at: usize, element: Element) {
        self.push((at, element));
    }
}
