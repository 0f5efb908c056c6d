//! The target's profile table on the wire.
//!
//! A target without room for a trace can still record the number of calls and the time of every function. The table is
//! sent as a [`TableHeader`] followed by one [`Entry`] per function, in no particular order. All numbers are in the
//! byte order and word size of the target: the header begins with a magic number that shows the former, and contains a
//! byte for the latter. Times are ticks of the target's clock.
//!
//! Several CPUs keep a table each, and send them one behind the other, with headers of version 3, which have the number
//! of the CPU ([`TableCpu`]). A reader adds up the entries of each function. The table of a CPU that does not answer is
//! missing.

use crate::event::{ByteOrder, WordSize};

/// First four bytes of a table, in the byte order of the target: `KYPF` on a big-endian one.
pub const TABLE_MAGIC: u32 = 0x4B59_5046;

/// Latest version of the table's layout: that of the tables of several CPUs.
pub const TABLE_VERSION: u16 = 3;

/// Version of a single table. Tables of version 1 are read, too: their headers end after the recorded ticks, and their
/// targets replaced no function.
const SINGLE_VERSION: u16 = 2;

/// Header of the table, before the entries.
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | u32 | magic |
/// | 4 | u16 | version |
/// | 6 | u8 | bytes of an address: 4 or 8 |
/// | 7 | u8 | 0 |
/// | 8 | u32 | entries |
/// | 12 | u32 | slots |
/// | 16 | u64 | calls without a slot |
/// | 24 | u64 | calls too deep |
/// | 32 | u64 | unmatched exits |
/// | 40 | u64 | ticks a second |
/// | 48 | u64 | ticks recorded |
/// | 56 | u64 | functions replaced (from version 2 on) |
/// | 64 | u64 | ticks of their totals (from version 2 on) |
/// | 72 | u16 | number of the table's CPU, from 0 on (version 3: see [`TableCpu`]) |
/// | 74 | u16 | number of CPUs (version 3) |
/// | 76 | u32 | 0 (version 3) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableHeader {
    /// The byte order of the whole table.
    pub order: ByteOrder,
    /// The width of an address.
    pub word: WordSize,
    /// The number of entries that follow.
    pub entries: u32,
    /// The number of entries that the table can hold.
    pub slots: u32,
    /// Calls that are in no entry: every slot near their function's hash was in use, or the function was replaced
    /// since. Any entry may lack up to this many calls.
    pub no_slot: u64,
    /// Calls that were not counted because the shadow stack of their thread was full, or there
    /// was no shadow stack left for the thread.
    pub too_deep: u64,
    /// Exits without an entry on the shadow stack (entered before recording was on), entries closed by the exit of a
    /// function further out (`longjmp`; the entries' counts include these), and calls that were open when recording was
    /// turned off (the counts do not include these).
    pub unmatched: u64,
    /// Frequency of the clock in ticks per second.
    pub clock_hz: u64,
    /// Ticks for which the table has been recording.
    pub recorded: u64,
    /// Number of times that a function took the slot of another one, namely the one with the lowest total near its
    /// hash.
    pub replaced: u64,
    /// Totals of the replaced functions, in ticks: any entry's total may lack up to this much.
    pub replaced_total: u64,
}

impl TableHeader {
    /// Size of the header of a single table in bytes.
    pub const BYTES: usize = 72;

    /// Size of the header of one of several tables in bytes.
    pub const CPU_BYTES: usize = 80;

    /// Size of a header of version 1.
    const BYTES_1: usize = 56;

    /// Returns the length of the header at the start of these bytes; `None` if they are too few to tell, or not a
    /// header defined here.
    pub fn length(bytes: &[u8]) -> Option<usize> {
        let bytes: &[u8; 8] = bytes.get(..8)?.try_into().ok()?;
        let order = Self::order(bytes)?;
        match get(bytes, 4, 2, order) {
            1 => Some(Self::BYTES_1),
            version if version == u64::from(SINGLE_VERSION) => Some(Self::BYTES),
            version if version == u64::from(TABLE_VERSION) => Some(Self::CPU_BYTES),
            _ => None,
        }
    }

    /// Returns the byte order of a table, by its magic number.
    fn order(bytes: &[u8; 8]) -> Option<ByteOrder> {
        [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find(|&order| get(bytes, 0, 4, order) == u64::from(TABLE_MAGIC))
    }

    /// Encodes the header of a single table.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = Out::<{ Self::BYTES }>::new(self.order);
        self.put(SINGLE_VERSION, &mut out);
        out.bytes
    }

