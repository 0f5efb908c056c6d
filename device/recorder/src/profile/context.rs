//! Which stack runs: threads that come and go, and the interrupts that they are interrupted by.

use super::stack::{BARRIER, NO_SLOT, Stack};
use super::{INTERRUPTS, Moment, Profile, grow};
use crate::Target;

impl<T: Target> Profile<T> {
    /// An interrupt handler began.
    #[inline(never)]
    pub fn isr_enter(&self, now: u64) {
        let interrupts = self.interrupts.get();
        self.interrupts.set(interrupts.saturating_add(1));
        if interrupts == 0 && self.exists() {
            self.run(now, Some(self.stack(INTERRUPTS)));
        }
        let Some(at) = self.moment() else { return };
        let head = at.stack.head();
        match self.next_frame(&at) {
            Some(frame) => {
                head.mark.set(at.mark.0 + 1);
                frame.address.set(BARRIER);
                frame.mark.set(NO_SLOT);
                frame.start.set(now.wrapping_sub(at.behind));
                frame.charged.set(at.charged);
            }
            None => head.skipped.set(head.skipped.get() + 1),
        }
    }

    /// An interrupt handler ended.
    #[inline(never)]
    pub fn isr_exit(&self, now: u64) {
        let Some(interrupts) = self.interrupts.get().checked_sub(1) else {
            return;
        };
        self.interrupts.set(interrupts);
        if let Some(at) = self.moment() {
            let head = at.stack.head();
            if head.skipped.get() != 0 {
                head.skipped.set(head.skipped.get() - 1);
            } else {
                let (left, found) = at.search(BARRIER);
                self.count(&self.unmatched, left);
                self.close(&at, now, left);
                if found {
                    // SAFETY: it is the one that was found, which is open.
                    let barrier = unsafe { at.stack.frame(at.stack.mark().open()) };
                    // The one below did not run meanwhile, and made no calls.
                    let span = now
                        .wrapping_sub(at.behind)
                        .wrapping_sub(barrier.start.get());
                    grow(&head.start, span);
                    head.charged.set(barrier.charged.get());
                    head.mark.set(head.mark.get() - 1);
                }
            }
        }
        if interrupts == 0 {
            self.run(now, self.thread.get());
        }
    }

    /// A thread got the processor.
    #[inline(never)]
    pub fn switched_in(&self, now: u64, thread: usize) {
        self.switch(now, self.stack_of(thread));
    }

    /// A thread lost the processor.
    pub fn switched_out(&self, now: u64) {
        self.switch(now, None);
    }

    /// The thread with this stack got the processor.
    fn switch(&self, now: u64, stack: Option<Stack>) {
        self.thread.set(stack);
        if self.interrupts.get() == 0 {
            self.run(now, stack);
        }
    }

    /// The moment of the stack that runs; of that of `thread` if none does.
    pub(super) fn running(&self, now: u64, thread: usize) -> Option<Moment> {
        if self.is_idle() {
            self.switched_in(now, thread);
        }
        self.moment()
    }

    /// The clock of the stack that ran stands still from now on, and that of this one runs.
    #[inline(never)]
    fn run(&self, now: u64, stack: Option<Stack>) {
        if let Some(stack) = self.running.replace(stack) {
            stack.turn(now);
        }
        if let Some(stack) = stack {
            stack.turn(now);
        }
    }

    /// The stack of a thread: the one it has, or one without open calls; `None` if all are taken.
    fn stack_of(&self, thread: usize) -> Option<Stack> {
        // 0 in the stack stands for nobody, so threads are stored with one added.
        let key = thread.wrapping_add(1);
        let mut free: Option<Stack> = None;
        for number in 1..self.stacks.get() {
            let stack = self.stack(number);
            let head = stack.head();
            let owner = head.address.get();
            if owner == key {
                return Some(stack);
            }
            // Rather one that is nobody's than one of a thread that has nothing open.
            let better = free.is_none_or(|free| owner == 0 && free.head().address.get() != 0);
            if better && stack.mark().open() | head.skipped.get() == 0 {
                free = Some(stack);
            }
        }
        let free = free?;
        free.empty(key);
        Some(free)
    }
}
