//! Output of formatted text: a vector, or preallocated space for a line.
//!
//! Copies into a line are short, and a copy of a constant number of bytes is faster than one of a variable number. So
//! text is copied in whole chunks, the excess of which later text overwrites. Space is reserved beforehand, so that a
//! single check per copy suffices.

/// Size in bytes of a [label](Label) and its chunk.
const CHUNK: usize = 32;

/// Destination for text.
pub(super) trait Out {
    /// Appends the first `length` bytes of a chunk.
    fn put<const N: usize>(&mut self, chunk: &[u8; N], length: usize);

    /// Appends bytes.
    fn bytes(&mut self, bytes: &[u8]);

    /// Appends a byte.
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.put(&[byte], 1);
    }

    /// Appends the first bytes of a word.
    #[inline(always)]
    fn word(&mut self, word: u64, length: usize) {
        self.put(&word.to_le_bytes(), length);
    }

    /// Calls a function whose code is not worth inlining into its caller.
    fn aside(&mut self, append: impl FnOnce(&mut Self));
}

impl Out for Vec<u8> {
    #[inline]
    fn put<const N: usize>(&mut self, chunk: &[u8; N], length: usize) {
        self.extend_from_slice(chunk.get(..length).unwrap_or(chunk));
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn aside(&mut self, append: impl FnOnce(&mut Self)) {
        append(self);
    }
}

/// Space for a line, with the number of bytes used.
#[derive(Debug)]
pub(super) struct Line<'r> {
    room: &'r mut [u8],
    /// [`FULL`] once the space was insufficient.
    used: usize,
}

/// More than any available space.
const FULL: usize = usize::MAX;

impl<'r> Line<'r> {
    pub const fn new(room: &'r mut [u8]) -> Self {
        Self { room, used: 0 }
    }

    /// The length of the line; `None` if the space was insufficient.
    pub fn length(&self) -> Option<usize> {
        (self.used != FULL).then_some(self.used)
    }
}

impl Out for Line<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, chunk: &[u8; N], length: usize) {
        let room = self.room.get_mut(self.used..self.used.wrapping_add(N));
        match room.and_then(<[u8]>::first_chunk_mut) {
            Some(room) => {
                *room = *chunk;
                self.used += length;
            }
            None => self.used = FULL,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let end = self.used.saturating_add(bytes.len());
        match self.room.get_mut(self.used..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.used = end;
            }
            None => self.used = FULL,
        }
    }

    /// Uses a separate line, so that this one can stay in registers.
    #[inline(always)]
    fn aside(&mut self, append: impl FnOnce(&mut Self)) {
        let mut line = Line {
            room: std::mem::take(&mut self.room),
            used: self.used,
        };
        append(&mut line);
        *self = line;
    }
}

/// A short text, stored as a chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Label {
    chunk: [u8; CHUNK],
    length: u8,
}

impl Label {
    /// Splits a text into labels.
    pub fn all(text: &[u8]) -> impl Iterator<Item = Self> {
        text.chunks(CHUNK).map(|part| {
            let mut label = Self {
                length: part.len() as u8,
                ..Self::default()
            };
            label
                .chunk
                .iter_mut()
                .zip(part)
                .for_each(|(to, from)| *to = *from);
            label
        })
    }

    /// Appends it.
    #[inline(always)]
    pub fn put(&self, out: &mut impl Out) {
        out.put(&self.chunk, self.length.into());
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_whole_or_full() {
        let text = b"a text that is longer than one chunk, and than some rooms";
        for size in 0..100 {
            let mut room = vec![0; size];
            let mut line = Line::new(&mut room);
            Label::all(text).for_each(|label| label.put(&mut line));
            line.aside(|line| line.bytes(b"; "));
            line.byte(b'.');
            let expected = [&text[..], b"; ."].concat();
            match line.length() {
                Some(length) => assert_eq!(room[..length], expected),
                None => assert!(size < 64, "{size} are enough"),
            }
            assert!(size < expected.len() || room.len() == size);
        }
    }
}
