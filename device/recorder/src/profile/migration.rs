//! Profile tables of several CPUs: each has the slots of one CPU, and shares the stacks of threads with the others.
//!
//! A call counts in the table of the CPU on which it ends. Its slot is looked for at that time, because its frame may
//! have come from another CPU, whose slots only that CPU changes. So a slot has no bits for the stacks on which its
//! function is open: instead each stack has a hash filter of the functions that are open on it, and a frame has the
//! filter of the stack below it. Only if the filter has the function's bit is the stack searched for a call of the same
//! function.

use kymo_wire::link::SetupError;

use super::slot::Slot;
use super::stack::{FLAGS, OUTERMOST, Stack};
use super::{Frame, Pool, Profile};
use crate::Target;

impl<T: Target> Profile<T> {
    /// Gives the table of the CPU of this number its slots, and clears it.
    ///
    /// # Errors
    /// When their number is unusable; there is no table then.
    ///
    /// # Safety
    /// As of [`set_up`](Self::set_up) for the slots; and the pool is set up.
    pub unsafe fn set_up_on_cpu(
        &self,
        slots: *const Slot,
        slot_count: u32,
        pool: &'static Pool,
        cpu: u16,
    ) -> Result<(), SetupError> {
        self.set_slots(slots, slot_count)?;
        self.pool.set(Some(pool));
        self.cpu.set(cpu);
        self.generation.set(pool.generation());
        self.frames.set(Some(pool.of_interrupts(cpu)));
        self.most.set(pool.most());
        self.depth.set(pool.most() + 1);
        self.on.set(false);
        self.wipe();
        self.restart(0, false);
        Ok(())
    }

    /// Ends all open calls, on all CPUs, uncounted: their exits will be ones without an entry.
    pub(super) fn drop_calls(&self) {
        if let Some(pool) = self.pool.get() {
            pool.end_calls();
        }
    }

    /// Continues at `now` after events may have been missed: in this thread, with so many interrupts active.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn catch_up(&self, now: u64, thread: usize, interrupts: u8) {
        let Some(pool) = self.pool.get() else { return };
        if self.generation.get() != pool.generation() {
            self.generation.set(pool.generation());
            self.give_stack_back(now);
            self.interrupts.set(0);
            self.run(now);
            if let Some(stack) = self.frames.get() {
                stack.clear();
            }
            self.take_stack(now, thread);
            for _ in 0..interrupts {
                self.isr_enter(now);
            }
        } else if interrupts == 0 && self.interrupts.get() == 0 && self.thread.get().is_some() {
            self.take_stack(now, thread);
        }
    }

    /// [`end_thread`](Self::end_thread) on the CPU of this table.
    pub(super) fn end_migrant(&self, thread: usize) {
        let Some(pool) = self.pool.get() else { return };
        let cpu = self.cpu.get();
        let own = self.thread.get();
        let open = match own.filter(|stack| pool.is_of(*stack, thread, cpu)) {
            Some(stack) => {
                let open = stack.open();
                stack.clear();
                open
            }
            None => pool.end_thread(thread, cpu),
        };
        self.count(&self.unmatched, open);
    }

    /// Gives the stack of the thread back at `now` if this is another thread, which gets its own at its next call.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn notice_thread(&self, now: u64, thread: usize) {
        let is_its = |stack| {
            let pool = self.pool.get();
            pool.is_some_and(|pool| pool.is_of(stack, thread, self.cpu.get()))
        };
        if self.thread.get().is_some_and(|stack| !is_its(stack)) {
            self.give_stack_back(now);
        }
    }

    /// Number of calls that are open on the stack of this CPU's interrupts, and have frames.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn open_in_interrupts(&self) -> u32 {
        let is_current = self
            .pool
            .get()
            .is_some_and(|pool| pool.generation() == self.generation.get());
        let stack = self.frames.get().filter(|_| is_current);
        let open = stack.map_or(0, |stack| stack.open().min(self.most.get().into()));
        // Each handler has a barrier there, too.
        open.saturating_sub(self.interrupts.get().into())
    }

    /// Uses no stack any more. For a CPU that has excluded this one; the pool then [takes them back](Pool::take_all_back).
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn release_stacks(&self) {
        self.thread.set(None);
        self.running.set(None);
        self.interrupts.set(0);
    }

    /// Counts calls whose end was not seen.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn count_unmatched(&self, calls: u32) {
        self.count(&self.unmatched, calls);
    }

    /// Sets whether slots must not change: then calls that end are counted as ones without a slot.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn read_slots(&self, reading: bool) {
        self.slots_read.set(reading);
    }

    /// Handles a switch to a thread.
    #[inline(never)]
    pub(super) fn take_stack(&self, now: u64, thread: usize) {
        let Some(pool) = self.pool.get() else { return };
        let (before, cpu) = (self.thread.get(), self.cpu.get());
        if before.is_some_and(|stack| pool.is_of(stack, thread, cpu)) {
            return self.run(now);
        }
        self.give_stack_back(now);
        self.thread
            .set(pool.take(thread, cpu, self.generation.get()));
        self.run(now);
    }

    /// Handles a switch away from a thread.
    #[inline(never)]
    pub(super) fn give_stack_back(&self, now: u64) {
        if let (Some(before), Some(pool)) = (self.thread.take(), self.pool.get()) {
            // (This stops its clock.)
            self.run(now);
            pool.give_back(before);
        }
    }

    /// The slot for a call of this function that ends, with this `mark` in its frame: its own, or a free one, or that of
    /// the function with the lowest total. `None` if slots must not change, which is counted.
    #[inline(always)]
    pub(super) fn slot_at_end(
        &self,
        head: &Frame,
        mark: u32,
        function: usize,
    ) -> Option<&'static Slot> {
        head.extra.set(mark & !FLAGS);
        if self.slots_read.get() {
            self.count(&self.no_slot, 1);
            return None;
        }
        self.slot(function).or_else(|| self.replaced(function))
    }

    #[cold]
    #[inline(never)]
    fn replaced(&self, function: usize) -> Option<&'static Slot> {
        let slot = self.lowest(function, u64::MAX)?;
        self.give(slot, function);
        Some(slot)
    }
}

impl Stack {
    /// Drops all open calls.
    pub(super) fn clear(self) {
        self.head().mark.set(0);
        self.head().extra.set(0);
    }

    /// Adds the newest call, which is one of this function, to the filter, and sets its frame's mark.
    #[inline(always)]
    pub(super) fn note(self, frame: &Frame, function: usize) {
        let filter = &self.head().extra;
        let before = filter.get();
        let bit = bit(function);
        let again = before & bit != 0 && self.calls_again();
        frame.mark.set(before | if again { 0 } else { OUTERMOST });
        frame.extra.set(0);
        filter.set(before | bit);
    }

    /// Separates the calls of an interrupt handler, whose barrier is this frame, from those below.
    pub(super) fn part(self, frame: &Frame) {
        frame.mark.set(self.head().extra.replace(0));
    }

    /// Removes the handler's barrier.
    pub(super) fn forget(self, frame: &Frame) {
        self.head().extra.set(frame.mark.get());
    }
}

/// A function's bit in the filter of a stack; the [`FLAGS`] of a mark are none.
#[inline(always)]
const fn bit(function: usize) -> u32 {
    let hash = (function as u32).wrapping_mul(0x9E37_79B1);
    // The upper half of `hash * 30`, a number below 30.
    1 << (2 + ((hash as u64 * 30) >> 32))
}
