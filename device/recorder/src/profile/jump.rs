//! `setjmp` and `longjmp`: calls that a jump leaves end at that moment, not when a function further
//! out returns.

use super::context::What;
use super::stack::BARRIER;
use super::{Moment, Profile};
use crate::Target;

impl<T: Target> Profile<T> {
    /// `setjmp` is called with this buffer: the innermost call is where a jump goes back to.
    #[inline(never)]
    pub fn set_jump(&self, buffer: usize) {
        let Some(stack) = self.running.get() else {
            return;
        };
        let open = stack.mark().open();
        // Of calls that did not fit nothing is known.
        if open != 0 && open < self.depth.get().into() {
            // SAFETY: so many are open.
            unsafe { stack.frame(open) }.extra.set(buffer as u32);
        }
    }

    /// `longjmp` is called with this buffer. Without its `setjmp`, or if no stack runs, nothing is done, as
    /// if there were no marks.
    #[inline(always)]
    pub fn jump(&self, now: u64, buffer: usize) {
        self.follow(What::Jump, now, buffer);
    }

    /// The calls above the newest one that has this buffer end.
    #[inline(always)]
    pub(super) fn jump_back(&self, at: &Moment, buffer: usize) {
        let mut n = at.mark.get().open().min(u32::from(self.depth.get()) - 1);
        while n != 0 {
            // SAFETY: so many are open.
            let frame = unsafe { at.stack.frame(n) };
            if frame.address.get() == BARRIER {
                return;
            }
            if frame.extra.get() == buffer as u32 {
                // (No function has this address.)
                return self.leave(at, 1, n);
            }
            n -= 1;
        }
    }
}
