//! The ELF note in a target's program: how to read its recording from RAM.
//!
//! Section `.note.kymo`, name `Kymo`, type [`NOTE_TYPE`]. With it, the symbols of the ELF file and the bytes of the RAM
//! (from a debugger, or a dump after a crash) a host can extract a trace without the program's help. The note contains
//! the layout of packets, and the offsets to find everything else:
//!
//! - the program's `kymo_config`, a constant in the ELF file, holds the address and size of the buffer, the clock and
//!   the numbering of functions;
//! - the buffer holds consecutive packets at multiples of `packet_size`, each with a header whose `content_size` is
//!   right, except in the newest packet. The newest packet's records reach up to the address that the recorder keeps:
//!   in the symbol `kymo_hot`; or, if several CPUs record, each into its own `buffer_size` bytes of the buffer, in
//!   `kymo_recorder`, once for each;
//! - names, build id and overheads are one packet at `metadata`, always complete;
//! - rings of items are a list that begins in `kymo_recorder` (with several CPUs: one list each). A ring is a
//!   `kymo_ring_t` ([`ring`]);
//! - the profile table is an array of `kymo_slot_t` ([`table`]), whose address is in `kymo_config`. Its state (losses,
//!   the time for which it has counted) is in the last slots of that array, or in `kymo_recorder`;
//! - `kymo_duration` holds the calls that are open in duration mode ([`duration`]).
//!
//! The value, in the byte order of the program:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | version: 4; 3 is equal for programs with compact records |
//! | 2 | u8 | bytes of an address |
//! | 3 | u8 | shape: 0 compact, 1 wide |
//! | 4 | u8 | `function_shift` to use if it is 0 in `kymo_config` |
//! | 5 | u8 | number of slots at the end of the profile table's memory that hold its state; 0: it is in `kymo_recorder` |
//! | 6 | u16 | offset of `buffer` in `kymo_config` (word) |
//! | 8 | u16 | offset of `buffer_size` in `kymo_config` (u32) |
//! | 10 | u16 | offset of `packet_size` in `kymo_config` (u32) |
//! | 12 | u16 | offset of `function_shift` in `kymo_config` (u32) |
//! | 14 | u16 | offset of `text_base` in `kymo_config` (word) |
//! | 16 | u32 | offset of `at` (word) in `kymo_hot`, or with a stride in `kymo_recorder`; or [`NOWHERE`] |
//! | 20 | u32 | stride: distance from one CPU's data in `kymo_recorder` to the next one's; 0 if there is only one |
//! | 24 | u32 | offset of the first ring's address (word) in `kymo_recorder`, or [`NOWHERE`] |
//! | 28 | u16 | offset of `clock_hz` in `kymo_config` (u64) |
//! | 30 | u16 | offset of `metadata` in `kymo_config` (word) |
//! | 32 | u16 | offset of `metadata_size` in `kymo_config` (u32) |
//! | 34 | u16 | offset of `cpu_count` in `kymo_config` (u32) |
//! | 36 | u16 | offset of the next ring's address in a ring (word) |
//! | 38 | u16 | offset of `slots` (word, followed by the u32 `slot_count`) in `kymo_config`; 0: the table cannot be found |
//! | 40 | u32 | offset of the count of discarded events (u32) in `kymo_recorder`, or [`NOWHERE`] |
//! | 44 | u32 | offset of the profile table's state in `kymo_recorder` if it is there, or [`NOWHERE`] |
//!
//! Libraries that predate the description of the profile table have a value of 44 bytes, with 0 at 5 and at 38.

use crate::event::{ByteOrder, Layout, Shape, WordSize};

/// `n_type` of the note.
pub const NOTE_TYPE: u32 = 1;

/// `n_name` of the note, with its padding in the file (`n_namesz` is 5).
pub const NOTE_NAME: [u8; 8] = *b"Kymo\0\0\0\0";

/// Size of the whole note in bytes: `n_namesz`, `n_descsz`, `n_type`, name, value.
pub const NOTE_BYTES: usize = VALUE + VALUE_BYTES;

/// Size of the value in bytes.
pub const VALUE_BYTES: usize = 48;

/// Size of the shortest value that is read, which does not describe the profile table.
const SHORT_VALUE_BYTES: usize = 44;

/// Version of the value and of the packets.
pub const NOTE_VERSION: u16 = 4;

/// Previous version, in which wide packets were different ([`crate::link::is_understood`]).
const NOTE_VERSION_BEFORE: u16 = 3;

/// [`Note::at_offset`] of a program whose streams have no fixed address (threads on Linux), and [`Note::rings_offset`]
/// of a recorder without items.
pub const NOWHERE: u32 = u32::MAX;

/// Offset of the value.
const VALUE: usize = 12 + NOTE_NAME.len();

pub mod duration;

