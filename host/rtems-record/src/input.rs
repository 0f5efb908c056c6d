//! Buffered window on an input, which reads no more than is needed.

use std::io::{self, ErrorKind, Read};

use crate::Error;

/// Number of bytes per read.
const CHUNK: usize = 64 << 10;

/// Unread rest of an input.
pub(crate) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// Offset of the window's first byte in the input.
    pub offset: u64,
}

impl<R: Read> Input<R> {
    pub fn new(source: R) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            start: 0,
            ended: false,
            offset: 0,
        }
    }

    /// Returns the source.
    pub const fn source(&self) -> &R {
        &self.source
    }

    /// Returns the source, mutable.
    pub const fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Returns the source, and drops the window.
    pub fn into_source(self) -> R {
        self.source
    }

    /// Returns the bytes in the window.
    pub fn window(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or(&[])
    }

    /// Reads until the window has `count` bytes or the input ends.
    pub fn wait_for(&mut self, count: usize) -> Result<&[u8], Error> {
        while self.window().len() < count && !self.ended {
            self.read_more()?;
        }
        Ok(self.window())
    }

    /// Returns whether the input has ended, so that the window is all that is left.
    pub const fn is_all(&self) -> bool {
        self.ended
    }

    /// Reads once.
    pub fn read_more(&mut self) -> Result<(), Error> {
        if self.ended {
            return Ok(());
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let length = self.buffer.len();
        self.buffer.resize(length + CHUNK, 0);
        let room = self.buffer.get_mut(length..).unwrap_or(&mut []);
        let read = loop {
            match self.source.read(room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(source) => return Err(self.failed(source)),
        }
        Ok(())
    }

    fn failed(&mut self, source: io::Error) -> Error {
        self.ended = true;
        let offset = self.offset + self.window().len() as u64;
        Error { offset, source }
    }

    /// Removes bytes from the front of the window.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.window().len());
        self.start += count;
        self.offset += count as u64;
    }
}
