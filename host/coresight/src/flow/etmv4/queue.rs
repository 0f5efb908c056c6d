//! Queue of elements that wait for their commit.

use super::conditional::Keys;
use crate::element::{Element, Transaction};
use crate::etmv4::{Atoms, Config, Context, Fields, Kind, QElement};

/// Element of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    /// Position of the packet.
    pub at: usize,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    /// Uncommitted atoms.
    Atoms(Atoms),
    /// Address and instruction set bit.
    Address(u64, u8),
    /// Context, and the instruction set bit that goes with it.
    Context(Context, u8),
    TraceOn,
    TraceInfo,
    Exception {
        number: u32,
        is_branch_target: bool,
    },
    ExceptionReturn,
    /// Function return to the secure state of the M profile. It only counts as a P0 element: an address follows.
    FunctionReturn,
    Transaction(Transaction),
    Q(QElement),
    /// Source address and instruction set bit.
    Source(u64, u8),
    /// Packet of conditional instructions or results, with the keys before it; cancelled with the P0 element before. It
    /// can stand for many elements.
    Conditional(Keys, Kind, Fields),
    /// Element with a time but no instructions; cancels do not remove it.
    Times(Element),
}

impl Entry {
    pub fn new(at: usize, what: What) -> Self {
        Entry { at, what }
    }

    /// Whether it counts for commits and cancels (P0).
    pub fn is_p0(&self, config: &Config) -> bool {
        match self.what {
            What::Atoms(_) | What::Exception { .. } | What::Q(_) | What::Source(..) => true,
            What::FunctionReturn => true,
            What::ExceptionReturn => config.is_m_profile,
            What::Transaction(turn) => {
                turn == Transaction::Start && config.transaction_start_is_p0()
            }
            _ => false,
        }
    }
}

impl Atoms {
    /// Removes and returns the oldest atoms, at most this many.
    pub(super) fn first(&mut self, count: u32) -> Atoms {
        let count = u8::try_from(count).unwrap_or(u8::MAX).min(self.count);
        let first = Atoms {
            bits: self.bits & ((1u32 << count) - 1),
            count,
        };
        self.bits >>= count;
        self.count -= count;
        first
    }

    /// Drops the newest atoms, at most this many. Returns their number.
    pub(super) fn drop_newest(&mut self, count: u32) -> u32 {
        let dropped = count.min(u32::from(self.count));
        self.count -= dropped as u8;
        self.bits &= (1u32 << self.count) - 1;
        dropped
    }
}
