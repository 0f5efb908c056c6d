//! Wraparound of packet numbers to 0, which takes 2^32 packets.

use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use std::vec;

use super::*;

struct Machine;

impl Target for Machine {
    const LAYOUT: Layout = Layout {
        shape: Shape::Compact,
        word: WordSize::Bits32,
        order: ByteOrder::NATIVE,
        function_shift: 0,
    };
}

const BYTES: u32 = 128;

/// First packet number, shortly before the wraparound: more packets remain than there are slots, and as many seem to
/// have been written before.
const FIRST: u32 = u32::MAX - 9;

/// A buffer of `places` packets, in which the next packet has the number [`FIRST`].
fn buffer(places: u32, mode: Mode) -> Buffer<Machine> {
    let memory = vec![0u64; (places * BYTES / 8) as usize].leak();
    let buffer = Buffer::new();
    // SAFETY: the memory is leaked, and only this buffer uses it.
    let set_up = unsafe { buffer.set_up(memory.as_mut_ptr().cast(), places * BYTES, BYTES, 0, 0) };
    assert_eq!(set_up, Ok(()));
    buffer.set_mode(mode);
    for number in [&buffer.begun, &*buffer.closed, &*buffer.taken] {
        number.store(FIRST, Ordering::Relaxed);
    }
    buffer
}

/// Begins a packet at this time and closes it, with a length derived from the time; returns whether there was room.
fn add(buffer: &Buffer<Machine>, time: u64) -> bool {
    let Some(room) = buffer.begin(time, 0, 0) else {
        return false;
    };
    buffer.close(room.first.wrapping_add(time as usize % 50), time);
    true
}

/// Number and time of a packet, whose length must match its time.
fn of(packet: &[u8]) -> (u32, u64) {
    let header = PacketHeader::read(Machine::LAYOUT, packet).expect("a header");
    let content = packet.len() - Machine::LAYOUT.header_bytes();
    assert_eq!(content as u64, header.begin % 50);
    (header.sequence, header.begin)
}

#[test]
fn the_newest_packets_are_kept_where_numbers_begin_again() {
    for places in [2, 3, 4, 7] {
        let buffer = buffer(places, Mode::Overwrite);
        for time in 0..30 {
            assert!(add(&buffer, time));
            let Some(oldest) = (time + 1).checked_sub(places.into()) else {
                continue;
            };
            // SAFETY: no packet is open, and there is no other thread.
            let held = (0..=places).map_while(|n| unsafe { buffer.packet(n) }.map(of));
            let expected = (oldest..=time).map(|time| (FIRST.wrapping_add(time as u32), time));
            assert!(held.eq(expected), "{places} {time}");
            assert_eq!((buffer.kept(), buffer.used()), (places, places));
        }
        assert!(buffer.begun() < 30, "they have begun again");
    }
}

#[test]
fn a_reader_takes_packets_in_order_where_numbers_begin_again() {
    for places in [2, 3, 4, 7] {
        let buffer = buffer(places, Mode::Stream);
        let (mut written, mut taken, mut refused) = (0u64, 0u64, 0u64);
        for step in 0..60u64 {
            // In some steps the reader is late, and there is no room.
            match add(&buffer, written) {
                true => written += 1,
                false => refused += 1,
            }
            let late = step % 23 < 11;
            let mut waiting = 0;
            // SAFETY: this is the only reader, and it does not use a packet after its release.
            unsafe {
                while let Some(packet) = buffer.waiting(waiting) {
                    let number = taken + u64::from(waiting);
                    assert_eq!(of(packet), (FIRST.wrapping_add(number as u32), number));
                    waiting += 1;
                }
                assert_eq!(u64::from(waiting), written - taken);
                assert_eq!(buffer.used(), waiting);
                while !late && buffer.next().is_some() {
                    buffer.release();
                    taken += 1;
                }
            }
        }
        assert!(refused > 0 && taken > 20, "{refused} {taken}");
        assert!(buffer.begun() < 60, "they have begun again");
    }
}

/// A record that is being filled keeps its packet and those behind it, in both modes.
#[test]
fn a_record_that_is_being_filled_keeps_its_packet_where_numbers_begin_again() {
    for mode in [Mode::Overwrite, Mode::Stream] {
        for before in 4..14 {
            let buffer = buffer(4, mode);
            let take_all = || {
                let mut taken = 0;
                // SAFETY: this is the only reader.
                unsafe {
                    while mode == Mode::Stream && buffer.next().is_some() {
                        buffer.release();
                        taken += 1;
                    }
                }
                taken
            };
            for time in 0..before {
                assert!(add(&buffer, time));
                take_all();
            }
            let room = buffer.begin(before, 0, 0).expect("there is room");
            assert!(buffer.pin());
            buffer.close(room.first, before);
            let mut more = 0;
            while add(&buffer, 100 + more) {
                assert_eq!(take_all(), 0);
                more += 1;
            }
            assert_eq!(more, 3, "{mode:?} {before}");
            buffer.unpin(room.first, false);
            assert!(mode == Mode::Overwrite || take_all() == 4);
            assert!(add(&buffer, 200));
        }
    }
}
