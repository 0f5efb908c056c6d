//! The part of a stream that is in memory.
//!
//! A stream is read forward only, in chunks, and what has been decoded is dropped. So a stream may come from a file, a
//! pipe or a socket, and may have packets larger than memory; only a single event must fit.

use std::fmt;
use std::io::{self, Read};

/// Most bytes that one event, or one packet's header and context, may take.
const MAX_HELD: u64 = 32 << 20;

/// Bytes above which memory is not kept for others.
const LARGE: usize = 1 << 20;

/// Why bytes cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Io(io::ErrorKind),
    /// More than this would have to be held.
    TooLarge(u64),
}

pub(super) struct Window {
    input: Box<dyn Read + Send>,
    /// What was read, and behind it room that has been cleared before.
    buffer: Vec<u8>,
    /// How much of the buffer was read.
    filled: usize,
    /// Place of the first byte in the stream.
    base: u64,
    /// Nothing follows.
    ended: bool,
    /// How much to read at once.
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

    /// A part of a stream that another reader reads: nothing of it yet.
    pub fn elsewhere() -> Self {
        Self::new(Box::new(io::empty()), 0)
    }

    /// Holds these bytes of a stream that another reader reads, and no others; the first one's place is `base`.
    pub fn hold(&mut self, bytes: &[u8], base: u64) {
        if self.buffer.capacity() > LARGE && bytes.len() <= LARGE {
            // One large event is no reason to keep so much.
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(bytes);
        (self.filled, self.base) = (bytes.len(), base);
    }

    /// The place in the stream behind the bytes in memory.
    pub fn end(&self) -> u64 {
        self.base + self.filled as u64
    }

    /// The bytes in memory from `at` on, or from the first one that is still there, with the place of the first.
    pub fn from(&self, at: u64) -> (&[u8], u64) {
        let at = at.max(self.base);
        let skip = usize::try_from(at - self.base).unwrap_or(usize::MAX);
        (self.buffer.get(skip..self.filled).unwrap_or(&[]), at)
    }

    /// All bytes in memory, with the place of the first.
    #[inline(always)]
    pub fn held(&self) -> (&[u8], u64) {
        (self.buffer.get(..self.filled).unwrap_or(&[]), self.base)
    }

    /// Reads on until the bytes up to `upto` are there, dropping those before `keep`.
    ///
    /// Tells whether they are: if not, the stream ends at [`end`](Self::end).
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

    /// Asks the input again, although it seemed to have come to its end.
    pub const fn go_on(&mut self) {
        self.ended = false;
    }

    /// Reads at most `most` bytes; fewer mean the end.
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
