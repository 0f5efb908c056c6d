//! Recovers the open packet of an abandoned buffer, whose writer was interrupted for good or has exited.

use super::{Buffer, Room};
use crate::Target;
use crate::sync::Ordering;

impl<T: Target> Buffer<T> {
    /// Of the packet that is open, or was just being closed: the room behind its last record, which ended at `at` if
    /// that is in it; else it has none. `None` if there is no such packet. Whatever step was the last one done,
    /// behind this a packet may be closed or begun.
    pub(crate) fn abandoned_packet(&self, at: *mut u8) -> Option<Room> {
        if !self.is_open() {
            return None;
        }
        let place = self.memory.address(self.start.load(Ordering::Relaxed));
        let records = place.wrapping_add(Self::HEADER as usize);
        let end = place.wrapping_add(self.packet_bytes.get() as usize);
        let first = if (records..=end).contains(&at) {
            at
        } else {
            records
        };
        Some(Room { first, end })
    }

    /// Whether there is a place for the next packet.
    pub(crate) fn has_place(&self) -> bool {
        self.free_start(self.begun()).is_some()
    }

    /// Whether a packet tells of all that was lost. For a reader that has the writer held off.
    pub(crate) fn has_told(&self) -> bool {
        self.discarded() == self.told()
    }
}