    /// Encodes the header of one of several tables.
    pub fn to_bytes_of(&self, cpu: TableCpu) -> [u8; Self::CPU_BYTES] {
        let mut out = Out::<{ Self::CPU_BYTES }>::new(self.order);
        self.put(TABLE_VERSION, &mut out);
        out.put(cpu.number.into(), 2);
        out.put(cpu.cpus.into(), 2);
        out.put(0, 4);
        out.bytes
    }

    #[inline(always)]
    fn put<const N: usize>(&self, version: u16, out: &mut Out<N>) {
        out.put(TABLE_MAGIC.into(), 4);
        out.put(version.into(), 2);
        out.put(self.word.bytes() as u64, 1);
        out.put(0, 1);
        out.put(self.entries.into(), 4);
        out.put(self.slots.into(), 4);
        for value in [
            self.no_slot,
            self.too_deep,
            self.unmatched,
            self.clock_hz,
            self.recorded,
            self.replaced,
            self.replaced_total,
        ] {
            out.put(value, 8);
        }
    }

    /// Reads the header at the start of `bytes`; `None` if they are too few, or if the magic number, version or word
    /// size is not defined here.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::length(bytes)?)?;
        let order = Self::order(bytes.first_chunk()?)?;
        let of_version_2 = |at| match bytes.len() {
            Self::BYTES_1 => 0,
            _ => get(bytes, at, 8, order),
        };
        Some(Self {
            order,
            word: WordSize::from_bits(u32::from(bytes[6]) * 8)?,
            entries: get(bytes, 8, 4, order) as u32,
            slots: get(bytes, 12, 4, order) as u32,
            no_slot: get(bytes, 16, 8, order),
            too_deep: get(bytes, 24, 8, order),
            unmatched: get(bytes, 32, 8, order),
            clock_hz: get(bytes, 40, 8, order),
            recorded: get(bytes, 48, 8, order),
            replaced: of_version_2(56),
            replaced_total: of_version_2(64),
        })
    }
}

/// Which of several tables a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableCpu {
    /// Number of the CPU that kept the table, from 0 on.
    pub number: u16,
    /// Number of CPUs: so many tables there are.
    pub cpus: u16,
}

impl TableCpu {
    /// Reads the CPU in the header at the start of `bytes`; `None` in that of a single table.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..TableHeader::length(bytes)?)?;
        let order = TableHeader::order(bytes.first_chunk()?)?;
        (bytes.len() == TableHeader::CPU_BYTES).then(|| Self {
            number: get(bytes, 72, 2, order) as u16,
            cpus: get(bytes, 74, 2, order) as u16,
        })
    }
}

/// Profile of one function. Times are ticks.
///
/// On the wire: `word address, u32 count, u64 total, u64 self, u64 min, u64 max`, without padding:
/// 40 or 44 bytes. The highest bit of `total` is [`recursive`](Self::recursive).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Start address of the function, at run time.
    pub address: u64,
    /// Number of calls that ended.
    pub count: u32,
    /// Time in the function and its callees, with recursion counted once, without the time in which its thread did not
    /// run.
    pub total: u64,
    /// Time in the function itself, without callees.
    pub self_time: u64,
    /// Duration of the shortest call.
    pub min: u64,
    /// Duration of the longest call.
    pub max: u64,
    /// Whether some calls were made while the function was active already: then `total`, which counts their time once,
    /// is not the sum of all calls.
    pub recursive: bool,
}

impl Entry {
    /// Bit of `total` that means [`recursive`](Self::recursive): no target counts that far.
    pub const RECURSIVE: u64 = 1 << 63;

    /// Size of the largest entry in bytes.
    pub const MAX_BYTES: usize = 44;

    /// Returns the size in bytes on a target with this word size.
    pub const fn bytes(word: WordSize) -> usize {
        word.bytes() + 36
    }

    /// Encodes the entry: the first [`bytes`](Self::bytes) of the array.
    pub fn to_bytes(&self, word: WordSize, order: ByteOrder) -> [u8; Self::MAX_BYTES] {
        let mut out = Out::<{ Self::MAX_BYTES }>::new(order);
        out.put(self.address, word.bytes());
        out.put(self.count.into(), 4);
        let mark = if self.recursive { Self::RECURSIVE } else { 0 };
        for value in [self.total | mark, self.self_time, self.min, self.max] {
            out.put(value, 8);
        }
        out.bytes
    }

