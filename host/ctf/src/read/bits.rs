//! Bit reader for packets.
//!
//! In CTF a little-endian field takes bits from the low end of each byte, a big-endian one from the high end, and both
//! may start at any bit. Almost every field of real traces consists of whole bytes on a byte boundary, so those have a
//! separate fast path.

use crate::error::DecodeErrorKind as Kind;
use crate::metadata::{ByteOrder, FloatClass};

/// Reason why a walk stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Invalid content at this bit of the packet.
    Fault(Kind, u64),
    /// The bytes up to this bit of the packet are not in memory yet.
    More(u64),
}

/// Position in a packet, of which only a part may be in memory.
///
/// Positions are in bits from the start of the packet, because alignment refers to that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'b> {
    /// The part of the packet that is in memory ...
    bytes: &'b [u8],
    /// ... and the position of its first bit, a multiple of 8.
    origin: u64,
    /// Position of the next field.
    pub at: u64,
    /// End of the packet's content; `u64::MAX` while it is unknown.
    pub end: u64,
    /// Byte order of the previous field, where it matters.
    last: Option<ByteOrder>,
    /// Whether the trace has fields of both byte orders.
    mixed: bool,
}

impl<'b> Cursor<'b> {
    pub fn new(bytes: &'b [u8], origin: u64, at: u64, end: u64, mixed: bool) -> Self {
        Self {
            bytes,
            origin,
            at,
            end,
            last: None,
            mixed,
        }
    }

    /// Moves to the next multiple of `align`, which is a power of two.
    pub fn align(&mut self, align: u32) -> Result<(), Stop> {
        let mask = u64::from(align) - 1;
        if self.at & mask != 0 {
            let padding = (align as u64) - (self.at & mask);
            self.skip(padding)?;
        }
        Ok(())
    }

    /// Skips `bits`.
    pub fn skip(&mut self, bits: u64) -> Result<(), Stop> {
        let start = self.at;
        self.at = self.check(bits)?;
        debug_assert!(self.at >= start);
        Ok(())
    }

    /// The position after `bits` more, if they are within the content and in memory.
    fn check(&self, bits: u64) -> Result<u64, Stop> {
        let behind = self
            .at
            .checked_add(bits)
            .filter(|behind| *behind <= self.end);
        let Some(behind) = behind else {
            let left = self.end.saturating_sub(self.at);
            return Err(Stop::Fault(
                Kind::BeyondContent { needed: bits, left },
                self.at,
            ));
        };
        if behind - self.origin > self.bytes.len() as u64 * 8 {
            Err(Stop::More(behind))
        } else {
            Ok(behind)
        }
    }

    /// The bytes from the current position on.
    fn here(&self) -> &'b [u8] {
        let index = usize::try_from((self.at - self.origin) / 8).unwrap_or(usize::MAX);
        self.bytes.get(index..).unwrap_or(&[])
    }

    /// Reads an unsigned integer of 1 to 64 bits.
    #[inline]
    pub fn integer(&mut self, size: u32, order: ByteOrder) -> Result<u64, Stop> {
        let behind = self.check(u64::from(size))?;
        let bytes = self.here();
        let offset = (self.at & 7) as u32;
        if self.mixed {
            if offset != 0 && self.last.is_some_and(|last| last != order) {
                return Err(Stop::Fault(Kind::ByteOrder, self.at));
            }
            self.last = Some(order);
        }
        let value = load(bytes, offset, size, order);
        self.at = behind;
        Ok(value)
    }

    /// Reads a floating point number; narrower ones are widened without loss.
    pub fn float(&mut self, class: &FloatClass) -> Result<f64, Stop> {
        let mut bits = self.integer(class.size, class.byte_order)?;
        if class.reversed {
            bits = reverse(bits, class.size);
        }
        Ok(float(bits, class.size))
    }

    /// Reads an LEB128 integer; returns its payload and the size of that in bits, at most 64. The position is on a byte
    /// boundary.
    ///
    /// Redundant bytes (repeating the sign) are legal, so only a value that needs more than 64 bits is rejected.
    pub fn variable(&mut self, signed: bool) -> Result<(u64, u32), Stop> {
        let start = self.at;
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let behind = self.check(8)?;
            let byte = self.here().first().copied().unwrap_or(0);
            self.at = behind;
            let (low, more) = (u64::from(byte & 0x7f), byte & 0x80 != 0);
            let used = 64u32.saturating_sub(shift).min(7);
            value |= low.checked_shl(shift).unwrap_or(0);
            if used < 7 {
                // Bits beyond 64 must repeat the sign, or be zero.
                let beyond = (low >> used) as u8;
                let negative = signed && value >> 63 == 1;
                let sign = if negative { 0x7f >> used } else { 0 };
                if beyond != sign {
                    return Err(Stop::Fault(Kind::VariableSize, start));
                }
            }
            shift = shift.saturating_add(7);
            if !more {
                if signed && shift < 64 {
                    value = extend(value, shift) as u64;
                }
                return Ok((value, shift.min(64)));
            }
        }
    }

    /// Reads `length` bytes; the position is on a byte boundary.
    pub fn bytes(&mut self, length: u64) -> Result<&'b [u8], Stop> {
        let bits = length.saturating_mul(8);
        let behind = self.check(bits)?;
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| self.here().get(..length));
        self.at = behind;
        Ok(bytes.unwrap_or(&[]))
    }

    /// Reads up to the next zero character of `unit` bytes and moves past it; the position is on a byte boundary.
    pub fn string(&mut self, unit: u32) -> Result<&'b [u8], Stop> {
        let left = usize::try_from((self.end - self.at) / 8).unwrap_or(usize::MAX);
        let bytes = self.here();
        let inside = bytes.get(..left.min(bytes.len())).unwrap_or(bytes);
        match zero(inside, unit) {
            Some(length) => {
                self.at += (length as u64 + u64::from(unit)) * 8;
                Ok(inside.get(..length).unwrap_or(&[]))
            }
            // No terminator in memory: request one byte more than there is, which shows whether the content or only the
            // memory ends.
            None => {
                let needed = (inside.len() as u64 + 1) * 8;
                self.check(needed).and(Err(Stop::More(self.at + needed)))
            }
        }
    }
}

