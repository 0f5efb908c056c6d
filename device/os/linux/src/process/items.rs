//! Items of a process, in rings of the threads that produce them; and user records that are filled in place.

use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;
use kymo_recorder::items::{Cursor, Drained, Item, Ring, Timed};
use kymo_recorder::threads::ThreadBuffer;
use kymo_wire::process_file::region;

use super::Process;
use crate::fields::{publish, put};
use crate::port::Linux;

/// Packets per ring by default: 256 KiB.
const DEFAULT_PACKETS: u32 = 64;

/// Maximum number of packets per ring: their bytes must fit into 32 bits.
const MOST_PACKETS: u32 = 1 << 19;

impl Process {
    /// Sets the number of packets per ring; 0: the default. Must be called before the first item.
    pub fn set_item_packets(&self, packets: u32) {
        self.item_packets.store(packets, Ordering::Relaxed);
    }

    /// Produces items of the calling thread that share one timestamp and stay together.
    pub fn produce(&self, gate: &Gate, items: &[Item]) {
        let state = gate.state();
        if !(gate.open() || state.on() && state.enabled() && state.frozen()) {
            return;
        }
        if let Some(thread_buffer) = self.thread_buffer() {
            thread_buffer.produce(&self.port, gate, items, |ring| {
                self.equip(thread_buffer, ring)
            });
        }
    }

    /// Allocates the memory of a thread buffer's ring. Without memory the ring counts its items as lost.
    #[cold]
    fn equip(&self, thread_buffer: &'static ThreadBuffer<Linux>, ring: &Ring<Linux>) {
        let packets = match self.item_packets.load(Ordering::Relaxed) {
            0 => DEFAULT_PACKETS,
            packets => packets.clamp(2, MOST_PACKETS),
        };
        let bytes = packets as usize * Ring::<Linux>::PACKET;
        let Some(number) = self.new_number() else {
            return;
        };
        // The region's header takes up a whole packet, because packets are aligned to their size.
        let Ok(region) = self.recording.take(Ring::<Linux>::PACKET + bytes) else {
            return self.thread_buffers.return_number(number);
        };
        put(region, region::PACKETS, Ring::<Linux>::PACKET as u64);
        put(region, region::PACKETS_BYTES, bytes as u64);
        publish(region, region::RECORDS);
        let memory = region.wrapping_add(Ring::<Linux>::PACKET);
        ring.set_mode(self.mode());
        // SAFETY: the memory is new and zero, aligned to a page, which is a packet's size, and
        // never given back.
        unsafe { ring.give(memory, packets, number) };
        self.numbers.set(number, thread_buffer);
    }

    /// Returns the calling thread's items after `cursor`.
    pub fn drain(&self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        self.thread_buffer()
            .map_or_else(Drained::default, |thread_buffer| {
                thread_buffer.items().drain(cursor, out)
            })
    }

    /// Reserves a record of `length` bytes in the calling thread's stream; null if that is not possible.
    pub fn reserve(&self, gate: &Gate, length: usize) -> *mut u8 {
        if !gate.open() {
            return core::ptr::null_mut();
        }
        self.thread_buffer()
            .map_or(core::ptr::null_mut(), |thread_buffer| {
                thread_buffer.reserve(&self.port, gate, length)
            })
    }

    /// Finishes a record that the calling thread reserved, with this type; 0 discards it.
    ///
    /// # Safety
    /// Same as [`ThreadBuffer::commit`](kymo_recorder::threads::ThreadBuffer::commit).
    pub unsafe fn commit(&self, gate: &Gate, data: *mut u8, kind: u16) {
        if let Some(thread_buffer) = self.thread_buffer() {
            // SAFETY: by this function's contract.
            unsafe { thread_buffer.commit(&self.port, gate, data, kind) };
        }
    }
}
