//! Dumps that come through a pipe: each is read when its end has come.

use std::io::{self, Read};

use kymo_event::{Batch, TraceInfo};
use kymo_zephyr_instrumentation::{END, Hints};

use super::dump;
use super::source::DumpSource;
use crate::bytes::{Bytes, SPOOLED_AT_MOST};
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, ReadError, Source};

/// Number of bytes per read.
const CHUNK: usize = 1 << 16;

/// A dump is longer than this only if its end is missing: then all that comes is read first.
const DUMP_MAX: usize = 1 << 26;

/// So often a mark may look like the end of a dump and be none, before all that comes is read first.
const TRIES: u32 = 64;

/// The dumps that come.
pub(super) struct Piped {
    name: String,
    input: Box<dyn Read + Send>,
    hints: Hints,
    /// Received bytes that are not yet part of a dump, and their offset in the input.
    waiting: Vec<u8>,
    offset: usize,
    /// How often no dump ended at a mark since the last one did.
    tries: u32,
    is_at_end: bool,
    /// All of an input without a dump.
    unknown: Bytes,
    source: DumpSource,
}

impl Piped {
    /// Waits for the first dump.
    ///
    /// # Errors
    /// [`OpenError::Io`] if the pipe cannot be read, or gives too much; [`OpenError::Unknown`] if there is no dump in it.
    pub(super) fn open(peek: Peek, hints: Hints, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = peek.path().to_owned();
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let input = peek
            .into_reader()
            .ok_or(OpenError::Empty { path: path.clone() })?;
        let mut piped = Self {
            source: DumpSource::new(&name, options),
            name,
            input,
            hints,
            waiting: Vec::new(),
            offset: 0,
            tries: 0,
            is_at_end: false,
            unknown: Bytes::from(Vec::new()),
        };
        loop {
            let io = |source| OpenError::Io {
                path: path.clone(),
                source,
            };
            if piped.read().map_err(io)? {
                return Ok(piped);
            }
            if piped.is_at_end {
                return Err(crate::open::unknown_bytes(&path, &piped.unknown));
            }
        }
    }

    /// Reads available bytes, and blocks if there are none; returns whether a dump has ended.
    fn read(&mut self) -> io::Result<bool> {
        let known = self.waiting.len();
        let mut more = [0; CHUNK];
        match self.input.read(&mut more) {
            Ok(0) => self.is_at_end = true,
            Ok(count) => self.waiting.extend(more.get(..count).unwrap_or(&[])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.is_at_end {
            let rest = std::mem::take(&mut self.waiting);
            return Ok(self.take_rest(Bytes::from(rest)));
        }
        let new = known.saturating_sub(END.len() - 1);
        let new = self.waiting.get(new..).unwrap_or(&[]);
        if new.windows(END.len()).any(|bytes| bytes == END) {
            return Ok(self.take_dumps());
        }
        if self.waiting.len() < DUMP_MAX && self.tries < TRIES {
            return Ok(false);
        }
        let before = io::Cursor::new(std::mem::take(&mut self.waiting));
        let all = Bytes::spool(before.chain(&mut self.input), SPOOLED_AT_MOST)?;
        self.is_at_end = true;
        Ok(self.take_rest(all))
    }

    /// Consumes the complete dumps, if no incomplete one has begun; returns whether there are any.
    fn take_dumps(&mut self) -> bool {
        let found = dump::find(&self.waiting, &self.hints).unwrap_or_default();
        let is_whole = found.iter().all(|dump| !dump.cut);
        let Some(last) = found.last().filter(|_| is_whole) else {
            self.tries += 1;
            return false;
        };
        let rest = self.waiting.get(last.end..).unwrap_or(&[]);
        let end = last.end + if rest.starts_with(END) { END.len() } else { 0 };
        let rest = self.waiting.split_off(end);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        self.source.add(Bytes::from(bytes), self.offset, found);
        self.offset += end;
        self.tries = 0;
        true
    }

    /// Consumes the rest at the end of the input; returns whether it contains a dump, or data other than text after
    /// one.
    fn take_rest(&mut self, bytes: Bytes) -> bool {
        let found = match dump::find(&bytes, &self.hints) {
            Some(found) => found,
            None if self.offset > 0 => dump::rest(&bytes, &self.hints),
            None => {
                self.unknown = bytes;
                return false;
            }
        };
        let any = !found.is_empty();
        self.source.add(bytes, self.offset, found);
        any
    }
}

impl Source for Piped {
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        loop {
            if self.source.fill(batch)? {
                return Ok(true);
            }
            if self.is_at_end {
                return Ok(false);
            }
            self.read().map_err(|source| ReadError::Io {
                stream: self.name.clone(),
                offset: (self.offset + self.waiting.len()) as u64,
                source,
            })?;
        }
    }
}