/// The offset of the first zero character of `unit` bytes.
#[inline]
pub(crate) fn zero(bytes: &[u8], unit: u32) -> Option<usize> {
    if unit == 1 {
        return zero_byte(bytes);
    }
    let unit = unit as usize;
    let mut characters = bytes.chunks_exact(unit);
    let index = characters.position(|character| character.iter().all(|&byte| byte == 0))?;
    Some(index * unit)
}

/// The offset of the first zero byte.
#[inline(always)]
pub(super) fn zero_byte(bytes: &[u8]) -> Option<usize> {
    near_zero(bytes).or_else(|| memchr::memchr(0, bytes))
}

/// The offset of the first zero byte if it is near the start and enough bytes follow. Most strings are short, so the
/// first 32 bytes are tested separately, 16 at once: lengths differ, so a loop would exit after a different number of
/// iterations each time.
#[inline(always)]
pub(super) fn near_zero(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let zeros_in = |word: u64| word.wrapping_sub(LOW) & !word & (LOW << 7);
    let mut rest = bytes;
    for start in [0, 16] {
        let (chunk, behind) = rest.split_first_chunk::<16>()?;
        let word = |at: usize| chunk[at..at + 8].first_chunk().copied();
        let zeros = [word(0)?, word(8)?].map(|word| zeros_in(u64::from_le_bytes(word)));
        if zeros[0] | zeros[1] != 0 {
            let (zeros, start) = match zeros[0] {
                0 => (zeros[1], start + 8),
                zeros => (zeros, start),
            };
            return Some(start + (zeros.trailing_zeros() / 8) as usize);
        }
        rest = behind;
    }
    None
}

/// Reverses the lowest `size` bits; `size` is 1 to 64.
pub(crate) const fn reverse(bits: u64, size: u32) -> u64 {
    bits.reverse_bits() >> (64 - size)
}

/// A mask of the lowest `size` bits; `size` is 1 to 64.
const fn mask(size: u32) -> u64 {
    u64::MAX >> (64 - size)
}

/// Loads the integer of `size` bits that begins at bit `offset`, 0 to 7, of `bytes`.
#[inline(always)]
pub(super) fn load(bytes: &[u8], offset: u32, size: u32, order: ByteOrder) -> u64 {
    match (bytes.first_chunk::<8>(), order) {
        (Some(chunk), ByteOrder::Little) if offset + size <= 64 => {
            u64::from_le_bytes(*chunk) >> offset & mask(size)
        }
        (Some(chunk), ByteOrder::Big) if offset + size <= 64 => {
            u64::from_be_bytes(*chunk) << offset >> (64 - size)
        }
        _ => gather(bytes, offset, size, order),
    }
}

