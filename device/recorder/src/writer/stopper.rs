//! Recursion of the stopper: its outermost return ends recording, not its innermost.
//!
//! Counts the calls of one thread, the first that entered the stopper; while it has not returned, calls of the stopper in
//! other threads do not count.

use super::Writer;
use crate::gate::Site;
use crate::{Edge, Target};

impl<T: Target> Writer<T> {
    /// Resets the count of the stopper's open calls: a jump or a gap may have ended them unseen.
    #[inline(always)]
    pub fn forget_stopper(&self) {
        self.stopper_depth.set(0);
    }

    /// Tracks an entry of the stopper, by a call from `site`, or an exit, while recording is on. Returns whether it was
    /// the exit of the outermost call. Under a [condition](crate::conditions) only calls that meet it count, and the
    /// calls of the stopper within them.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn follow_stopper(&self, edge: Edge, site: Site) -> bool {
        let (depth, thread) = (self.stopper_depth.get(), self.stream.thread());
        if depth != 0 && self.off_thread.get() != thread {
            return false;
        }
        #[cfg(feature = "conditions")]
        if let Some((stopper, caller)) = site.stopper() {
            let counts = match edge {
                _ if depth != 0 => true,
                Edge::Enter => stopper.admits(caller),
                Edge::Exit => false,
            };
            if !counts {
                return false;
            }
        }
        let (depth, ends) = match edge {
            Edge::Enter => {
                self.off_thread.set(thread);
                (depth.saturating_add(1), false)
            }
            Edge::Exit => (depth.saturating_sub(1), depth <= 1),
        };
        self.stopper_depth.set(depth);
        #[cfg(feature = "conditions")]
        if ends && let Some((stopper, _)) = site.stopper() {
            stopper.act();
        }
        let _ = site;
        ends
    }
}
