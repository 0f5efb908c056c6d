//! Dumps of every possible layout, and arbitrary bytes.

use kymo_fixtures::zephyr_records::CORTEX_M;
use kymo_zephyr_instrumentation::{
    BEGIN, ByteOrder, END, Hints, Layout, Piece, PointerWidth, Record, RecordType, Scanner, Walk,
    detect, find_begin,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Record of a program whose code and threads are in separate address ranges.
fn record(layout: &Layout, seed: u32, time: u64, threads: &[String]) -> Vec<u8> {
    let kinds = [
        RecordType::Entry,
        RecordType::Exit,
        RecordType::SwitchedIn,
        RecordType::SwitchedOut,
    ];
    let thread = seed as usize % threads.len();
    let seed = u64::from(seed);
    let code = match layout.pointer {
        PointerWidth::Bits32 => 0x0800_0001,
        PointerWidth::Bits64 => 0xFFFF_8000_4000_0000,
    };
    let callee = code + seed % 0x1_0000 * 2;
    if layout.name_bytes.is_none() {
        return kymo_fixtures::zephyr_records::entry(layout, callee, time);
    }
    let record = Record {
        kind: kinds[seed as usize / 7 % 4],
        callee,
        caller: callee ^ 0x1234,
        time_ns: time,
        priority_bits: (seed >> 8) as u8 & 7,
        cpu: (seed >> 11) as u8 & 31,
        thread: 0x2000_0100 + thread as u64 * 0x80,
        name: threads[thread].as_bytes(),
    };
    kymo_fixtures::zephyr_records::record(layout, &record)
}

prop_compose! {
    fn layouts()(wide: bool, big: bool, profile in prop::bool::weighted(0.2), name in 8_usize..=128) -> Layout {
        Layout {
            pointer: if wide { PointerWidth::Bits64 } else { PointerWidth::Bits32 },
            order: if big { ByteOrder::Big } else { ByteOrder::Little },
            name_bytes: (!profile).then_some(name),
        }
    }
}

/// Records of a random layout, as bytes.
///
/// Threads can have any names. `marked` names contain the end mark, so that after lost bytes they cannot be
/// distinguished from the end of the dump.
fn dumps(marked: bool) -> impl Strategy<Value = (Layout, Vec<Vec<u8>>)> {
    let names = vec(
        prop_oneof![
            3 => "[a-z_]{3,200}",
            1 => Just("-*-!\r-*-#-*-!\r\n".to_owned()),
            1 => Just("\x1b[1mnet\x07".to_owned()),
            1 => Just("idle 00".to_owned())
        ],
        1..4,
    );
    let step = prop_oneof![1_u64..100_000, Just(0x2D2A_2D21)];
    (layouts(), names, vec((any::<u32>(), step), 3..60)).prop_map(move |(layout, names, seeds)| {
        let mut time = 1_000_000_u64;
        let end = if marked { "-*-!\r" } else { "-*-! " };
        let names: Vec<_> = names
            .iter()
            .map(|name| name.replace("-*-!\r", end))
            .collect();
        let records = seeds.iter().map(|(seed, step)| {
            time += step;
            record(&layout, *seed, time, &names)
        });
        (layout, records.collect())
    })
}

fn sent(records: &[Vec<u8>]) -> Vec<u8> {
    [records.concat(), END.to_vec(), b"\r\n".to_vec()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn layout_and_end_are_found_from_the_bytes_alone(
        (layout, records) in dumps(true),
        behind in "[ -~]{0,20}",
        step in 1_usize..5_000,
    ) {
        let dump = sent(&records);
        let body = [dump.clone(), behind.into_bytes()].concat();
        prop_assert_eq!(detect(&body, &Hints::default()), Some(layout));
        let pieces: Vec<_> = Walk::new(&body, layout).collect();
        prop_assert_eq!(pieces.len(), records.len() + 1);
        let mut scanner = Scanner::default();
        let come = (0..=body.len() / step + 1).map(|n| &body[..(n * step).min(body.len())]);
        let end = come.into_iter().find_map(|come| scanner.advance(come)).unwrap();
        prop_assert_eq!(end.at, dump.len() - 6);
        prop_assert_eq!(scanner.records(), records.len() as u64);
    }

    #[test]
    fn any_bytes_have_pieces_without_holes(mut bytes in vec(any::<u8>(), 0..600), layout in layouts(), zeros: bool) {
        if zeros {
            for byte in bytes.iter_mut().filter(|byte| **byte > 40) {
                *byte = 0;
            }
        }
        let mut at = 0;
        for piece in Walk::new(&bytes, layout) {
            let (offset, length) = match piece {
                Piece::Record { offset, bytes } => (offset, bytes.len()),
                Piece::Damage { offset, bytes } | Piece::Cut { offset, bytes } => (offset, bytes),
                Piece::End(end) => (end.at, end.behind - end.at),
            };
            prop_assert_eq!(offset, at);
            prop_assert!(length > 0);
            at += length;
        }
        let _ = detect(&bytes, &Hints::default());
        let mut scanner = Scanner::new(Hints { name_bytes: Some(20), ..Hints::default() });
        for length in 0..=bytes.len() {
            if let Some(end) = scanner.advance(&bytes[..length]) {
                prop_assert!(end.at + 4 <= end.behind && end.behind <= length);
                break;
            }
        }
        if let Some(begin) = find_begin(&bytes, 0) {
            prop_assert!(bytes[..begin].ends_with(BEGIN));
        }
    }
}

proptest! {
    // No field of a dump marks the start of a record, so the offset after lost bytes is chosen by plausibility. About
    // one dump of a thousand gets a wrong one, and a whole record becomes damage. The cases here are always the same.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(57373), ..ProptestConfig::with_cases(100) })]

    #[test]
    fn lost_bytes_cost_the_records_that_they_were_in(
        (layout, records) in dumps(false).prop_filter("enough of them", |(_, records)| records.len() > 16),
        place in any::<prop::sample::Index>(),
        lost in 1_usize..200,
    ) {
        prop_assume!(layout.name_bytes.is_some());
        let whole = records.concat();
        let size = layout.size();
        // Not among the first records, whose remains may be records of another layout, and not among the last two,
        // because nothing after them shows that they are records.
        let from = 4 * size + place.index(whole.len() - 7 * size);
        let to = (from + lost).min(whole.len() - 2 * size);
        let mut dump = sent(&records);
        dump.drain(from..to);
        // A thread's name with the mark in it can end up where a record ends, which is ambiguous.
        let mut ends = (from / size..=to / size + 1).map(|record| record * size);
        prop_assume!(!ends.any(|at| at < dump.len() - 6 && dump[at..].starts_with(END)));
        prop_assert_eq!(detect(&dump, &Hints::default()), Some(layout));
        let pieces: Vec<_> = Walk::new(&dump, layout).collect();
        let last = pieces.last();
        prop_assert!(matches!(last, Some(Piece::End(end)) if end.behind == dump.len()));
        let touched = to.div_ceil(size) - from / size;
        let kept = pieces.iter().filter(|piece| matches!(piece, Piece::Record { .. })).count();
        // Two records that lost bytes can look like one complete record.
        prop_assert!(kept + touched >= records.len());
        // The records after the loss are the same, except for a few around it.
        let behind = pieces.iter().rev().filter_map(|piece| match piece {
            Piece::Record { bytes, .. } => Some(*bytes),
            _ => None,
        });
        let same = behind.zip(records.iter().rev()).take_while(|(found, sent)| found == sent).count();
        prop_assert!(same + to.div_ceil(size) + 3 >= records.len(), "{} are the same", same);
        let covered: usize = pieces.iter().map(|piece| match piece {
            Piece::Record { bytes, .. } => bytes.len(),
            Piece::Damage { bytes, .. } | Piece::Cut { bytes, .. } => *bytes,
            Piece::End(end) => end.behind - end.at,
        }).sum();
        prop_assert_eq!(covered, dump.len());
        // The scanner finds the same end while bytes arrive, or after a timeout.
        let mut scanner = Scanner::default();
        let end = (0..=dump.len()).find_map(|length| scanner.advance(&dump[..length]));
        let end = end.or_else(|| scanner.silent(&dump)).unwrap();
        prop_assert_eq!(end.at, dump.len() - 6);
    }
}

/// The end of a dump does not depend on the pieces in which it arrives. Here damage, a record and the mark occur twice,
/// and the second occurrence must not be evidence against the first.
#[test]
fn an_end_that_comes_twice_is_the_first() {
    let layout = CORTEX_M;
    let threads = ["main".to_owned()];
    let records: Vec<_> = (1..12)
        .map(|n| record(&layout, n, u64::from(n) * 100, &threads))
        .collect();
    let mut dump = sent(&records);
    dump.extend(b"pong\r\n");
    // The last record but one has an invalid type, and everything after it is repeated.
    let last = 10 * layout.size();
    let again = dump[last..].to_vec();
    dump.extend(again);
    dump[last - layout.size()] = 9;
    assert_eq!(detect(&dump, &Hints::default()), Some(layout));
    let end = Walk::new(&dump, layout).find_map(|piece| match piece {
        Piece::End(end) => Some(end.at),
        _ => None,
    });
    assert_eq!(end, Some(11 * layout.size()));
    for step in 1..=dump.len() {
        let mut scanner = Scanner::default();
        let mut come = (0..dump.len()).step_by(step).chain([dump.len()]);
        let found = come.find_map(|length| scanner.advance(&dump[..length]));
        assert_eq!(found.map(|found| found.at), end, "in steps of {step}");
    }
}

#[test]
fn a_mark_in_a_sentence_begins_nothing() {
    assert_eq!(
        find_begin(b"dumps begin with -*-# in this version", 0),
        None
    );
    assert_eq!(find_begin(b"text -*-# and -*-#\x00", 0), Some(18));
    assert_eq!(find_begin(b"-*-#-*-!\r\n-*-#\x02", 0), Some(4));
    assert_eq!(find_begin(b"-*-#-*-!\r\n-*-#\x02", 4), Some(14));
    // The following bytes have not arrived yet.
    assert_eq!(find_begin(b"-*-#", 0), Some(4));
    assert_eq!(find_begin(b"-*-#-*", 0), Some(4));
}

/// A thread's first record, whose name fills its field, directly before damage: it is complete.
#[test]
fn a_name_that_fills_its_field_before_damage_is_one() {
    let layout = CORTEX_M;
    let threads = ["idle 00".to_owned(), "a_long_name_of_a_thread".to_owned()];
    // The lowest bit of a seed selects the thread.
    let seeds = [10, 12, 14, 16, 17, 18, 19, 20, 21, 22, 24, 26];
    let records = (1..)
        .zip(seeds)
        .map(|(n, seed)| record(&layout, seed, n * 1_000, &threads));
    let mut dump = sent(&records.collect::<Vec<_>>());
    let size = layout.size();
    dump.drain(5 * size + 30..9 * size + 13);
    let mut pieces = Walk::new(&dump, layout);
    let whole = pieces
        .by_ref()
        .take_while(|piece| matches!(piece, Piece::Record { .. }));
    assert_eq!(whole.count(), 5);
}
