//! Slots: the counts and times of each function, and the hash table that finds them.
//!
//! The hash of a function's address selects the slot at which probing starts. Few slots are probed, so that no call
//! takes long, however full the table is. If all of them are in use, the function with the lowest total among them is
//! replaced.

use core::cell::Cell;
use core::ptr;
use core::slice::from_raw_parts;

use super::Profile;
use super::stack::{FLAGS, HAS_SLOT, NO_SLOT};
use crate::Target;

/// Number of slots that are probed for a function.
pub(super) const PROBES: u32 = 16;

/// Counts and times of one function: `kymo_slot_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    /// Address of the function; 0 in a free slot.
    pub(super) address: Cell<usize>,
    /// Number of calls that ended.
    pub(super) count: Cell<u32>,
    /// The threads' stacks on which the function may be open, and [`RECURSIVE`].
    pub(super) active: Cell<u32>,
    /// (Explicit, so that there is no padding.)
    #[cfg(target_pointer_width = "32")]
    pub(super) unused: Cell<u32>,
    /// Indexed by [`OWN`], [`TOTAL`], [`LEAST`] and [`MOST`].
    pub(super) times: [Cell<u64>; 4],
}

/// Bit of `active`: a recursive call has ended. (The other bits are those of threads' stacks.)
pub(super) const RECURSIVE: u32 = 1 << 31;

/// Index of the self time.
pub(super) const OWN: usize = 0;
/// Index of the total.
pub(super) const TOTAL: usize = 1;
/// Index of the minimum, stored as 2^64 - 1 minus the shortest call: 0 as long as there is none.
pub(super) const LEAST: usize = 2;
/// Index of the maximum.
pub(super) const MOST: usize = 3;

impl<T: Target> Profile<T> {
    /// The slots as machine words.
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

    /// Value for a frame that refers to this slot: its address, where that fits 32 bits, else its offset.
    #[inline(always)]
    pub(super) fn word(&self, slot: &Slot) -> u32 {
        (ptr::from_ref(slot).addr() - self.base().addr()) as u32 | HAS_SLOT
    }

    /// Base of the offsets in frames.
    #[inline(always)]
    fn base(&self) -> *const Slot {
        match size_of::<usize>() {
            4 => ptr::null(),
            _ => self.slots.get(),
        }
    }

    /// The slot that a frame's value refers to.
    ///
    /// # Safety
    /// The value is from a frame of this table, and it is not [`NO_SLOT`].
    #[inline(always)]
    pub(super) unsafe fn slot_of(&self, word: u32) -> &'static Slot {
        let offset = (word & !FLAGS) as usize;
        // (On 32-bit machines this is the address itself, within the memory of the table.)
        let slot = self.slots.get().with_addr(self.base().addr() + offset);
        // SAFETY: by this function's contract.
        unsafe { &*slot }
    }

    /// The slot at which probing for a function starts.
    #[inline(always)]
    fn place(&self, function: usize) -> *const Slot {
        let hash = (function as u32).wrapping_mul(0x9E37_79B1);
        let places = self.places.get();
        // (Armv6-M has no 64-bit multiplication, and no memory for 65536 slots.)
        let first = match cfg!(all(target_arch = "arm", not(target_has_atomic = "32"))) {
            true => ((hash >> 16).wrapping_mul(places) >> 16) as usize,
            false => ((u64::from(hash) * u64::from(places)) >> 32) as usize,
        };
        self.slots.get().wrapping_add(first)
    }

    /// The slot of a function, which gets a free one if it has none; `None` if all slots probed are in use. There is a
    /// table.
    #[inline(always)]
    pub(super) fn slot(&self, function: usize) -> Option<&'static Slot> {
        let mut slot = self.place(function);
        // SAFETY: it is one of the table's, by the contract of `set_up`.
        let first: &'static Slot = unsafe { &*slot };
        if first.address.get() == function {
            return Some(first);
        }
        let mut left = self.probes.get();
        loop {
            // SAFETY: as above.
            let it: &'static Slot = unsafe { &*slot };
            let address = it.address.get();
            if address == function {
                return Some(it);
            }
            if address == 0 {
                it.address.set(function);
                return Some(it);
            }
            slot = slot.wrapping_add(1);
            left -= 1;
            if left == 0 {
                return None;
            }
        }
    }

    /// Gives the slot with the lowest total, among those probed, to the function that [wants](Self::is_wanting) one,
    /// and connects it to the newest call if that is one of this function. A function that is open in a thread keeps
    /// its slot: if all are, the call is counted as one without a slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn replace(&self) {
        let function = self.wanting.replace(0);
        if function == 0 {
            return;
        }
        let slot = self.lowest(function, u64::MAX);
        let newest = self.running.get().and_then(|stack| {
            let open = stack.open();
            if open == 0 || open >= self.depth.get().into() {
                return None;
            }
            // SAFETY: so many are open.
            let frame = unsafe { stack.frame(open) };
            let is_it = frame.address.get() == function && frame.mark.get() == NO_SLOT;
            is_it.then_some((stack, frame))
        });
        if let Some(slot) = slot {
            self.give(slot, function);
            if let Some((stack, frame)) = newest {
                return frame.mark.set(self.open(stack, slot));
            }
        }
        self.count(&self.no_slot, 1);
    }

    /// The slot with the lowest total below a limit, among those probed for a function, whose function is not open in
    /// any thread.
    pub(super) fn lowest(&self, function: usize, below: u64) -> Option<&'static Slot> {
        let mut found = None;
        let mut least = below;
        let mut slot = self.place(function);
        let mut left = self.probes.get();
        loop {
            // SAFETY: it is one of the table's, by the contract of `set_up`.
            let it: &'static Slot = unsafe { &*slot };
            let total = it.times[TOTAL].get();
            if total < least && it.active.get() & !RECURSIVE == 0 {
                least = total;
                found = Some(it);
            }
            slot = slot.wrapping_add(1);
            left -= 1;
            if left == 0 {
                return found;
            }
        }
    }

    /// Gives a slot to another function, and counts what the slot had as losses.
    pub(super) fn give(&self, slot: &Slot, function: usize) {
        self.count(&self.replaced, 1);
        self.count(&self.no_slot, slot.count.get());
        let total = self.replaced_total.get();
        self.replaced_total
            .set(total.saturating_add(slot.times[TOTAL].get()));
        slot.address.set(function);
        slot.count.set(0);
        slot.active.set(0);
        for time in &slot.times {
            // (As in `wipe`.)
            T::somewhere(time).set(0);
        }
    }
}
