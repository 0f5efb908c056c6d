//! From when to when a table counts, and forgetting what it counted.

use super::{NO_SLOT, OUTERMOST, Profile};
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
        // What others have begun to put into the table they leave then.
        self.leave_all();
        !self.paused.replace(true)
    }

    /// Empties every slot, however many there are. While [paused](Self::pause), or held off.
    #[inline(never)]
    pub fn wipe(&self) {
        for slot in self.table() {
            slot.address.set(0);
            slot.count.set(0);
            slot.active.set(0);
            slot.total.set(0);
            slot.self_time.set(0);
            slot.max.set(0);
        }
        self.no_slot.store(0, Ordering::Relaxed);
        self.too_deep.store(0, Ordering::Relaxed);
        self.unmatched.store(0, Ordering::Relaxed);
    }

    /// Takes events again, after [`wipe`](Self::wipe): from `now` on if recording is on, with so many
    /// interrupt handlers being served.
    pub fn resume(&self, now: u64, on: bool, interrupts: u8) {
        self.restart(now, on);
        self.paused.set(false);
        for _ in 0..interrupts {
            self.isr_enter(now);
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
    /// there are stacks and open calls, and does not look at the slots.
    #[inline(never)]
    pub fn record(&self, now: u64, on: bool) {
        let recorded = self.recorded(now);
        self.on.set(on);
        self.recorded.set(if on {
            now.wrapping_sub(recorded)
        } else {
            recorded
        });
        self.leave_all();
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
        for number in 0..self.stacks.get() {
            let stack = self.stack(number);
            let mark = stack.mark();
            let lost = mark.open().saturating_add(stack.head().skipped.get());
            self.count(&self.unmatched, lost);
            // A slot's bit is set from the outermost call of its function to the end of that.
            for n in 1..=mark.open() {
                // SAFETY: so many are open.
                let word = unsafe { stack.frame(n) }.mark.get();
                if word & OUTERMOST != 0
                    && let Some(slot) = self.slot_at(word & NO_SLOT)
                {
                    slot.active.set(slot.active.get() & !mark.bit());
                }
            }
            stack.empty(0);
        }
        self.running.set(None);
        self.thread.set(None);
        self.interrupts.set(0);
    }
}
