//! Shadow stacks: the calls of a thread, or of interrupts, that have not ended.
//!
//! A stack is a row of frames of which the first is the stack's own. All that is known of it is in
//! there, so that one pointer leads to it.

use core::cell::Cell;
use core::ptr::NonNull;

/// A call that has not ended, or (the first of each stack) the stack itself: `kymo_frame_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Frame {
    /// The function; of a barrier 0. Of a stack: its thread.
    pub(super) address: Cell<usize>,
    /// Where the slot is, with [`HAS_SLOT`] and [`OUTERMOST`], or [`NO_SLOT`]. Of a stack: how many calls are open, those that did not fit
    /// among them.
    pub(super) mark: Cell<u32>,
    /// Of a stack: its bit in a slot. Of a call: the low bits of the buffer with which it last called
    /// `setjmp`; 0 for none.
    pub(super) extra: Cell<u32>,
    /// (So that there are no bytes between the others.)
    #[cfg(target_pointer_width = "32")]
    pub(super) unused: Cell<u32>,
    /// When it began, on the stack's clock. Of a stack: how far its clock is behind, or, while it
    /// stands still, what it shows.
    pub(super) start: Cell<u64>,
    /// How much of the stack's time had been charged to calls when this one began. Of a stack: how
    /// much has been.
    pub(super) charged: Cell<u64>,
}

/// The call is not a recursive one.
pub(super) const OUTERMOST: u32 = 1;
/// The call has a slot.
pub(super) const HAS_SLOT: u32 = 2;
/// The call has no slot.
pub(super) const NO_SLOT: u32 = 0;
/// The address in the frame that an interrupt puts on its stack.
pub(super) const BARRIER: usize = 0;

/// A shadow stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack(NonNull<Frame>);

impl Stack {
    /// # Safety
    /// Frames that are initialized and for good begin there, more of them than calls are ever open; or nobody
    /// looks at it.
    pub const unsafe fn new(first: *const Frame) -> Self {
        // SAFETY: by this function's contract there is one.
        Self(unsafe { NonNull::new_unchecked(first.cast_mut()) })
    }

    /// What there is to know of the stack itself.
    #[inline(always)]
    pub fn head(self) -> &'static Frame {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// How many calls are open, those that did not fit among them.
    #[inline(always)]
    pub fn open(self) -> u32 {
        self.head().mark.get()
    }

    /// Whether the function of the newest call, which fits, is that of another one above the newest barrier.
    #[cold]
    #[inline(never)]
    pub fn calls_again(self) -> bool {
        let mut n = self.open();
        // SAFETY: so many are open.
        let function = unsafe { self.frame(n) }.address.get();
        while n > 1 {
            n -= 1;
            // SAFETY: as above.
            let address = unsafe { self.frame(n) }.address.get();
            if address == function {
                return true;
            }
            if address == BARRIER {
                break;
            }
        }
        false
    }

    /// The frame of the `n`th open call, from 1 on.
    ///
    /// # Safety
    /// So many calls are open, or this is the next one and there is room for it.
    #[inline(always)]
    pub unsafe fn frame(self, n: u32) -> &'static Frame {
        // SAFETY: there are more frames than open calls, by the contract of `new`.
        unsafe { self.0.add(n as usize).as_ref() }
    }

    /// Its clock goes on at `now` if it stood still, and else stands still from then on.
    #[inline(always)]
    pub fn turn(self, now: u64) {
        let start = &self.head().start;
        start.set(now.wrapping_sub(start.get()));
    }

    /// Nothing is open from now on, and it is the stack of this key. (What its clock shows is the same to
    /// calls that begin later.)
    #[inline(always)]
    pub fn empty(self, key: usize) {
        let head = self.head();
        head.address.set(key);
        head.mark.set(0);
    }
}
