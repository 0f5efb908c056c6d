//! Interface between the recorder and a single processor.

use crate::Target;
use crate::cost::Hooks;
use crate::items::{Item, Ring};
use crate::link::Link;

/// Functions that the recorder needs of the processor. None of them may be instrumented.
pub trait SinglePort: Target {
    /// Masks interrupts; returns the previous state for [`unmask`](Self::unmask).
    #[inline(always)]
    fn mask(&self) -> usize {
        Self::mask_interrupts()
    }
    /// Restores the state that [`mask`](Self::mask) returned.
    #[inline(always)]
    fn unmask(&self, was: usize) {
        Self::unmask_interrupts(was);
    }
    /// Whether masking has any effect here. The processor ignores it in an unprivileged thread, and interrupts could
    /// tear records.
    fn is_privileged(&self) -> bool {
        true
    }
    /// Whether interrupts are masked now, as they are after [`mask`](Self::mask) unless that had no effect.
    /// Implementations use the faster of two checks.
    #[inline(always)]
    fn is_masked(&self) -> bool {
        self.is_privileged()
    }
    /// Finds a counter of the processor's own that is counting; returns the number of ticks after which it wraps
    /// around, where 0 stands for 2^32. `None` if there is none.
    fn find_counter(&self) -> Option<u32>;
    /// The hooks as the program calls them, so that their overhead can be measured; `None` if nothing calls them.
    fn hooks(&self) -> Option<&'static Hooks> {
        None
    }
    /// Reads the counter that [`find_counter`](Self::find_counter) found, unless it can be read at its address. It
    /// counts up.
    fn counter(&self) -> u32;
    /// Address of that counter, if it has 32 bits and a load from there is all that reading takes.
    fn counter_address(&self) -> Option<*const u32>;
    /// Finds a 32-bit counter that can be read at an address, and starts it; no other kind is acceptable.
    fn find_register(&self) -> Option<*const u32> {
        let wrap = self.find_counter()?;
        self.counter_address().filter(|_| wrap == 0)
    }
    /// Whether, with a counter that is read at an address, the recorder checks for hooks that preempt masked code (from
    /// a fault or NMI), and refuses them. The check takes some instructions, and is useless where hooks in assembly
    /// omit it.
    const GUARDED: bool = true;
    /// Whether [`put_items`](Self::put_items) is implemented.
    const PUTS_ITEMS: bool = false;
    /// Stores items as [`Ring::produce`] does, at the time that it reads with interrupts masked; returns false if
    /// something has to be done first.
    ///
    /// # Safety
    /// The counter exists, and the ring has memory and [admits](Ring::admits) them.
    #[inline(always)]
    unsafe fn put_items(ring: &Ring<Self>, counter: *const u32, items: &[Item]) -> bool
    where
        Self: Sized,
    {
        let (_, _, _) = (ring, counter, items);
        false
    }
    /// The link, separate from the recorder so that programs without it need no memory for it.
    fn link(&self) -> &Link;
    /// Reads a 32-bit counter.
    ///
    /// # Safety
    /// It exists.
    #[inline(always)]
    unsafe fn read(&self, counter: *const u32) -> u32 {
        // SAFETY: by this function's contract.
        unsafe { counter.read_volatile() }
    }
}
