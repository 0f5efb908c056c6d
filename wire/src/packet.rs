//! Packet header.
//!
//! It holds everything that a reader needs before it reads the packet's records ([`event`](crate::event)): the packet's
//! position in its stream, the time and the context in which it was begun, its length, and the losses so far. It is
//! written when the packet is begun and completed when it is closed, so that a packet that was never closed lacks only
//! its length.

use crate::event::{ByteOrder, Layout};

/// The first four bytes of every packet, in the byte order of the target (CTF 1.8, section 5.1).
pub const PACKET_MAGIC: u32 = 0xC1FC_1FC1;

/// [`PacketHeader::stream`] of packets of event records ([`event`](crate::event)).
pub const EVENT_STREAM: u8 = 0;

/// [`PacketHeader::stream`] of packets of items: fixed-size records with a 10-bit id.
pub const ITEM_STREAM: u8 = 1;

/// `cpu_id` of the stream with data that must never be overwritten: names of threads, build id, clock
/// ([`EventId::Metadata`](crate::event::EventId::Metadata) records only).
pub const METADATA_STREAM: u16 = 0xFFFF;

/// Packet header: CTF's packet header (the magic number) and packet context.
///
/// | offset | type | field |
/// |---|---|---|
/// | 0 | u32 | `magic` |
/// | 4 | u8 | `stream_id`: [`EVENT_STREAM`] or [`ITEM_STREAM`] |
/// | 5 | u4, u4 | `flags`, `isr_depth` (in the order of bits) |
/// | 6 | u16 | `cpu_id` |
/// | 8 | u32 | `packet_seq_num` |
/// | 12 | u32 | `events_discarded`, so far in the stream |
/// | 16 | u64 | `timestamp_begin`, ticks |
/// | 24 | u64 | `timestamp_end`, ticks |
/// | 32 | u32 | `content_size`, bits |
/// | 36 | u32 | `packet_size`, bits |
/// | 40 | word | `thread` |
///
/// Fields that are constant within a stream come first, so that a recorder prepares them once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketHeader {
    /// The kind of records in the packet.
    pub stream: u8,
    /// [`FLAG_THREAD`](Self::FLAG_THREAD), [`FLAG_NESTED`](Self::FLAG_NESTED),
    /// [`FLAG_CALLS`](Self::FLAG_CALLS), [`FLAG_CUT`](Self::FLAG_CUT); in the metadata stream
    /// [`FLAG_FACTS`](Self::FLAG_FACTS).
    pub flags: u8,
    /// The number of active interrupt handlers when the packet was begun; 15 also for more.
    pub isr_depth: u8,
    /// The CPU (on Linux the stream's number), or [`METADATA_STREAM`].
    pub cpu: u16,
    /// Counts the packets of a stream from 0; a jump means lost packets.
    pub sequence: u32,
    /// Events of this stream that could not be recorded, from its start to the packet's end.
    pub discarded: u32,
    /// The time at which the packet was begun, in ticks.
    pub begin: u64,
    /// The time of its last event, in ticks.
    pub end: u64,
    /// The used part of the packet in bits, this header included.
    pub content_bits: u32,
    /// The size of the packet in bits.
    pub packet_bits: u32,
    /// The thread that ran when the packet was begun; 0 if it was unknown.
    pub thread: u64,
}

impl PacketHeader {
    /// In `flags`: the stream belongs to one thread of a process (`thread`, the same in all its packets), and `cpu_id`
    /// is only the stream's number. Otherwise the stream is that of a CPU, and `thread` is the thread that ran there
    /// when the packet was begun.
    pub const FLAG_THREAD: u8 = 1;
    /// In `flags`: exits never record their function ([`event`](crate::event#exits-without-a-function)).
    pub const FLAG_NESTED: u8 = 2;
    /// In `flags` of the [`METADATA_STREAM`]: `events_discarded` counts only names and other metadata. Otherwise it
    /// includes events that belong to no stream.
    pub const FLAG_FACTS: u8 = 2;
    /// In `flags`: each call is one record, at its end ([`event`](crate::event#duration-mode)).
    pub const FLAG_CALLS: u8 = 4;
    /// In `flags`: the packet was longer on the target; its end did not arrive, and the sizes are those of the
    /// remaining part. Only hosts set it, when they keep such a packet.
    pub const FLAG_CUT: u8 = 8;
    /// Maximum of `isr_depth`, which also stands for more.
    pub const MAX_ISR_DEPTH: u8 = 15;
    /// Offset of `packet_seq_num`.
    pub const SEQUENCE_OFFSET: usize = 8;
    /// Offset of `events_discarded`.
    pub const DISCARDED_OFFSET: usize = 12;
    /// Offset of `timestamp_begin`.
    pub const BEGIN_OFFSET: usize = 16;
    /// Offset of `timestamp_end`.
    pub const END_OFFSET: usize = 24;
    /// Offset of `content_size`.
    pub const CONTENT_OFFSET: usize = 32;
    /// Offset of `thread`, the last field and the only one whose size varies.
    pub const WORD_OFFSET: usize = 40;
    /// Size of the largest header.
    pub const MAX_BYTES: usize = 48;

