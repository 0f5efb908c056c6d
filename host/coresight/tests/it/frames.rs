//! Byte-by-byte comparison of frames with the reference tool's listing (`-o_raw_unpacked`).

use std::collections::HashMap;

use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::snapshot::Snapshot;

use crate::data;

/// Compares the bytes of each source, and the offsets of their runs.
fn compare(name: &str) {
    let Some(folder) = data::folder() else { return };
    let snapshot = Snapshot::open(&folder.join("snapshots").join(name)).expect("a snapshot");
    let buffer = &snapshot.buffers[0];
    let bytes = snapshot.read_buffer(buffer).expect("a buffer");
    let frames = frames::split(&bytes, buffer.format, TraceId::NONE);
    let golden = data::golden(&folder, &format!("{name}.raw"));
    let mut taken: HashMap<TraceId, usize> = HashMap::new();
    for line in golden.lines() {
        // Frame Data; Index     22;   ID_DATA[0x10]; 82 a4 84 a4 84 bc b0
        let Some((before, run)) = line.split_once("ID_DATA[0x") else {
            continue;
        };
        let offset = before.split("Index").nth(1).expect("an offset");
        let offset: u64 = offset
            .trim()
            .trim_end_matches(';')
            .parse()
            .expect("an offset");
        let (id, run) = run.split_once("];").expect("a trace ID");
        let hexadecimal = |text: &str| u8::from_str_radix(text, 16).expect("a byte");
        let id = TraceId(hexadecimal(id));
        if !id.is_source() {
            continue;
        }
        let run: Vec<u8> = run.split_whitespace().map(hexadecimal).collect();
        let stream = frames.streams.iter().find(|stream| stream.id == id);
        let stream = stream.unwrap_or_else(|| panic!("{name}: no stream of {line}"));
        let at = taken.entry(id).or_default();
        assert_eq!(
            stream.bytes.get(*at..*at + run.len()),
            Some(&run[..]),
            "{name}: {line}"
        );
        // In the blocks of a DSTREAM, the reference counts packets instead of frames.
        if buffer.format != FrameFormat::Dstream {
            assert_eq!(stream.offsets().of(*at), offset, "{name}: {line}");
        }
        *at += run.len();
    }
    let gave_up = golden.contains("Data Path fatal error");
    for stream in &frames.streams {
        let count = taken.get(&stream.id).copied().unwrap_or_default();
        if !gave_up {
            assert_eq!(stream.bytes.len(), count, "{name}: {:?}", stream.id);
        }
    }
    assert!(taken.values().sum::<usize>() > 1000, "{name}: {taken:?}");
}

#[test]
fn frames_of_a_buffer_in_memory() {
    compare("juno-uname-002");
    compare("TC2");
}

#[test]
fn blocks_of_a_probe() {
    compare("a55-test-tpiu");
}
