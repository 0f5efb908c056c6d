//! Unsigned LEB128 of 32 bits, as written by `ENCODE_U32` of SystemView's target sources.

use crate::error::Problem;

/// Size of the longest number in bytes.
pub const MAX_VARINT: usize = 5;

/// Reads a number at the start of `bytes`; returns it and its size.
///
/// # Errors
/// [`Problem::Incomplete`] if bytes are missing, [`Problem::Number`] if it has more than 32 bits or more bytes than it
/// needs. Targets never write such a number.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Result<(u32, usize), Problem> {
    let (value, size) = read_loose(bytes)?;
    match size > 1 && bytes.get(size - 1) == Some(&0) {
        true => Err(Problem::Number),
        false => Ok((value, size)),
    }
}

/// Like [`read`], but accepts unneeded bytes.
#[inline]
pub(crate) fn read_loose(bytes: &[u8]) -> Result<(u32, usize), Problem> {
    let mut value = 0u32;
    for (place, byte) in bytes.iter().enumerate().take(MAX_VARINT) {
        if place == MAX_VARINT - 1 && *byte > 0x0F {
            return Err(Problem::Number);
        }
        value |= u32::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((value, place + 1));
        }
    }
    Err(match bytes.len() < MAX_VARINT {
        true => Problem::Incomplete,
        false => Problem::Number,
    })
}

/// Encodes a number; returns the bytes and their count.
#[inline]
pub(crate) const fn encoded(mut value: u32) -> ([u8; MAX_VARINT], usize) {
    let mut bytes = [0; MAX_VARINT];
    let mut size = 0;
    while value > 0x7F {
        bytes[size] = value as u8 | 0x80;
        value >>= 7;
        size += 1;
    }
    bytes[size] = value as u8;
    (bytes, size + 1)
}

/// Iterator over the numbers of a payload. Ends early at bytes that are not a number.
#[derive(Clone, Copy, Debug)]
pub struct Varints<'a>(&'a [u8]);

impl<'a> Varints<'a> {
    /// Creates an iterator over the numbers in these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the remaining bytes.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether all bytes are complete numbers.
    pub fn are_all(mut self) -> bool {
        for _ in self.by_ref() {}
        self.0.is_empty()
    }
}

impl Iterator for Varints<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (value, size) = read(self.0).ok()?;
        self.0 = self.0.get(size..)?;
        Some(value)
    }
}
