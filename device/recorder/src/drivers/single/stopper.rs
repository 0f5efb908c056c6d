//! Turns recording off at the stopper's exit.

use kymo_wire::event::Cause;

use super::{Single, SinglePort};
use crate::Edge;
use crate::gate::Site;
use crate::hot::Hot;

impl<P: SinglePort + 'static> Single<P> {
    /// Handles an entry or exit of the stopper while recording is on: its outermost exit turns recording off.
    #[cold]
    #[inline(never)]
    pub(super) fn stop(&self, hot: &Hot, edge: Edge, site: Site) {
        let _ = site;
        self.masked(|| {
            // (A captured variable would take space.)
            #[cfg(not(feature = "conditions"))]
            let site = hot.gate.site(0);
            if self.writer.follow_stopper(edge, site) {
                self.set_recording_inside(&hot.gate, false, Cause::Function);
            }
        });
    }
}
