//! Synthetic dumps of Zephyr's instrumentation, with properties that no capture has.

use crate::dumps::{CODE, MAIN, calls, gaps, kind, read_bytes, record};
use kymo_event::{Addr, EventKind, Gap, Tid, Time};
use kymo_fixtures::names::{function_at, named_threads};
use kymo_fixtures::zephyr_records::{CORTEX_A, CORTEX_M, marked};
use kymo_read::zephyr_instrumentation::{decode_profile, is_dump};
use kymo_read::{Events, OpenError, OpenOptions, ctf_traces, open};
use kymo_zephyr_instrumentation::{ByteOrder, Hints, Layout, PointerWidth, RecordType};

/// Records as on arm64: calls occur between a switch out and the next switch in, and the first records have no thread.
fn switching(target: Layout) -> Vec<Vec<u8>> {
    let full = "x".repeat(target.name_bytes.unwrap());
    let full = full.as_bytes();
    vec![
        record(
            &target,
            RecordType::Entry,
            CODE,
            1_000,
            0,
            (0, b"none-thread"),
        ),
        record(
            &target,
            RecordType::Exit,
            CODE,
            2_000,
            0,
            (0, b"none-thread"),
        ),
        record(
            &target,
            RecordType::Entry,
            CODE + 0x100,
            3_000,
            1,
            (0x4010_0000, full),
        ),
        record(
            &target,
            RecordType::SwitchedOut,
            CODE + 0x200,
            4_000,
            1,
            (0x4010_0000, full),
        ),
        record(
            &target,
            RecordType::Entry,
            CODE + 0x300,
            5_000,
            1,
            (0x4010_0000, full),
        ),
        record(
            &target,
            RecordType::Exit,
            CODE + 0x300,
            6_000,
            1,
            (0x4010_0000, full),
        ),
        record(
            &target,
            RecordType::SwitchedIn,
            CODE + 0x400,
            7_000,
            1,
            (0x4010_0200, full),
        ),
        record(
            &target,
            RecordType::Exit,
            CODE + 0x500,
            8_000,
            1,
            (0x4010_0200, full),
        ),
    ]
}

