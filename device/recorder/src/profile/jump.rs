//! `setjmp` and `longjmp`: calls that a jump leaves end at its time, not when a function further out returns.

use super::Profile;
use super::stack::BARRIER;
use crate::Target;

impl<T: Target> Profile<T> {
    /// Marks the innermost call as the target of a jump with this buffer.
    #[inline(never)]
    pub fn set_jump(&self, buffer: usize) {
        let Some(stack) = self.running.get() else {
            return;
        };
        let open = stack.open();
        // Nothing is known about calls that did not fit.
        if open != 0 && open < self.depth.get().into() {
            // SAFETY: so many are open.
            unsafe { stack.frame(open) }.extra.set(buffer as u32);
        }
    }

    /// Handles a `longjmp` with this buffer. Does nothing without a matching `setjmp`, or if no stack runs, as if there
    /// were no marks.
    #[inline(never)]
    pub fn jump(&self, now: u64, buffer: usize) {
        let Some(stack) = self.running.get() else {
            return;
        };
        let mut n = stack.open().min(u32::from(self.depth.get()) - 1);
        while n != 0 {
            // SAFETY: so many are open.
            let frame = unsafe { stack.frame(n) };
            if frame.address.get() == BARRIER {
                return;
            }
            if frame.extra.get() == buffer as u32 {
                // (No function has this address.)
                return self.leave(stack, now, 1, n);
            }
            n -= 1;
        }
    }
}