    /// Encodes the byte of `flags` and `isr_depth`. Both are limited to their fields.
    pub const fn flags_byte(order: ByteOrder, flags: u8, isr_depth: u8) -> u8 {
        let depth = if isr_depth > Self::MAX_ISR_DEPTH {
            Self::MAX_ISR_DEPTH
        } else {
            isr_depth
        };
        match order {
            ByteOrder::Little => flags & 15 | depth << 4,
            ByteOrder::Big => flags << 4 | depth,
        }
    }

    /// Writes the header in this layout to the start of `out`, and returns its size in bytes; `None` if `out` is too
    /// short.
    pub fn write(&self, layout: Layout, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..layout.header_bytes())?;
        let mut at = 0;
        let mut put = |value: u64, size: usize| {
            for (i, byte) in out[at..at + size].iter_mut().enumerate() {
                let shift = match layout.order {
                    ByteOrder::Little => 8 * i,
                    ByteOrder::Big => 8 * (size - 1 - i),
                };
                *byte = (value >> shift) as u8;
            }
            at += size;
        };
        put(PACKET_MAGIC.into(), 4);
        put(self.stream.into(), 1);
        let flags = Self::flags_byte(layout.order, self.flags, self.isr_depth);
        put(flags.into(), 1);
        put(self.cpu.into(), 2);
        put(self.sequence.into(), 4);
        put(self.discarded.into(), 4);
        put(self.begin, 8);
        put(self.end, 8);
        put(self.content_bits.into(), 4);
        put(self.packet_bits.into(), 4);
        put(self.thread, layout.word.bytes());
        Some(at)
    }

    /// Reads only [`begin`](Self::begin) from the header at the start of `bytes`; `None` if they are too few.
    pub fn read_begin(order: ByteOrder, bytes: &[u8]) -> Option<u64> {
        let begin = *bytes.get(Self::BEGIN_OFFSET..)?.first_chunk()?;
        Some(match order {
            ByteOrder::Little => u64::from_le_bytes(begin),
            ByteOrder::Big => u64::from_be_bytes(begin),
        })
    }

    /// Reads only the content's length from the header, in bytes.
    pub fn read_content(order: ByteOrder, bytes: &[u8]) -> Option<usize> {
        let bits = *bytes.get(Self::CONTENT_OFFSET..)?.first_chunk()?;
        let bits = match order {
            ByteOrder::Little => u32::from_le_bytes(bits),
            ByteOrder::Big => u32::from_be_bytes(bits),
        };
        Some(bits as usize / 8)
    }

    /// Reads the header at the start of `bytes`; `None` if they are too few or do not begin with [`PACKET_MAGIC`].
    pub fn read(layout: Layout, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..layout.header_bytes())?;
        let mut at = 0;
        let mut get = |size: usize| {
            let mut value = 0u64;
            for (i, byte) in bytes[at..at + size].iter().enumerate() {
                let shift = match layout.order {
                    ByteOrder::Little => 8 * i,
                    ByteOrder::Big => 8 * (size - 1 - i),
                };
                value |= u64::from(*byte) << shift;
            }
            at += size;
            value
        };
        if get(4) != u64::from(PACKET_MAGIC) {
            return None;
        }
        let stream = get(1) as u8;
        let byte = get(1) as u8;
        let (flags, isr_depth) = match layout.order {
            ByteOrder::Little => (byte & 15, byte >> 4),
            ByteOrder::Big => (byte >> 4, byte & 15),
        };
        Some(Self {
            stream,
            flags,
            isr_depth,
            cpu: get(2) as u16,
            sequence: get(4) as u32,
            discarded: get(4) as u32,
            begin: get(8),
            end: get(8),
            content_bits: get(4) as u32,
            packet_bits: get(4) as u32,
            thread: get(layout.word.bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Shape, WordSize};

    #[test]
    fn a_header_reads_back_in_every_layout() {
        let header = PacketHeader {
            stream: ITEM_STREAM,
            sequence: 0x0102_0304,
            begin: 0x1122_3344_5566_7788,
            end: 0x1122_3344_5566_7799,
            content_bits: 44 * 8,
            packet_bits: 8192,
            discarded: 7,
            cpu: 3,
            isr_depth: 1,
            flags: PacketHeader::FLAG_THREAD,
            thread: 0x2000_0010,
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for word in [WordSize::Bits32, WordSize::Bits64] {
                let layout = Layout {
                    shape: Shape::Compact,
                    word,
                    order,
                    function_shift: 1,
                };
                let mut bytes = [0; PacketHeader::MAX_BYTES];
                let size = header.write(layout, &mut bytes).unwrap();
                assert_eq!(size, layout.header_bytes());
                assert_eq!(PacketHeader::read(layout, &bytes), Some(header));
                let begin = PacketHeader::read_begin(order, &bytes);
                assert_eq!(begin, Some(header.begin));
                assert_eq!(PacketHeader::read_content(order, &bytes), Some(44));
                assert_eq!(PacketHeader::read_begin(order, &bytes[..20]), None);
                assert_eq!(PacketHeader::read_content(order, &bytes[..33]), None);
                assert_eq!(PacketHeader::read(layout, &bytes[..size - 1]), None);
                bytes[0] ^= 1;
                assert_eq!(PacketHeader::read(layout, &bytes), None);
            }
        }
    }
}
