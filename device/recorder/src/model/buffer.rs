//! Models of the packet buffer: a writer that closes packets, and a reader that consumes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::vec;
use std::vec::Vec;

use kymo_wire::event::PacketHeader;
use kymo_wire::link::Mode;

use super::{LAYOUT, explore, explore_with};
use crate::Target;
use crate::buffer::{Buffer, MIN_PACKET};
use crate::sync::{AtomicU32, Ordering, Owned, Weak};

struct Machine;

impl Target for Machine {
    const LAYOUT: kymo_wire::event::Layout = LAYOUT;
    const FINISHED_ELSEWHERE: bool = true;
}

/// A buffer with memory for so many of the smallest packets.
struct Packets {
    buffer: Buffer<Machine>,
    _memory: Vec<u64>,
}

// SAFETY: the buffer's cells are each used by its writer or by its reader only; what both use are
// atomics, and memory that loom watches.
unsafe impl Sync for Packets {}
// SAFETY: as above.
unsafe impl Send for Packets {}

impl Packets {
    fn new(places: u32, mode: Mode) -> Arc<Self> {
        let mut memory = vec![0u64; (places * MIN_PACKET) as usize / 8];
        let buffer = Buffer::new();
        // SAFETY: the memory lives as long as the buffer.
        let set_up = unsafe {
            let memory = memory.as_mut_ptr().cast();
            buffer.set_up(memory, places * MIN_PACKET, MIN_PACKET, 0, 0)
        };
        set_up.expect("the sizes are right");
        buffer.set_mode(mode);
        // Shared atomics are created here, while there is only one thread.
        buffer.clear();
        Arc::new(Self {
            buffer,
            _memory: memory,
        })
    }

    /// Writes a packet with one byte in it, or counts that there is no room.
    fn write(&self, n: u8) {
        match self.buffer.begin(n.into(), 0, 0) {
            None => self.buffer.add_discarded(1),
            Some(room) => {
                // SAFETY: there is room for a byte.
                let end = unsafe {
                    room.first.write(n);
                    room.first.add(1)
                };
                self.buffer.close(end, n.into());
            }
        }
    }
}

/// The byte in a packet, and its header.
fn content(packet: &[u8]) -> (u8, PacketHeader) {
    let header = PacketHeader::read(LAYOUT, packet).expect("a packet has a header");
    assert_eq!(packet.len(), LAYOUT.header_bytes() + 1);
    (packet[LAYOUT.header_bytes()], header)
}

/// A reader consumes packets while the writer writes more than there is room for.
fn stream() {
    const WRITTEN: u8 = 4;
    let packets = Packets::new(2, Mode::Stream);
    let writer = packets.clone();
    let writer = loom::thread::spawn(move || (0..WRITTEN).for_each(|n| writer.write(n)));
    let mut read = Vec::new();
    let mut take = || {
        // SAFETY: this is the only reader.
        while let Some(packet) = unsafe { packets.buffer.next() } {
            let (n, header) = content(packet);
            assert_eq!(header.sequence as usize, read.len(), "no packet is missed");
            // All earlier packets were read, or counted here.
            assert_eq!(u32::from(n), header.sequence + header.discarded);
            read.push(n);
            // SAFETY: `next` returned the packet, which is not used any more.
            unsafe { packets.buffer.release() };
        }
    };
    take();
    loom::thread::yield_now();
    take();
    writer.join().expect("the writer ends");
    take();
    let kept = read.len() as u32 + packets.buffer.discarded();
    assert_eq!(kept, WRITTEN.into());
    assert!(read.len() >= 2, "what there is room for is kept");
}

#[test]
fn stream_with_a_reader_at_work() {
    explore(None, stream);
}

#[test]
fn stream_needs_every_release_and_acquire() {
    explore(Some(Weak::Release), stream);
    explore(Some(Weak::Acquire), stream);
}

