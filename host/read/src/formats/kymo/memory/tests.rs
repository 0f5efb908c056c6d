//! Tests with buffers in all states in which a program can be stopped.

use kymo_wire::event::{Form, Shape, WordSize};
use proptest::prelude::*;

use super::*;
use crate::formats::kymo::{Piece, Pieces};

const LAYOUT: Layout = Layout {
    shape: Shape::Compact,
    word: WordSize::Bits32,
    order: ByteOrder::Little,
    function_shift: 1,
};

/// Start of the tests' memory. It holds the address of the next record, the count of discarded events, and
/// then the buffer.
pub(super) const MEMORY: u64 = 0x2000_0000;
const BUFFER: u64 = MEMORY + 8;
const PACKET: usize = 128;
const PLACES: usize = 4;

pub(super) fn recorder() -> Recorder {
    Recorder {
        note: Note {
            layout: LAYOUT,
            buffer_offset: 0,
            buffer_size_offset: 0,
            packet_size_offset: 0,
            function_shift_offset: 0,
            text_base_offset: 0,
            at_offset: 0,
            stride: 0,
            rings_offset: NOWHERE,
            clock_hz_offset: 0,
            metadata_offset: 0,
            metadata_size_offset: 0,
            cpu_count_offset: 0,
            ring_next_offset: 0,
            discarded_offset: 4,
            slots_offset: 0,
            state_slots: 0,
            state_offset: NOWHERE,
        },
        layout: LAYOUT,
        buffer: BUFFER,
        buffer_bytes: (PACKET * PLACES) as u32,
        packet_bytes: PACKET as u32,
        cpus: 1,
        text_base: 0,
        clock_hz: 1_000_000,
        metadata: 0,
        metadata_bytes: 0,
        table: (0, 0),
        duration: None,
        cursor: Some(MEMORY),
        state: Some(MEMORY),
        discarded: 0,
    }
}

/// The memory after `packets` packets with two entries each, the newest of them incomplete.
pub(super) fn memory(packets: u32) -> Vec<u8> {
    let mut memory = vec![0; 8 + PACKET * PLACES];
    let mut at = 0;
    for sequence in 0..packets {
        let start = 8 + (sequence as usize % PLACES) * PACKET;
        let header = LAYOUT.header_bytes();
        let entry = LAYOUT.shape.bytes(Form::EnterShort);
        let begin = u64::from(sequence) * 10;
        for (record, time) in [begin + 1, begin + 2].into_iter().enumerate() {
            let bytes = LAYOUT
                .shape
                .call_record(LAYOUT.order, Form::EnterShort, time, 5)
                .to_le_bytes();
            at = start + header + record * entry;
            memory[at..at + entry].copy_from_slice(&bytes[..entry]);
        }
        at += entry;
        let completed = sequence + 1 < packets;
        let length = if completed { at - start } else { header };
        let bits = (length * 8) as u32;
        let header = PacketHeader {
            stream: 0,
            flags: 0,
            isr_depth: 0,
            cpu: 0,
            sequence,
            discarded: 0,
            begin,
            end: if completed { begin + 2 } else { begin },
            content_bits: bits,
            packet_bits: bits,
            thread: 0,
        };
        header.write(LAYOUT, &mut memory[start..]).unwrap();
    }
    let at = if packets == 0 { 0 } else { MEMORY + at as u64 };
    memory[..4].copy_from_slice(&(at as u32).to_le_bytes());
    memory
}

#[test]
fn open_calls_of_duration_mode_are_said_to_be_missing() {
    let plain = memory(3);
    assert!(found(&plain, None).1.is_empty());
    let mut calls = plain;
    for place in 0..3 {
        calls[8 + place * PACKET + 5] |= PacketHeader::FLAG_CALLS;
    }
    let (packets, remarks) = found(&calls, None);
    assert_eq!(packets.len(), 3);
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("calls that had not ended are missing"));
}

/// The headers of the packets found, and the remarks.
fn found(memory: &[u8], address: Option<u64>) -> (Vec<PacketHeader>, Vec<String>) {
    let recorder = recorder();
    let Ok(image) = Image::new(memory, &recorder, address) else {
        return Default::default();
    };
    let mut found = Found {
        recorder: &recorder,
        image: &image,
        packets: Vec::new(),
        remarks: Vec::new(),
        damage: Vec::new(),
    };
    found.collect();
    let pieces = Pieces::new(LAYOUT, &found.packets, &[]);
    let packets = pieces.filter_map(|piece| match piece {
        Piece::Packet(packet) => Some(packet.header),
        Piece::Damage(_) => None,
    });
    (packets.collect(), found.remarks)
}

