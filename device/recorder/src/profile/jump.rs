//! `setjmp` and `longjmp`: calls that a jump leaves end at that moment, not when a function further
//! out returns.

use super::Profile;
use super::stack::BARRIER;
use crate::Target;

impl<T: Target> Profile<T> {
    /// `setjmp` is called with this buffer: the innermost call is where a jump goes back to.
    #[inline(never)]
    pub fn set_jump(&self, now: u64, thread: usize, buffer: usize) {
        // Of calls that did not fit nothing is known.
        if let Some(at) = self.running(now, thread)
            && at.stack.head().skipped.get() == 0
            && at.mark.open() != 0
        {
            // SAFETY: so many are open.
            let frame = unsafe { at.stack.frame(at.mark.open()) };
            frame.skipped.set(buffer as u32);
        }
    }

    /// `longjmp` is called with this buffer. Without its `setjmp` nothing is done, as if there were no
    /// marks.
    #[inline(never)]
    pub fn jump(&self, now: u64, thread: usize, buffer: usize) {
        let Some(at) = self.running(now, thread) else {
            return;
        };
        let open = at.mark.open();
        for above in 0..open {
            // SAFETY: so many are open.
            let frame = unsafe { at.stack.frame(open - above) };
            if frame.address.get() == BARRIER {
                return;
            }
            if frame.skipped.get() == buffer as u32 {
                self.count(&self.unmatched, above + at.stack.head().skipped.replace(0));
                return self.close(&at, now, above);
            }
        }
    }
}
