use kymo_wire::event::ByteOrder;
use proptest::prelude::*;

use super::*;

fn table(word: WordSize, order: ByteOrder, entries: &[Entry]) -> Vec<u8> {
    let header = TableHeader {
        order,
        word,
        entries: entries.len() as u32,
        slots: 64,
        no_slot: 1,
        too_deep: 2,
        unmatched: 3,
        clock_hz: 25_000_000,
        recorded: 50_000_000,
        replaced: 4,
        replaced_total: 25_000,
    };
    let mut bytes = header.to_bytes().to_vec();
    for entry in entries {
        bytes.extend(&entry.to_bytes(word, order)[..Entry::bytes(word)]);
    }
    bytes
}

const ENTRY: Entry = Entry {
    address: 0x0800_0101,
    count: 9,
    total: 1_000,
    self_time: 500,
    min: 25,
    max: 250,
    recursive: true,
};

#[test]
fn ticks_become_nanoseconds_in_every_layout() {
    for word in [WordSize::Bits32, WordSize::Bits64] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let longest = Entry {
                address: 0x0800_0200,
                total: 2_000,
                ..ENTRY
            };
            let table = decode(&table(word, order, &[ENTRY, longest])).unwrap();
            let thumb_bit = u64::from(word == WordSize::Bits64);
            assert_eq!(table.functions[0].address, Addr(0x0800_0200));
            assert_eq!(
                table.functions[1],
                FunctionProfile {
                    address: Addr(0x0800_0100 | thumb_bit),
                    count: 9,
                    total: Duration(40_000),
                    self_time: Duration(20_000),
                    min: Duration(1_000),
                    max: Duration(10_000),
                    recursive: true,
                    cpus: Vec::new(),
                }
            );
            assert_eq!(table.recorded, Duration(2_000_000_000));
            assert_eq!((table.no_slot, table.too_deep, table.unmatched), (1, 2, 3));
            assert_eq!(
                (table.replaced, table.replaced_total),
                (4, Duration(1_000_000))
            );
        }
    }
}

/// A table of older recorders, which did not replace functions.
#[test]
fn tables_of_version_1_are_read() {
    let mut bytes = table(WordSize::Bits32, ByteOrder::Little, &[ENTRY]);
    let new = decode(&bytes).unwrap();
    bytes.drain(56..72);
    bytes[4] = 1;
    let expected = ProfileTable {
        replaced: 0,
        replaced_total: Duration(0),
        ..new
    };
    assert_eq!(decode(&bytes), Ok(expected));
    bytes.pop();
    assert!(matches!(
        decode(&bytes),
        Err(TableError::Length { offset: 56, .. })
    ));
}

/// The tables of CPUs 0 and 2 of three, one behind the other.
fn tables_of_cpus(word: WordSize, order: ByteOrder) -> Vec<u8> {
    let cpus = [
        (0, vec![ENTRY]),
        (
            2,
            vec![
                Entry {
                    address: 0x0800_0200,
                    recursive: false,
                    ..ENTRY
                },
                Entry {
                    count: u32::MAX,
                    min: 50,
                    max: 500,
                    recursive: false,
                    ..ENTRY
                },
            ],
        ),
    ];
    let mut bytes = Vec::new();
    for (number, entries) in cpus {
        let one = table(word, order, &entries);
        let header = TableHeader::read(&one).unwrap();
        bytes.extend(header.to_bytes_of(TableCpu { number, cpus: 3 }));
        bytes.extend(&one[TableHeader::BYTES..]);
    }
    bytes
}

