//! Slots: what is known of each function, and where it is found.
//!
//! A function is looked for from the place on that its address is hashed to, in so few slots that no call
//! takes long, however full the table is.

use core::cell::Cell;
use core::ptr;
use core::slice::from_raw_parts;

use super::Profile;
use super::stack::{HAS_SLOT, OUTERMOST};
use crate::Target;

/// How many slots are looked at for a function before it has none.
pub(super) const PROBES: u32 = 16;

/// What is known of one function: `kymo_slot_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    /// Where the function begins; 0 in a free slot.
    pub(super) address: Cell<usize>,
    /// Calls that ended.
    pub(super) count: Cell<u32>,
    /// The threads' stacks on which the function may be, and [`RECURSIVE`].
    pub(super) active: Cell<u32>,
    /// (So that there are no bytes between the others.)
    #[cfg(target_pointer_width = "32")]
    pub(super) unused: Cell<u32>,
    /// [`OWN`], [`TOTAL`], [`LEAST`] and [`MOST`].
    pub(super) times: [Cell<u64>; 4],
}

/// In a slot: a call ended that was a recursive one. (Threads' stacks have the other bits.)
pub(super) const RECURSIVE: u32 = 1 << 31;

/// Of a slot's times: self time.
pub(super) const OWN: usize = 0;
/// The total.
pub(super) const TOTAL: usize = 1;
/// What the shortest call is shorter than 2^64 - 1: 0 as long as there is none.
pub(super) const LEAST: usize = 2;
/// The longest call.
pub(super) const MOST: usize = 3;

impl<T: Target> Profile<T> {
    /// The same in words.
    pub(super) fn words(&self) -> &'static [Cell<usize>] {
        let table = self.table();
        // SAFETY: a slot is made of cells that may have any bits, with nothing between them.
        unsafe {
            from_raw_parts(
                table.as_ptr().cast(),
                size_of_val(table) / size_of::<usize>(),
            )
        }
    }

    /// What a frame says of this slot.
    #[inline(always)]
    pub(super) fn word(&self, slot: &Slot) -> u32 {
        (ptr::from_ref(slot).addr() - self.slots.get().addr()) as u32 | HAS_SLOT
    }

    /// The slot of which a frame says this; any if it says that there is none.
    #[inline(always)]
    pub(super) fn slot_of(&self, word: u32) -> &'static Slot {
        let offset = (word & !(HAS_SLOT | OUTERMOST)) as usize;
        // SAFETY: frames speak of slots that there are.
        unsafe { &*self.slots.get().byte_add(offset) }
    }

    /// The slot of a function, taken now if it has none; `None` if there is no room near its place. There is
    /// a table.
    pub(super) fn slot(&self, function: usize) -> Option<&'static Slot> {
        let count = self.slot_count.get();
        let hash = (function as u32).wrapping_mul(0x9E37_79B1);
        let first = ((u64::from(hash) * u64::from(count)) >> 32) as usize;
        let begin = self.slots.get();
        let end = begin.wrapping_add(count as usize);
        let mut slot = begin.wrapping_add(first);
        let mut left = u32::from(self.probes.get());
        loop {
            // SAFETY: it is one of the table's, by the contract of `set_up`.
            let it: &'static Slot = unsafe { &*slot };
            let mut address = it.address.get();
            if address == 0 {
                address = it.claim::<T>(function);
            }
            if address == function {
                return Some(it);
            }
            slot = slot.wrapping_add(1);
            if slot == end {
                slot = begin;
            }
            left -= 1;
            if left == 0 {
                return None;
            }
        }
    }
}

impl Slot {
    /// Becomes that of a function, if it is still free; whose it is then.
    #[inline(always)]
    fn claim<T: Target>(&self, function: usize) -> usize {
        let was = T::hold();
        let mut address = self.address.get();
        if address == 0 {
            self.address.set(function);
            address = function;
        }
        T::let_go(was);
        address
    }
}
