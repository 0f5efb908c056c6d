//! Selects the running stack, at thread switches and interrupts.

use super::Profile;
use super::stack::BARRIER;
use crate::Target;

impl<T: Target> Profile<T> {
    /// Handles the entry of an interrupt handler.
    #[inline(never)]
    pub fn isr_enter(&self, now: u64) {
        self.interrupts.set(self.interrupts.get().saturating_add(1));
        self.run(now);
        if let Some(stack) = self.running.get() {
            let frame = self.push(stack, now, BARRIER);
            if T::MIGRATES
                && let Some(frame) = frame
            {
                stack.part(frame);
            }
        }
    }

    /// Handles the exit of an interrupt handler.
    pub fn isr_exit(&self, now: u64) {
        let interrupts = self.interrupts.get();
        if interrupts == 0 {
            return;
        }
        if let Some(stack) = self.running.get() {
            self.leave(stack, now, BARRIER, 0);
        }
        self.interrupts.set(interrupts - 1);
        self.run(now);
    }

    /// Handles a switch to a thread.
    #[inline(always)]
    pub fn switched_in(&self, now: u64, thread: usize) {
        if T::MIGRATES {
            return self.take_stack(now, thread);
        }
        self.switch_to(thread, now);
    }

    /// The same, with the arguments in the order that takes the fewest registers. Selects the thread's own stack, or
    /// else one without open calls; none if all are in use.
    #[inline(never)]
    fn switch_to(&self, thread: usize, now: u64) {
        // 0 marks a stack without a thread, so threads are stored with all bits inverted.
        let key = !thread;
        let mut found = None;
        if let Some(mut stack) = self.frames.get() {
            let mut least = 2;
            let mut left = u32::from(self.stacks.get()) - 1;
            let owned = loop {
                if left == 0 {
                    break false;
                }
                left -= 1;
                stack = self.next(stack);
                let owner = stack.head().address.get();
                if owner == key {
                    found = Some(stack);
                    break true;
                }
                // Prefer a stack without a thread to that of a thread without open calls.
                let taken = match owner {
                    0 => 0,
                    _ => 1 + stack.open(),
                };
                if taken < least {
                    least = taken;
                    found = Some(stack);
                }
            };
            if !owned && let Some(stack) = found {
                stack.empty(key);
            }
        }
        self.thread.set(found);
        self.run(now);
    }

    /// Handles a switch away from a thread.
    pub fn switched_out(&self, now: u64) {
        if T::MIGRATES {
            return self.give_stack_back(now);
        }
        self.thread.set(None);
        self.run(now);
    }

    /// Drops the open calls of a thread that has ended, as calls whose end was not seen: its stack is free for another.
    pub(crate) fn end_thread(&self, thread: usize) {
        if T::MIGRATES {
            return self.end_migrant(thread);
        }
        let Some(mut stack) = self.frames.get() else {
            return;
        };
        let key = !thread;
        for _ in 1..self.stacks.get() {
            stack = self.next(stack);
            if stack.head().address.get() == key {
                self.count(&self.unmatched, stack.open());
                // A thread that ends itself still runs.
                let runs = self.thread.get() == Some(stack);
                stack.empty(if runs { key } else { 0 });
            }
        }
    }

    /// Stops the clock of the stack that ran, and resumes that of the stack that runs now.
    #[inline(never)]
    pub(super) fn run(&self, now: u64) {
        let stack = match self.interrupts.get() {
            0 => self.thread.get(),
            _ => self.frames.get(),
        };
        let mut changed = self.running.replace(stack);
        if changed == stack {
            return;
        }
        loop {
            if let Some(changed) = changed {
                changed.toggle(now);
            }
            if changed == stack {
                return;
            }
            changed = stack;
        }
    }
}