#[test]
fn tables_of_several_cpus_are_added_up() {
    for word in [WordSize::Bits32, WordSize::Bits64] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let table = decode(&tables_of_cpus(word, order)).unwrap();
            assert_eq!((table.cpus, &*table.missing), (3, &[1][..]));
            assert_eq!((table.slots, table.taken), (64, 2));
            assert_eq!((table.no_slot, table.too_deep, table.unmatched), (2, 4, 6));
            assert_eq!(
                (table.replaced, table.replaced_total),
                (8, Duration(2_000_000))
            );
            assert_eq!(table.recorded, Duration(2_000_000_000));
            let on = |cpu, count| OnCpu {
                cpu,
                count,
                total: Duration(40_000),
                self_time: Duration(20_000),
            };
            let of_both = &table.functions[0];
            assert_eq!(
                *of_both,
                FunctionProfile {
                    address: of_both.address,
                    count: 9 + u64::from(u32::MAX),
                    total: Duration(80_000),
                    self_time: Duration(40_000),
                    min: Duration(1_000),
                    max: Duration(20_000),
                    recursive: true,
                    cpus: vec![on(0, 9), on(2, u32::MAX.into())],
                }
            );
            assert_eq!(of_both.address.0 & !1, 0x0800_0100);
            assert_eq!(table.functions[1].cpus, [on(2, 9)]);
        }
    }
}

#[test]
fn wrong_tables_of_several_cpus_are_told() {
    let good = tables_of_cpus(WordSize::Bits32, ByteOrder::Little);
    let second = TableHeader::CPU_BYTES + 40;
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        decode(&bytes).unwrap_err()
    };
    let cpu = |number, cpus, offset| TableError::Cpu {
        number,
        cpus,
        offset,
    };
    assert_eq!(error(&|b| b[72] = 3), cpu(3, 3, 0));
    assert_eq!(error(&|b| b[72] = 2), cpu(2, 3, second));
    assert_eq!(error(&|b| b[second + 74] = 4), cpu(2, 4, second));
    assert_eq!(error(&|b| b[second + 40] ^= 1), cpu(2, 3, second));
    assert_eq!(
        error(&|b| b[second] = 0),
        TableError::Magic {
            found: 0x4B59_5000,
            offset: second
        }
    );
    assert_eq!(
        error(&|b| b[second + 4] = 2),
        TableError::Length {
            offset: second + 72,
            entries: 2,
            entry_bytes: 40,
            found: 88
        }
    );
    assert_eq!(
        error(&|b| b.truncate(second + 79)),
        TableError::NoHeader {
            expected: 80,
            found: 79
        }
    );
    assert!(matches!(
        error(&|b| b.truncate(good.len() - 1)),
        TableError::Length {
            entries: 2,
            found: 79,
            ..
        }
    ));
}

#[test]
fn what_is_wrong_is_told() {
    let good = table(WordSize::Bits32, ByteOrder::Little, &[ENTRY]);
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        decode(&bytes).unwrap_err()
    };
    assert_eq!(
        error(&|b| b.truncate(71)),
        TableError::NoHeader {
            expected: 72,
            found: 71
        }
    );
    assert_eq!(
        error(&|b| b[0] = 0),
        TableError::Magic {
            found: 0x4B59_5000,
            offset: 0
        }
    );
    assert_eq!(
        error(&|b| b[4] = 4),
        TableError::Version {
            found: [4, 0, 4],
            offset: 4
        }
    );
    let clock = TableError::Clock { offset: 40 };
    assert_eq!(error(&|b| b[40..48].fill(0)), clock);
    let length = |entries, found| TableError::Length {
        offset: 72,
        entries,
        entry_bytes: 40,
        found,
    };
    assert_eq!(error(&|b| b.truncate(111)), length(1, 39));
    assert_eq!(error(&|b| b.push(0)), length(1, 41));
    assert_eq!(error(&|b| b[8..12].fill(0xFF)), length(u32::MAX, 40));
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        for version in [1, 2, 3] {
            for (byte, magic) in bytes.iter_mut().zip([b'F', b'P', b'Y', b'K', version, 0, 4]) {
                *byte = magic;
            }
            let _ = decode(&bytes);
        }
    }
}
