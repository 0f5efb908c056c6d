//! Lines of a file, or of a pipe as they come.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use anstream::adapter::strip_bytes;
use memchr::memchr;

use crate::bytes::Bytes;

/// So much of a pipe is read at a time.
const READ_AT_ONCE: usize = 1 << 16;

/// The character that begins a colour or another command to a terminal (ECMA-48).
const ESCAPE: u8 = 0x1b;

/// The longest line; the rest of a longer one is another line.
const LONGEST: usize = 1 << 16;

/// Where lines come from.
pub(super) enum Input {
    /// The bytes, and which of them are the text that is still to come.
    File(Bytes, Range<usize>),
    Pipe {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
        /// What of the buffer has been used up.
        at: usize,
        ended: bool,
    },
}

impl Input {
    /// The next line; `None` at the end.
    pub(super) fn line(&mut self) -> Result<Option<(String, u64)>, std::io::Error> {
        match self {
            Self::File(bytes, left) => {
                let rest = bytes.get(left.clone()).unwrap_or_default();
                if rest.is_empty() {
                    return Ok(None);
                }
                let end = line_end(rest).unwrap_or(rest.len().min(LONGEST));
                let offset = left.start as u64;
                let line = plain(rest.get(..end).unwrap_or_default()).into_owned();
                left.start += end;
                Ok(Some((line, offset)))
            }
            Self::Pipe {
                reader,
                buffer,
                at,
                ended,
            } => loop {
                let rest = buffer.get(*at..).unwrap_or_default();
                let end = line_end(rest).or((*ended && !rest.is_empty()).then_some(rest.len()));
                if let Some(end) = end {
                    let line = plain(rest.get(..end).unwrap_or_default()).into_owned();
                    *at += end;
                    return Ok(Some((line, 0)));
                }
                if *ended {
                    return Ok(None);
                }
                buffer.drain(..*at);
                *at = 0;
                let before = buffer.len();
                buffer.resize(before + READ_AT_ONCE, 0);
                let read = match reader.read(buffer.get_mut(before..).unwrap_or_default()) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(None),
                    read => read.map(Some),
                };
                buffer.truncate(before + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
                *ended = read? == Some(0);
            },
        }
    }

    /// Whether the input has no more lines, as far as that is known. A text in a page ends before the page does.
    pub(super) fn is_used_up(&self) -> bool {
        match self {
            Self::File(bytes, left) => left.start >= bytes.len(),
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended && *at >= buffer.len(),
        }
    }

    /// The lines that follow, of a file: a pipe may have none for a long time.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let rest = match self {
            Self::File(bytes, left) => bytes.get(left.clone()).unwrap_or_default(),
            Self::Pipe { .. } => &[],
        };
        lines(rest)
    }

    /// Whether another line is there without waiting.
    pub(super) fn has_line(&self) -> bool {
        match self {
            Self::File(..) => true,
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended || line_end(buffer.get(*at..).unwrap_or_default()).is_some(),
        }
    }
}

/// The lines of a text.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| plain(line.get(..LONGEST).unwrap_or(line)))
}

/// A line without what it was wrapped in: the string of a script, the colours of a terminal.
fn plain(line: &[u8]) -> Cow<'_, str> {
    let line = super::html::unescaped(line);
    match memchr(ESCAPE, line) {
        Some(_) => Cow::Owned(String::from_utf8_lossy(&strip_bytes(line).into_vec()).into_owned()),
        None => String::from_utf8_lossy(line),
    }
}

/// Where the first line of some bytes ends, behind its end.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..LONGEST).unwrap_or(bytes);
    match head.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some(at + 1),
        None => (bytes.len() >= LONGEST).then_some(LONGEST),
    }
}
