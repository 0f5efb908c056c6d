//! Starts, stops and clears the profile table.

use super::Profile;
use crate::Target;
use crate::sync::Ordering;

impl<T: Target> Profile<T> {
    /// Clears everything; continues to count from `now` on if it was counting.
    pub fn clear(&self, now: u64) {
        if T::MIGRATES {
            // Each CPU empties the stacks that it uses.
            self.drop_calls();
        } else {
            self.leave_all();
        }
        self.wipe();
        self.restart(now, self.on.get());
    }

    /// Pauses the table, so that [`wipe`](Self::wipe) can take its time while other contexts record; returns false if
    /// another context has paused it and not yet [resumed](Self::resume) it.
    pub fn pause(&self) -> bool {
        self.leave_all();
        !self.paused.replace(true)
    }

    /// Clears all slots. Call it while [paused](Self::pause), or with the writer excluded.
    #[inline(never)]
    pub fn wipe(&self) {
        for word in self.words() {
            // (Without this, compilers call a function that is larger than all of this.)
            T::somewhere(word).set(0);
        }
        self.no_slot.store(0, Ordering::Relaxed);
        self.too_deep.store(0, Ordering::Relaxed);
        self.unmatched.store(0, Ordering::Relaxed);
        self.replaced.store(0, Ordering::Relaxed);
        self.replaced_total.set(0);
    }

    /// Resumes the table after [`wipe`](Self::wipe): it counts from `now` on if recording is on, then with so many
    /// active interrupt handlers. (While recording is off, the ends of handlers are not reported to the table.)
    pub fn resume(&self, now: u64, on: bool, interrupts: u8) {
        self.restart(now, on);
        self.paused.set(false);
        if on {
            for _ in 0..interrupts {
                self.isr_enter(now);
            }
        }
    }

    /// Sets whether the table counts from `now` on. Slots and stacks have been cleared.
    pub(super) fn restart(&self, now: u64, on: bool) {
        self.on.set(on);
        self.recorded.set(if on { now } else { 0 });
    }

    /// Handles recording being turned on or off at `now`.
    ///
    /// This runs between two events, on bare metal with interrupts masked. So its time is proportional to the number of
    /// stacks, not to that of calls or slots.
    #[inline(always)]
    pub fn record(&self, now: u64, on: bool) {
        self.set_recording(on, now);
    }

    /// The same, with the arguments in the order that takes the fewest registers.
    #[inline(never)]
    fn set_recording(&self, on: bool, now: u64) {
        let was = self.on.replace(on);
        if was != on {
            self.recorded.set(now.wrapping_sub(self.recorded.get()));
        }
        // (While recording was off nothing was pushed onto a stack. Those of several CPUs are not this CPU's to empty.)
        if was && !T::MIGRATES {
            self.leave_all();
        }
    }

    /// How long the table has counted.
    pub fn recorded(&self, now: u64) -> u64 {
        let recorded = self.recorded.get();
        if self.on.get() {
            now.wrapping_sub(recorded)
        } else {
            recorded
        }
    }

    /// Drops all open calls, counts them as unmatched, and deselects the running stack.
    #[inline(never)]
    fn leave_all(&self) {
        let Some(mut stack) = self.frames.get() else {
            return;
        };
        let mut lost = 0;
        let mut bit = 1;
        let mut left = u32::from(self.stacks.get());
        loop {
            lost += stack.open();
            stack.empty(0);
            stack.head().extra.set(bit >> 1);
            bit <<= 1;
            stack = self.next(stack);
            left -= 1;
            if left == 0 {
                break;
            }
        }
        self.count(&self.unmatched, lost);
        self.running.set(None);
        self.thread.set(None);
        self.interrupts.set(0);
        self.wanting.set(0);
    }
}
