//! Lines of a file, or of a pipe as they arrive.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use anstream::adapter::strip_bytes;
use memchr::{memchr, memchr_iter};

use crate::bytes::Bytes;

/// Number of bytes per read from a pipe.
const READ_AT_ONCE: usize = 1 << 16;

/// First character of a terminal escape sequence, such as a colour (ECMA-48).
const ESCAPE: u8 = 0x1b;

/// Largest length of a line. The rest of a longer one becomes another line.
const LONGEST: usize = 1 << 16;

/// Position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Offset in its file; 0 in a pipe.
    pub(super) offset: u64,
    /// Line number, counted from 1.
    pub(super) number: u64,
}

/// Source of lines.
pub(super) enum Input {
    File {
        bytes: Bytes,
        /// Range of the text that was not read yet.
        left: Range<usize>,
        /// Number of lines in front of that.
        lines: u64,
    },
    Pipe {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
        /// Number of consumed bytes in the buffer.
        at: usize,
        ended: bool,
        /// Number of consumed lines.
        lines: u64,
    },
}

impl Input {
    /// Creates the input for a part of a file.
    pub(super) fn of_file(bytes: Bytes, part: Range<usize>) -> Self {
        let before = bytes.get(..part.start).unwrap_or_default();
        Self::File {
            lines: memchr_iter(b'\n', before).count() as u64,
            left: part,
            bytes,
        }
    }

    /// Returns the next line; `None` at the end.
    pub(super) fn line(&mut self) -> Result<Option<(String, Spot)>, std::io::Error> {
        match self {
            Self::File { bytes, left, lines } => {
                let rest = bytes.get(left.clone()).unwrap_or_default();
                if rest.is_empty() {
                    return Ok(None);
                }
                let end = line_end(rest).unwrap_or(rest.len().min(LONGEST));
                let offset = left.start as u64;
                let line = rest.get(..end).unwrap_or_default();
                let spot = spot(offset, line, lines);
                let line = plain(line).into_owned();
                left.start += end;
                Ok(Some((line, spot)))
            }
            Self::Pipe {
                reader,
                buffer,
                at,
                ended,
                lines,
            } => loop {
                let rest = buffer.get(*at..).unwrap_or_default();
                let end = line_end(rest).or((*ended && !rest.is_empty()).then_some(rest.len()));
                if let Some(end) = end {
                    let line = rest.get(..end).unwrap_or_default();
                    let spot = spot(0, line, lines);
                    let line = plain(line).into_owned();
                    *at += end;
                    return Ok(Some((line, spot)));
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

    /// Returns whether the input has no more lines, as far as that is known. A text in a page ends before the page
    /// does.
    pub(super) fn is_used_up(&self) -> bool {
        match self {
            Self::File { bytes, left, .. } => left.start >= bytes.len(),
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended && *at >= buffer.len(),
        }
    }

    /// Returns the lines that follow in a file. A pipe may have none for a long time.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let rest = match self {
            Self::File { bytes, left, .. } => bytes.get(left.clone()).unwrap_or_default(),
            Self::Pipe { .. } => &[],
        };
        lines(rest)
    }

    /// Returns whether another line is available without waiting.
    pub(super) fn has_line(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended || line_end(buffer.get(*at..).unwrap_or_default()).is_some(),
        }
    }
}

/// Returns the position of the next line. Each part of a long line has the number of the line.
fn spot(offset: u64, line: &[u8], lines: &mut u64) -> Spot {
    let number = *lines + 1;
    *lines += u64::from(line.ends_with(b"\n"));
    Spot { offset, number }
}

/// Returns the lines of a text.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| plain(line.get(..LONGEST).unwrap_or(line)))
}

/// Removes the wrapping of a line: the string of a script, the colours of a terminal.
fn plain(line: &[u8]) -> Cow<'_, str> {
    let line = super::html::unescaped(line);
    match memchr(ESCAPE, line) {
        Some(_) => Cow::Owned(String::from_utf8_lossy(&strip_bytes(line).into_vec()).into_owned()),
        None => String::from_utf8_lossy(line),
    }
}

/// Returns the end of the first line, including its line end.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..LONGEST).unwrap_or(bytes);
    match head.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some(at + 1),
        None => (bytes.len() >= LONGEST).then_some(LONGEST),
    }
}