/// Offsets of the fields in a ring of items in memory (`kymo_ring_t`), in a target's words or in bytes.
pub mod ring {
    /// Address of the next item: word 0.
    pub const AT_WORD: usize = 0;
    /// Address of its packets: word 1.
    pub const MEMORY_WORD: usize = 1;
    /// Number of packets that it has room for, a u32 at word 2.
    pub const PACKETS_WORD: usize = 2;
    /// Number of the next packet, a u32 this many bytes after word 2.
    pub const SEQUENCE_BYTES: usize = 8;
    /// End of the newest packet's content, as an offset in its packets; [`OPEN`] while the address of the next item
    /// determines it. A u32 this many bytes after word 2.
    pub const CONTENT_BYTES: usize = 12;
    /// Value for an open newest packet.
    pub const OPEN: u32 = u32::MAX;
}

/// Offsets in bytes of the fields in a profile table in memory. All fields are in the byte order of the target, words
/// as wide as its addresses.
pub mod table {
    use crate::event::WordSize;

    /// Size of a slot (`kymo_slot_t`).
    pub const SLOT_BYTES: usize = 48;
    /// In a slot: the function's address, a word; 0 in a free slot.
    pub const ADDRESS: usize = 0;
    /// In a slot: self time (u64), followed by total, 2^64 - 1 minus the shortest call (0: no call ended), and the
    /// longest call.
    pub const TIMES: usize = 16;
    /// In a slot's [`active`]: a recursive call of the function has ended.
    pub const RECURSIVE: u32 = 1 << 31;

    /// In a slot: number of calls that ended, a u32.
    pub const fn count(word: WordSize) -> usize {
        word.bytes()
    }

    /// In a slot: one bit per thread in which the function may be open, and [`RECURSIVE`], a u32.
    pub const fn active(word: WordSize) -> usize {
        word.bytes() + 4
    }

    /// In the state: calls whose start or end was not seen, a u32.
    pub const UNMATCHED: usize = 0;
    /// In the state: calls that were nested too deeply, a u32.
    pub const TOO_DEEP: usize = 4;
    /// In the state: calls without a slot, a u32.
    pub const NO_SLOT: usize = 8;
    /// In the state: number of functions that were replaced, a u32.
    pub const REPLACED: usize = 12;

    /// In the state: whether the table counts, a byte that is 0 or 1.
    pub const fn on(word: WordSize) -> usize {
        18 + 3 * word.bytes()
    }

    /// In the state: whether the table is being cleared, a byte that is 0 or 1.
    pub const fn paused(word: WordSize) -> usize {
        on(word) + 2
    }

    /// In the state: the address of the slots, a word; null before the table is set up.
    pub const fn slots(word: WordSize) -> usize {
        match word {
            WordSize::Bits32 => 40,
            WordSize::Bits64 => 56,
        }
    }

    /// In the state: number of slots for functions, a u32.
    pub const fn slot_count(word: WordSize) -> usize {
        slots(word) + 2 * word.bytes()
    }

    /// In the state: ticks for which the table has counted, a u64; while it counts, the time at which that was 0.
    pub const fn recorded(word: WordSize) -> usize {
        slot_count(word) + 8
    }

    /// In the state: totals of the functions that were replaced, a u64.
    pub const fn replaced_total(word: WordSize) -> usize {
        recorded(word) + 8
    }

    /// Size of the state as far as it is described here.
    pub const fn state_bytes(word: WordSize) -> usize {
        replaced_total(word) + 8
    }
}

/// Content of the note. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The layout of packets.
    pub layout: Layout,
    /// Offset of the buffer's address in `kymo_config`.
    pub buffer_offset: u16,
    /// Offset of the buffer's size in `kymo_config`: of one CPU's buffer, if there are several.
    pub buffer_size_offset: u16,
    /// Offset of a packet's size in `kymo_config`.
    pub packet_size_offset: u16,
    /// Offset of the function shift in `kymo_config`; 0 there means that of [`layout`](Self::layout).
    pub function_shift_offset: u16,
    /// Offset of the address of function 0 in `kymo_config`.
    pub text_base_offset: u16,
    /// Offset in `kymo_hot` of the address up to which the newest packet's records reach; with a
    /// [`stride`](Self::stride) in `kymo_recorder`.
    pub at_offset: u32,
    /// Distance in `kymo_recorder` from one CPU's data (`at`, rings, the count of discarded events) to the next one's;
    /// 0 if there is only one.
    pub stride: u32,
    /// Offset in `kymo_recorder` of the address of the first ring of items.
    pub rings_offset: u32,
    /// Offset of the clock's frequency in `kymo_config`; 0 there means that the metadata has it.
    pub clock_hz_offset: u16,
    /// Offset of the metadata's address in `kymo_config`; null there means that there is none.
    pub metadata_offset: u16,
    /// Offset of the metadata's size in `kymo_config`.
    pub metadata_size_offset: u16,
    /// Offset of the number of CPUs in `kymo_config`; 0 there means one.
    pub cpu_count_offset: u16,
    /// Offset in a ring of the address of the next one.
    pub ring_next_offset: u16,
    /// Offset in `kymo_recorder` of the count of the first CPU's discarded events; [`NOWHERE`] if packets always
    /// contain it.
    pub discarded_offset: u32,
    /// Offset of the address of the profile table's slots in `kymo_config`; 0 if the table cannot be found.
    pub slots_offset: u16,
    /// Number of slots at the end of that memory that hold the table's state; 0 if it is in `kymo_recorder`.
    pub state_slots: u8,
    /// Offset of the table's state in `kymo_recorder`; [`NOWHERE`] if it is not there.
    pub state_offset: u32,
}

