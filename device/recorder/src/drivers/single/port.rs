//! What the recorder needs of a processor.

use crate::Target;
use crate::cost::Hooks;
use crate::items::{Item, Ring};
use crate::link::Link;

/// What the recorder needs of the processor. None of it may be instrumented.
pub trait SinglePort: Target {
    /// Masks interrupts; returns what [`unmask`](Self::unmask) needs to bring back what was.
    #[inline(always)]
    fn mask(&self) -> usize {
        Self::hold()
    }
    /// Brings back what was before the [`mask`](Self::mask) that returned `was`.
    #[inline(always)]
    fn unmask(&self, was: usize) {
        Self::let_go(was);
    }
    /// Whether masking does anything here. An unprivileged thread's is ignored, and interrupts would come between a
    /// record's bytes.
    fn is_privileged(&self) -> bool {
        true
    }
    /// Whether interrupts are masked now: they are behind [`mask`](Self::mask) unless that did nothing. The quicker one
    /// of two ways to tell.
    #[inline(always)]
    fn is_masked(&self) -> bool {
        self.is_privileged()
    }
    /// Finds a counter of the processor's own that counts now; returns after how many ticks it
    /// begins again, where 0 stands for 2^32. `None` if there is none.
    fn find_counter(&self) -> Option<u32>;
    /// The hooks as the program calls them, so that their cost can be measured; `None` if nobody
    /// calls them.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }
    /// Reads the counter that [`find_counter`](Self::find_counter) found, if it is not one that is read at
    /// its address. It counts up.
    fn counter(&self) -> u32;
    /// Where that counter is, if it has 32 bits and reading them from there is all there is to it.
    fn counter_address(&self) -> Option<*const u32>;
    /// Finds a counter of 32 bits that can be read at an address, and sees to it that it runs; nothing
    /// else will do.
    fn find_register(&self) -> Option<*const u32> {
        let turn = self.find_counter()?;
        self.counter_address().filter(|_| turn == 0)
    }
    /// Whether a hook may preempt while interrupts are masked (from a fault, an NMI) where the counter is
    /// read at an address, and is to be refused then. That takes some instructions more, and is in
    /// vain where hooks in assembly do not see it.
    const GUARDED: bool = true;
    /// Whether [`put_items`](Self::put_items) does anything.
    const PUTS_ITEMS: bool = false;
    /// Puts items down as [`Ring::produce`] does, at the time that it reads there, masked for this moment:
    /// false if that takes something first.
    ///
    /// # Safety
    /// The counter is there, and the ring has memory and [admits](Ring::admits) them.
    #[inline(always)]
    unsafe fn put_items(ring: &Ring<Self>, counter: *const u32, items: &[Item]) -> bool
    where
        Self: Sized,
    {
        let (_, _, _) = (ring, counter, items);
        false
    }
    /// The link, apart from the recorder so that programs without one need no memory for it.
    fn link(&self) -> &Link;
    /// Reads a counter of 32 bits.
    ///
    /// # Safety
    /// It is there.
    #[inline(always)]
    unsafe fn read(&self, counter: *const u32) -> u32 {
        // SAFETY: by this function's contract.
        unsafe { counter.read_volatile() }
    }
}
