//! Recursion of the stopper in the stream's threads.
//!
//! Counts the calls of one thread, the first that entered the stopper; while it has not returned, calls of the stopper in
//! other threads do not count.

use super::Writer;
use crate::gate::Site;
use crate::stopper::OpenStoppers;
use crate::{Edge, Target};

impl<T: Target> Writer<T> {
    /// Resets the count of the stopper's open calls, for recording that begins, or another stopper.
    #[inline(always)]
    pub fn forget_stopper(&self) {
        self.stopper.set(OpenStoppers::NONE);
    }

    /// Notes that a gap may have ended the stopper's open calls unseen.
    #[inline(always)]
    pub fn doubt_stopper(&self) {
        let mut open = self.stopper.get();
        open.doubt();
        self.stopper.set(open);
    }

    /// Notes that a jump may have ended the stopper's open calls in the running thread unseen. In a driver's step.
    #[inline(always)]
    pub fn jump_in_stopper(&self) {
        #[cfg(feature = "conditions")]
        if self.stopper.get().any() {
            self.with_queried_thread(|thread| {
                if self.off_thread.get() == thread {
                    self.doubt_stopper();
                }
            });
        }
        #[cfg(not(feature = "conditions"))]
        self.doubt_stopper();
    }

    /// Forgets the open calls of a thread that has ended, also those of the stopper. In a driver's step.
    pub fn end_thread(&self, thread: usize) {
        if self.off_thread.get() == thread {
            self.forget_stopper();
        }
        if let Some(profile) = self.profile.get() {
            profile.end_thread(thread);
        }
    }

    /// The thread that entered the stopper first and has not left it, while recording is on. In a driver's step.
    pub fn within_stopper(&self) -> Option<usize> {
        self.stopper.get().seen().then(|| self.off_thread.get())
    }

    /// Tracks an entry of the stopper, by a call from `site`, or an exit, while recording is on. Returns whether it was
    /// the exit of the outermost call.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn follow_stopper(&self, edge: Edge, site: Site) -> bool {
        let (mut open, thread) = (self.stopper.get(), self.stream.thread());
        let is_other = self.off_thread.get() != thread;
        if open.seen() && is_other {
            return false;
        }
        #[cfg(feature = "conditions")]
        if is_other {
            // The doubt is about the first thread.
            open = OpenStoppers::NONE;
        }
        let ends = open.follow(edge, site);
        #[cfg(feature = "conditions")]
        if is_other && !open.any() {
            return ends;
        }
        if edge == Edge::Enter {
            self.off_thread.set(thread);
        }
        self.stopper.set(open);
        ends
    }
}
