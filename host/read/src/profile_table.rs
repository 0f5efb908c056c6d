//! Decoder for the target's own profile table, as `dump_profile` sends it.
//!
//! [`kymo_wire::profile`] defines the layout. This module converts it to nanoseconds and addresses of the event model,
//! and reports everything that may be wrong in a damaged or foreign table.

use kymo_event::{Addr, Duration, Ticks};
use kymo_wire::event::WordSize;
use kymo_wire::profile::{Entry, TABLE_MAGIC, TABLE_VERSION, TableHeader};
use thiserror::Error;

/// Profile table of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileTable {
    /// Functions in descending order of total time, then by address.
    pub functions: Vec<FunctionProfile>,
    /// Number of functions that the table can hold.
    pub slots: u32,
    /// Number of calls that no function's count includes, because all slots for its function were taken, or because it
    /// was replaced later. Any count may lack this many calls.
    pub no_slot: u64,
    /// Number of times a function took the slot of the nearby function with the lowest total.
    pub replaced: u64,
    /// Sum of the totals of replaced functions. Any total may lack this much time.
    pub replaced_total: Duration,
    /// Number of calls that were not counted because they were nested too deeply, or because their thread had no shadow
    /// stack.
    pub too_deep: u64,
    /// Number of exits without entries and entries without exits (recording began or ended within a call, or
    /// `longjmp`).
    pub unmatched: u64,
    /// Duration of the recording.
    pub recorded: Duration,
    /// Frequency of the target's clock in Hz.
    pub clock_hz: u64,
}

/// Counts of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionProfile {
    /// Run-time address of its start. Without the Thumb bit, if the target reports that it has none.
    pub address: Addr,
    /// Number of completed calls.
    pub count: u64,
    /// Time in the function and its callees, without the time in which its thread did not run. Recursive calls count
    /// once.
    pub total: Duration,
    /// Time in the function itself, without callees.
    pub self_time: Duration,
    /// Duration of the shortest call.
    pub min: Duration,
    /// Duration of the longest call.
    pub max: Duration,
    /// Whether some calls were recursive: `total` is then not the sum of all calls.
    pub recursive: bool,
}

/// Error for bytes that are not a profile table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// There are fewer bytes than a header has.
    #[error("profile table: expected a header of {expected} bytes, found {found} bytes")]
    NoHeader {
        /// Size of a header.
        expected: usize,
        /// Number of bytes.
        found: usize,
    },
    /// The magic number does not match.
    #[error(
        "profile table: expected the magic number {TABLE_MAGIC:#010x}, found {found:#010x} at offset 0"
    )]
    Magic {
        /// The number found, read as little endian.
        found: u32,
    },
    /// The version or address size is not supported.
    #[error(
        "profile table: expected a version up to {TABLE_VERSION} with addresses of 4 or 8 bytes, found \
         bytes {found:02x?} at offset 4"
    )]
    Version {
        /// Version (2 bytes) and address size in bytes.
        found: [u8; 3],
    },
    /// The clock frequency is 0.
    #[error("profile table: expected ticks a second, found 0 at offset 40")]
    Clock,
    /// The number of entries differs from the header's.
    #[error(
        "profile table: expected {entries} entries of {entry_bytes} bytes from offset {offset} on, \
         found {found} bytes"
    )]
    Length {
        /// Offset of the end of the header.
        offset: usize,
        /// Number of entries in the header.
        entries: u32,
        /// Size of an entry in bytes.
        entry_bytes: usize,
        /// Number of bytes behind the header.
        found: usize,
    },
}

/// Decodes a profile table.
///
/// # Errors
/// [`TableError`] if `bytes` are not exactly one table. It states the expected and found data, and the offset.
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
                // Only Thumb code has odd addresses. The bit is not part of the function's address.
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
