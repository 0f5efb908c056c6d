//! Encoder for the subset of Protocol Buffers that Perfetto's trace needs: tags, varints, and nested messages.
//!
//! Perfetto's trace is one message with a repeated field, so a file is written packet by packet without storing it.
//! All fields are varints, fixed 64-bit numbers or length-delimited; a generated encoder for the thousands of messages
//! in Perfetto's schema would be hundreds of times the size of this module.

/// Wire types in use, with the encoding's numbers.
mod wire_type {
    /// A varint.
    pub const VARINT: u64 = 0;
    /// Eight bytes, little endian.
    pub const FIXED64: u64 = 1;
    /// A length, then that many bytes.
    pub const BYTES: u64 = 2;
}

/// A message that is written to the end of a buffer.
pub(super) struct Message<'a> {
    out: &'a mut Vec<u8>,
}

impl Message<'_> {
    /// Adds an unsigned number, an enumeration or a truth value.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, wire_type::VARINT);
        varint(self.out, value);
        self
    }

    /// Adds an `int32` or `int64`: two's complement in a varint, not zigzag.
    pub fn signed(&mut self, field: u32, value: i64) -> &mut Self {
        self.number(field, value.cast_unsigned())
    }

    /// Adds a `double`.
    pub fn real(&mut self, field: u32, value: f64) -> &mut Self {
        self.tag(field, wire_type::FIXED64);
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a string.
    pub fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.tag(field, wire_type::BYTES);
        varint(self.out, value.len() as u64);
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    /// Adds a nested message, which `write` writes.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) -> &mut Self {
        self.tag(field, wire_type::BYTES);
        // Most messages are shorter than 128 bytes, so one byte is reserved for the length. Longer messages are moved.
        let start = self.out.len();
        self.out.push(0);
        write(&mut Message { out: self.out });
        let length = self.out.len() - start - 1;
        let (bytes, count) = encode(length as u64);
        self.out
            .splice(start..=start, bytes.into_iter().take(count));
        self
    }

    /// Adds the tag of a number, whose value the caller writes.
    pub fn tag_of_number(&mut self, field: u32) {
        self.tag(field, wire_type::VARINT);
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        varint(self.out, u64::from(field) << 3 | wire_type);
    }
}

/// Up to 16 preencoded bytes, which are stored at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Chunk {
    /// Capacity in bytes.
    pub const MOST: usize = 16;

    /// The fields that `write` writes, if they fit.
    pub fn of(write: impl FnOnce(&mut Message<'_>)) -> Option<Self> {
        let mut out = Vec::new();
        write(&mut Message { out: &mut out });
        let length = out.len();
        out.resize(length.max(Self::MOST), 0);
        let bytes = out.as_slice().try_into().ok()?;
        Some(Self { bytes, length })
    }

    /// The bytes as a word, if they fit.
    pub fn word(&self) -> Option<Word> {
        let (word, rest) = self.bytes.split_first_chunk()?;
        let fits = self.length <= Word::MOST && rest.iter().all(|byte| *byte == 0);
        fits.then_some(Word {
            bytes: u64::from_le_bytes(*word),
            length: self.length,
        })
    }
}

/// Up to eight bytes in a register, the first one lowest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    bytes: u64,
    length: usize,
}

impl Word {
    /// Capacity in bytes.
    pub const MOST: usize = 8;

    /// A number in base 128, if it is less than 2^56.
    #[inline(always)]
    pub fn varint(value: u64) -> Option<Self> {
        let part = |number: u32| (value >> (7 * number) & 0x7F) << (8 * number);
        let (bytes, length) = match value {
            0..0x80 => (value, 1),
            0x80..0x4000 => (part(0) | part(1) | 0x80, 2),
            0x4000..0x20_0000 => (part(0) | part(1) | part(2) | 0x8080, 3),
            0x20_0000..0x100_0000_0000_0000 => return Some(Self::long_varint(value)),
            _ => return None,
        };
        Some(Self { bytes, length })
    }

    #[cold]
    fn long_varint(value: u64) -> Self {
        let (encoded, length) = encode(value);
        let word = encoded.first_chunk().copied().unwrap_or_default();
        Self {
            bytes: u64::from_le_bytes(word),
            length,
        }
    }
}

/// Buffer of whole packets.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// The first `length` bytes are valid. The rest is spare room: chunks are stored whole, which is one instruction,
    /// and the next store overwrites the excess.
    bytes: Vec<u8>,
    length: usize,
    /// The packet being written.
    packet: Vec<u8>,
}

/// Room for a packet of two words and a chunk.
const ROOM: usize = 2 * Word::MOST + Chunk::MOST;

/// Increment of the room.
const MORE: usize = 1 << 16;

