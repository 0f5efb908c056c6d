//! Output buffer of file formats.

use std::io::{self, Write};

/// Number of buffered bytes from which on they are written.
pub(crate) const FULL: usize = 1 << 16;

/// Buffer before a writer: a format appends to it, and it is written when it is full.
pub(crate) struct Output<'a> {
    out: Box<dyn Write + 'a>,
    /// Buffered bytes.
    pub bytes: Vec<u8>,
}

impl<'a> Output<'a> {
    /// Creates an empty buffer before `out`.
    pub fn new(out: Box<dyn Write + 'a>) -> Self {
        Self {
            out,
            bytes: Vec::with_capacity(FULL + FULL / 4),
        }
    }

    /// Writes the buffered bytes if there are enough.
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

    /// Writes all buffered bytes.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write()?;
        self.out.flush()
    }
}
