//! Slots: what is known of each function, and where it is found.
//!
//! A function is looked for from the place on that its address is hashed to, in so few slots that no call
//! takes long, however full the table is. Where all of these are taken, the function with the lowest total of
//! them is replaced.

use core::cell::Cell;
use core::ptr;
use core::slice::from_raw_parts;

use super::Profile;
use super::stack::{HAS_SLOT, NO_SLOT, OUTERMOST};
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

    /// What a frame says of this slot: its address, where that fits, else its offset.
    #[inline(always)]
    pub(super) fn word(&self, slot: &Slot) -> u32 {
        (ptr::from_ref(slot).addr() - self.base().addr()) as u32 | HAS_SLOT
    }

    /// What frames count from.
    #[inline(always)]
    fn base(&self) -> *const Slot {
        match size_of::<usize>() {
            4 => ptr::null(),
            _ => self.slots.get(),
        }
    }

    /// The slot of which a frame says this.
    ///
    /// # Safety
    /// A frame of this table does, and it is not [`NO_SLOT`].
    #[inline(always)]
    pub(super) unsafe fn slot_of(&self, word: u32) -> &'static Slot {
        let offset = (word & !(HAS_SLOT | OUTERMOST)) as usize;
        // (On 32 bits the address itself, whose memory the table was given.)
        let slot = self.slots.get().with_addr(self.base().addr() + offset);
        // SAFETY: by this function's contract.
        unsafe { &*slot }
    }

    /// The first of the slots in which a function may be.
    #[inline(always)]
    fn place(&self, function: usize) -> *const Slot {
        let hash = (function as u32).wrapping_mul(0x9E37_79B1);
        let places = self.places.get();
        // (An Armv6-M has no multiplication to 64 bits, and no memory for 65536 slots.)
        let first = match cfg!(all(target_arch = "arm", not(target_has_atomic = "32"))) {
            true => ((hash >> 16).wrapping_mul(places) >> 16) as usize,
            false => ((u64::from(hash) * u64::from(places)) >> 32) as usize,
        };
        self.slots.get().wrapping_add(first)
    }

    /// The slot of a function, taken now if it has none; `None` if there is no room near its place. There is
    /// a table.
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

    /// Gives the function that [wants](Self::is_wanting) a slot that of the function with the lowest total near its
    /// place, and the newest call with it if that is one of it. A function that is open in a thread keeps its slot:
    /// where all are, the call is counted as one without.
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

    /// The slot with the lowest total, if that is below a limit, of those near a function's place whose functions
    /// are open in no thread.
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

    /// Gives a function the slot of another one, and counts what that had.
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