/// Converts `size` bits to a floating point number.
#[inline(always)]
pub(crate) fn float(bits: u64, size: u32) -> f64 {
    match size {
        16 => half(bits as u16),
        32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

/// Slow path of `load`: near the end of the bytes, or for integers that span nine bytes.
#[cold]
fn gather(bytes: &[u8], offset: u32, size: u32, order: ByteOrder) -> u64 {
    let count = (offset + size).div_ceil(8) as usize;
    let taken = bytes.iter().take(count);
    let wide = match order {
        ByteOrder::Little => {
            taken
                .rev()
                .fold(0u128, |value, &byte| value << 8 | u128::from(byte))
                >> offset
        }
        ByteOrder::Big => {
            let unused = count as u32 * 8 - offset - size;
            taken.fold(0u128, |value, &byte| value << 8 | u128::from(byte)) >> unused
        }
    };
    wide as u64 & mask(size)
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

/// Sign-extends the lowest `size` bits.
pub(super) const fn extend(value: u64, size: u32) -> i64 {
    ((value << (64 - size)) as i64) >> (64 - size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation, bit by bit.
    fn slow(bytes: &[u8], at: u64, size: u32, order: ByteOrder) -> u64 {
        (0..u64::from(size)).fold(0, |value, index| {
            let (byte, bit) = (bytes[((at + index) / 8) as usize], (at + index) % 8);
            match order {
                ByteOrder::Little => value | u64::from(byte >> bit & 1) << index,
                ByteOrder::Big => value << 1 | u64::from(byte >> (7 - bit) & 1),
            }
        })
    }

    #[test]
    fn integers_of_every_size_and_position() {
        let bytes: Vec<u8> = (0..20u32).map(|i| (i * 167 + 13) as u8).collect();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for at in 0..90 {
                for size in 1..=64 {
                    let mut cursor = Cursor::new(&bytes, 0, at, 160, true);
                    assert_eq!(
                        cursor.integer(size, order),
                        Ok(slow(&bytes, at, size, order)),
                        "{at} {size} {order:?}"
                    );
                    assert_eq!(cursor.at, at + u64::from(size));
                }
            }
        }
    }

    #[test]
    fn ends_and_gaps_are_told_apart() {
        let bytes = [1, 2, 3];
        let mut cursor = Cursor::new(&bytes, 8, 24, 64, false);
        assert_eq!(cursor.integer(8, ByteOrder::Little), Ok(3));
        assert_eq!(cursor.integer(8, ByteOrder::Little), Err(Stop::More(40)));
        assert_eq!(
            cursor.skip(33),
            Err(Stop::Fault(
                Kind::BeyondContent {
                    needed: 33,
                    left: 32
                },
                32
            ))
        );
        assert_eq!(cursor.string(1), Err(Stop::More(40)));
        assert!(matches!(
            cursor.bytes(u64::MAX),
            Err(Stop::Fault(Kind::BeyondContent { .. }, 32))
        ));
    }

    #[test]
    fn variable_integers() {
        let decode = |bytes: &[u8], signed| {
            let mut cursor = Cursor::new(bytes, 0, 0, bytes.len() as u64 * 8, false);
            cursor.variable(signed).map(|found| (found, cursor.at / 8))
        };
        assert_eq!(decode(&[0x7f, 1], false), Ok(((127, 7), 1)));
        assert_eq!(decode(&[0x7f, 1], true), Ok(((u64::MAX, 7), 1)));
        assert_eq!(decode(&[0xe5, 0x8e, 0x26], false), Ok(((624_485, 21), 3)));
        // Redundant bytes are ignored, however many there are.
        assert_eq!(decode(&[0x81, 0x80, 0], false), Ok(((1, 21), 3)));
        let mut long = [0x80; 12];
        (long[0], long[11]) = (0x81, 0);
        assert_eq!(decode(&long, false), Ok(((1, 64), 12)));
        let mut long = [0xff; 12];
        long[11] = 0x7f;
        assert_eq!(decode(&long, true), Ok(((u64::MAX, 64), 12)));
        // 65 bits: one too many.
        let mut wide = [0x80; 10];
        wide[9] = 2;
        let too_wide = Err(Stop::Fault(Kind::VariableSize, 0));
        assert_eq!(decode(&wide, false), too_wide);
        wide[9] = 1;
        assert_eq!(decode(&wide, false), Ok(((1 << 63, 64), 10)));
        // As a signed number that would be positive, which needs a bit more.
        assert_eq!(decode(&wide, true), too_wide);
        wide[9] = 0x7f;
        assert_eq!(decode(&wide, true), Ok(((1 << 63, 64), 10)));
        assert_eq!(
            decode(&[0x80], false),
            Err(Stop::Fault(Kind::BeyondContent { needed: 8, left: 0 }, 8))
        );
    }

    #[test]
    fn the_first_zero_wherever_it_is() {
        for length in 0..70 {
            for place in 0..=length {
                // Bytes that differ from zero in one bit only come before it, and another zero behind.
                let mut bytes: Vec<u8> = (0..length).map(|at| 1 << (at % 8)).collect();
                bytes.splice(place..place, [0, 0]);
                assert_eq!(zero_byte(&bytes), Some(place));
                assert_eq!(zero_byte(&bytes[..place]), None);
            }
        }
    }

    #[test]
    fn wide_characters_end_texts_as_a_whole() {
        assert_eq!(zero(&[0, 1, 0, 0, 0], 2), Some(2));
        assert_eq!(zero(&[1, 0, 0, 0, 0, 0, 0, 0], 4), Some(4));
        assert_eq!(zero(&[1, 0, 0], 2), None);
        assert_eq!(reverse(0b0011, 4), 0b1100);
    }

    #[test]
    fn byte_order_may_not_change_inside_a_byte() {
        let mut cursor = Cursor::new(&[0; 4], 0, 0, 32, true);
        assert_eq!(cursor.integer(3, ByteOrder::Little), Ok(0));
        assert_eq!(
            cursor.integer(3, ByteOrder::Big),
            Err(Stop::Fault(Kind::ByteOrder, 3))
        );
    }

    #[test]
    fn half_precision() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2f64.powi(-24)),
            (0x7bff, 65504.0),
        ] {
            assert_eq!(half(bits), value);
        }
        assert_eq!(half(0x7c00), f64::INFINITY);
        assert!(half(0x7e00).is_nan());
        assert_eq!(extend(0b101, 3), -3);
    }
}