#[test]
fn wide_pointers_full_names_and_no_thread_at_all() {
    for (pointer, order, name_bytes) in [
        (PointerWidth::Bits64, ByteOrder::Little, 32),
        (PointerWidth::Bits64, ByteOrder::Big, 8),
        (PointerWidth::Bits32, ByteOrder::Big, 128),
        (PointerWidth::Bits32, ByteOrder::Little, 64),
    ] {
        let target = Layout {
            pointer,
            order,
            name_bytes: Some(name_bytes),
        };
        let (info, events) = read_bytes(&marked(&switching(target)));
        assert_eq!(info.damage, []);
        let kinds: Vec<_> = events.iter().map(|event| event.kind.clone()).collect();
        let enter = |offset| EventKind::Enter {
            function: function_at(&info, Addr(CODE + offset)),
            call_site: Some(Addr(CODE + offset + 0x40)),
        };
        let exit = |offset| EventKind::Exit {
            function: Some(function_at(&info, Addr(CODE + offset))),
        };
        let expected = [
            enter(0),
            exit(0),
            enter(0x100),
            EventKind::SwitchedOut,
            enter(0x300),
            exit(0x300),
            EventKind::SwitchedIn,
            exit(0x500),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(events[0].thread, None);
        let full = "x".repeat(name_bytes);
        // Two threads of one name remain separate.
        let threads = [0x4010_0000, 0x4010_0200].map(|id| (Tid(id), full.clone()));
        assert_eq!(named_threads(&info), threads);
    }
}

#[test]
fn what_is_missing_or_damaged_is_told_with_its_place() {
    let target = CORTEX_A;
    let record = |n: u64| record(&target, kind(n), CODE, 1_000 * n, 0, (0x4010_0000, b"main"));
    let records: Vec<_> = (2..22).map(record).collect();
    let gaps = |bytes: &[u8]| {
        let (info, events) = read_bytes(bytes);
        let gaps = events.iter().filter_map(|event| match &event.kind {
            EventKind::Gap(gap) => Some((event.time.0, gap.clone())),
            _ => None,
        });
        let gaps: Vec<_> = gaps.collect();
        let records = events.len() - gaps.len();
        (records, gaps, info.damage.len())
    };
    let whole = marked(&records);
    assert_eq!(gaps(&whole), (20, vec![], 0));
    // Only the bytes between the marks, and a dump within console output.
    assert_eq!(gaps(&records.concat()), (20, vec![], 0));
    let text = [
        b"*** Booting ***\r\n-*-# is a mark\r\n",
        &whole[..],
        b"pong\r\n",
    ]
    .concat();
    assert_eq!(gaps(&text), (20, vec![], 0));

    // The dump ends within a record, and between two records.
    let size = records[0].len();
    let (count, found, damage) = gaps(&whole[..4 + 5 * size + 20]);
    assert_eq!((count, damage), (5, 1));
    let [
        (
            6_000,
            Gap::Damage {
                offset,
                bytes: Some(20),
                message,
            },
        ),
    ] = found.as_slice()
    else {
        panic!("{found:?}");
    };
    assert_eq!(*offset, 4 + 5 * size as u64);
    assert!(message.contains("-*-!"), "{message}");
    let (count, found, _) = gaps(&whole[..4 + 5 * size]);
    assert_eq!(count, 5);
    assert!(matches!(
        found.as_slice(),
        [(6_000, Gap::Damage { bytes: Some(0), .. })]
    ));

    // Three bytes of the seventh record are missing.
    let mut lossy = whole.clone();
    lossy.drain(4 + 6 * size + 30..4 + 6 * size + 33);
    let (count, found, damage) = gaps(&lossy);
    assert_eq!((count, damage), (19, 1));
    let [(7_000, Gap::Damage { offset, bytes, .. })] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (*offset, *bytes),
        (4 + 6 * size as u64, Some(size as u64 - 3))
    );

    // A second dump after the first, an incomplete one before it, and a profile.
    let entry = |function| kymo_fixtures::zephyr_records::entry(&CORTEX_A, function, 0x4D4D_4D4D);
    let profile = marked(&[entry(CODE), entry(CODE + 0x40)]);
    let two = [&whole[..4 + 3 * size + 9], &profile, b"console\r\n", &whole].concat();
    let (info, events) = read_bytes(&two);
    assert_eq!(info.streams.len(), 2);
    assert_eq!(info.damage.len(), 1);
    let names: Vec<_> = events.iter().map(|event| &*event.name).collect();
    let of_profile = names.iter().filter(|name| **name == "profile");
    assert_eq!(of_profile.count(), 2);
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("func_"))
            .count(),
        3 + 20
    );
    assert!(
        events
            .iter()
            .any(|event| { matches!(event.kind, EventKind::Gap(Gap::Discarded { events: None })) })
    );
}

#[test]
fn what_is_no_dump_is_not_taken_for_one() {
    for bytes in [
        // Bytes of a firmware image.
        &b"trigger\0-*-#\0-*-!\n\0\0\x10\x20\0\0\0\0invalid argument in: '%s'\0pong\n\0\0\0\0"[..],
        b"*** Booting Zephyr OS build 3.4.0 ***\r\npong\r\n1 1 0\r\n",
        b"a dump begins with -*-# and ends with -*-!\r\n",
        b"-*-#",
        b"-*-#\x00\x01\x02\x03",
        &[0; 4096],
        &[2; 4096],
        &[1; 60],
        b"\x7fELF\x01\x01\x01",
    ] {
        assert!(!is_dump(bytes), "{bytes:?}");
    }
    assert!(is_dump(b"-*-#-*-!\r\n"));
    assert!(
        decode_profile("", b"-*-#-*-!\r\n", &Hints::default())
            .unwrap()
            .functions
            .is_empty()
    );
    assert!(decode_profile("", &marked(&switching(CORTEX_A)), &Hints::default()).is_err());
}

/// Each of these files took minutes or hours before: the bytes after a mark must be examined once, up to the next mark.
#[test]
fn files_of_marks_cost_no_more_than_their_bytes() {
    let record = calls(1, MAIN).concat();
    for part in [
        b"-*-#\0abc".to_vec(),
        [b"-*-#", &record[..], b"abc"].concat(),
        [b"-*-#", &record[..], &record, &record, b"abc"].concat(),
        [b"-*-#", &record[..20]].concat(),
    ] {
        let marks = part.repeat(160_000 / part.len());
        let dumps = is_dump(&marks);
        assert_eq!(dumps, part.len() > record.len(), "{part:?}");
    }
}

