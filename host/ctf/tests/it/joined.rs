//! Streams that a tracer wrote into several files: rotated ones, and snapshots that have packets in common.

use std::fs;
use std::path::Path;

use kymo_ctf::metadata::Scope;
use kymo_ctf::{Message, Messages, Trace};

const METADATA: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 32; align = 8; signed = false; } := u32;\n\
    trace { major = 1; minor = 8; byte_order = le; uuid = \"0b31beef-0000-4000-8000-00000000cafe\";\n\
      packet.header := struct { u32 magic; u32 stream_id; u32 stream_instance_id; }; };\n\
    clock { name = c; freq = 1000; };\n\
    typealias integer { size = 32; align = 8; map = clock.c.value; } := time;\n\
    stream { id = 0; packet.context := struct { u32 content_size; u32 packet_size; u32 packet_seq_num;\n\
        time timestamp_begin; time timestamp_end; };\n\
      event.header := struct { time timestamp; }; };\n";

const EVENT: &str =
    "event { id = 0; name = \"e\"; stream_id = 0; fields := struct { u32 value; }; };\n";

/// A packet with two events, whose times and values follow from its number.
fn packet(instance: u32, number: u32) -> Vec<u8> {
    let (bits, time) = ((8 * 4 + 2 * 8) * 8, 10 * number);
    let words = [
        0xc1fc_1fc1,
        0,
        instance,
        bits,
        bits,
        number,
        time,
        time + 9,
        time,
        100 * number,
        time + 5,
        100 * number + 1,
    ];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn file(folder: &Path, name: &str, instance: u32, numbers: std::ops::Range<u32>) {
    let bytes: Vec<u8> = numbers
        .flat_map(|number| packet(instance, number))
        .collect();
    fs::write(folder.join(name), bytes).expect("a stream");
}

fn part(root: &Path, name: &str, metadata: &str) -> std::path::PathBuf {
    let folder = root.join(name);
    fs::create_dir_all(&folder).expect("a directory");
    fs::write(folder.join("metadata"), metadata).expect("metadata");
    folder
}

/// Names of the streams, the number of gaps, and the number of events.
fn read(root: &Path) -> (Vec<String>, usize, usize) {
    let traces = Trace::joined(Trace::open_all(root).expect("traces"));
    let traces: Vec<Trace> = traces.into_iter().map(Trace::in_order).collect();
    let names = traces.iter().flat_map(Trace::stream_names);
    let names = names.map(str::to_owned).collect();
    let mut messages = Messages::merge(&traces).expect("streams");
    let (mut gaps, mut events) = (0, 0);
    let each = |_, message: Message<'_>| match message {
        Message::Gap(_) => gaps += 1,
        Message::Event(_) => events += 1,
        Message::Packet(_) => {}
    };
    messages.for_each(each).expect("whole packets");
    (names, gaps, events)
}

#[test]
fn rotated_files_are_one_stream() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = part(root.path(), ".", &format!("{METADATA}{EVENT}"));
    // In the order of names, file 10 is the second.
    file(&folder, "c_0_0", 0, 0..3);
    file(&folder, "c_0_1", 0, 3..5);
    file(&folder, "c_0_10", 0, 5..6);
    file(&folder, "c_1_0", 1, 0..2);
    let (names, gaps, events) = read(root.path());
    assert_eq!(names, ["c_0_0 and 2 more", "c_1_0"]);
    assert_eq!((gaps, events), (0, 16));
}

#[test]
fn a_lost_file_is_a_gap() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = part(root.path(), ".", &format!("{METADATA}{EVENT}"));
    file(&folder, "c_0_0", 0, 0..3);
    file(&folder, "c_0_2", 0, 4..6);
    let (_, gaps, events) = read(root.path());
    assert_eq!((gaps, events), (1, 10));
}

#[test]
fn snapshots_have_each_packet_once() {
    let root = tempfile::tempdir().expect("a directory");
    // The second has an event class more.
    let one = part(root.path(), "one", METADATA);
    let two = part(root.path(), "two", &format!("{METADATA}{EVENT}"));
    file(&one, "c_0", 0, 2..5);
    file(&two, "c_0", 0, 4..8);
    fs::write(one.join("c_1"), "").expect("an empty stream");
    fs::write(two.join("c_1"), "").expect("an empty stream");
    let (names, gaps, events) = read(root.path());
    assert_eq!(names, ["one/c_0 and 1 more", "one/c_1"]);
    assert_eq!((gaps, events), (0, 12));
}

