//! The lanes of all threads, while they are held.

use kymo_recorder::threads::Lane;

use super::View;
use crate::port::Linux;

impl View<'_> {
    /// Does this with each lane that may be read.
    pub(super) fn each_lane(&self, what: impl Fn(&Lane<Linux>)) {
        let lanes = self.process.lanes.iter();
        lanes.filter(|lane| lane.readable()).for_each(what);
    }
}
