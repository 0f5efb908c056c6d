//! Dumps that were damaged or truncated in transmission.

use crate::dumps::{MAIN, calls, gaps, read_bytes};
use kymo_event::{Event, EventKind, Gap};
use kymo_fixtures::captures;
use kymo_fixtures::names::named_threads;
use kymo_read::zephyr_instrumentation::open_bytes;
use kymo_read::{Events, OpenOptions};

#[test]
fn records_go_on_behind_any_amount_of_damage() {
    let records = calls(40, MAIN).concat();
    let half = records.len() / 2;
    for bytes in [100, 5_000, 100_000] {
        let dump = [
            b"-*-#",
            &records[..half],
            // Neither text nor records.
            &vec![0xFE; bytes],
            &records[half..],
            b"-*-!\r\n",
        ]
        .concat();
        let (count, gaps) = gaps(&dump);
        assert_eq!(count, 40);
        let [
            Gap::Damage {
                offset,
                bytes: reported,
                ..
            },
        ] = gaps.as_slice()
        else {
            panic!("{gaps:?}");
        };
        assert_eq!((*offset, *reported), (4 + half as u64, Some(bytes as u64)));
    }
}

/// Truncates a capture at many positions: complete records are returned, and incomplete ones are reported.
#[test]
fn a_capture_that_is_cut_anywhere_tells_what_is_missing() {
    let data = captures::zephyr_instrumentation();
    for (file, size) in [
        ("instr_default/cap1/11_dump_trace.bin", 54),
        ("instr_default/cap1/10_dump_profile.bin", 13),
    ] {
        let bytes = std::fs::read(data.join(file)).unwrap();
        let records = bytes.len() - 6;
        // Each length within the first records and near the end; others so that each position within a record occurs.
        let all = |length: &usize| {
            *length < 200 || *length + 80 > bytes.len() || length.is_multiple_of(23)
        };
        for length in (0..bytes.len()).filter(all) {
            let cut = &bytes[..length];
            let whole = length.min(records).saturating_sub(4) / size;
            // One or two records are not sufficient to recognize them.
            let Ok(mut source) = open_bytes("dump", cut.to_vec(), &OpenOptions::default()) else {
                assert!(whole < 3, "{file}: {length}");
                continue;
            };
            let events: Vec<Event> = Events::new(&mut *source).map(Result::unwrap).collect();
            let reported: u64 = events
                .iter()
                .filter_map(|event| match event.kind {
                    EventKind::Gap(Gap::Damage { bytes, .. }) => bytes,
                    _ => None,
                })
                .sum();
            let gap = |event: &&Event| !matches!(event.kind, EventKind::Gap(_));
            let found = events.iter().filter(gap).count();
            if whole < 3 {
                // The layout may have a shorter name.
                assert!(found <= whole + 1, "{file}: {length}");
                continue;
            }
            assert_eq!(found, whole, "{file}: {length}");
            // The mark is complete or missing. A part of it is reported as bytes that belong to no record.
            if length < records + 4 {
                assert_eq!(source.info().damage.len(), 1, "{file}: {length}");
                let left = length - 4 - whole * size;
                assert_eq!(reported, left as u64, "{file}: {length}");
            }
        }
    }
}

/// Damage at the start of a dump, of any length.
#[test]
fn records_are_found_behind_damage_at_the_start() {
    let records = calls(400, MAIN).concat();
    for bytes in [100, 5_000, 9_000, 100_000] {
        for byte in [0xFE, b'?', 0] {
            let dump = [b"-*-#", &vec![byte; bytes][..], &records, b"-*-!\r\n"].concat();
            // A mark is only recognized if the bytes after it may be a record.
            let dump = match byte {
                0 => dump,
                _ => [b"-*-#\0", &dump[4..]].concat(),
            };
            let (count, gaps) = gaps(&dump);
            assert!(count >= 399, "{bytes} of {byte}: {count}");
            let [
                Gap::Damage {
                    offset: 4,
                    bytes: Some(reported),
                    ..
                },
            ] = gaps.as_slice()
            else {
                panic!("{bytes} of {byte}: {gaps:?}");
            };
            let lost = (400 - count) * (records.len() / 400);
            assert_eq!(
                4 + *reported as usize,
                dump.len() - 6 - records.len() + lost
            );
        }
    }
}

/// Damage at the start that includes the mark, so that no dump begins there.
#[test]
fn records_are_found_behind_a_damaged_mark() {
    let records = calls(400, MAIN).concat();
    for bytes in [300, 9_000] {
        let noise = vec![0xFE; bytes];
        for mark in [&b"-*-#"[..], b"-?-#"] {
            let dump = [mark, &noise, &records, b"-*-!\r\n"].concat();
            let (count, gaps) = gaps(&dump);
            assert!(count >= 399, "{bytes}: {count}");
            assert!(!gaps.is_empty());
        }
    }
}

/// A truncated record is not completed with the bytes that follow it: text, noise, or zeros.
#[test]
fn no_record_is_made_of_a_beginning_and_damage() {
    let records = calls(40, MAIN).concat();
    let size = records.len() / 40;
    for (from, instead) in [(17, 0xFE), (18, b'?'), (20, 0), (24, b'?'), (30, 0xFE)] {
        let at = 10 * size + from;
        let (front, rest) = records.split_at(at);
        let dump = [b"-*-#", front, &[instead; 3_000], rest, b"-*-!\r\n"].concat();
        let (info, events) = read_bytes(&dump);
        let threads = named_threads(&info);
        assert_eq!(threads.len(), 1, "{from}: {threads:?}");
        let calls = |event: &&Event| !matches!(event.kind, EventKind::Gap(_));
        let found = events.iter().filter(calls).count();
        assert!((38..=39).contains(&found), "{from}: {found}");
    }
}

/// The list of damaged places is limited, so that a file full of damage does not fill the memory. As events, all places
/// are reported.
#[test]
fn much_damage_is_listed_up_to_a_number() {
    let part = [&calls(3, MAIN).concat()[..], &[0xFE; 50]].concat();
    let begin = [b"-*-#", &calls(40, MAIN).concat()[..]].concat();
    let dump = [&begin[..], &part.repeat(10_010), b"-*-!\r\n"].concat();
    let (count, gaps) = gaps(&dump);
    assert!(
        count >= 12_000 && gaps.len() > 10_000,
        "{count} {}",
        gaps.len()
    );
    let (info, _) = read_bytes(&dump);
    assert_eq!(info.damage.len(), 100);
    assert!(info.damaged_places() > 10_000, "{}", info.damaged_places());
}