#[test]
fn what_begins_anew_is_another_stream() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = part(root.path(), ".", &format!("{METADATA}{EVENT}"));
    file(&folder, "a", 0, 0..3);
    // Its numbers repeat, within one file.
    let again: Vec<u8> = [0, 1, 4, 1].iter().flat_map(|it| packet(0, *it)).collect();
    fs::write(folder.join("b"), again).expect("a stream");
    let (names, _, events) = read(root.path());
    assert_eq!(names, ["a", "b"]);
    assert_eq!(events, 14);
}

#[test]
fn traces_that_differ_stay_apart() {
    let root = tempfile::tempdir().expect("a directory");
    let one = part(root.path(), "one", &format!("{METADATA}{EVENT}"));
    let other = METADATA.replace("freq = 1000", "freq = 2000");
    let two = part(root.path(), "two", &format!("{other}{EVENT}"));
    file(&one, "c_0", 0, 0..3);
    file(&two, "c_0", 0, 0..3);
    let (names, _, events) = read(root.path());
    assert_eq!(names, ["c_0", "c_0"]);
    assert_eq!(events, 12);
}

/// The values of all events, and each error's file with the number of bytes skipped.
fn values(root: &Path) -> (Vec<u64>, Vec<(String, u64)>) {
    let traces = Trace::joined(Trace::open_all(root).expect("traces"));
    let traces: Vec<Trace> = traces.into_iter().map(Trace::in_order).collect();
    let mut messages = Messages::merge(&traces).expect("streams");
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    loop {
        match messages.next_message() {
            Ok(Some((_, Message::Event(event)))) => {
                let value = event.field_of(Scope::EventFields, "value");
                values.push(value.and_then(|value| value.as_u64()).expect("a number"));
            }
            Ok(Some(_)) => {}
            Ok(None) => return (values, errors),
            Err(error) => {
                let trace = &traces[error.origin.trace];
                let mut files = trace.files(error.origin.stream);
                let file = files.nth(error.error.file as usize).expect("a file");
                let skipped = messages.skip(error.origin).expect("readable");
                let bytes = skipped.and_then(|it| Some(it.to? - it.from / 8));
                errors.push((format!("{}/{file}", trace.name()), bytes.unwrap_or(0)));
            }
        }
    }
}

/// Its damage is reported, and the next file is read from its begin.
#[test]
fn files_behind_one_that_is_cut_are_read() {
    let root = tempfile::tempdir().expect("a directory");
    let folder = part(root.path(), ".", &format!("{METADATA}{EVENT}"));
    let mut cut = packet(0, 0);
    cut.extend(&packet(0, 1)[..30]);
    fs::write(folder.join("c_0_0"), cut).expect("a stream");
    file(&folder, "c_0_1", 0, 2..4);
    let trace = Trace::open(&folder).expect("a trace").in_order();
    let names: Vec<&str> = trace.stream_names().collect();
    assert_eq!(names, ["c_0_0 and 1 more"]);
    let (values, errors) = values(root.path());
    assert_eq!(values, [0, 1, 200, 201, 300, 301]);
    assert_eq!(errors, [("/c_0_0".to_owned(), 30)]);
}

/// What both have is read once, and the error names the file.
#[test]
fn a_snapshot_that_is_cut_repeats_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    for (name, numbers) in [("a/one", 2..6), ("a/two", 4..8), ("a/three", 6..9)] {
        let folder = part(root.path(), name, &format!("{METADATA}{EVENT}"));
        file(&folder, "c_0", 0, numbers);
    }
    let two = root.path().join("a/two/c_0");
    let bytes = fs::read(&two).expect("a stream");
    fs::write(&two, &bytes[..bytes.len() - 4]).expect("a stream");
    let (values, errors) = values(root.path());
    let numbers: Vec<u64> = values.iter().map(|value| value / 100).collect();
    assert_eq!(numbers, [2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 8]);
    assert_eq!(errors, [("a/two/c_0".to_owned(), 4)]);
}

/// Some programs have one UUID for all their runs.
#[test]
fn runs_that_have_one_uuid_stay_apart() {
    let root = tempfile::tempdir().expect("a directory");
    for (name, later) in [("one", 0), ("two", 1000)] {
        let folder = part(root.path(), name, &format!("{METADATA}{EVENT}"));
        let mut bytes: Vec<u8> = (0..3).flat_map(|number| packet(0, number)).collect();
        for packet in bytes.chunks_exact_mut(48) {
            for at in [24, 28, 32, 40] {
                let time = u32::from_le_bytes(packet[at..at + 4].try_into().expect("4 bytes"));
                packet[at..at + 4].copy_from_slice(&(time + later).to_le_bytes());
            }
        }
        fs::write(folder.join("c_0"), bytes).expect("a stream");
    }
    let (names, _, events) = read(root.path());
    assert_eq!(names, ["c_0", "c_0"]);
    assert_eq!(events, 12);
}

