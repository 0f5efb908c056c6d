//! Hooks that are never left, and threads that have ended: what they left undone is given up.
//!
//! The kernel is asked ([`sys::has_ended`]), not the thread: it may end in many ways, and calls hooks to the last.

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{Lane, ThreadPort as _};

use crate::process::{Linux, Process};
use crate::sys;

impl Process {
    /// The calling thread is about to read, or to end for good: it may have left a hook by a jump. (To be called where
    /// the stack is not much deeper than in the program.)
    #[inline(never)]
    pub(crate) fn return_by(&self, gate: &Gate, sure: bool) {
        if let Some(lane) = self.existing_lane() {
            lane.return_by(&self.port, gate, sure);
        }
    }

    /// Looks which threads have ended since, of the lanes that may be of interest, and seals what they left. For a
    /// reader.
    pub(crate) fn end_lanes(&self, may_matter: impl Fn(&Lane<Linux>) -> bool) {
        for lane in self.lanes.iter() {
            if !lane.has_ended() {
                if may_matter(lane) {
                    self.end_lane(lane);
                }
            } else if lane.needs_seal() {
                // There may be room by now to tell what was lost.
                // SAFETY: there is nobody whose lane it is, and one reader.
                unsafe { lane.seal(self.port.now()) };
            }
        }
    }

    /// Gives up what a thread left undone, if it has ended.
    fn end_lane(&self, lane: &Lane<Linux>) {
        let process = sys::process();
        if lane.process() == process && sys::has_ended(process, lane.owner()) {
            // SAFETY: it has, and there is one reader.
            unsafe { lane.end(self.port.now()) };
        }
    }
}