impl Note {
    /// Encodes the note as in the ELF file.
    pub const fn to_bytes(&self) -> [u8; NOTE_BYTES] {
        let layout = self.layout;
        let mut out = [0; NOTE_BYTES];
        let mut i = 0;
        while i < NOTE_NAME.len() {
            out[12 + i] = NOTE_NAME[i];
            i += 1;
        }
        let shape = match layout.shape {
            Shape::Compact => 0,
            Shape::Wide => 1,
        };
        // Offset, value, size.
        let fields = [
            (0, 5, 4),
            (4, VALUE_BYTES as u32, 4),
            (8, NOTE_TYPE, 4),
            (VALUE, NOTE_VERSION as u32, 2),
            (VALUE + 2, layout.word.bytes() as u32, 1),
            (VALUE + 3, shape, 1),
            (VALUE + 4, layout.function_shift as u32, 1),
            (VALUE + 5, self.state_slots as u32, 1),
            (VALUE + 6, self.buffer_offset as u32, 2),
            (VALUE + 8, self.buffer_size_offset as u32, 2),
            (VALUE + 10, self.packet_size_offset as u32, 2),
            (VALUE + 12, self.function_shift_offset as u32, 2),
            (VALUE + 14, self.text_base_offset as u32, 2),
            (VALUE + 16, self.at_offset, 4),
            (VALUE + 20, self.stride, 4),
            (VALUE + 24, self.rings_offset, 4),
            (VALUE + 28, self.clock_hz_offset as u32, 2),
            (VALUE + 30, self.metadata_offset as u32, 2),
            (VALUE + 32, self.metadata_size_offset as u32, 2),
            (VALUE + 34, self.cpu_count_offset as u32, 2),
            (VALUE + 36, self.ring_next_offset as u32, 2),
            (VALUE + 38, self.slots_offset as u32, 2),
            (VALUE + 40, self.discarded_offset, 4),
            (VALUE + 44, self.state_offset, 4),
        ];
        let mut i = 0;
        while i < fields.len() {
            let (at, value, size) = fields[i];
            put(&mut out, at, value, size, layout.order);
            i += 1;
        }
        out
    }

    /// Reads a note from the start of `bytes`; the byte order is that of the ELF file. `None` if it is too short,
    /// another note, or of an unknown version.
    pub fn read(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        let short: &[u8; VALUE + SHORT_VALUE_BYTES] = bytes.first_chunk()?;
        let fold = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        let get = |at: usize, size: usize| {
            let field = short[at..at + size].iter();
            match order {
                ByteOrder::Little => field.rev().fold(0, fold),
                ByteOrder::Big => field.fold(0, fold),
            }
        };
        let (byte, half) = (
            |at: usize| get(VALUE + at, 1) as u8,
            |at: usize| get(VALUE + at, 2) as u16,
        );
        if get(0, 4) != 5
            || get(4, 4) < SHORT_VALUE_BYTES as u32
            || get(8, 4) != NOTE_TYPE
            || short[12..VALUE] != NOTE_NAME
        {
            return None;
        }
        let has_state_offset = get(4, 4) >= VALUE_BYTES as u32;
        let state_offset = match (has_state_offset, order) {
            (false, _) => NOWHERE,
            (true, ByteOrder::Little) => bytes
                .get(VALUE + 44..NOTE_BYTES)?
                .iter()
                .rev()
                .fold(0, fold),
            (true, ByteOrder::Big) => bytes.get(VALUE + 44..NOTE_BYTES)?.iter().fold(0, fold),
        };
        Some(Self {
            layout: Layout {
                shape: match (byte(3), half(0)) {
                    (0, NOTE_VERSION | NOTE_VERSION_BEFORE) => Shape::Compact,
                    (1, NOTE_VERSION) => Shape::Wide,
                    _ => return None,
                },
                word: WordSize::from_bits(u32::from(byte(2)) * 8)?,
                order,
                function_shift: byte(4),
            },
            buffer_offset: half(6),
            buffer_size_offset: half(8),
            packet_size_offset: half(10),
            function_shift_offset: half(12),
            text_base_offset: half(14),
            at_offset: get(VALUE + 16, 4),
            stride: get(VALUE + 20, 4),
            rings_offset: get(VALUE + 24, 4),
            clock_hz_offset: half(28),
            metadata_offset: half(30),
            metadata_size_offset: half(32),
            cpu_count_offset: half(34),
            ring_next_offset: half(36),
            discarded_offset: get(VALUE + 40, 4),
            slots_offset: half(38),
            state_slots: byte(5),
            state_offset,
        })
    }
}

