//! Which stack runs: threads that come and go, and the interrupts that they are interrupted by.

use super::Profile;
use super::stack::{BARRIER, Mark};
use crate::Target;

/// What happens beside calls and switches. (In words, which take no instructions to be cut.)
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum What {
    IsrEnter,
    IsrExit,
    Jump,
}

impl<T: Target> Profile<T> {
    /// An interrupt handler began.
    pub fn isr_enter(&self, now: u64) {
        self.follow(What::IsrEnter, now, 0);
    }

    /// An interrupt handler ended.
    pub fn isr_exit(&self, now: u64) {
        if self.interrupts.get() != 0 {
            self.follow(What::IsrExit, now, 0);
        }
    }

    /// This happens at `now`, where nobody comes in between. One piece of code for all, since each takes a
    /// moment.
    #[inline(never)]
    pub(super) fn follow(&self, what: What, now: u64, buffer: usize) {
        if what == What::IsrEnter {
            self.interrupts.set(self.interrupts.get().saturating_add(1));
            self.run(now);
        }
        if let Some(at) = &self.moment(now) {
            match what {
                What::IsrEnter => {
                    self.push(at, None);
                }
                What::IsrExit => self.leave(at, BARRIER, 0),
                What::Jump => self.jump_back(at, buffer),
            }
        }
        if what == What::IsrExit {
            self.interrupts.set(self.interrupts.get() - 1);
            self.run(now);
        }
    }

    /// A thread got the processor.
    #[inline(always)]
    pub fn switched_in(&self, now: u64, thread: usize) {
        self.switch_to(thread, now);
    }

    /// The same, in the order that takes the fewest registers. Its stack is the one that it has, or one
    /// without open calls; none if all are taken.
    #[inline(never)]
    fn switch_to(&self, thread: usize, now: u64) {
        // 0 in the stack stands for nobody, so threads are stored with all bits turned.
        let key = !thread;
        let mut found = None;
        if let Some(mut stack) = self.frames.get() {
            let mut least = Mark::CALL;
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
                // Rather one that is nobody's than one of a thread that has nothing open.
                let taken = if owner == 0 { 0 } else { stack.mark().0 };
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

    /// A thread lost the processor.
    pub fn switched_out(&self, now: u64) {
        self.thread.set(None);
        self.run(now);
    }

    /// If nobody runs, this thread does.
    pub(super) fn be_run(&self, now: u64, thread: usize) {
        if self.is_idle() {
            self.switched_in(now, thread);
        }
    }

    /// The clock of the stack that ran stands still from now on, and that of the one which runs now goes
    /// on.
    #[inline(never)]
    fn run(&self, now: u64) {
        let stack = match self.interrupts.get() {
            0 => self.thread.get(),
            _ => self.frames.get(),
        };
        let mut turns = self.running.replace(stack);
        if turns == stack {
            return;
        }
        loop {
            if let Some(turns) = turns {
                turns.turn(now);
            }
            if turns == stack {
                return;
            }
            turns = stack;
        }
    }
}
