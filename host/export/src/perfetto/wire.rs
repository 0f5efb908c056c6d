//! Protocol buffers as far as writing them goes: tags, varints, and messages within messages.
//!
//! Perfetto's trace is one message with a repeated field, so a file is written packet by packet and
//! never held. All we write are varints, fixed 64-bit numbers and length-delimited fields; a
//! generated encoder for the thousands of messages in Perfetto's schema would be hundreds of times
//! this module.

/// The wire types that we use, as the encoding numbers them.
mod wire_type {
    /// A varint.
    pub const VARINT: u64 = 0;
    /// A length, then so many bytes.
    pub const BYTES: u64 = 2;
}

/// A message that is being written to the end of a buffer.
pub(super) struct Message<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Message<'a> {
    /// Writes fields to the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A field that is an unsigned number, an enumeration or a truth value.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, wire_type::VARINT);
        varint(self.out, value);
        self
    }

    /// A field that is an `int32` or `int64`: two's complement in a varint, not zigzag.
    pub fn signed(&mut self, field: u32, value: i64) -> &mut Self {
        self.number(field, value.cast_unsigned())
    }

    /// A field that is a string.
    pub fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.tag(field, wire_type::BYTES);
        varint(self.out, value.len() as u64);
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    /// A field that is itself a message, which `write` writes.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) -> &mut Self {
        self.tag(field, wire_type::BYTES);
        // Most messages are shorter than 128 bytes, so their length takes one byte, and this is
        // where it goes. Longer ones are moved.
        let start = self.out.len();
        self.out.push(0);
        write(&mut Message { out: self.out });
        let length = self.out.len() - start - 1;
        let (bytes, count) = encode(length as u64);
        self.out
            .splice(start..=start, bytes.into_iter().take(count));
        self
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        varint(self.out, u64::from(field) << 3 | wire_type);
    }
}

/// Appends a number in base 128, the least significant seven bits first.
fn varint(out: &mut Vec<u8>, value: u64) {
    let (bytes, count) = encode(value);
    out.extend(bytes.into_iter().take(count));
}

/// The same as an array of which so many bytes count.
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
        Message::new(&mut out)
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
    fn long_messages_get_long_lengths() {
        for length in [0_usize, 125, 126, 127, 20_000] {
            let mut out = Vec::new();
            let text = "x".repeat(length);
            Message::new(&mut out).message(1, |inner| {
                inner.text(1, &text);
            });
            let mut expected = Vec::new();
            Message::new(&mut expected).text(1, &text);
            let mut whole = vec![0x0A];
            varint(&mut whole, expected.len() as u64);
            whole.extend(expected);
            assert_eq!(out, whole, "{length}");
        }
    }
}
