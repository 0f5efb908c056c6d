//! Recovers an abandoned stream, whose writer will never finish its last step.

use core::ptr::null_mut;

use kymo_wire::event::Shape;

use super::Stream;
use crate::Target;
use crate::buffer::Room;
use crate::hot::{low, store};

/// Length of a `time` record.
const TIME_BYTES: usize = 8;

impl<T: Target> Stream<T> {
    /// Ends the newest packet behind its last complete record, at `now`. (Entries of calls may be missing from it.)
    pub(crate) fn recover(&self, now: u64) {
        let Some(cursor) = self.cursor() else {
            return;
        };
        self.part();
        cursor.close();
        self.end.set(null_mut());
        // The last time may be that of a record that was never committed, or of the one before the last.
        let now = now.max(self.sync(cursor));
        self.last.set(now);
        cursor.last.set(low::<T>(now));
        let Some(Room { first, end }) = self.buffer.abandoned_packet(cursor.at()) else {
            return;
        };
        let mut behind = first;
        if end as usize - first as usize >= TIME_BYTES {
            let record = Shape::time_record(T::LAYOUT.order, now);
            // SAFETY: so many bytes are left in the packet's slot.
            unsafe { store(T::LAYOUT.order, first, record, TIME_BYTES) };
            behind = first.wrapping_add(TIME_BYTES);
        }
        self.buffer.close(behind, now);
    }

    /// Begins an empty packet at `now` and closes it: for a stream whose writer may have been interrupted while it
    /// began a packet, and in which no later event begins one.
    pub(crate) fn begin_empty(&self, now: u64) {
        if self.next_packet(now.max(self.last())) {
            self.close();
        }
    }
}
