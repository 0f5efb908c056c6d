use kymo_wire::event::Layout;

use super::*;
use crate::formats::kymo::memory::image::Image;
use crate::formats::kymo::memory::{Recorder, tests};

/// Address of the structure, followed by its frames: two stacks of four frames.
const AT: u64 = tests::MEMORY + 1024;
const FRAME: usize = 32;

fn frames() -> usize {
    1024 + structure::bytes(WordSize::Bits32)
}

fn put(memory: &mut [u8], at: usize, value: u32) {
    memory[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a frame of a stack: pairs of a word's index and value.
fn frame(memory: &mut [u8], stack: usize, n: usize, words: &[(usize, u32)]) {
    let at = frames() + (stack * 4 + n) * FRAME;
    for (word, value) in words {
        put(memory, at + word * 4, *value);
    }
}

/// The address of a frame.
fn address(stack: usize, n: usize) -> u32 {
    (tests::MEMORY as usize + frames() + (stack * 4 + n) * FRAME) as u32
}

/// Memory with packets up to 22 ticks, and the structure of a Cortex-M whose threads 7 (it runs) and 9 have calls.
fn memory() -> Vec<u8> {
    let mut memory = tests::memory(3);
    memory.resize(frames() + 8 * FRAME, 0);
    let word = WordSize::Bits32;
    let stacks = structure::stacks(word);
    for (place, value) in [
        (structure::TOP, address(0, 3)),
        (structure::magic(word), structure::MAGIC),
        (structure::flags(word), structure::ON),
        (structure::frames(word), address(0, 0)),
        (stacks, 2),
        (stacks + 4, 4),
        (structure::running(word), address(0, 0)),
        (structure::age(word), 5),
    ] {
        put(&mut memory, 1024 + place, value);
    }
    frame(&mut memory, 0, 0, &[(structure::START, 7)]);
    // It has aged: its times have 64 bits.
    let aged = [
        (structure::FUNCTION, 0x800_0100),
        (structure::START, 100),
        (structure::START_HIGH, 1),
        (structure::CALLEES, 50),
        (structure::END, 40),
    ];
    frame(&mut memory, 0, 1, &aged);
    // After the last time at which frames aged: 5 << 30.
    let new = [
        (structure::FUNCTION, 0x800_0201),
        (structure::START, 0x4000_0010),
        (structure::CALLEES, 3),
    ];
    frame(&mut memory, 0, 2, &new);
    // A stale frame of an earlier call.
    frame(&mut memory, 0, 3, &[(structure::FUNCTION, 0x800_0301)]);
    let waits = [(structure::START, 9), (structure::END, address(1, 2))];
    frame(&mut memory, 1, 0, &waits);
    let call = [
        (structure::FUNCTION, 0x800_0401),
        (structure::START, 0x4000_0000),
    ];
    frame(&mut memory, 1, 1, &call);
    memory
}

/// The packets and remarks of a dump of this memory.
fn found(memory: &[u8]) -> (Vec<u8>, Vec<String>) {
    let recorder = Recorder {
        duration: Some(Place { at: AT, arm: true }),
        ..tests::recorder()
    };
    let image = Image::new(memory, &recorder, Some(tests::MEMORY)).unwrap();
    let mut found = Found {
        recorder: &recorder,
        image: &image,
        packets: Vec::new(),
        remarks: Vec::new(),
        damage: Vec::new(),
    };
    found.collect();
    (found.packets, found.remarks)
}

/// Function, duration, self time and thread of each open call in the last packet.
fn open(layout: Layout, packets: &[u8]) -> Vec<[u64; 4]> {
    let last = headers(layout, packets).last().unwrap();
    let bytes = last.content_bits as usize / 8;
    let records = &packets[packets.len() - bytes + layout.header_bytes()..];
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    let head = kymo_wire::event::OTHER_BYTES;
    let calls = records.chunks(head + 24).map(|record| {
        let payload = &record[head..];
        [
            number(&payload[..4]),
            number(&payload[4..12]),
            number(&payload[12..20]),
            number(&payload[20..24]),
        ]
    });
    calls.collect()
}

#[test]
fn open_calls_that_the_target_has_recorded_for_a_reader_are_not_added() {
    let recorder = Recorder {
        duration: Some(Place { at: AT, arm: true }),
        ..tests::recorder()
    };
    let memory = memory();
    let image = Image::new(&memory, &recorder, Some(tests::MEMORY)).unwrap();
    let mut found = Found {
        recorder: &recorder,
        image: &image,
        packets: Vec::new(),
        remarks: Vec::new(),
        damage: Vec::new(),
    };
    found.collect();
    let packets = found.packets.clone();
    assert_eq!(open(recorder.layout, &packets).len(), 3);
    // They are in the packets now.
    add(&mut found);
    assert_eq!(found.packets, packets);
}

#[test]
fn open_calls_are_read_from_shadow_stacks() {
    let memory = memory();
    let layout = tests::recorder().layout;
    let (packets, remarks) = found(&memory);
    assert!(remarks.is_empty(), "{remarks:?}");
    let last = headers(layout, &packets).last().unwrap();
    assert_eq!((last.sequence, last.flags), (3, PacketHeader::FLAG_CALLS));
    // The last known time is the begin of the innermost call.
    let now = (1 << 32) + 0x4000_0010;
    assert_eq!(last.end, now);
    let aged = now - ((1 << 32) + 100);
    assert_eq!(
        open(layout, &packets),
        [
            [0x800_0100, aged, aged - 50, 7],
            [0x800_0200, 0, 0, 7],
            [0x800_0400, 0x10, 0x10, 9],
        ]
    );
}

#[test]
fn open_calls_last_at_least_until_frames_aged() {
    let mut memory = memory();
    let word = WordSize::Bits32;
    // The outermost call alone, and no other stack: the program hangs.
    put(&mut memory, 1024 + structure::TOP, address(0, 2));
    put(&mut memory, 1024 + structure::stacks(word), 1);
    let (packets, _) = found(&memory);
    let (began, aged) = ((1 << 32) + 100, 5 << 30);
    assert_eq!(
        open(tests::recorder().layout, &packets),
        [[0x800_0100, aged - began, aged - began - 50, 7]]
    );
}

#[test]
fn a_structure_that_is_damaged_or_not_in_the_dump_gives_no_calls() {
    let layout = tests::recorder().layout;
    let sound = memory();
    let word = WordSize::Bits32;
    let damages: [fn(&mut Vec<u8>); 4] = [
        |memory| memory.truncate(1024),
        |memory| memory.truncate(frames() + FRAME),
        |memory| put(memory, 1024 + structure::magic(WordSize::Bits32), 0),
        |memory| put(memory, 1024 + structure::stacks(WordSize::Bits32), 65),
    ];
    for damage in damages {
        let mut memory = sound.clone();
        damage(&mut memory);
        for place in 0..3 {
            memory[8 + place * 128 + 5] |= PacketHeader::FLAG_CALLS;
        }
        let (packets, remarks) = found(&memory);
        assert_eq!(headers(layout, &packets).count(), 3);
        let [remark] = &remarks[..] else {
            panic!("{remarks:?}");
        };
        assert!(remark.contains("calls that had not ended are missing"));
    }
    // The mode is off.
    let mut off = sound;
    put(&mut off, 1024 + structure::flags(word), 0);
    let (packets, remarks) = found(&off);
    assert_eq!((headers(layout, &packets).count(), remarks.len()), (3, 0));
}
