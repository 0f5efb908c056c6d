//! The target's own profile table, from the bytes that `dump_profile` sends.
//!
//! The layout is [`kymo_wire::profile`]'s; here it becomes numbers in nanoseconds and addresses of
//! the event model, and everything that a damaged or foreign table can have wrong is reported.

use kymo_event::{Addr, Duration, Ticks};
use kymo_wire::event::WordSize;
use kymo_wire::profile::{Entry, TABLE_MAGIC, TABLE_VERSION, TableHeader};
use thiserror::Error;

/// A target's profile table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileTable {
    /// The functions, those with the most total time first (then by address).
    pub functions: Vec<FunctionProfile>,
    /// How many functions the table can hold.
    pub slots: u32,
    /// Calls that are in no function's count: every slot near its place was taken, or it was replaced since. So many
    /// may be missing from any count.
    pub no_slot: u64,
    /// How often a function took the slot of the one with the lowest total near its place.
    pub replaced: u64,
    /// The totals of the functions that were replaced: so much may be missing from any total.
    pub replaced_total: Duration,
    /// Calls that were not counted because they were nested too deeply, or their thread had no
    /// shadow stack.
    pub too_deep: u64,
    /// Exits without entries and entries without exits (recording began or ended in the middle,
    /// `longjmp`).
    pub unmatched: u64,
    /// For how long the table has been recording.
    pub recorded: Duration,
    /// Ticks of the target's clock a second.
    pub clock_hz: u64,
}

/// What the target knows of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionProfile {
    /// Where it begins, at run time, without a Thumb bit where the target says that it has none.
    pub address: Addr,
    /// Calls that ended.
    pub count: u64,
    /// Time in the function and what it called; recursion counts once; without the time in which
    /// its thread did not run.
    pub total: Duration,
    /// Time in the function itself.
    pub self_time: Duration,
    /// The shortest call.
    pub min: Duration,
    /// The longest call.
    pub max: Duration,
    /// Some calls were made while the function ran already: `total` is not the sum of all calls.
    pub recursive: bool,
}

/// Bytes that are not a profile table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// Fewer bytes than a header.
    #[error("profile table: expected a header of {expected} bytes, found {found} bytes")]
    NoHeader {
        /// How many there would be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The magic number is another.
    #[error(
        "profile table: expected the magic number {TABLE_MAGIC:#010x}, found {found:#010x} at offset 0"
    )]
    Magic {
        /// What stands there, read as little-endian.
        found: u32,
    },
    /// A version or a width of addresses that is not known here.
    #[error(
        "profile table: expected a version up to {TABLE_VERSION} with addresses of 4 or 8 bytes, found \
         bytes {found:02x?} at offset 4"
    )]
    Version {
        /// Version (2 bytes) and bytes of an address.
        found: [u8; 3],
    },
    /// A rate at which no clock ticks.
    #[error("profile table: expected ticks a second, found 0 at offset 40")]
    Clock,
    /// Another number of entries than the header says.
    #[error(
        "profile table: expected {entries} entries of {entry_bytes} bytes from offset {offset} on, \
         found {found} bytes"
    )]
    Length {
        /// Where the header ends.
        offset: usize,
        /// How many entries the header says.
        entries: u32,
        /// The size of each.
        entry_bytes: usize,
        /// How many bytes follow the header.
        found: usize,
    },
}

/// Reads a profile table.
///
/// # Errors
/// [`TableError`] if `bytes` are not exactly a table: with what was expected, what was found, and
/// where.
pub fn decode(bytes: &[u8]) -> Result<ProfileTable, TableError> {
    let length = TableHeader::length(bytes);
    let short = TableError::NoHeader {
        expected: length.unwrap_or(TableHeader::BYTES),
        found: bytes.len(),
    };
    let Some(length) = length else {
        return Err(match *bytes {
            [a, b, c, d, e, f, g, _, ..] => {
                let magic = [a, b, c, d];
                if [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&TABLE_MAGIC) {
                    TableError::Version { found: [e, f, g] }
                } else {
                    TableError::Magic {
                        found: u32::from_le_bytes(magic),
                    }
                }
            }
            _ => short,
        });
    };
    let Some((head, rest)) = bytes.split_at_checked(length) else {
        return Err(short);
    };
    let Some(header) = TableHeader::read(head) else {
        return Err(TableError::Version {
            found: [4, 5, 6].map(|at| head.get(at).copied().unwrap_or(0)),
        });
    };
    if header.clock_hz == 0 {
        return Err(TableError::Clock);
    }
    let entry_bytes = Entry::bytes(header.word);
    if Some(rest.len()) != (header.entries as usize).checked_mul(entry_bytes) {
        return Err(TableError::Length {
            offset: length,
            entries: header.entries,
            entry_bytes,
            found: rest.len(),
        });
    }
    let time = |ticks: u64| Duration(Ticks(ticks).to_ns(header.clock_hz));
    let mut functions: Vec<_> = rest
        .chunks_exact(entry_bytes)
        .filter_map(|bytes| Entry::read(bytes, header.word, header.order))
        .map(|entry| FunctionProfile {
            address: Addr(match header.word {
                // Only Thumb code has odd addresses; the bit is no part of where a function is.
                WordSize::Bits32 => entry.address & !1,
                WordSize::Bits64 => entry.address,
            }),
            count: entry.count.into(),
            total: time(entry.total),
            self_time: time(entry.self_time),
            min: time(entry.min),
            max: time(entry.max),
            recursive: entry.recursive,
        })
        .collect();
    functions.sort_by_key(|f| (std::cmp::Reverse(f.total), f.address));
    Ok(ProfileTable {
        functions,
        slots: header.slots,
        no_slot: header.no_slot,
        replaced: header.replaced,
        replaced_total: time(header.replaced_total),
        too_deep: header.too_deep,
        unmatched: header.unmatched,
        recorded: time(header.recorded),
        clock_hz: header.clock_hz,
    })
}

#[cfg(test)]
mod tests {
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

    /// As recorders wrote them before functions were replaced.
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
            TableError::Magic { found: 0x4B59_5000 }
        );
        assert_eq!(
            error(&|b| b[4] = 3),
            TableError::Version { found: [3, 0, 4] }
        );
        assert_eq!(error(&|b| b[40..48].fill(0)), TableError::Clock);
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
            for version in [1, 2] {
                for (byte, magic) in bytes.iter_mut().zip([b'F', b'P', b'Y', b'K', version, 0, 4]) {
                    *byte = magic;
                }
                let _ = decode(&bytes);
            }
        }
    }
}
