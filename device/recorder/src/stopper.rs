//! Recursion of the stopper: its outermost return ends recording, not its innermost.

use crate::Edge;
use crate::gate::Site;

/// Calls of the stopper that are open in one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenStoppers {
    /// Number of calls whose entry was seen.
    depth: u16,
    /// Calls that met the condition may be open beneath those: a jump or a gap may have ended them unseen, or not.
    #[cfg(feature = "conditions")]
    doubt: bool,
}

impl OpenStoppers {
    pub(crate) const NONE: Self = Self {
        depth: 0,
        #[cfg(feature = "conditions")]
        doubt: false,
    };

    /// Whether there is one whose entry was seen.
    #[inline(always)]
    pub(crate) fn seen(self) -> bool {
        self.depth != 0
    }

    /// Whether there may be any.
    #[cfg(any(target_has_atomic = "ptr", feature = "conditions"))]
    #[inline(always)]
    pub(crate) fn any(self) -> bool {
        #[cfg(feature = "conditions")]
        if self.doubt {
            return true;
        }
        self.depth != 0
    }

    /// A jump or a gap may have ended them unseen.
    #[inline(always)]
    pub(crate) fn doubt(&mut self) {
        #[cfg(feature = "conditions")]
        {
            self.doubt |= self.depth != 0;
        }
        self.depth = 0;
    }

    /// Tracks an entry of the stopper, by a call from `site`, or an exit, while recording is on. Returns whether it was
    /// the exit of the outermost call. Under a [condition](crate::conditions) only calls that meet it count, and the
    /// calls of the stopper within them.
    #[inline(always)]
    pub(crate) fn follow(&mut self, edge: Edge, site: Site) -> bool {
        #[cfg(feature = "conditions")]
        if let Some((stopper, caller)) = site.stopper() {
            return self.follow_conditioned(edge, || stopper.admits(caller)) && stopper.act();
        }
        let _ = site;
        // Where it is 0, the call was entered before recording was turned on, or was in doubt.
        let ends = edge == Edge::Exit && self.depth <= 1;
        self.depth = match edge {
            Edge::Enter => self.depth.saturating_add(1),
            Edge::Exit => self.depth.saturating_sub(1),
        };
        ends
    }

    /// The same under a condition.
    #[cfg(feature = "conditions")]
    fn follow_conditioned(&mut self, edge: Edge, admits: impl FnOnce() -> bool) -> bool {
        match edge {
            Edge::Enter if (self.depth == 0 || self.doubt) && admits() => {
                *self = Self {
                    depth: 1,
                    doubt: false,
                };
            }
            Edge::Enter if self.any() => self.depth = self.depth.saturating_add(1),
            Edge::Exit if self.depth == 0 && self.doubt => {
                *self = Self::NONE;
                return true;
            }
            Edge::Exit if self.depth != 0 => {
                self.depth -= 1;
                return !self.any();
            }
            _ => {}
        }
        false
    }
}
