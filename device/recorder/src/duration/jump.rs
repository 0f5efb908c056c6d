//! Calls that end without exits: a jump leaves them, or nobody follows them any more.

use super::*;

impl Control {
    /// The running call is about to call `setjmp`. With nobody else at it.
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

    /// `longjmp` is about to be called, at `now`: gives the calls that it leaves, the innermost first, to `ended`. With nobody else at it.
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
                // It leads to a call that is not known: an exit further out will show that.
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

    /// All calls of the running stack end at `now` for who follows them, if nobody saw how: gives them, the innermost first,
    /// to `ended`. With nobody else at it.
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

    /// The calls above `frame`, in the stack at `place`, end at `now`.
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