const fn put(out: &mut [u8; NOTE_BYTES], at: usize, value: u32, size: usize, order: ByteOrder) {
    let mut i = 0;
    while i < size {
        let shift = match order {
            ByteOrder::Little => 8 * i,
            ByteOrder::Big => 8 * (size - 1 - i),
        };
        out[at + i] = (value >> shift) as u8;
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_and_others_are_refused() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let note = Note {
                layout: Layout {
                    shape: Shape::Compact,
                    word: WordSize::Bits32,
                    order,
                    function_shift: 1,
                },
                buffer_offset: 8,
                buffer_size_offset: 12,
                packet_size_offset: 16,
                function_shift_offset: 20,
                text_base_offset: 24,
                at_offset: 0x1234_5678,
                stride: 0x0102_0304,
                rings_offset: 0x0506_0708,
                clock_hz_offset: 28,
                metadata_offset: 36,
                metadata_size_offset: 40,
                cpu_count_offset: 44,
                ring_next_offset: 0x0910,
                discarded_offset: 0x1112_1314,
                slots_offset: 0x1516,
                state_slots: 2,
                state_offset: 0x1718_191A,
            };
            let bytes = note.to_bytes();
            assert_eq!(Note::read(&bytes, order), Some(note));
            assert_eq!(Note::read(&bytes[..NOTE_BYTES - 1], order), None);
            for at in [0, 3, 8, 13, 20, 22, 23] {
                let mut other = bytes;
                other[at] ^= 0x40;
                assert_eq!(Note::read(&other, order), None, "byte {at}");
            }
        }
    }

    #[test]
    fn a_note_of_the_version_before_is_read_where_records_were_the_same() {
        let note = |shape| Note {
            layout: Layout {
                shape,
                ..Layout::NATIVE
            },
            buffer_offset: 8,
            buffer_size_offset: 12,
            packet_size_offset: 16,
            function_shift_offset: 20,
            text_base_offset: 24,
            at_offset: 4,
            stride: 0,
            rings_offset: NOWHERE,
            clock_hz_offset: 28,
            metadata_offset: 36,
            metadata_size_offset: 40,
            cpu_count_offset: 44,
            ring_next_offset: 0,
            discarded_offset: 8,
            slots_offset: 0,
            state_slots: 0,
            state_offset: NOWHERE,
        };
        for (shape, before) in [
            (Shape::Compact, Some(note(Shape::Compact))),
            (Shape::Wide, None),
        ] {
            let mut bytes = note(shape).to_bytes();
            assert_eq!(Note::read(&bytes, ByteOrder::NATIVE), Some(note(shape)));
            bytes[VALUE..VALUE + 2].copy_from_slice(&3u16.to_ne_bytes());
            assert_eq!(Note::read(&bytes, ByteOrder::NATIVE), before);
            bytes[VALUE..VALUE + 2].copy_from_slice(&2u16.to_ne_bytes());
            assert_eq!(Note::read(&bytes, ByteOrder::NATIVE), None);
        }
    }

    /// As libraries wrote them before the profile table was described.
    #[test]
    fn a_note_that_says_nothing_of_the_table_is_read() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let note = Note {
                layout: Layout {
                    order,
                    ..Layout::NATIVE
                },
                buffer_offset: 8,
                buffer_size_offset: 12,
                packet_size_offset: 16,
                function_shift_offset: 20,
                text_base_offset: 24,
                at_offset: 4,
                stride: 0,
                rings_offset: NOWHERE,
                clock_hz_offset: 28,
                metadata_offset: 36,
                metadata_size_offset: 40,
                cpu_count_offset: 44,
                ring_next_offset: 0,
                discarded_offset: 8,
                slots_offset: 0,
                state_slots: 0,
                state_offset: NOWHERE,
            };
            let mut bytes = note.to_bytes();
            put(&mut bytes, 4, SHORT_VALUE_BYTES as u32, 4, order);
            assert_eq!(Note::read(&bytes[..NOTE_BYTES - 4], order), Some(note));
            // What follows may be another note's.
            bytes[NOTE_BYTES - 4..].fill(1);
            assert_eq!(Note::read(&bytes, order), Some(note));
        }
    }
}