/// LTTng numbers packets since 2.8. Without numbers, packets in common show that two files are one stream.
#[test]
fn snapshots_without_numbers_have_each_packet_once() {
    let root = tempfile::tempdir().expect("a directory");
    let metadata = METADATA.replace("packet_seq_num", "other");
    for (name, numbers) in [("one", 2..5), ("two", 4..8)] {
        let folder = part(root.path(), name, &format!("{metadata}{EVENT}"));
        file(&folder, "c_0", 0, numbers);
    }
    let (names, gaps, events) = read(root.path());
    assert_eq!(names, ["one/c_0 and 1 more"]);
    assert_eq!((gaps, events), (0, 12));
}

/// A busy processor's ring has come round between two snapshots.
#[test]
fn a_loss_between_snapshots_without_numbers_is_reported() {
    let root = tempfile::tempdir().expect("a directory");
    let metadata = METADATA.replace("packet_seq_num", "other");
    for (name, quiet, busy) in [("one", 2..5, 2..5), ("two", 4..8, 7..9)] {
        let folder = part(root.path(), name, &format!("{metadata}{EVENT}"));
        file(&folder, "c_0", 0, quiet);
        file(&folder, "c_1", 1, busy);
    }
    let (names, gaps, events) = read(root.path());
    assert_eq!(names, ["one/c_0 and 1 more", "one/c_1 and 1 more"]);
    assert_eq!((gaps, events), (1, 12 + 10));
}

#[test]
fn streams_without_numbers_and_common_packets_stay_apart() {
    let metadata = METADATA.replace("packet_seq_num", "other");
    // Without a packet in common; and with one of the same times, in which a value is another.
    for (second, value) in [(3..6, 0), (2..6, 1)] {
        let root = tempfile::tempdir().expect("a directory");
        for (name, numbers, value) in [("one", 0..3, 0), ("two", second, value)] {
            let folder = part(root.path(), name, &format!("{metadata}{EVENT}"));
            let count = numbers.len();
            let mut bytes: Vec<u8> = numbers.flat_map(|number| packet(0, number)).collect();
            assert_eq!(bytes.len(), count * 48);
            bytes[36] += value;
            fs::write(folder.join("c_0"), bytes).expect("a stream");
        }
        let (names, _, events) = read(root.path());
        assert_eq!(names, ["c_0", "c_0"]);
        assert_eq!(events, if value == 0 { 12 } else { 14 });
    }
}

/// A file beside the streams is not one that is damaged.
#[test]
fn a_damaged_packet_is_told_from_another_file() {
    let uuid = "0b31beef00004000800000000000cafe";
    let uuid: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&uuid[2 * at..2 * at + 2], 16).expect("digits"))
        .collect();
    for (with_uuid, begin, expected) in [
        (false, *b"\x55\x66\x77\x88", false),
        (false, *b"[etm", true),
        (true, *b"[etm", false),
    ] {
        let root = tempfile::tempdir().expect("a directory");
        let (header, uuid) = match with_uuid {
            true => ("struct { u32 magic; uint8_t uuid[16];", uuid.as_slice()),
            false => ("struct { u32 magic;", [].as_slice()),
        };
        let metadata = METADATA.replace("struct { u32 magic;", header);
        let byte = "typealias integer { size = 8; align = 8; } := uint8_t;\n    trace";
        let metadata = metadata.replace("trace", byte);
        let folder = part(root.path(), ".", &format!("{metadata}{EVENT}"));
        let whole = packet(0, 0);
        let mut damaged = begin.to_vec();
        damaged.extend(uuid);
        damaged.extend(&whole[4..]);
        fs::write(folder.join("c_0"), damaged).expect("a file");
        let trace = Trace::open(&folder).expect("a trace");
        let mut messages = trace.messages().expect("a stream");
        let error = messages.next_message().expect_err("damage");
        let skipped = messages.skip(error.origin).expect("readable");
        assert_eq!(skipped.map(|it| it.is_other_file), Some(expected));
    }
}

/// Three packets in common, of which one has a changed byte.
#[test]
fn a_damaged_byte_does_not_part_snapshots_without_numbers() {
    let root = tempfile::tempdir().expect("a directory");
    let metadata = METADATA.replace("packet_seq_num", "other");
    for (name, numbers, damage) in [("one", 0..4, 0), ("two", 1..6, 1)] {
        let folder = part(root.path(), name, &format!("{metadata}{EVENT}"));
        let mut bytes: Vec<u8> = numbers.flat_map(|number| packet(0, number)).collect();
        bytes[48 + 36] += damage;
        fs::write(folder.join("c_0"), bytes).expect("a stream");
    }
    let (names, gaps, events) = read(root.path());
    assert_eq!(names, ["one/c_0 and 1 more"]);
    assert_eq!((gaps, events), (0, 12));
}
