//! Decides which calls that have ended, or are open, are recorded.

use super::*;

/// The function of a frame, without the mark of frames that are there for long ([`Control::age`]).
const fn unaged(function: usize) -> usize {
    match usize::BITS {
        32 => (function & !1) | CODE_BIT,
        // There are no marks, and functions may have odd addresses.
        _ => function,
    }
}

impl Control {
    /// The `n`th open call of all stacks at `now`, with its thread, counted from the outermost of each stack.
    /// `Some(None)` if that frame is free, `None` behind the last. The caller has exclusive access.
    pub fn open(&self, n: u32, now: u64) -> Option<Option<(usize, Ended)>> {
        let (stack, index) = (n / (self.depth - 1), n % (self.depth - 1) + 1);
        if stack >= self.stacks {
            return None;
        }
        let place = self.stack(stack);
        let frame = place.wrapping_add(index as usize);
        // SAFETY: it is one of the program's frames.
        let head = unsafe { &*place };
        let is_running =
            place == self.running.load(Ordering::Relaxed) && head.deep.load(Ordering::Relaxed) == 0;
        let top = match is_running {
            true => self.top.load(Ordering::Relaxed),
            false => head.end(),
        };
        if frame >= top {
            return Some(None);
        }
        let thread = head.start.load(Ordering::Relaxed);
        Some(self.call(place, frame, now).map(|call| (thread, call)))
    }

    /// The function of the `n`th caller of a call, from the innermost on; `None` if there are fewer. The call's frame
    /// must still exist.
    pub fn caller(&self, call: &Ended, n: usize) -> Option<usize> {
        let frame = call.frame.wrapping_sub(1 + n);
        if frame <= call.head {
            return None;
        }
        // SAFETY: it lies in the call's stack.
        let function = unsafe { &*frame }.function.load(Ordering::Relaxed);
        Some(unaged(function))
    }

    /// The function of the innermost open call.
    pub fn innermost(&self) -> Option<usize> {
        let frame = self.top.load(Ordering::Relaxed).wrapping_sub(1);
        if frame <= self.running.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: in front of `top` there is a frame.
        let function = unsafe { &*frame }.function.load(Ordering::Relaxed);
        Some(unaged(function))
    }

    /// Whether a call is to be recorded: it took long enough, is not too deep, and passes the filter. The call's frame
    /// must still exist.
    pub fn records(&self, call: &Ended) -> bool {
        let settings = &self.settings;
        let time = call.duration.saturating_sub(call.away);
        if time < settings.threshold() as u64 {
            return false;
        }
        let most = settings.depth();
        let depth = (call.frame as usize - call.head as usize) / size_of::<Frame>();
        if most != 0 && depth > most as usize {
            return false;
        }
        if !settings.filters() {
            return true;
        }
        if settings.action(call.function) != Action::Record {
            return false;
        }
        let mut n = 0;
        while let Some(caller) = self.caller(call, n) {
            if settings.action(caller) == Action::Below {
                return false;
            }
            n += 1;
        }
        true
    }

    /// Whether frames are due to [age](Self::age) at `now`: four times per wraparound of the counter.
    pub fn is_due(&self, now: u64) -> bool {
        usize::BITS == 32 && self.age.get() != (now >> 30) as u32
    }

    /// Stores the upper half of the times of the `n`th frame of all stacks, if it has none yet; returns false behind
    /// the last frame. Needed several times per wraparound of the counter. The caller has exclusive access.
    pub fn age(&self, n: u32, now: u64) -> bool {
        let (stack, index) = (n / (self.depth - 1), n % (self.depth - 1) + 1);
        if stack >= self.stacks {
            self.age.set((now >> 30) as u32);
            return false;
        }
        // SAFETY: it is one of the program's frames.
        let frame = unsafe { &*self.stack(stack).add(index as usize) };
        let function = frame.function.load(Ordering::Relaxed);
        if function == 0 {
            return true;
        }
        let children = frame.children.load(Ordering::Relaxed);
        if function & 1 == CODE_BIT & 1 {
            let low = (now as usize).wrapping_sub(frame.start.load(Ordering::Relaxed));
            let start = now.wrapping_sub(low as u64);
            frame
                .start_high
                .store((start >> 32) as usize, Ordering::Relaxed);
            frame.children_high.store(0, Ordering::Relaxed);
            frame.function.store(function ^ 1, Ordering::Relaxed);
        } else if children < frame.counted.load(Ordering::Relaxed) {
            let high = frame.children_high.load(Ordering::Relaxed);
            frame.children_high.store(high + 1, Ordering::Relaxed);
        }
        frame.counted.store(children, Ordering::Relaxed);
        true
    }
}
