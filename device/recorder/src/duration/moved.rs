//! Threads that change the CPU in the middle of a call. Each CPU has a structure, and so a stack for such a thread.

use super::*;

impl Control {
    /// Whether this thread's stack runs, and the thread has not run on another CPU since. With nobody else at it.
    #[inline(always)]
    pub fn runs(&self, thread: usize) -> bool {
        self.head().is_some_and(|head| {
            head.start.load(Ordering::Relaxed) == thread
                && (thread == 0 || head.start_high.load(Ordering::Relaxed) != thread)
        })
    }

    /// This thread was switched in on another CPU: calls that it has open here will not end here. For any CPU at any time. The
    /// system that schedules the thread orders this before the thread can be switched in here again.
    pub fn mark_moved(&self, thread: usize) {
        if thread == 0 {
            // No thread, or several.
            return;
        }
        for n in 0..self.stacks {
            // SAFETY: it is one of the program's frames.
            let head = unsafe { &*self.stack(n) };
            // If the stack is given to another thread meanwhile, the mark is not that one's.
            if head.start.load(Ordering::Relaxed) == thread {
                head.start_high.store(thread, Ordering::Relaxed);
            }
        }
    }

    /// Drops the calls that are open in [marked](Self::mark_moved) stacks: entries without an exit of their own. Before a
    /// stack is looked for, for a later exit is not theirs. With nobody else at it.
    pub fn drop_moved(&self) {
        for n in 0..self.stacks {
            let place = self.stack(n);
            // SAFETY: it is one of the program's frames.
            let head = unsafe { &*place };
            let moved = head.start_high.swap_relaxed(0);
            if moved == 0 || moved != head.start.load(Ordering::Relaxed) {
                continue;
            }
            let is_running = place == self.running.load(Ordering::Relaxed);
            let first = place.wrapping_add(1);
            let mut top = match is_running && head.deep.load(Ordering::Relaxed) == 0 {
                true => self.top.load(Ordering::Relaxed),
                false => head.end(),
            };
            while top > first {
                top = top.wrapping_sub(1);
                // SAFETY: it lies between the stack's head and its end.
                unsafe { &*top }.function.store(0, Ordering::Relaxed);
                add(&self.counts.unmatched, 1);
            }
            head.deep.store(0, Ordering::Relaxed);
            head.counted.store(first as usize, Ordering::Relaxed);
            if is_running {
                self.resume(place, first);
            }
        }
    }
}
