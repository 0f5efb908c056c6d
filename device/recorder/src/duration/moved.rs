//! Threads that migrate to another CPU during a call. Each CPU has its own structure, and so its own stack for such a
//! thread.

use super::*;

impl Control {
    /// Whether this thread's stack runs, and the thread has not run on another CPU since. The caller has exclusive
    /// access.
    #[inline(always)]
    pub fn runs(&self, thread: usize) -> bool {
        self.head().is_some_and(|head| {
            head.start.load(Ordering::Relaxed) == thread
                && (thread == 0 || head.start_high.load(Ordering::Relaxed) != thread)
        })
    }

    /// Marks that this thread was switched in on another CPU: calls that it has open here will not end here. Any CPU
    /// may call it at any time. The system that schedules the thread orders this call before the thread is switched in
    /// here again.
    pub fn mark_moved(&self, thread: usize) {
        if thread == 0 {
            // No thread, or a number that several share.
            return;
        }
        for n in 0..self.stacks {
            // SAFETY: it is one of the program's frames.
            let head = unsafe { &*self.stack(n) };
            // If the stack is given to another thread meanwhile, the mark does not match that thread.
            if head.start.load(Ordering::Relaxed) == thread {
                head.start_high.store(thread, Ordering::Relaxed);
            }
        }
    }

    /// Drops the open calls of [marked](Self::mark_moved) stacks, and counts them as entries without an exit. Call it
    /// before a stack is selected, because a later exit does not belong to them. The caller has exclusive access.
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