#[test]
fn an_even_address_among_odd_ones_is_no_other_kind_of_code() {
    let target = Layout {
        pointer: PointerWidth::Bits32,
        ..CORTEX_A
    };
    let record = |n: u64| {
        let callee = if n == 7 { 0x1000 } else { 0x1001 };
        record(
            &target,
            kind(n),
            callee,
            1_000 * n,
            0,
            (0x2000_0000, b"main"),
        )
    };
    let records: Vec<_> = (2..22).map(record).collect();
    let (_, events) = read_bytes(&marked(&records));
    let odd = events.iter().filter(|event| match event.kind {
        EventKind::Enter { function, .. } => function.0 & 1 == 1,
        EventKind::Exit { function } => function.is_some_and(|function| function.0 & 1 == 1),
        _ => false,
    });
    assert_eq!(odd.count(), 0);
}

#[test]
fn a_mark_with_less_than_a_record_is_told_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump");
    let record = record(&CORTEX_A, RecordType::Entry, CODE, 1_000, 0, (0, b"main"));
    std::fs::write(&dump, [b"-*-#", &record[..26]].concat()).unwrap();
    let Err(error) = open(&dump, &OpenOptions::default()) else {
        panic!("opened");
    };
    let error = error.to_string();
    assert!(error.contains("at offset 0 and 26 bytes"), "{error}");
}

#[test]
fn of_a_record_alone_the_program_says_how_wide_pointers_are() {
    // 54 bytes without a thread: with 64-bit pointers a call from 0x1040 after 1 us, with 32-bit pointers a call from
    // address 0 after 0x1040 ns.
    let target = Layout {
        name_bytes: Some(20),
        ..CORTEX_A
    };
    let record = record(&target, RecordType::Entry, 0x1000, 1_000, 0, (0, b""));
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump");
    std::fs::write(&dump, marked(&[record])).unwrap();
    for (class, time) in [(1, 0x1040), (2, 1_000)] {
        let program = folder.path().join("zephyr.elf");
        std::fs::write(&program, [b"\x7fELF", &[class, 1, 1][..]].concat()).unwrap();
        let options = OpenOptions {
            program: Some(program),
            ..OpenOptions::default()
        };
        let mut source = open(&dump, &options).unwrap();
        let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
        let times: Vec<_> = events.iter().map(|event| event.time).collect();
        assert_eq!(times, [Time(time)]);
    }
}

/// Names are the strings passed to `k_thread_name_set`. Their control characters have no effect on a terminal or on
/// files of lines.
#[test]
fn control_characters_in_names_are_shown_and_break_nothing() {
    for (name, shown) in [
        (&b"\x1b[31mnet\x07"[..], "\\x1b[31mnet\\x07"),
        (b"two\r\nlines", "two\\x0d\\x0alines"),
        (b"\x01", "\\x01"),
        (b"a\\b", "a\\\\b"),
        // A name that fills its field is truncated within a character.
        ("fifteen bytes- \u{e9}".as_bytes(), "fifteen bytes- \\xc3"),
        ("z\u{fc}rich".as_bytes(), "z\u{fc}rich"),
        (b"-*-!\r\n", "-*-!\\x0d\\x0a"),
        (b"-*-#\x01", "-*-#\\x01"),
    ] {
        for count in [4, 60] {
            let thread = (0x2000_0200, name);
            let records = [calls(count, thread), calls(count, MAIN)].concat();
            for bytes in [marked(&records), records.concat()] {
                let (info, events) = read_bytes(&bytes);
                assert_eq!(info.damage, [], "{name:?}");
                let records = events.iter().filter(|event| event.cpu.is_some());
                assert_eq!(records.count(), 2 * count as usize, "{name:?}");
                let threads = [(0x2000_0100, "main"), (0x2000_0200, shown)];
                let threads = threads.map(|(id, name)| (Tid(id), name.to_owned()));
                assert_eq!(named_threads(&info), threads);
            }
        }
    }
}

