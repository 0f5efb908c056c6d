//! The ELF note that a target's program carries: how to read what it left in RAM.
//!
//! Section `.note.kymo`, name `Kymo`, type [`NOTE_TYPE`]. With it, the symbols of the ELF and the
//! bytes of the RAM (from a debugger, or a dump after a crash) a trace can be had without the
//! program's help. The layout of packets is in the note, which says where everything else is:
//!
//! - the place and size of the buffer, the clock and the numbering of functions are in the program's
//!   `kymo_config`, a constant that stands in the ELF file;
//! - the packets lie in the buffer one behind the other at multiples of `packet_size`, each with a
//!   header whose `content_size` is right, except that of the newest, whose records reach up to the
//!   address that the recorder keeps: in the symbol `kymo_hot`, or where several CPUs record, each
//!   into its own `buffer_size` bytes of the buffer, in `kymo_recorder`, once for each;
//! - names, build id and costs are one packet at `metadata`, always complete;
//! - rings of items are a list that begins in `kymo_recorder` (of several CPUs: one for each). A ring
//!   is a `kymo_ring_t` ([`ring`]).
//!
//! The value, in the byte order of the program:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | version, 4; 3 of programs with compact records is the same |
//! | 2 | u8 | bytes of an address |
//! | 3 | u8 | shape: 0 compact, 1 wide |
//! | 4 | u8 | `function_shift` where `kymo_config` has 0 there |
//! | 5 | u8 | 0 |
//! | 6 | u16 | offset of `buffer` in `kymo_config` (word) |
//! | 8 | u16 | offset of `buffer_size` in `kymo_config` (u32) |
//! | 10 | u16 | offset of `packet_size` in `kymo_config` (u32) |
//! | 12 | u16 | offset of `function_shift` in `kymo_config` (u32) |
//! | 14 | u16 | offset of `text_base` in `kymo_config` (word) |
//! | 16 | u32 | offset of `at` (word) in `kymo_hot`, or with a stride in `kymo_recorder`; or [`NOWHERE`] |
//! | 20 | u32 | stride: so far from what one CPU has in `kymo_recorder` to what the next one has; 0 if there is only one |
//! | 24 | u32 | offset of the first ring's address (word) in `kymo_recorder`, or [`NOWHERE`] |
//! | 28 | u16 | offset of `clock_hz` in `kymo_config` (u64) |
//! | 30 | u16 | offset of `metadata` in `kymo_config` (word) |
//! | 32 | u16 | offset of `metadata_size` in `kymo_config` (u32) |
//! | 34 | u16 | offset of `cpu_count` in `kymo_config` (u32) |
//! | 36 | u16 | offset of the next ring's address in a ring (word) |
//! | 38 | u16 | 0 |
//! | 40 | u32 | offset of the count of events that were discarded (u32) in `kymo_recorder`, or [`NOWHERE`] |

use crate::event::{ByteOrder, Layout, Shape, WordSize};

/// `n_type` of the note.
pub const NOTE_TYPE: u32 = 1;

/// `n_name` of the note, padded as it stands in the file (`n_namesz` is 5).
pub const NOTE_NAME: [u8; 8] = *b"Kymo\0\0\0\0";

/// The whole note in bytes: `n_namesz`, `n_descsz`, `n_type`, name, value.
pub const NOTE_BYTES: usize = VALUE + VALUE_BYTES;

/// The value in bytes.
pub const VALUE_BYTES: usize = 44;

/// The version of the value and of the packets.
pub const NOTE_VERSION: u16 = 4;

/// The version before that. Wide packets were others then ([`crate::link::is_understood`]).
const NOTE_VERSION_BEFORE: u16 = 3;

/// [`Note::at_offset`] of a program whose streams have no fixed place (threads on Linux), and
/// [`Note::rings_offset`] of a recorder without items.
pub const NOWHERE: u32 = u32::MAX;

/// Where the value begins.
const VALUE: usize = 12 + NOTE_NAME.len();

/// A ring of items in memory (`kymo_ring_t`): where its fields are, in a target's words or bytes.
pub mod ring {
    /// Where the next item goes: word 0.
    pub const AT_WORD: usize = 0;
    /// Where its packets begin: word 1.
    pub const MEMORY_WORD: usize = 1;
    /// How many packets there is room for, a u32 at word 2.
    pub const PACKETS_WORD: usize = 2;
    /// The number of the next packet, a u32 so many bytes behind word 2.
    pub const SEQUENCE_BYTES: usize = 8;
    /// Where the content of the newest packet ends, as an offset in its packets; [`OPEN`] while the
    /// place of the next item says it. A u32 so many bytes behind word 2.
    pub const CONTENT_BYTES: usize = 12;
    /// The newest packet is open.
    pub const OPEN: u32 = u32::MAX;
}

/// What the note says. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// How packets are laid out.
    pub layout: Layout,
    /// Where the address of the buffer is in `kymo_config`.
    pub buffer_offset: u16,
    /// Where the size of the buffer is in `kymo_config`: of one CPU's, where there are several.
    pub buffer_size_offset: u16,
    /// Where the size of a packet is in `kymo_config`.
    pub packet_size_offset: u16,
    /// Where the granularity of functions is in `kymo_config`; 0 there means that of
    /// [`layout`](Self::layout).
    pub function_shift_offset: u16,
    /// Where the address of function 0 is in `kymo_config`.
    pub text_base_offset: u16,
    /// Where `kymo_hot` keeps the address up to which the newest packet's records reach; with a
    /// [`stride`](Self::stride) it is `kymo_recorder`.
    pub at_offset: u32,
    /// So far it is in `kymo_recorder` from what one CPU has (`at`, rings, the count of discarded events)
    /// to what the next one has; 0 where there is only one.
    pub stride: u32,
    /// Where `kymo_recorder` keeps the address of the first ring of items.
    pub rings_offset: u32,
    /// Where the ticks a second are in `kymo_config`; 0 there means that the metadata says it.
    pub clock_hz_offset: u16,
    /// Where the address of the metadata is in `kymo_config`; null there means that there are none.
    pub metadata_offset: u16,
    /// Where the size of the metadata is in `kymo_config`.
    pub metadata_size_offset: u16,
    /// Where the number of CPUs is in `kymo_config`; 0 there means one.
    pub cpu_count_offset: u16,
    /// Where a ring keeps the address of the next one.
    pub ring_next_offset: u16,
    /// Where `kymo_recorder` counts the events of the first CPU that were discarded;
    /// [`NOWHERE`] where packets say it at once.
    pub discarded_offset: u32,
}

impl Note {
    /// The note as it stands in the ELF file.
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
            (VALUE + 40, self.discarded_offset, 4),
        ];
        let mut i = 0;
        while i < fields.len() {
            let (at, value, size) = fields[i];
            put(&mut out, at, value, size, layout.order);
            i += 1;
        }
        out
    }

    /// Reads a note from its front; the byte order is that of the ELF file. `None` if it is too
    /// short, another note, or of a version that is not known here.
    pub fn read(bytes: &[u8], order: ByteOrder) -> Option<Self> {
        let bytes: &[u8; NOTE_BYTES] = bytes.get(..NOTE_BYTES)?.try_into().ok()?;
        let get = |at: usize, size: usize| {
            let fold = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
            let field = bytes[at..at + size].iter();
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
            || get(4, 4) < VALUE_BYTES as u32
            || get(8, 4) != NOTE_TYPE
            || bytes[12..VALUE] != NOTE_NAME
        {
            return None;
        }
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
}
