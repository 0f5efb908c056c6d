//! `setjmp` and `longjmp`: calls that a jump leaves end at that moment, not when a function further
//! out returns.

use super::Profile;
use super::stack::BARRIER;
use crate::Target;

impl<T: Target> Profile<T> {
    /// `setjmp` is called with this buffer: the innermost call is where a jump goes back to.
    #[inline(never)]
    pub fn set_jump(&self, buffer: usize) {
        let Some(stack) = self.running.get() else {
            return;
        };
        let open = stack.open();
        // Of calls that did not fit nothing is known.
        if open != 0 && open < self.depth.get().into() {
            // SAFETY: so many are open.
            unsafe { stack.frame(open) }.extra.set(buffer as u32);
        }
    }

    /// `longjmp` is called with this buffer. Without its `setjmp`, or if no stack runs, nothing is done, as
    /// if there were no marks.
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
