//! What the headers of regions say of the buffers in them, for a reader of the file
//! ([`kymo_wire::process_file`]).

use core::mem::offset_of;

use kymo_recorder::encode::Stream;
use kymo_recorder::hot::Cursor;
use kymo_recorder::threads::Lane;
use kymo_wire::process_file::region;

use super::Process;
use crate::port::Linux;
use crate::recording::{publish, put};
use crate::sys;

impl Process {
    /// A region for metadata: its memory, and how many bytes of it a packet of so many can use.
    pub(super) fn metadata_memory(&self, bytes: u32) -> Option<(*mut u8, u32)> {
        let whole = (region::BYTES + bytes as usize).next_multiple_of(64);
        let memory = self.recording.take(whole).ok()?;
        put(memory, region::PACKETS, region::BYTES as u64);
        put(memory, region::PACKETS_BYTES, u64::from(bytes));
        publish(memory, region::METADATA);
        Some((memory.wrapping_add(region::BYTES), bytes))
    }
}

/// Describes a lane's region, for a reader of the file: what is behind `front` holds packets.
pub(super) fn describe(
    memory: *mut u8,
    lane: &Lane<Linux>,
    front: usize,
    (buffer, packet): (u32, u32),
) {
    let from = |place: *const u8| (place as usize).wrapping_sub(memory as usize) as u32;
    let lane_at = core::ptr::from_ref(lane).cast::<u8>();
    let stream = core::ptr::from_ref(lane.writer().stream()).cast::<u8>();
    let cursor = core::ptr::from_ref(lane.cursor()).cast::<u8>();
    put(memory, region::PACKETS, front as u64);
    put(memory, region::PACKETS_BYTES, u64::from(buffer));
    put(memory, region::PACKET_BYTES, packet);
    put(
        memory,
        region::AT,
        from(cursor) + offset_of!(Cursor, at) as u32,
    );
    let discarded = Stream::<Linux>::DISCARDED_OFFSET as u32;
    put(memory, region::DISCARDED, from(stream) + discarded);
    let lost = Lane::<Linux>::LOST_OFFSET as u32;
    put(memory, region::LOST, from(lane_at) + lost);
    let (first, stride, count) = lane.items().places();
    put(memory, region::RINGS, from(first.cast()));
    put(memory, region::RING_STRIDE, stride as u32);
    put(memory, region::RING_COUNT, count);
    belong(lane);
    publish(memory, region::EVENTS);
}

/// Says in the header of a lane's region which thread it belongs to.
pub(crate) fn belong(lane: &Lane<Linux>) {
    let lane = core::ptr::from_ref(lane).cast::<u8>().cast_mut();
    let memory = lane.wrapping_sub(region::BYTES);
    put(memory, region::THREAD, sys::thread());
    put(memory, region::NAME, sys::files::thread_name());
}
