//! Bytes on their way to a file.

use std::io::{self, Write};

/// Bytes are handed on when so many wait.
pub(crate) const FULL: usize = 1 << 16;

/// A buffer in front of a writer: a format appends to it, and it is handed on when it is full.
pub(crate) struct Output<'a> {
    out: Box<dyn Write + 'a>,
    /// What waits.
    pub bytes: Vec<u8>,
}

impl<'a> Output<'a> {
    /// An empty buffer in front of `out`.
    pub fn new(out: Box<dyn Write + 'a>) -> Self {
        Self {
            out,
            bytes: Vec::with_capacity(FULL + FULL / 4),
        }
    }

    /// Hands on what waits if it is enough.
    #[inline]
    pub fn check(&mut self) -> io::Result<()> {
        if self.bytes.len() >= FULL {
            return self.write();
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Hands on everything.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }
}
