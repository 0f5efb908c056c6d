//! Calls that end without an exit: a jump leaves them, or tracking ends.

use super::*;

impl Control {
    /// Marks the running call as about to call `setjmp`. The caller has exclusive access.
    pub fn set_jump(&self, buffer: usize) {
        let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        if self
            .head()
            .is_some_and(|head| head.deep.load(Ordering::Relaxed) == 0)
            && top > self.running.load(Ordering::Relaxed)
        {
            // SAFETY: it lies in the running stack.
            let frame = unsafe { &*top };
            frame.deep.store(frame.mark(buffer), Ordering::Relaxed);
        }
    }

    /// Handles a `longjmp` at `now`: passes the calls that it leaves, innermost first, to `ended`. The caller has
    /// exclusive access.
    pub fn jump(&self, buffer: usize, now: u64, mut ended: impl FnMut(&Self, &Ended)) {
        let place = self.running.load(Ordering::Relaxed);
        let Some(head) = self.head() else {
            return;
        };
        if head.deep.load(Ordering::Relaxed) != 0 {
            head.deep.store(0, Ordering::Relaxed);
            self.resume(place, head.end());
        }
        let mut frame = self.top.load(Ordering::Relaxed);
        loop {
            frame = frame.wrapping_sub(1);
            if frame <= place {
                // The jump leads to an unknown call: a later exit further out will show that.
                return;
            }
            // SAFETY: it lies in the running stack.
            let it = unsafe { &*frame };
            if it.deep.load(Ordering::Relaxed) == it.mark(buffer) {
                break;
            }
        }
        self.leave_above((place, frame), now, |control, call| {
            call.exited = true;
            ended(control, call);
        });
    }

    /// Ends the tracking of all calls of the running stack at `now`, whose exits were not seen: passes them, innermost
    /// first, to `ended`. The caller has exclusive access.
    #[cfg(target_has_atomic = "ptr")]
    pub fn leave_all(&self, now: u64, mut ended: impl FnMut(&Self, &Ended)) {
        let place = self.running.load(Ordering::Relaxed);
        let Some(head) = self.head() else {
            return;
        };
        if head.deep.load(Ordering::Relaxed) != 0 {
            head.deep.store(0, Ordering::Relaxed);
            self.resume(place, head.end());
        }
        self.leave_above((place, place), now, |control, call| ended(control, call));
    }

    /// Ends the calls above `frame`, in the stack at `place`, at `now`.
    #[inline(always)]
    fn leave_above(
        &self,
        (place, frame): (*mut Frame, *mut Frame),
        now: u64,
        mut ended: impl FnMut(&Self, &mut Ended),
    ) {
        loop {
            let top = self.top.load(Ordering::Relaxed).wrapping_sub(1);
            if top <= frame {
                return;
            }
            if let Some(mut call) = self.call(place, top, now) {
                self.charge(top, call.duration as usize);
                ended(self, &mut call);
            }
            self.pop(top);
        }
    }
}
