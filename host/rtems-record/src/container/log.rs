//! Dumps in a console log.
//!
//! RTEMS writes lines of 76 characters. A terminal program or a kernel log may have put a time or a name of any length
//! in front of each line, and other tasks may have written lines in between. So the data of a line is the run of base64
//! at its end; lines that a terminal wrapped are joined first. A line that is shorter than the others can only be the
//! last one.

mod wrap;

use std::io::Read;

use anstream::adapter::strip_bytes;
use memchr::{memchr, memchr2, memmem};

use super::{BEGIN, Container, END, Step, base64};
use crate::error::{Error, Fault};

/// Length of the lines that RTEMS writes.
const WIDTH: usize = 76;

/// First character of a terminal escape sequence, such as a colour (ECMA-48).
const ESCAPE: u8 = 0x1b;

/// Largest length of a line. A longer one is read in pieces.
const LONGEST: usize = 1 << 20;

/// State of the lines of the current dump.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Number of dumps that have begun.
    pub dumps: u64,
    /// Column of the start mark in its line.
    column: usize,
    /// Length of the dump's lines, once known.
    width: Option<usize>,
    /// Whether a line of that length began in another column than the mark: prefixes have different lengths.
    wanders: bool,
    /// A line that is shorter than the others: the last one, or not a line of the dump.
    short: Option<Short>,
    /// Whether the start mark of the next dump was found in this dump.
    begun_again: bool,
    /// Whether the end mark was found.
    ending: bool,
    wrap: wrap::Wrap,
}

#[derive(Debug)]
struct Short {
    offset: u64,
    text: Vec<u8>,
    /// Whether it has nothing but base64.
    whole: bool,
}

/// Returns the first character that is not base64 in a line that is otherwise base64. Text of other tasks has more such
/// characters, above all blanks.
fn wrong_character(line: &[u8]) -> Option<usize> {
    const MOST: usize = 4;
    let is_wrong = |byte: &u8| !base64::is_base64(*byte);
    let wrong = line.iter().filter(|byte| is_wrong(byte)).count();
    let first = line.iter().position(is_wrong);
    first.filter(|_| wrong <= MOST && !line.contains(&b' '))
}

/// Removes the line end, escape sequences of a terminal, and the quotes that GDB's machine interface puts around the
/// target's output (`~"...\n"`).
fn cleaned(line: &[u8]) -> Vec<u8> {
    let mut line = match memchr(ESCAPE, line) {
        Some(_) => strip_bytes(line).into_vec(),
        None => line.to_vec(),
    };
    let mut end = line.trim_ascii_end();
    if let Some(quoted) = end.strip_suffix(b"\"") {
        end = quoted.strip_suffix(b"\\n").unwrap_or(quoted);
        end = end.strip_suffix(b"\\r").unwrap_or(end);
    }
    line.truncate(end.len());
    line
}

/// Returns the length of a line end: CR LF, or one of them alone.
fn line_end(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\r\n") { 2 } else { 1 }
}

/// Returns the column at which the base64 of a line begins.
fn base64_at(line: &[u8], column: usize) -> usize {
    let run = line
        .iter()
        .rev()
        .take_while(|byte| base64::is_base64(**byte));
    let start = line.len() - run.count();
    match column {
        column if start < column && column < line.len() => column,
        _ => start,
    }
}

impl<R: Read> Container<R> {
    /// Advances in a log: by one line, or by all lines up to the next dump.
    pub(super) fn advance_log(&mut self, out: &mut Vec<u8>) -> Result<Step, Error> {
        if std::mem::take(&mut self.log.begun_again) {
            return Ok(Step::Begin);
        }
        if self.open && self.log.ending {
            return Ok(self.end_dump(out));
        }
        loop {
            let end = loop {
                let window = self.input.window();
                match memchr2(b'\n', b'\r', window) {
                    Some(end) => break end + line_end(window.get(end..).unwrap_or_default()),
                    None if self.input.is_all() || window.len() >= LONGEST => break window.len(),
                    None => self.input.read_more()?,
                }
            };
            if end == 0 {
                return Ok(self.end_of_log(out));
            }
            let window = self.input.window();
            let line = cleaned(window.get(..end).unwrap_or(window));
            let offset = self.input.offset;
            self.input.consume(end);
            let step = if self.open {
                self.part(line, offset, out)
            } else {
                self.outside(&line)
            };
            if let Some(step) = step {
                return Ok(step);
            }
            // Reads many lines at once, up to a bounded size.
            if self.layer.has_more() || out.len() >= super::zlib::PIECE {
                return Ok(Step::Bytes);
            }
            if self.open && memchr2(b'\n', b'\r', self.input.window()).is_none() {
                return Ok(Step::Bytes);
            }
        }
    }