impl Packets {
    /// The buffered bytes.
    pub fn waiting(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Discards the buffered bytes.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds a packet with the fields that `write` writes.
    pub fn add(&mut self, write: impl FnOnce(&mut Message<'_>)) {
        self.packet.clear();
        write(&mut Message {
            out: &mut self.packet,
        });
        self.bytes.truncate(self.length);
        self.bytes.extend_from_slice(&self.packet);
        self.length = self.bytes.len();
    }

    /// Adds a packet: a head, whose second byte is 0 and becomes the length of everything except `outer` bytes, a
    /// number, and the rest.
    #[inline(always)]
    pub fn add_three(&mut self, head: Word, number: Word, tail: &Chunk, outer: usize) {
        let length = head.length + number.length + tail.length;
        let room = self.bytes.get_mut(self.length..);
        let Some(room) = room.and_then(|room| room.first_chunk_mut::<ROOM>()) else {
            self.make_room();
            return self.add_three_here(head, number, tail, outer);
        };
        // It is less than 128: the parts have no room for more.
        let first = head.bytes | ((length - outer) as u64) << 8;
        room[..Word::MOST].copy_from_slice(&first.to_le_bytes());
        if let Some(place) = room.get_mut(head.length..head.length + Word::MOST) {
            place.copy_from_slice(&number.bytes.to_le_bytes());
        }
        let at = head.length + number.length;
        if let Some(place) = room.get_mut(at..at + Chunk::MOST) {
            place.copy_from_slice(&tail.bytes);
        }
        self.length += length;
    }

    /// As [`add_three`](Self::add_three), after making room.
    #[cold]
    fn add_three_here(&mut self, head: Word, number: Word, tail: &Chunk, outer: usize) {
        self.add_three(head, number, tail, outer);
    }

    #[cold]
    fn make_room(&mut self) {
        self.bytes.truncate(self.length);
        self.bytes.resize(self.length + MORE, 0);
    }
}

/// Appends a number in base 128, the least significant seven bits first.
fn varint(out: &mut Vec<u8>, value: u64) {
    let (bytes, count) = encode(value);
    out.extend(bytes.into_iter().take(count));
}

/// The same as an array, with the number of valid bytes.
fn encode(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut count = 0;
    for byte in &mut bytes {
        *byte = (value & 0x7F) as u8;
        value >>= 7;
        count += 1;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_encoding_guide() {
        let mut out = Vec::new();
        Message { out: &mut out }
            .number(1, 150)
            .text(2, "testing")
            .message(3, |inner| {
                inner.number(1, 150);
            })
            .signed(4, -2);
        assert_eq!(
            out,
            b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x20\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"
        );
    }

    #[test]
    fn chunks_are_as_long_as_what_they_hold() {
        let chunk = |text: &str| {
            Chunk::of(|message| {
                message.text(1, text);
            })
        };
        let (head, tail) = (
            chunk("").unwrap().word().unwrap(),
            chunk("fourteen lette").unwrap(),
        );
        let mut packets = Packets::default();
        let mut wanted = Vec::new();
        let ends = (0..56).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]);
        for value in ends.chain([(1 << 56) - 1]) {
            let number = Word::varint(value).unwrap();
            packets.add_three(head, number, &tail, head.length);
            wanted.extend([0x0A, (16 + number.length) as u8]);
            varint(&mut wanted, value);
            wanted.extend(b"\x0A\x0Efourteen lette");
            packets.add(|message| {
                message.number(2, value);
            });
            Message { out: &mut wanted }.number(2, value);
        }
        assert_eq!(packets.waiting(), wanted);
        packets.clear();
        assert_eq!(packets.waiting(), b"");
        assert!(chunk("fifteen letters").is_none());
        assert!(chunk("seven l").unwrap().word().is_none());
        assert!(Word::varint(1 << 56).is_none());
    }

    #[test]
    fn much_of_it_is_no_trouble() {
        let chunk = Chunk::of(|message| {
            message.number(1, u64::MAX);
        });
        let word = Word::varint(0).unwrap();
        let mut packets = Packets::default();
        for _ in 0..10_000 {
            packets.add_three(word, word, &chunk.unwrap(), 2);
        }
        let one = &packets.waiting()[..13];
        assert_eq!(one[2..4], [8, 0xFF]);
        assert_eq!(packets.waiting(), one.repeat(10_000));
    }

    #[test]
    fn long_messages_get_long_lengths() {
        for length in [0_usize, 125, 126, 127, 20_000] {
            let mut out = Vec::new();
            let text = "x".repeat(length);
            Message { out: &mut out }.message(1, |inner| {
                inner.text(1, &text);
            });
            let mut expected = Vec::new();
            Message { out: &mut expected }.text(1, &text);
            let mut whole = vec![0x0A];
            varint(&mut whole, expected.len() as u64);
            whole.extend(expected);
            assert_eq!(out, whole, "{length}");
        }
    }
}