/// Sequence numbers show what was overwritten; a writer without a concurrent reader needs no ordering.
#[test]
fn overwrite_keeps_the_newest() {
    explore(None, || {
        let packets = Packets::new(2, Mode::Overwrite);
        (0..3).for_each(|n| packets.write(n));
        let kept: Vec<_> = (0..packets.buffer.kept())
            // SAFETY: no packet is open, and nobody writes.
            .filter_map(|n| unsafe { packets.buffer.packet(n) })
            .map(|packet| (content(packet).0, content(packet).1.sequence))
            .collect();
        assert_eq!(kept, [(1, 1), (2, 2)]);
    });
}

/// A record is filled in a packet that has been closed meanwhile, and another one is reserved in the next.
fn filled() {
    let packets = Packets::new(3, Mode::Stream);
    let data = Arc::new(Owned::new());
    data.written();
    // Shared atomics are created here, while there is only one thread.
    packets.buffer.make_pins();
    let (writer, filling) = (packets.clone(), data.clone());
    let writer = loom::thread::spawn(move || {
        let buffer = &writer.buffer;
        let begin = |n: u64| buffer.begin(n, 0, 0).expect("there is a place").first;
        // SAFETY: a packet has room for a byte.
        let end = |first: *mut u8| unsafe {
            first.write(0);
            first.add(1)
        };
        let first = begin(0);
        buffer.pin();
        buffer.close(end(first), 0);
        let second = begin(1);
        // The program fills its record, commits it, and reserves another one in the next packet.
        filling.written();
        buffer.unpin(first, false);
        buffer.pin();
        buffer.close(end(second), 1);
    });
    for _ in 0..2 {
        // SAFETY: this is the only reader.
        if unsafe { packets.buffer.next() }.is_some() {
            data.read();
            break;
        }
        loom::thread::yield_now();
    }
    writer.join().expect("the writer ends");
}

#[test]
fn what_is_filled_in_place_is_whole_when_it_is_read() {
    explore(None, filled);
}

/// The same where another thread fills and commits the record, while the writer has reserved one in the next packet.
fn filled_elsewhere() {
    let packets = Packets::new(3, Mode::Stream);
    let data = Arc::new(Owned::new());
    data.written();
    packets.buffer.make_pins();
    let reserved = Arc::new(AtomicU32::new(0));
    reserved.store(0, Ordering::Release);
    let place = Arc::new(AtomicUsize::new(0));
    let (writer, taken, at) = (packets.clone(), reserved.clone(), place.clone());
    let writer = loom::thread::spawn(move || {
        let buffer = &writer.buffer;
        let begin = |n: u64| buffer.begin(n, 0, 0).expect("there is a place").first;
        // SAFETY: a packet has room for a byte.
        let end = |first: *mut u8| unsafe {
            first.write(0);
            first.add(1)
        };
        let first = begin(0);
        buffer.pin();
        at.store(first as usize, Std::Relaxed);
        taken.store(1, Ordering::Release);
        buffer.close(end(first), 0);
        let second = begin(1);
        buffer.pin();
        buffer.close(end(second), 1);
    });
    let (other, filling) = (packets.clone(), data.clone());
    let other = loom::thread::spawn(move || {
        while reserved.load(Ordering::Acquire) == 0 {
            loom::thread::yield_now();
        }
        filling.written();
        let first = std::ptr::with_exposed_provenance::<u8>(place.load(Std::Relaxed));
        other.buffer.unpin(first, true);
    });
    for _ in 0..2 {
        // SAFETY: this is the only reader.
        if unsafe { packets.buffer.next() }.is_some() {
            data.read();
            break;
        }
        loom::thread::yield_now();
    }
    writer.join().expect("the writer ends");
    other.join().expect("the other one ends");
    // The second one is still being filled, so one of the packets is held back.
    // SAFETY: this is the only reader.
    assert!(unsafe { packets.buffer.waiting(1) }.is_none());
    assert!(packets.buffer.is_pinned());
}

#[test]
fn what_is_finished_elsewhere_is_whole_when_it_is_read() {
    explore_with(2, None, filled_elsewhere);
}
