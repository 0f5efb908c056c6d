//! A window on an input: as much as is looked at, no more.

use std::io::{self, ErrorKind, Read};

use crate::Error;

/// Bytes that are asked for at once.
const CHUNK: usize = 64 << 10;

/// What is left of an input.
pub(crate) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// The offset of the first byte of the window.
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

    /// Where bytes come from.
    pub const fn source(&self) -> &R {
        &self.source
    }

    /// The same, to change it.
    pub const fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// The same, given back.
    pub fn into_source(self) -> R {
        self.source
    }

    /// What is there.
    pub fn window(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or(&[])
    }

    /// Waits until so many bytes are there, or no more come.
    pub fn wait_for(&mut self, count: usize) -> Result<&[u8], Error> {
        while self.window().len() < count && !self.ended {
            self.read_more()?;
        }
        Ok(self.window())
    }

    /// Whether the window is all that is left.
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

    /// Takes bytes off the window.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.window().len());
        self.start += count;
        self.offset += count as u64;
    }
}
