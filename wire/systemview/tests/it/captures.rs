//! Recordings of real targets: what is in them, and that they are written the same way again.

use std::collections::BTreeMap;
use std::path::Path;

use kymo_fixtures::captures;
use kymo_systemview::packet::Packet;
use kymo_systemview::scan::{self, UNKNOWN};
use kymo_systemview::{Form, Ids, Piece, Record, Scan, encode, file};

/// The pieces of a file's only stream.
fn pieces(bytes: &[u8]) -> Vec<Piece<'_>> {
    let start = file::header(bytes).map_or(0, |header| header.text.len());
    let mut scan = Scan::default();
    let mut pieces = Vec::new();
    while let Some(piece) = scan.next(&bytes[start + scan.offset() as usize..], true, UNKNOWN) {
        pieces.push(piece);
    }
    assert_eq!(start as u64 + scan.offset(), bytes.len() as u64);
    pieces
}

fn records<'a>(pieces: &[Piece<'a>]) -> Vec<Record<'a>> {
    let records = pieces.iter().filter_map(|piece| match piece {
        Piece::Record(record) => Some(*record),
        _ => None,
    });
    records.collect()
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

/// Name, packets, overflow packets, the sum of times, ticks a second.
const CLEAN: [(&str, usize, usize, u64, u32); 4] = [
    ("app-cpu1.SVDat", 47_430, 34, 25_322_383, 1_000_000),
    ("pro-cpu1.SVDat", 47_461, 34, 25_322_383, 1_000_000),
    ("app-cpu2.svdat", 163, 0, 14_617_371, 40_000_000),
    ("pro-cpu2.svdat", 195, 0, 14_617_371, 40_000_000),
];

#[test]
fn recordings_without_damage_have_their_packets_and_are_written_again() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    for (name, packets, overflows, ticks, frequency) in CLEAN {
        let bytes = read(&folder, name);
        let header = file::header(&bytes).unwrap();
        assert_eq!(header.text.len(), 65);
        assert_eq!(header.value("Author"), Some(&b"Espressif Inc"[..]));
        let all = pieces(&bytes);
        assert_eq!(all[0], Piece::Sync { offset: 0 });
        let records = records(&all);
        assert_eq!(records.len() + 1, all.len(), "{name}: damage");
        assert_eq!(records.len(), packets, "{name}");
        let sum: u64 = records.iter().map(|it| u64::from(it.delta)).sum();
        assert_eq!(sum, ticks, "{name}");
        let totals: Vec<_> = records
            .iter()
            .filter_map(|it| match it.packet {
                Packet::Overflow { total } => Some(total),
                _ => None,
            })
            .collect();
        assert_eq!(totals.len(), overflows, "{name}");
        if overflows > 0 {
            assert_eq!((&totals[..3], totals[33]), (&[328, 762, 1193][..], 13_875));
        }
        assert_eq!(records[0].packet, Packet::TraceStart);
        let ids = Ids {
            base: 0x3f40_0000,
            shift: 0,
        };
        let init = Packet::Init {
            frequency,
            cpu_frequency: 160_000_000,
            ids,
        };
        assert_eq!(records[1].packet, init);
        let of = |id| records.iter().filter(|it| it.packet.id() == id).count();
        assert_eq!((of(14), of(11)), (71, 1), "{name}");

        let mut again = header.text.to_vec();
        let mut scratch = [0; 300];
        for piece in &all {
            match piece {
                Piece::Sync { .. } => again.extend(kymo_systemview::SYNC),
                Piece::Record(record) => {
                    let size = encode(&record.packet, record.delta, record.form, &mut scratch);
                    again.extend(&scratch[..size.unwrap()]);
                    assert_eq!(record.form, Form::default());
                    assert!(scan::is_written_again(record, &mut scratch));
                }
                Piece::Damage { .. } => panic!("{piece:?}"),
            }
        }
        assert_eq!(again, bytes, "{name}");
    }
}

/// What a cut leaves of a packet is no packet: those before it are the ones of the whole recording, and no more.
#[test]
fn a_recording_cut_anywhere_holds_its_first_packets() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    for name in ["app-cpu2.svdat", "pro-cpu2.svdat"] {
        let bytes = read(&folder, name);
        let all = pieces(&bytes);
        let whole = records(&all);
        for cut in 200..bytes.len() {
            let found = pieces(&bytes[..cut]);
            let found = records(&found);
            assert_eq!(found[..], whole[..found.len()], "{name} cut at {cut}");
        }
    }
}

#[test]
fn raw_memory_in_the_middle_is_passed_over_and_counted() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    let bytes = read(&folder, "app-cpu.SVDat");
    let all = pieces(&bytes);
    let damage = all
        .iter()
        .position(|piece| matches!(piece, Piece::Damage { .. }));
    let damage = damage.unwrap();
    let Piece::Damage { offset, bytes, .. } = all[damage] else {
        unreachable!();
    };
    // The first is the synchronization.
    assert_eq!((damage - 1, offset + 65), (1372, 9326));
    // The next event is at 9806 of the file; some bytes of memory look like packets.
    assert!((300..600).contains(&bytes), "{bytes}");
    let behind = records(&all[damage..]);
    let mut ids = BTreeMap::<u32, usize>::new();
    for record in &behind {
        *ids.entry(record.packet.id()).or_default() += 1;
    }
    let of = |id| ids.get(&id).copied().unwrap_or(0);
    // Both cores, bit 6 of an id for the second: blocks of 250 bytes with two bytes in front.
    assert!(of(34) > 500 && of(98) > 500, "{ids:?}");
    let lost: u64 = all
        .iter()
        .map(|piece| match piece {
            Piece::Damage { bytes, .. } => *bytes,
            _ => 0,
        })
        .sum();
    assert!(lost < 1000, "{lost}");
}

/// A stream that comes in small parts is the same.
#[test]
fn a_stream_that_comes_piece_by_piece_reads_the_same() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    for name in ["pro-cpu2.svdat", "app-cpu.SVDat"] {
        let bytes = read(&folder, name);
        let stream = &bytes[65..];
        let whole = pieces(&bytes);
        let mut scan = Scan::default();
        let mut parts = Vec::new();
        for end in (0..stream.len()).step_by(97).chain([stream.len()]) {
            let ended = end == stream.len();
            loop {
                let start = scan.offset() as usize;
                match scan.next(&stream[start..end.max(start)], ended, UNKNOWN) {
                    Some(piece) => parts.push(piece),
                    None => break,
                }
            }
        }
        let (parts, whole) = (records(&parts), records(&whole));
        let differ = parts
            .iter()
            .zip(&whole)
            .position(|(one, other)| one != other);
        assert_eq!((differ, parts.len()), (None, whole.len()), "{name}");
    }
}
