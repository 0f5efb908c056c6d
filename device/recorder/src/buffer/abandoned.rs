//! Recovers the open packet of an abandoned buffer, whose writer was interrupted for good or has exited.

use super::{Buffer, Room};
use crate::Target;
use crate::sync::Ordering;

impl<T: Target> Buffer<T> {
    /// Free space of the packet that is open, or that the writer was just closing: behind its last record, which ended
    /// at `at`, if that is in this packet; otherwise the packet has no records. `None` if there is no such packet.
    /// Whatever step the writer completed last, a packet may be closed or begun after this.
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

    /// Whether there is a free slot for the next packet.
    pub(crate) fn has_place(&self) -> bool {
        self.free_start(self.begun()).is_some()
    }

    /// Whether a slot is free, so that the next packet displaces none.
    pub(crate) fn has_free(&self) -> bool {
        self.used() < self.places() && self.has_place()
    }

    /// Whether the packets report all losses. For a reader that excludes the writer.
    pub(crate) fn has_reported(&self) -> bool {
        self.discarded() == self.reported()
    }
}
