//! Shadow stacks: the calls of a thread, or of interrupts, that have not ended.
//!
//! A stack is a row of frames of which the first is the stack's own. All that is known of it is in
//! there, so that one pointer leads to it.

use core::cell::Cell;
use core::ptr::NonNull;

use crate::Target;

/// A call that has not ended, or (the first of each stack) the stack itself: `kymo_frame_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Frame {
    /// The function; of a barrier 0. Of a stack: its thread.
    pub(super) address: Cell<usize>,
    /// The slot's number and [`OUTERMOST`]. Of a stack: its [`Mark`].
    pub(super) mark: Cell<u32>,
    /// Of a stack: how many open calls did not fit. Of a call: the low bits of the buffer with which
    /// it last called `setjmp`; 0 for none.
    pub(super) skipped: Cell<u32>,
    /// When it began, on the stack's clock. Of a stack: how far its clock is behind, or, while it
    /// stands still, what it shows.
    pub(super) start: Cell<u64>,
    /// How much of the stack's time had been charged to calls when this one began. Of a stack: how
    /// much has been.
    pub(super) charged: Cell<u64>,
}

/// The call is not a recursive one.
pub(super) const OUTERMOST: u32 = 1 << 31;
/// The call has no slot.
pub(super) const NO_SLOT: u32 = OUTERMOST - 1;
/// The address in the frame that an interrupt puts on its stack.
pub(super) const BARRIER: usize = 0;

/// What a stack has come to: how many calls are open (16 bits), its number (5 bits), and a number that
/// is another one each time that the stack has been emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub u32);

impl Mark {
    /// The most calls that can be open.
    pub const MOST: u32 = 0xFFFF;
    const EMPTIED: u32 = 1 << 21;

    /// Of a stack of this number.
    pub const fn of(number: u8) -> Self {
        Self((number as u32) << 16)
    }

    /// How many calls are open.
    #[inline(always)]
    pub const fn open(self) -> u32 {
        self.0 & Self::MOST
    }

    /// The stack of interrupts has number 0.
    #[inline(always)]
    pub const fn is_of_interrupts(self) -> bool {
        self.0 & (Self::EMPTIED - 1) <= Self::MOST
    }

    /// The stack's bit in a slot.
    #[inline(always)]
    pub const fn bit(self) -> u32 {
        1 << (self.0 >> 16 & 31)
    }
}

/// A shadow stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack(NonNull<Frame>);

impl Stack {
    /// # Safety
    /// Frames that are initialized and for good begin there: more of them than calls are ever open.
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
    #[inline(never)]
    pub fn turn(self, now: u64) {
        let start = &self.head().start;
        start.set(now.wrapping_sub(start.get()));
    }

    /// Nothing is open from now on, and it is the stack of this key. Its clock stands at 0.
    pub fn empty(self, key: usize) {
        let head = self.head();
        head.address.set(key);
        let mark = (head.mark.get() & !Mark::MOST).wrapping_add(Mark::EMPTIED);
        head.mark.set(mark);
        head.skipped.set(0);
        head.start.set(0);
        head.charged.set(0);
    }
}

/// What the table must know of the moment at which an entry or exit was recorded. All of it holds until
/// the next event is recorded, whoever does that.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The stack that ran.
    pub(super) stack: Stack,
    /// What it had come to, its [`start`](Frame::start) and [`charged`](Frame::charged).
    pub(super) mark: Mark,
    pub(super) behind: u64,
    pub(super) charged: u64,
}

impl Moment {
    /// How many calls of the stack are newer than that of `function`, or what begins above the newest
    /// barrier; and whether there is that call (or barrier, if it is asked for).
    #[inline(never)]
    pub(super) fn search(&self, function: usize) -> (u32, bool) {
        let open = self.mark.open();
        for above in 0..open {
            // SAFETY: so many are open.
            match unsafe { self.stack.frame(open - above) }.address.get() {
                address if address == function => return (above, true),
                BARRIER => return (above, false),
                _ => {}
            }
        }
        (open, false)
    }

    /// Does something that no interrupt finds half done, which is to be at most twenty instructions; or
    /// not, if the stack has been emptied since its mark was this: false then.
    #[inline(always)]
    pub(super) fn step<T: Target>(&self, mark: u32, step: impl FnOnce()) -> bool {
        let was = T::hold();
        // Where nothing comes between, nobody empties it.
        let done = !T::SINGLE || self.stack.head().mark.get() == mark;
        if done {
            step();
        }
        T::let_go(was);
        done
    }
}
