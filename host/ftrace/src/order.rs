//! Numbers in the byte order of the traced machine.

use crate::Error;

/// The byte order of the traced machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Little endian.
    #[default]
    Little,
    /// Big endian.
    Big,
}

impl Order {
    /// Reads an unsigned number of 1, 2, 4 or 8 bytes. Returns 0 for any other size.
    #[inline]
    pub fn number(self, bytes: &[u8]) -> u64 {
        match *bytes {
            [byte] => u64::from(byte),
            [a, b] => u64::from(self.u16([a, b])),
            [a, b, c, d] => u64::from(self.u32([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => self.u64([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    #[inline]
    pub(crate) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) const fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    /// Reads the `u16` at an offset; `None` behind the end.
    #[inline]
    pub(crate) fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(self.u16(*bytes))
    }

    /// Reads the `u32` at an offset; `None` behind the end.
    #[inline]
    pub(crate) fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(self.u32(*bytes))
    }

    /// Reads the `u64` at an offset; `None` behind the end.
    #[inline]
    pub(crate) fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(self.u64(*bytes))
    }

    /// Reads a number of `size` bytes at an offset; `None` behind the end.
    #[inline]
    pub(crate) fn number_at(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        let rest = bytes.get(at..)?;
        // Each of these compiles to one load.
        match size {
            8 => Some(self.u64(*rest.first_chunk()?)),
            4 => Some(self.u32(*rest.first_chunk()?).into()),
            2 => Some(self.u16(*rest.first_chunk()?).into()),
            _ => Some(self.number(rest.get(..size)?)),
        }
    }
}

/// Sequential reader of numbers and strings.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` in the input, for messages.
    base: u64,
    pub(crate) order: Order,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], base: u64, order: Order) -> Self {
        Self {
            bytes,
            at: 0,
            base,
            order,
        }
    }

    /// Returns a reader of the same input at another offset.
    pub(crate) fn seek(&self, offset: u64) -> Result<Self, Error> {
        Self::at(self.bytes, offset, self.order)
    }

    /// Returns a reader of the whole input, starting at `offset`.
    pub(crate) fn at(bytes: &'a [u8], offset: u64, order: Order) -> Result<Self, Error> {
        let at = usize::try_from(offset).ok().filter(|at| *at <= bytes.len());
        let at = at.ok_or_else(|| {
            Error::new(
                offset,
                "an offset within the file",
                format!("{} bytes", bytes.len()),
            )
        })?;
        Ok(Self {
            bytes,
            at,
            base: 0,
            order,
        })
    }

    /// Returns the current offset in the input.
    pub(crate) const fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], Error> {
        let rest = self.rest();
        let taken = usize::try_from(count)
            .ok()
            .and_then(|count| rest.get(..count));
        let taken = taken.ok_or_else(|| {
            let found = format!("{} bytes", rest.len());
            Error::new(self.offset(), format!("{what} of {count} bytes"), found)
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        Ok(self.take(1, what)?.first().copied().unwrap_or_default())
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Error> {
        let bytes = self.take(2, what)?;
        Ok(self.order.u16_at(bytes, 0).unwrap_or_default())
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        let bytes = self.take(4, what)?;
        Ok(self.order.u32_at(bytes, 0).unwrap_or_default())
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        let bytes = self.take(8, what)?;
        Ok(self.order.u64_at(bytes, 0).unwrap_or_default())
    }

    /// Reads the text up to the next zero byte, and skips the zero.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<String, Error> {
        let rest = self.rest();
        let end = memchr::memchr(0, rest).ok_or_else(|| {
            let expected = format!("{what}, ended by a zero");
            Error::new(self.offset(), expected, "the end of the data")
        })?;
        self.at += end + 1;
        Ok(String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned())
    }
}
