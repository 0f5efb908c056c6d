//! What the driver for threads needs of the system.

use core::ptr::without_provenance_mut;

use super::ThreadBuffer;
use crate::{Edge, Target};

/// Functions that the recorder needs of the system.
pub trait ThreadPort: Target + 'static {
    /// The time in ticks. Must not be instrumented.
    fn now(&self) -> u64;
    /// Whether hooks must execute a fence themselves, because the system has no barrier that a reader can impose on all
    /// threads.
    fn fenced(&self) -> bool;
    /// Address in the calling thread's stack; never null.
    #[inline(always)]
    fn stack(&self) -> *mut u8 {
        without_provenance_mut(1)
    }
    /// Whether the calling thread has certainly left, by a jump, a hook that it entered with its stack at `there`, and
    /// will not return to it; false where that is unknown, in a handler that interrupts the hook, and in functions that
    /// a hook calls. `frame` is the hook that asks. Called only off the fast path.
    fn has_left(&self, there: *mut u8, frame: Frame) -> bool {
        let _ = (there, frame);
        false
    }
    /// Called off the fast path with the time of an event, by the thread buffer's thread, while inside: for periodic
    /// updates.
    #[inline(always)]
    fn refresh(&self, thread_buffer: &ThreadBuffer<Self>, now: u64)
    where
        Self: Sized,
    {
        let _ = (thread_buffer, now);
    }
    /// Whether the calling thread should record the wall-clock time at `now`. Called only off the fast path; returns
    /// true to one thread at a time.
    fn wall_clock_due(&self, now: u64) -> bool {
        let _ = now;
        false
    }
    /// The wall-clock time, if the system has it.
    fn wall_clock(&self) -> Option<WallClock> {
        None
    }
}

/// Where the stack of a hook begins.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The stack pointer at the hook's entry, or a lower one within the hook.
    pub stack: *mut u8,
    /// Return address of the function that called the hook; 0: unknown.
    pub caller: usize,
}

/// A wall-clock time.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The time in ticks to which it corresponds.
    pub now: u64,
    /// Nanoseconds since 1970 UTC.
    pub ns: u64,
    /// Uncertainty in nanoseconds, either way.
    pub uncertainty: u32,
}

impl Edge {
    /// The frame of a hook. Not every compiler passes the caller at an exit.
    #[inline(always)]
    pub(super) fn frame(self, stack: *mut u8, caller: usize) -> Frame {
        let caller = if self == Self::Enter { caller } else { 0 };
        Frame { stack, caller }
    }
}
