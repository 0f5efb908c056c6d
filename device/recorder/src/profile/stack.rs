//! Shadow stacks: the calls of a thread, or of interrupts, that have not ended.
//!
//! A stack is a row of frames of which the first is the stack's own. All that is known of it is in
//! there, so that one pointer leads to it.

use core::cell::Cell;
use core::ptr::{self, NonNull};

/// A call that has not ended, or (the first of each stack) the stack itself: `kymo_frame_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Frame {
    /// The function; of a barrier 0. Of a stack: its thread.
    pub(super) address: Cell<usize>,
    /// Where the slot is, with [`HAS_SLOT`] and [`OUTERMOST`], or [`NO_SLOT`]. Of a stack: its [`Mark`].
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

impl Frame {
    /// Takes over what another one says.
    ///
    /// # Safety
    /// It is another one, and nobody else has to do with it now.
    #[inline(always)]
    pub(super) unsafe fn become_like(&self, other: &Self) {
        if cfg!(target_arch = "arm") {
            let place = ptr::from_ref(self).cast_mut();
            // SAFETY: by this function's contract; all of it is cells.
            unsafe { place.copy_from_nonoverlapping(other, 1) };
        } else {
            // Elsewhere a compiler may take that for a reason to call a function, and this is masked.
            self.address.set(other.address.get());
            self.mark.set(other.mark.get());
            self.extra.set(other.extra.get());
            self.start.set(other.start.get());
            self.charged.set(other.charged.get());
        }
    }
}

/// The call is not a recursive one.
pub(super) const OUTERMOST: u32 = 1;
/// The call has a slot.
pub(super) const HAS_SLOT: u32 = 2;
/// The call has no slot.
pub(super) const NO_SLOT: u32 = 0;
/// The address in the frame that an interrupt puts on its stack.
pub(super) const BARRIER: usize = 0;

/// What a stack has come to: how many calls are open (20 bits), those that did not fit among them; and how
/// often it has been emptied (12 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub u32);

impl Mark {
    /// One open call. What is less has none.
    pub const CALL: u32 = 1 << 12;

    /// How many calls are open.
    #[inline(always)]
    pub const fn open(self) -> u32 {
        self.0 / Self::CALL
    }

    /// With one call more. (With one too many nothing is open any more.)
    #[inline(always)]
    pub const fn more(self) -> Self {
        Self(self.0.wrapping_add(Self::CALL))
    }

    /// With one call less.
    #[inline(always)]
    pub const fn less(self) -> Self {
        Self(self.0.wrapping_sub(Self::CALL))
    }

    /// What it is when the stack has been emptied.
    #[inline(always)]
    pub const fn emptied(self) -> Self {
        Self(self.0.wrapping_add(1) % Self::CALL)
    }
}

/// A shadow stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack(NonNull<Frame>);

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

    /// What it has come to.
    #[inline(always)]
    pub fn mark(self) -> Mark {
        Mark(self.head().mark.get())
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
        head.mark.set(self.mark().emptied().0);
    }
}

/// What the table must know of the moment at which an entry or exit was recorded. All of it holds until
/// the next event is recorded, whoever does that.
#[derive(Debug)]
pub struct Moment {
    /// What the stack's clock shows (before it [is known](Self::is_at) when, how far it is behind), and how
    /// much of its time had been charged: what a call says that begins then.
    pub(super) call: Frame,
    /// What the stack had come to.
    pub(super) mark: Cell<Mark>,
    /// The stack that ran.
    pub(super) stack: Stack,
    /// How often the table had been cleared.
    pub(super) clears: u16,
}

impl Moment {
    /// It was at `now`.
    #[inline(always)]
    pub(super) fn is_at(&self, now: u64) {
        let time = &self.call.start;
        time.set(now.wrapping_add(time.get()));
    }

    /// Whether one of the calls above the newest barrier is that of this function.
    #[inline(always)]
    pub(super) fn has(&self, function: usize) -> bool {
        let mut n = self.mark.get().open();
        while n != 0 {
            // SAFETY: so many are open.
            let address = unsafe { self.stack.frame(n) }.address.get();
            if address == function {
                return true;
            }
            if address == BARRIER {
                break;
            }
            n -= 1;
        }
        false
    }
}
