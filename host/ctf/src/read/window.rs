//! Window: the part of a stream that is in memory.
//!
//! A stream is read forward only, in chunks, and decoded content is dropped. So a stream may come from a file, a pipe
//! or a socket, and packets may be larger than memory; only a single event must fit.

use std::fmt;
use std::io::{self, Read};

/// Maximum size of one event, or of one packet's header and context, in bytes.
const MAX_HELD: u64 = 32 << 20;

/// Size above which a buffer is freed rather than reused, in bytes.
const LARGE: usize = 1 << 20;

/// Reason why bytes are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Io(io::ErrorKind),
    /// More than this many bytes would have to be in memory.
    TooLarge(u64),
}

pub(super) struct Window {
    input: Box<dyn Read + Send>,
    /// Bytes read, followed by zeroed space.
    buffer: Vec<u8>,
    /// Number of bytes read into the buffer.
    filled: usize,
    /// Offset of the first byte in the stream.
    base: u64,
    /// The input has ended.
    ended: bool,
    /// Number of bytes to read at once.
    chunk: usize,
}

impl Window {
    pub fn new(input: Box<dyn Read + Send>, chunk: usize) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            filled: 0,
            base: 0,
            ended: false,
            chunk,
        }
    }

    /// Begins another input, at offset 0.
    pub fn begin(&mut self, input: Box<dyn Read + Send>) {
        (self.input, self.filled, self.base, self.ended) = (input, 0, 0, false);
    }

    /// Creates an empty window on a stream that another reader reads.
    pub fn elsewhere() -> Self {
        Self::new(Box::new(io::empty()), 0)
    }

    /// Replaces the content with these bytes of a stream that another reader reads; `base` is the offset of the first
    /// one.
    pub fn hold(&mut self, bytes: &[u8], base: u64) {
        if self.buffer.capacity() > LARGE && bytes.len() <= LARGE {
            // Free a buffer that a single large event enlarged.
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(bytes);
        (self.filled, self.base) = (bytes.len(), base);
    }

    /// Offset in the stream of the end of the bytes in memory.
    pub fn end(&self) -> u64 {
        self.base + self.filled as u64
    }

    /// The bytes in memory from `at` on, or from the first one still there, with the offset of the first.
    pub fn from(&self, at: u64) -> (&[u8], u64) {
        let at = at.max(self.base);
        let skip = usize::try_from(at - self.base).unwrap_or(usize::MAX);
        (self.buffer.get(skip..self.filled).unwrap_or(&[]), at)
    }

    /// All bytes in memory, with the offset of the first.
    #[inline(always)]
    pub fn held(&self) -> (&[u8], u64) {
        (self.buffer.get(..self.filled).unwrap_or(&[]), self.base)
    }

    /// Reads until the bytes up to `upto` are in memory, and drops those before `keep`.
    ///
    /// Returns whether they are: if not, the stream ends at [`end`](Self::end).
    pub fn fill(&mut self, keep: u64, upto: u64) -> Result<bool, Shortage> {
        while self.end() < keep && !self.ended {
            self.base = self.end();
            self.filled = 0;
            let gap = usize::try_from(keep - self.base).unwrap_or(usize::MAX);
            self.read(gap.min(self.chunk))?;
        }
        if upto.saturating_sub(keep) > MAX_HELD {
            return Err(Shortage::TooLarge(MAX_HELD));
        }
        if self.end() < upto && !self.ended {
            let done = usize::try_from(keep.saturating_sub(self.base))
                .unwrap_or(usize::MAX)
                .min(self.filled);
            self.buffer.copy_within(done..self.filled, 0);
            self.filled -= done;
            self.base += done as u64;
        }
        while self.end() < upto && !self.ended {
            self.read(self.chunk)?;
        }
        Ok(self.end() >= upto)
    }

    /// Allows further reads of the input after it seemed to have ended.
    pub const fn go_on(&mut self) {
        self.ended = false;
    }

    /// Reads at most `most` bytes; fewer mean the end of the input.
    fn read(&mut self, most: usize) -> Result<(), Shortage> {
        let goal = self.filled.saturating_add(most);
        if self.buffer.len() < goal {
            self.buffer.resize(goal, 0);
        }
        while self.filled < goal && !self.ended {
            let room = self.buffer.get_mut(self.filled..goal).unwrap_or(&mut []);
            match self.input.read(room) {
                Ok(0) => self.ended = true,
                Ok(read) => self.filled += read.min(room.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Shortage::Io(error.kind())),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("base", &self.base)
            .field("held", &self.filled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slides_over_a_stream_larger_than_itself() {
        let stream: Vec<u8> = (0..100).collect();
        let mut window = Window::new(Box::new(io::Cursor::new(stream)), 8);
        assert_eq!(window.fill(0, 5), Ok(true));
        assert_eq!(window.from(2), (&[2, 3, 4, 5, 6, 7][..], 2));
        assert_eq!(window.fill(6, 20), Ok(true));
        assert_eq!(window.from(0), ((6..24).collect::<Vec<u8>>().as_slice(), 6));
        assert_eq!(window.fill(90, 95), Ok(true));
        assert_eq!(window.from(90).0.first(), Some(&90));
        assert_eq!(window.fill(90, 101), Ok(false));
        assert_eq!(window.end(), 100);
        assert_eq!(window.fill(90, u64::MAX), Err(Shortage::TooLarge(MAX_HELD)));
        assert_eq!(window.fill(200, 201), Ok(false));
    }
}
