//! Damaged streams: a message with the offset, and everything before the damage.

use std::fs;

use kymo_fixtures::captures;
use kymo_fixtures::rtems_record::{LAYOUTS, Stream};

use crate::common::{read, user};

#[test]
fn every_damaged_case_says_where() {
    let Some(folder) = captures::rtems_record() else {
        return;
    };
    for (case, offset, part, items) in [
        ("bad-format/stream.bin", 0, "expected a format word", 0),
        ("bad-magic/stream.bin", 4, "expected the magic number", 0),
        ("bad-version/stream.bin", 20, "event 119 of version 9", 1),
        (
            "cpu-max-40/stream.bin",
            20,
            "at most 32 processors, found 41",
            1,
        ),
        (
            "cpu-out-of-range/stream.bin",
            66_380,
            "from 0 to 3, found 7",
            5_531,
        ),
        ("empty/stream.bin", 0, "found 0", 0),
        ("frequency-zero/stream.bin", 44, "found 0", 3),
        (
            "truncated-item/stream.bin",
            4_988,
            "an item of 12 bytes, found 9",
            415,
        ),
        (
            "zlib-trailing-byte/stream.z",
            33_065,
            "found 1 more byte",
            5_531,
        ),
        (
            "zlib-truncated/stream.z",
            16_532,
            "the end of the zlib stream",
            2_709,
        ),
    ] {
        let path = folder.join(format!("error-{case}"));
        let read = read(&fs::read(path).unwrap());
        let [fault] = &read.faults[..] else {
            panic!("{case}: {:?}", read.faults);
        };
        assert_eq!(fault.offset, offset, "{case}: {fault}");
        assert!(fault.message.contains(part), "{case}: {fault}");
        let found = read.records.iter().filter(|it| it.is_item).count();
        assert_eq!(found, items, "{case}: {fault}");
    }
}

#[test]
fn offsets_of_what_was_compressed_count_decoded_bytes() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(5).item(6, 512, 1);
    let good = stream.bytes.len() as u64;
    stream.processor(9).item(7, 512, 2);
    for (input, decoded) in [(stream.bytes.clone(), false), (stream.zlib(), true)] {
        let read = read(&input);
        assert_eq!(read.faults[0].offset, good);
        assert_eq!(read.faults[0].decoded, decoded);
        assert_eq!(user(&read), [(0, 6_000, 1)]);
    }
    let text = stream.base64().replacen('A', "*", 20);
    let text = read(text.as_bytes());
    assert_eq!(text.faults.len(), 1);
}

#[test]
fn a_line_of_text_that_is_missing_is_damage_and_nothing_is_invented() {
    for (layout, version) in LAYOUTS.into_iter().flat_map(|it| [(it, 9), (it, 10)]) {
        let mut stream = Stream::new(layout, version, 2, 1024, 1_000_000);
        stream.thread(0x0901_0001, "IDLE");
        for cpu in 0..2 {
            stream.processor(cpu);
            if version == 9 {
                stream.ring(0, 0);
            }
            stream.uptime(5_000);
            let mut now = 5_000;
            for round in 0..200_u64 {
                now += 3 + round * round % 1_777;
                stream.item(now, 512, round);
                stream.item(now + 2, 513 + (round % 5) as u32, round * 0x1_0203);
            }
        }
        let whole = read(&stream.bytes);
        assert_eq!(whole.faults, []);
        let log = stream.log(false, "");
        let lines: Vec<_> = log.lines().collect();
        let item = if layout.wide { 12 } else { 8 };
        // Not the items of the header or the last ones: after these there are too few items to detect an error.
        for missing in 12..lines.len() - 8 {
            let mut lines = lines.clone();
            lines.remove(missing);
            let read = read(lines.join("\n").as_bytes());
            assert_eq!(read.faults.len(), 1, "{layout:?} line {missing}");
            if layout.wide && layout.big {
                // The number of a wrong item consists of the upper bits of a time, which can be a valid event for long.
                continue;
            }
            let items = |read: &crate::common::Read| {
                let items = read.records.iter().filter(|it| it.is_item);
                items
                    .map(|it| (it.cpu, it.event, it.data))
                    .collect::<Vec<_>>()
            };
            let (expected, found) = (items(&whole), items(&read));
            let found_of = |cpu| found.iter().filter(move |it| it.0 == cpu);
            let expected_of = |cpu| expected.iter().filter(move |it| it.0 == cpu);
            for cpu in 0..2 {
                let mut pairs = found_of(cpu).zip(expected_of(cpu));
                assert!(
                    pairs.all(|(found, expected)| found == expected),
                    "{layout:?} {version} line {missing} CPU {cpu}"
                );
            }
            // All but the few items that may have been wrong.
            let before = (missing - 1) * 57 / item;
            assert!(
                found.len() + 66 > before && found.len() <= before + 1,
                "{layout:?} {version} line {missing}: {} {before}",
                found.len()
            );
        }
    }
}
