//! Shadow stacks: the open calls of a thread, or of interrupts.
//!
//! A stack is an array of frames of which the first is the stack's head, with all its state: so one pointer is enough.

use core::cell::Cell;
use core::ptr::NonNull;

use super::pool::Owner;

/// An open call, or the head of a stack (its first frame): `kymo_frame_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Frame {
    /// The function; 0 in a barrier. In a stack's head: the thread.
    pub(super) address: Cell<usize>,
    /// The slot, with [`HAS_SLOT`] and [`OUTERMOST`], or [`NO_SLOT`]. In a stack's head: number of open calls,
    /// including those that did not fit. (On several CPUs, in a call, the filter of the calls below with [`OUTERMOST`].)
    pub(super) mark: Cell<u32>,
    /// In a stack's head: its bit in a slot; on several CPUs the filter of its open calls. In a call: the low bits of the buffer with which it last called `setjmp`;
    /// 0 for none.
    pub(super) extra: Cell<u32>,
    /// (Explicit, so that there is no padding.)
    #[cfg(target_pointer_width = "32")]
    pub(super) unused: Cell<u32>,
    /// Begin of the call on the stack's clock. In a stack's head: the difference between the time and the stack's clock
    /// or, while that is stopped, the value of the stack's clock.
    pub(super) start: Cell<u64>,
    /// How much of the stack's time had been charged to calls when this one began. In a stack's head: how much has been
    /// charged so far.
    pub(super) charged: Cell<u64>,
}

/// Flag: the call is not a recursive one.
pub(super) const OUTERMOST: u32 = 1;
/// Flag: the call has a slot.
pub(super) const HAS_SLOT: u32 = 2;
/// All flags.
pub(super) const FLAGS: u32 = OUTERMOST | HAS_SLOT;
/// The call has no slot.
pub(super) const NO_SLOT: u32 = 0;
/// Address in the frame that an interrupt pushes onto its stack.
pub(super) const BARRIER: usize = 0;

/// A shadow stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack(NonNull<Frame>);

impl Stack {
    /// The stack whose head is `first`.
    ///
    /// # Safety
    /// From there on there are frames, initialized and valid for good, more than calls are ever open; or the stack is
    /// never used.
    pub const unsafe fn new(first: *const Frame) -> Self {
        // SAFETY: by this function's contract there is one.
        Self(unsafe { NonNull::new_unchecked(first.cast_mut()) })
    }

    /// The stack's head.
    #[inline(always)]
    pub fn head(self) -> &'static Frame {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// The state of a stack of a [`Pool`](super::Pool).
    ///
    /// # Safety
    /// It is one of these.
    pub(super) unsafe fn owner(self) -> &'static Owner {
        // SAFETY: by this function's contract there is a frame for it before the head, and it is made of integers.
        unsafe { self.0.sub(1).cast().as_ref() }
    }

    /// Number of open calls, including those that did not fit.
    #[inline(always)]
    pub fn open(self) -> u32 {
        self.head().mark.get()
    }

    /// Whether the function of the newest call, which has a frame, is also that of another call above the newest
    /// barrier.
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

    /// Resumes the stack's clock at `now` if it was stopped, and stops it otherwise.
    #[inline(always)]
    pub fn toggle(self, now: u64) {
        let start = &self.head().start;
        start.set(now.wrapping_sub(start.get()));
    }

    /// Drops all open calls, and assigns the stack to this key. (The value of the clock does not matter to calls that
    /// begin later.)
    #[inline(always)]
    pub fn empty(self, key: usize) {
        let head = self.head();
        head.address.set(key);
        head.mark.set(0);
    }
}
