//! Text in memory of a fixed size, for messages and paths: there is no allocator.

use core::fmt;

/// Text buffer of fixed size; text that does not fit is cut off.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Creates an empty text.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    /// Appends bytes.
    pub fn put(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or(&mut []);
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text[..count]);
        self.length += count;
    }

    /// Empties the text.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends a zero byte, for which there is always room.
    pub fn end(&mut self) {
        self.length = self.length.min(N - 1);
        self.put(&[0]);
    }

    /// Returns the bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}
