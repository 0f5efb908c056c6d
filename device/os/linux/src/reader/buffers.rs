//! The buffers of all threads, while they are held.

use kymo_recorder::buffer::Buffer;

use super::View;
use crate::port::Linux;

impl View<'_> {
    /// Does this with the buffer of each lane that may be read.
    pub(super) fn each_buffer(&self, what: impl Fn(&Buffer<Linux>)) {
        for lane in self.process.lanes.iter().filter(|lane| lane.readable()) {
            what(lane.writer().stream().buffer());
        }
    }
}
