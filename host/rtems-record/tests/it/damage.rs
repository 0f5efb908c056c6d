//! Damaged streams: a message with the offset, and everything before it.

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
