//! Bit writer: the counterpart of the reader's cursor.

use crate::metadata::ByteOrder;

/// Maximum number of bytes of an integer of variable size: 64 bits, seven a byte.
pub(super) const MAX_VARIABLE: u32 = 10;

/// Growing bit buffer.
#[derive(Debug, Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    /// Length in bits.
    at: u64,
}

impl Bits {
    pub fn position(&self) -> u64 {
        self.at
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Truncates to `at` bits; `last` is the previous value of the last byte.
    pub fn go_back(&mut self, at: u64, last: Option<u8>) {
        self.bytes.truncate(index(at.div_ceil(8)));
        if let (Some(byte), Some(last)) = (self.bytes.last_mut(), last) {
            *byte = last;
        }
        self.at = at;
    }

    /// Pads with zeros to a multiple of `align`.
    pub fn align(&mut self, align: u32) {
        self.at = self.at.next_multiple_of(u64::from(align.max(1)));
        self.bytes.resize(index(self.at.div_ceil(8)), 0);
    }

    /// Appends the lowest `size` bits of `value`.
    pub fn put(&mut self, value: u64, size: u32, order: ByteOrder) {
        let at = self.at;
        self.at += u64::from(size);
        self.bytes.resize(index(self.at.div_ceil(8)), 0);
        self.put_at(at, value, size, order);
    }

    /// Overwrites `size` bits at bit `at` with the lowest bits of `value`.
    pub fn put_at(&mut self, at: u64, value: u64, size: u32, order: ByteOrder) {
        let offset = (at % 8) as u32;
        let count = (offset + size).div_ceil(8);
        let Some(bytes) = self
            .bytes
            .get_mut(index(at / 8)..index(at / 8) + count as usize)
        else {
            return;
        };
        let mask = (1u128 << size) - 1;
        let shift = match order {
            ByteOrder::Little => offset,
            ByteOrder::Big => count * 8 - offset - size,
        };
        let (value, mask) = ((u128::from(value) & mask) << shift, mask << shift);
        for (position, byte) in (0u32..).zip(bytes) {
            let place = match order {
                ByteOrder::Little => position,
                ByteOrder::Big => count - 1 - position,
            } * 8;
            *byte = *byte & !((mask >> place) as u8) | (value >> place) as u8;
        }
    }

    /// Appends whole bytes; the position is on a byte boundary.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.at += bytes.len() as u64 * 8;
    }

    /// Overwrites whole bytes from bit `at` on, which is on a byte boundary.
    pub fn put_bytes_at(&mut self, at: u64, bytes: &[u8]) {
        let from = index(at / 8);
        if let Some(place) = self.bytes.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Appends an LEB128 integer of at least `least` bytes; the position is on a byte boundary.
    pub fn put_variable(&mut self, value: i128, signed: bool, least: u32) {
        let (bytes, count) = variable(value, signed, least);
        self.put_bytes(bytes.get(..count).unwrap_or(&bytes));
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }
}

/// Encodes an integer of at most 64 bits as signed or unsigned LEB128, in at least `least` bytes; returns the number of
/// bytes, too.
pub(super) fn variable(
    value: i128,
    signed: bool,
    least: u32,
) -> ([u8; MAX_VARIABLE as usize], usize) {
    let mut bytes = [0; MAX_VARIABLE as usize];
    let mut count = 0;
    let mut rest = value;
    for (index, byte) in (1u32..).zip(&mut bytes) {
        *byte = (rest & 0x7f) as u8;
        rest >>= 7;
        count += 1;
        let done = match signed {
            // The last byte holds the sign.
            true => rest == if *byte & 0x40 == 0 { 0 } else { -1 },
            false => rest == 0,
        };
        if (done && index >= least) || index == MAX_VARIABLE {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, count)
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ByteOrder::{Big, Little};

    #[test]
    fn variable_sizes_are_the_least_that_do() {
        let encode = |value, signed, least| {
            let (bytes, count) = variable(value, signed, least);
            bytes[..count].to_vec()
        };
        assert_eq!(encode(0, false, 1), [0]);
        assert_eq!(encode(127, false, 1), [0x7f]);
        assert_eq!(encode(127, true, 1), [0xff, 0]);
        assert_eq!(encode(-1, true, 1), [0x7f]);
        assert_eq!(encode(-65, true, 1), [0xbf, 0x7f]);
        assert_eq!(encode(5, false, 3), [0x85, 0x80, 0]);
        assert_eq!(encode(u64::MAX.into(), false, 1)[9], 1);
        assert_eq!(encode(i64::MIN.into(), true, 1).len(), 10);
    }

    #[test]
    fn little_fills_bytes_from_below_and_big_from_above() {
        let mut bits = Bits::default();
        bits.put(0b101, 3, Little);
        bits.put(0x1234, 16, Little);
        assert_eq!(bits.bytes(), [0b1010_0101, 0b1001_0001, 0]);
        bits.clear();
        bits.put(0b101, 3, Big);
        bits.put(0x1234, 16, Big);
        assert_eq!(bits.bytes(), [0b1010_0010, 0b0100_0110, 0b1000_0000]);
        bits.align(8);
        bits.put(u64::MAX, 64, Big);
        bits.put_at(3, 0, 16, Big);
        assert_eq!(bits.bytes()[..4], [0b1010_0000, 0, 0, 255]);
        assert_eq!(bits.position(), 88);
    }
}