    /// Reads the entry at the start of `bytes`; `None` if they are too few.
    pub fn read(bytes: &[u8], word: WordSize, order: ByteOrder) -> Option<Self> {
        let bytes = bytes.get(..Self::bytes(word))?;
        let rest = word.bytes();
        let total = get(bytes, rest + 4, 8, order);
        Some(Self {
            address: get(bytes, 0, rest, order),
            count: get(bytes, rest, 4, order) as u32,
            total: total & !Self::RECURSIVE,
            self_time: get(bytes, rest + 12, 8, order),
            min: get(bytes, rest + 20, 8, order),
            max: get(bytes, rest + 28, 8, order),
            recursive: total & Self::RECURSIVE != 0,
        })
    }
}

/// Reads `size` bytes at `at`; the caller guarantees that they exist.
fn get(bytes: &[u8], at: usize, size: usize, order: ByteOrder) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let bytes = bytes[at..at + size].iter();
    match order {
        ByteOrder::Little => bytes.rev().fold(0, fold),
        ByteOrder::Big => bytes.fold(0, fold),
    }
}

/// Fills an array field by field.
struct Out<const N: usize> {
    bytes: [u8; N],
    at: usize,
    order: ByteOrder,
}

impl<const N: usize> Out<N> {
    fn new(order: ByteOrder) -> Self {
        Self {
            bytes: [0; N],
            at: 0,
            order,
        }
    }

    fn put(&mut self, value: u64, size: usize) {
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        self.bytes[self.at..self.at + size].copy_from_slice(match self.order {
            ByteOrder::Little => &little[..size],
            ByteOrder::Big => &big[8 - size..],
        });
        self.at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_read_back_in_every_layout() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for word in [WordSize::Bits32, WordSize::Bits64] {
                let header = TableHeader {
                    order,
                    word,
                    entries: 3,
                    slots: 64,
                    no_slot: 1 << 40,
                    too_deep: 2,
                    unmatched: 3,
                    clock_hz: 25_000_000,
                    recorded: u64::MAX,
                    replaced: 4,
                    replaced_total: 1 << 41,
                };
                let bytes = header.to_bytes();
                assert_eq!(TableHeader::read(&bytes), Some(header));
                assert_eq!(TableHeader::read(&bytes[..71]), None);
                assert_eq!(TableCpu::read(&bytes), None);
                let cpu = TableCpu {
                    number: 3,
                    cpus: 16,
                };
                let of_cpu = header.to_bytes_of(cpu);
                assert_eq!(TableHeader::read(&of_cpu), Some(header));
                assert_eq!(TableCpu::read(&of_cpu), Some(cpu));
                assert_eq!(TableHeader::read(&of_cpu[..79]), None);
                // As of version 1.
                let mut old = bytes;
                old[4..6].copy_from_slice(match order {
                    ByteOrder::Little => &[1, 0],
                    ByteOrder::Big => &[0, 1],
                });
                let expected = TableHeader {
                    replaced: 0,
                    replaced_total: 0,
                    ..header
                };
                assert_eq!(TableHeader::read(&old[..56]), Some(expected));
                assert_eq!(TableHeader::read(&old[..55]), None);
                for recursive in [false, true] {
                    let entry = Entry {
                        address: 0x0800_0101,
                        count: 9,
                        total: 1 << 50,
                        self_time: 77,
                        min: 1,
                        max: 1 << 33,
                        recursive,
                    };
                    let bytes = entry.to_bytes(word, order);
                    let bytes = &bytes[..Entry::bytes(word)];
                    assert_eq!(Entry::read(bytes, word, order), Some(entry));
                }
            }
        }
    }

    #[test]
    fn unknown_versions_are_refused() {
        let mut bytes = [0; TableHeader::CPU_BYTES];
        assert_eq!(TableHeader::read(&bytes), None);
        bytes[..8].copy_from_slice(b"KYPF\0\x04\x04\0");
        assert_eq!(TableHeader::read(&bytes), None);
        for version in [1, 2, 3] {
            bytes[5] = version;
            assert!(TableHeader::read(&bytes).is_some());
        }
    }
}
