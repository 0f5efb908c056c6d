//! Lines of a file, or of a pipe as they come.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use anstream::adapter::strip_bytes;
use memchr::{memchr, memchr_iter};

use crate::bytes::Bytes;

/// So much of a pipe is read at a time.
const READ_AT_ONCE: usize = 1 << 16;

/// The character that begins a colour or another command to a terminal (ECMA-48).
const ESCAPE: u8 = 0x1b;

/// The longest line; the rest of a longer one is another line.
const LONGEST: usize = 1 << 16;

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// How many bytes are in front of it in its file; 0 in a pipe.
    pub(super) offset: u64,
    /// Its number, from 1 on.
    pub(super) number: u64,
}

/// Where lines come from.
pub(super) enum Input {
    File {
        bytes: Bytes,
        /// Which of them are the text that is still to come.
        left: Range<usize>,
        /// How many lines are in front of that.
        lines: u64,
    },
    Pipe {
        reader: Box<dyn Read + Send>,
        buffer: Vec<u8>,
        /// What of the buffer has been used up.
        at: usize,
        ended: bool,
        /// How many lines have been used up.
        lines: u64,
    },
}

impl Input {
    /// A part of a file.
    pub(super) fn of_file(bytes: Bytes, part: Range<usize>) -> Self {
        let before = bytes.get(..part.start).unwrap_or_default();
        Self::File {
            lines: memchr_iter(b'\n', before).count() as u64,
            left: part,
            bytes,
        }
    }

    /// The next line; `None` at the end.
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

    /// Whether the input has no more lines, as far as that is known. A text in a page ends before the page does.
    pub(super) fn is_used_up(&self) -> bool {
        match self {
            Self::File { bytes, left, .. } => left.start >= bytes.len(),
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended && *at >= buffer.len(),
        }
    }

    /// The lines that follow, of a file: a pipe may have none for a long time.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let rest = match self {
            Self::File { bytes, left, .. } => bytes.get(left.clone()).unwrap_or_default(),
            Self::Pipe { .. } => &[],
        };
        lines(rest)
    }

    /// Whether another line is there without waiting.
    pub(super) fn has_line(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Pipe {
                buffer, at, ended, ..
            } => *ended || line_end(buffer.get(*at..).unwrap_or_default()).is_some(),
        }
    }
}

/// Where a line stands, which is the next one; of a long one, each part stands where all of it does.
fn spot(offset: u64, line: &[u8], lines: &mut u64) -> Spot {
    let number = *lines + 1;
    *lines += u64::from(line.ends_with(b"\n"));
    Spot { offset, number }
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
