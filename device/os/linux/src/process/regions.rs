//! Region headers, which describe the buffers in a process file to its readers ([`kymo_wire::process_file`]).

use core::mem::offset_of;

use kymo_recorder::encode::Stream;
use kymo_recorder::hot::Cursor;
use kymo_recorder::threads::ThreadBuffer;
use kymo_wire::process_file::region;

use super::Process;
use crate::fields::{publish, put};
use crate::port::Linux;
use crate::sys;

impl Process {
    /// Creates a region for metadata. Returns its memory, and how many of its bytes packets of `bytes` bytes can use.
    pub(super) fn metadata_memory(&self, bytes: u32) -> Option<(*mut u8, u32)> {
        let whole = (region::BYTES + bytes as usize).next_multiple_of(64);
        let memory = self.recording.take(whole).ok()?;
        put(memory, region::PACKETS, region::BYTES as u64);
        put(memory, region::PACKETS_BYTES, u64::from(bytes));
        publish(memory, region::METADATA);
        Some((memory.wrapping_add(region::BYTES), bytes))
    }
}

/// Describes a thread buffer's region to readers of the file; the memory from offset `front` on holds packets.
pub(super) fn describe(
    memory: *mut u8,
    thread_buffer: &ThreadBuffer<Linux>,
    front: usize,
    (buffer, packet): (u32, u32),
) {
    let from = |place: *const u8| (place as usize).wrapping_sub(memory as usize) as u32;
    let thread_buffer_at = core::ptr::from_ref(thread_buffer).cast::<u8>();
    let stream = core::ptr::from_ref(thread_buffer.writer().stream()).cast::<u8>();
    let cursor = core::ptr::from_ref(thread_buffer.cursor()).cast::<u8>();
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
    let lost = ThreadBuffer::<Linux>::LOST_OFFSET as u32;
    put(memory, region::LOST, from(thread_buffer_at) + lost);
    let (first, stride, count) = thread_buffer.items().places();
    put(memory, region::RINGS, from(first.cast()));
    put(memory, region::RING_STRIDE, stride as u32);
    put(memory, region::RING_COUNT, count);
    belong(thread_buffer);
    publish(memory, region::EVENTS);
}

/// Records in the header of a thread buffer's region which thread owns it.
pub(crate) fn belong(thread_buffer: &ThreadBuffer<Linux>) {
    let thread_buffer = core::ptr::from_ref(thread_buffer).cast::<u8>().cast_mut();
    let memory = thread_buffer.wrapping_sub(region::BYTES);
    put(memory, region::THREAD, sys::thread());
    put(memory, region::NAME, sys::files::thread_name());
}
