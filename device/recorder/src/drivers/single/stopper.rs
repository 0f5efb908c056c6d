//! The stopper turns recording off.

use kymo_wire::event::Cause;

use super::{Single, SinglePort};
use crate::Edge;
use crate::gate::Site;
use crate::hot::Hot;

impl<P: SinglePort + 'static> Single<P> {
    /// The stopper was entered or left while recording is on: its outermost return turns that off.
    #[cold]
    #[inline(never)]
    pub(super) fn stop(&self, hot: &Hot, edge: Edge, site: Site) {
        let _ = site;
        self.masked(|| {
            // (What is captured takes room.)
            #[cfg(not(feature = "conditions"))]
            let site = hot.gate.site(0);
            if self.writer.follow_stopper(edge, site) {
                self.turn_inside(&hot.gate, false, Cause::Function);
            }
        });
    }
}