    /// Handles a line outside dumps.
    fn outside(&mut self, line: &[u8]) -> Option<Step> {
        let column = memmem::find(line, BEGIN)?;
        self.log = Lines {
            dumps: self.log.dumps + 1,
            column,
            ..Lines::default()
        };
        self.open = true;
        Some(Step::Begin)
    }

    /// Handles a line of a dump.
    fn line(&mut self, line: &[u8], offset: u64, out: &mut Vec<u8>) -> Option<Step> {
        if memmem::find(line, END).is_some() {
            let last = self.log.short.take();
            // The end of another task's line does not belong to the dump if all of the dump's lines begin below the
            // mark.
            let is_foreign =
                |last: &Short| !last.whole && self.log.width.is_some() && !self.log.wanders;
            if last.as_ref().is_some_and(is_foreign) {
                self.foreign_lines += 1;
            } else if let Some(last) = last
                && let Some(step) = self.text(&last.text, last.offset, out)
            {
                return Some(step);
            }
            self.log.ending = true;
            return Some(self.end_dump(out));
        }
        if memmem::find(line, BEGIN).is_some() {
            let fault = Fault {
                offset,
                decoded: false,
                message:
                    "expected the end mark of the dump before, found the beginning of another one"
                        .to_owned(),
            };
            self.log.short = None;
            let step = self.finish_before(fault, out);
            self.outside(line);
            // The start of the next dump is reported with the next call.
            self.log.begun_again = true;
            return Some(step);
        }
        let start = base64_at(line, self.log.column);
        let mut text = line.get(start..).unwrap_or(&[]);
        if line.len() > WIDTH * 64 {
            return self.text(text, offset + start as u64, out);
        }
        let whole = start == 0 || start == self.log.column;
        if let Some(width) = self.log.width
            && text.len() > width
        {
            text = text.get(text.len() - width..).unwrap_or(text);
        }
        let width = match self.log.width {
            Some(width) => width,
            None if text.len() == WIDTH || whole && text.len() > 3 => text.len(),
            None => WIDTH,
        };
        let own = line.get(self.log.column..).unwrap_or(&[]);
        if text.len() != width
            && own.len() == width
            && let Some(place) = wrong_character(own)
        {
            let at = self.log.column + place;
            let fault = Fault {
                offset: offset + at as u64,
                decoded: false,
                message: format!(
                    "expected base64, found {:?}",
                    char::from(line.get(at).copied().unwrap_or(0)).to_string()
                ),
            };
            self.log.short = None;
            return Some(self.finish_before(fault, out));
        }
        if text.len() != width {
            let next = Short {
                offset: offset + start as u64,
                text: text.to_vec(),
                whole,
            };
            // Other tasks may write behind a line that may be the last one.
            let is_foreign = !whole && self.log.short.as_ref().is_some_and(|it| it.whole);
            return if text.is_empty() || is_foreign {
                self.foreign_lines += u64::from(!line.trim_ascii().is_empty());
                None
            } else {
                let before = self.log.short.replace(next);
                self.not_last(before, out)
            };
        }
        self.log.width = Some(width);
        self.log.wanders |= !whole;
        let before = self.log.short.take();
        if let Some(step) = self.not_last(before, out) {
            return Some(step);
        }
        self.text(text, offset + start as u64, out)
    }

    /// Handles a short line that turned out not to be the last one.
    fn not_last(&mut self, short: Option<Short>, out: &mut Vec<u8>) -> Option<Step> {
        let short = short?;
        if !short.whole {
            self.foreign_lines += 1;
            return None;
        }
        let fault = Fault {
            offset: short.offset,
            decoded: false,
            message: format!(
                "expected a line of {} characters of base64, found one of {} (a damaged line, or wrapped lines)",
                self.log.width.unwrap_or(WIDTH),
                short.text.len()
            ),
        };
        Some(self.finish_before(fault, out))
    }

    /// Decodes characters of a dump.
    fn text(&mut self, text: &[u8], offset: u64, out: &mut Vec<u8>) -> Option<Step> {
        let mut bytes = Vec::new();
        let pushed = self.text.push(text, &mut bytes);
        self.layer.push(&bytes, out);
        let place = pushed.err()?;
        let fault = Fault {
            offset: offset + place as u64,
            decoded: false,
            message: "expected base64, found characters behind its padding".to_owned(),
        };
        Some(self.finish_before(fault, out))
    }

    fn end_of_log(&mut self, out: &mut Vec<u8>) -> Step {
        if !self.open {
            return Step::End;
        }
        if let Some(fault) = self.finish_lines(out) {
            return fault;
        }
        if let Some(last) = self.log.short.take()
            && last.whole
            && let Some(step) = self.text(&last.text, last.offset, out)
        {
            return step;
        }
        let fault = Fault {
            offset: self.input.offset,
            decoded: false,
            message: "expected the end mark of the dump, found the end of the log".to_owned(),
        };
        self.finish_before(fault, out)
    }
}
