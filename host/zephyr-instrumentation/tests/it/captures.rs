//! Dumps from a device.

use kymo_fixtures::captures;
use kymo_zephyr_instrumentation::{
    BEGIN, ByteOrder, Hints, Kind, Layout, Piece, PointerWidth, Scanner, Walk, detect, find_begin,
};

/// The dumps, with the name length (0 for a profile) and the number of records from the notes of the captures.
const DUMPS: [(&str, usize, usize); 12] = [
    ("instr_default/cap1/10_dump_profile.bin", 0, 160),
    ("instr_default/cap1/11_dump_trace.bin", 32, 222),
    ("instr_default/cap1/13_dump_profile_again.bin", 0, 160),
    ("instr_default/cap2/09_dump_trace.bin", 32, 222),
    ("instr_default/cap2/10_dump_profile.bin", 0, 124),
    ("instr_default/cap2/25_dump_trace_after_cr.bin", 32, 222),
    ("instr_big/cap_big/03_dump_profile.bin", 0, 160),
    ("instr_big/cap_big/04_dump_trace.bin", 20, 3_390),
    ("instr_big/cap_big2/09_dump_trace.bin", 20, 2_959),
    ("instr_big/cap_big2/10_dump_profile.bin", 0, 124),
    ("instr_big/cap_big2/25_dump_trace_after_cr.bin", 20, 2_997),
    ("instr_trace_only/cap_to/04_dump_trace.bin", 20, 4_416),
];

#[test]
fn dumps_have_the_layout_and_the_records_of_their_firmware() {
    let data = captures::zephyr_instrumentation();
    for (file, name, records) in DUMPS {
        let bytes = std::fs::read(data.join(file)).unwrap();
        assert_eq!(find_begin(&bytes, 0), Some(BEGIN.len()), "{file}");
        let body = &bytes[BEGIN.len()..];
        let layout = detect(body, &Hints::default()).unwrap();
        let expected = Layout {
            pointer: PointerWidth::Bits32,
            order: ByteOrder::Little,
            name_bytes: (name > 0).then_some(name),
        };
        assert_eq!(layout, expected, "{file}");
        let pieces: Vec<_> = Walk::new(body, layout).collect();
        let [all @ .., Piece::End(end)] = pieces.as_slice() else {
            panic!("{file}: no end: {:?}", pieces.last());
        };
        assert!(
            all.iter()
                .all(|piece| matches!(piece, Piece::Record { .. }))
        );
        assert_eq!(all.len(), records, "{file}");
        assert_eq!(end.at, records * layout.size());
        assert_eq!(end.behind, body.len());

        // Hints from another build's files do not matter.
        let wrong = Hints {
            pointer: Some(PointerWidth::Bits64),
            order: Some(ByteOrder::Big),
            name_bytes: Some(64),
        };
        assert_eq!(detect(body, &wrong), Some(expected), "{file}");
    }
}

#[test]
fn their_end_is_found_whatever_pieces_they_come_in() {
    let data = captures::zephyr_instrumentation();
    for (file, _, records) in DUMPS {
        let bytes = std::fs::read(data.join(file)).unwrap();
        let body = &bytes[BEGIN.len()..];
        for step in [1, 31, 4_096, body.len()] {
            let mut scanner = Scanner::default();
            let mut ends = (0..body.len() + step).step_by(step).map(|length| {
                let come = &body[..length.min(body.len())];
                (come.len(), scanner.advance(come))
            });
            let (length, end) = ends.find(|(_, end)| end.is_some()).unwrap();
            // As soon as the mark has arrived; in a short dump, with the first byte of its line end.
            let end = end.unwrap();
            assert_eq!(end.at, body.len() - 6, "{file}");
            assert!(length - end.at < 5 + step, "{file}: {length}");
            assert_eq!(scanner.records(), records as u64);
            assert_eq!(scanner.damaged(), 0);
        }
    }
}

#[test]
fn an_empty_dump_ends_at_once_and_a_cut_one_never() {
    let data = captures::zephyr_instrumentation();
    let bytes = std::fs::read(data.join("instr_default/cap1/12_dump_trace_again.bin")).unwrap();
    let begin = find_begin(&bytes, 0).unwrap();
    let end = Scanner::default().advance(&bytes[begin..]).unwrap();
    assert_eq!((end.at, end.behind), (0, 6));

    let bytes = std::fs::read(data.join("instr_default/cap1/11_dump_trace.bin")).unwrap();
    let body = &bytes[4..bytes.len() - 3];
    let mut scanner = Scanner::default();
    assert_eq!(scanner.advance(body), None);
    assert_eq!(
        scanner.layout().map(|layout| layout.kind()),
        Some(Kind::Trace)
    );
    assert_eq!(scanner.records(), 222);
}

#[test]
fn lost_bytes_cost_only_the_records_around_them() {
    let data = captures::zephyr_instrumentation();
    for (file, ..) in DUMPS
        .into_iter()
        .filter(|(file, ..)| !file.contains("again"))
    {
        let bytes = std::fs::read(data.join(file)).unwrap();
        let body = &bytes[BEGIN.len()..];
        let layout = detect(body, &Hints::default()).unwrap();
        let size = layout.size();
        // Tries every fifth number for each capture.
        for lost in (1 + size % 5 + file.len() % 5..=100).step_by(5) {
            // Offsets anywhere in a record, sometimes directly after the mark, but not in the last records, because
            // nothing after them shows the loss.
            let places = body.len() - 6 - lost - 8 * size;
            let from = if lost % 10 == 3 {
                0
            } else {
                lost * 104_729 % places
            };
            let to = from + lost;
            let dump = [&body[..from], &body[to..]].concat();
            let printed = format!("{file}: {lost} bytes from {from} on");
            assert_eq!(detect(&dump, &Hints::default()), Some(layout), "{printed}");
            let mut before = 0;
            let mut behind = 0;
            let mut wrong = 0;
            for piece in Walk::new(&dump, layout) {
                let Piece::Record { offset, .. } = piece else {
                    continue;
                };
                if offset + size <= from {
                    assert_eq!(offset % size, 0, "{printed}");
                    before += 1;
                } else if offset >= from && (offset + lost) % size == 0 {
                    behind += 1;
                } else {
                    wrong += 1;
                }
            }
            let left = (body.len() - 6) / size;
            assert!(
                before >= (from / size).saturating_sub(1),
                "{printed}: {before}"
            );
            assert!(
                behind + 2 >= left - to.div_ceil(size),
                "{printed}: {behind} behind"
            );
            // The remains of two records can look like one.
            assert!(wrong <= 1, "{printed}: {wrong} out of step");
        }
    }
}
