//! Starts, stops and clears the profile table.

use super::Profile;
use crate::Target;
use crate::sync::Ordering;

impl<T: Target> Profile<T> {
    /// Forgets everything; counts from `now` on if it was counting.
    pub fn clear(&self, now: u64) {
        self.leave_all();
        self.wipe();
        self.restart(now, self.on.get());
    }

    /// Takes no more events, so that [`wipe`](Self::wipe) can take its time while others record;
    /// false if somebody else has done so, and not yet [resumed](Self::resume).
    pub fn pause(&self) -> bool {
        self.leave_all();
        !self.paused.replace(true)
    }

    /// Empties every slot, however many there are. While [paused](Self::pause), or held off.
    #[inline(never)]
    pub fn wipe(&self) {
        for word in self.words() {
            // (A compiler would call for a piece of code that is larger than all of this.)
            T::somewhere(word).set(0);
        }
        self.no_slot.store(0, Ordering::Relaxed);
        self.too_deep.store(0, Ordering::Relaxed);
        self.unmatched.store(0, Ordering::Relaxed);
        self.replaced.store(0, Ordering::Relaxed);
        self.replaced_total.set(0);
    }

    /// Takes events again, after [`wipe`](Self::wipe): from `now` on if recording is on, then with so many interrupt
    /// handlers being served. (While it is off their ends are not reported to the table.)
    pub fn resume(&self, now: u64, on: bool, interrupts: u8) {
        self.restart(now, on);
        self.paused.set(false);
        if on {
            for _ in 0..interrupts {
                self.isr_enter(now);
            }
        }
    }

    /// Counts from `now` on, or not. Slots and stacks have been emptied.
    fn restart(&self, now: u64, on: bool) {
        self.on.set(on);
        self.recorded.set(if on { now } else { 0 });
    }

    /// Recording is on from `now`, or off.
    ///
    /// This happens between two events, with interrupts masked on bare metal. So it takes as long as
    /// there are stacks, and does not look at calls nor slots.
    #[inline(always)]
    pub fn record(&self, now: u64, on: bool) {
        self.set_recording(on, now);
    }

    /// The same, in the order that takes the fewest registers.
    #[inline(never)]
    fn set_recording(&self, on: bool, now: u64) {
        let was = self.on.replace(on);
        if was != on {
            self.recorded.set(now.wrapping_sub(self.recorded.get()));
        }
        // (While it was off nobody put anything on a stack.)
        if was {
            self.leave_all();
        }
    }

    /// For how long the table has been kept.
    pub fn recorded(&self, now: u64) -> u64 {
        let recorded = self.recorded.get();
        if self.on.get() {
            now.wrapping_sub(recorded)
        } else {
            recorded
        }
    }

    /// Nothing is open, and nobody runs. Calls that were open are counted as unmatched.
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