fn numbers(packets: &[PacketHeader]) -> Vec<u32> {
    packets.iter().map(|packet| packet.sequence).collect()
}

#[test]
fn packets_come_in_their_order_and_the_newest_ends_with_its_last_record() {
    for (count, wanted) in [
        (0, vec![]),
        (1, vec![0]),
        (3, vec![0, 1, 2]),
        (6, vec![2, 3, 4, 5]),
    ] {
        let memory = memory(count);
        // With the recorder's state, and from the packets alone.
        for address in [Some(MEMORY), None] {
            let (packets, remarks) = found(&memory, address);
            assert_eq!(numbers(&packets), wanted);
            assert!(remarks.is_empty(), "{remarks:?}");
            for packet in packets {
                assert_eq!(packet.content_bits, 8 * (44 + 6), "{packet:?}");
                assert_eq!(packet.end, packet.begin + 2);
                assert_eq!(packet.flags, 0);
            }
        }
    }
}

/// After 2^32 packets, for a buffer whose number of slots divides 2^32.
#[test]
fn packets_are_found_whose_numbers_begin_again() {
    let first = u32::MAX - 1;
    let mut memory = memory(6);
    for place in 0..PLACES {
        let at = 8 + place * PACKET;
        let mut header = PacketHeader::read(LAYOUT, &memory[at..]).unwrap();
        header.sequence = header.sequence.wrapping_sub(2).wrapping_add(first);
        header.write(LAYOUT, &mut memory[at..]).unwrap();
    }
    let (packets, remarks) = found(&memory, Some(MEMORY));
    assert_eq!(numbers(&packets), [first, u32::MAX, 0, 1]);
    assert!(remarks.is_empty(), "{remarks:?}");
}

#[test]
fn what_is_no_packet_of_this_recording_is_left_out() {
    // Everything was cleared, and one packet was started since: three older ones are still in memory.
    let mut cleared = memory(7);
    let new = memory(1);
    cleared[..8 + PACKET].copy_from_slice(&new[..8 + PACKET]);
    assert_eq!(numbers(&found(&cleared, None).0), [0]);
    // The next packet's header was being written into the slot of the oldest one.
    let mut begun = memory(6);
    begun[8 + 2 * PACKET + 8] = 6;
    assert_eq!(numbers(&found(&begun, None).0), [3, 4, 5]);
}

#[test]
fn losses_that_no_packet_tells_are_in_the_newest() {
    let mut memory = memory(2);
    memory[4..8].copy_from_slice(&7u32.to_le_bytes());
    let (packets, _) = found(&memory, None);
    assert_eq!(
        packets.iter().map(|it| it.discarded).collect::<Vec<_>>(),
        [0, 7]
    );
}

#[test]
fn without_the_place_of_the_next_record_the_newest_packet_is_cut() {
    let memory = memory(6);
    let (packets, remarks) = found(&memory[8..], None);
    assert_eq!(numbers(&packets), [2, 3, 4, 5]);
    let newest = packets.last().unwrap();
    assert_eq!(newest.flags, PacketHeader::FLAG_CUT);
    assert_eq!(newest.content_bits as usize, 8 * LAYOUT.header_bytes());
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("kymo_hot"), "{remarks:?}");
}

#[test]
fn a_packet_whose_header_is_damaged_is_a_hole_in_its_place() {
    let mut memory = memory(4);
    memory[8 + PACKET] ^= 1;
    assert_eq!(numbers(&found(&memory, None).0), [0, 2, 3]);
}

proptest! {
    /// Damaged memory of any kind causes neither a panic nor an allocation beyond the size of the dump.
    #[test]
    fn any_memory_is_read(
        count in 0u32..9,
        wrong in prop::collection::vec((0usize..8 + PACKET * PLACES, any::<u8>()), 0..20),
        cut in 0usize..8 + PACKET * PLACES,
    ) {
        let mut memory = memory(count);
        for (at, byte) in wrong {
            memory[at] = byte;
        }
        for address in [Some(MEMORY), None] {
            let (packets, _) = found(&memory, address);
            prop_assert!(packets.len() <= PLACES + 1);
            found(&memory[cut..], address);
        }
    }
}