/// A dump without its first mark, because the capture began later or the mark was damaged. The other dumps of the
/// capture don't hide it.
#[test]
fn a_dump_without_its_first_mark_is_found_beside_others() {
    let size = CORTEX_M.size();
    let records = calls(20, MAIN).concat();
    let whole = marked(&calls(20, MAIN));
    let no_begin = |gap: &Gap, at: u64| match gap {
        Gap::Damage {
            offset,
            bytes,
            message,
        } => (*offset, *bytes) == (at, Some(0)) && message.contains("-*-#"),
        _ => false,
    };

    // The capture begins within the dump's first record: 18 complete records, then a second dump with 20.
    let part = &records[size + 5..];
    let capture = [part, b"-*-!\r\npong\r\n", &whole].concat();
    let (count, found) = gaps(&capture);
    assert_eq!(count, 18 + 20);
    let [
        begin,
        Gap::Damage { offset, bytes, .. },
        Gap::Discarded { .. },
        ..,
    ] = found.as_slice()
    else {
        panic!("{found:?}");
    };
    // The first bytes may be treated as text.
    assert!((0..size as u64).any(|at| no_begin(begin, at)), "{begin:?}");
    assert_eq!(offset + bytes.unwrap(), (size - 5) as u64);

    // The dump breaks off, and the target restarts.
    let banner = b"*** Booting Zephyr OS build 3.4.0 ***\r\n";
    let capture = [&records[..10 * size + 7], banner, &whole].concat();
    let (count, found) = gaps(&capture);
    assert_eq!(count, 10 + 20);
    assert!(no_begin(&found[0], 0), "{found:?}");

    // The mark between two other dumps is damaged.
    let mut damaged = whole.clone();
    damaged[2] = b'?';
    let capture = [&whole[..], b"text\r\n", &damaged, &whole].concat();
    let (count, found) = gaps(&capture);
    assert_eq!(count, 3 * 20);
    let at = whole.len() as u64 + 6 + 4;
    assert!(found.iter().any(|gap| no_begin(gap, at)), "{found:?}");

    // Unknown bytes are reported.
    let capture = [&b"text"[..], &[0; 100], b"text\r\n", &whole].concat();
    let (count, found) = gaps(&capture);
    assert_eq!(count, 20);
    let [
        Gap::Damage {
            offset: 4, message, ..
        },
        ..,
    ] = found.as_slice()
    else {
        panic!("{found:?}");
    };
    assert!(message.contains("neither"), "{message}");
    // Text is not reported.
    let capture = [&b"text \x1b[0m\r\n\x00"[..], &whole, b"\xFFtext\r\n"].concat();
    assert_eq!(gaps(&capture), (20, vec![]));
}

/// A dump with the metadata of its build in one directory, as `kymo trace` and users store them.
#[test]
fn a_directory_with_metadata_and_a_dump_is_the_dump() {
    let metadata = r#"/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 8; align = 8; signed = false; encoding = ASCII; } := ascii_t;
struct event_header { uint8_t id; };
stream { event.header := struct event_header; };
event { name = func_entry_with_context; id = 0x0; fields := struct {
    uint32_t callee; uint32_t caller; uint64_t timestamp; uint8_t bits; uint32_t thread_id; ascii_t thread_name[16]; }; };
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("metadata"), metadata).unwrap();
    for records in [calls(20, MAIN).concat(), marked(&calls(20, MAIN))] {
        std::fs::write(path.join("dump"), &records).unwrap();
        let mut source = open(path, &OpenOptions::default()).unwrap();
        assert_eq!(
            source.info().format,
            kymo_read::zephyr_instrumentation::FORMAT
        );
        assert_eq!(Events::new(&mut *source).map(Result::unwrap).count(), 20);
        // The dump contains no CTF records, so no CTF trace must be found.
        for input in [path, &path.join("dump")] {
            let traces = ctf_traces(input, &OpenOptions::default()).unwrap();
            assert!(traces.is_none());
        }
    }
    // Several dumps are refused, because each has its own clock.
    std::fs::write(path.join("dump2"), marked(&calls(20, MAIN))).unwrap();
    let refused = open(path, &OpenOptions::default()).err();
    assert!(matches!(refused, Some(OpenError::Several { traces, .. }) if traces.len() == 2));
}
