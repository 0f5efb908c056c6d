//! Reassembly of dump lines that a terminal wrapped at its width. 76 characters behind a time exceed the usual 80
//! columns.
//!
//! Lines are wrapped if the first line is shorter than RTEMS's lines and the next parts have the length of what is
//! missing. Then the parts of all lines are joined. A prefix may be in front of the first part, or of each part.

use std::io::Read;

use memchr::memmem;

use super::{BEGIN, Container, END, Step, WIDTH, base64_at};
use crate::container::base64;
use crate::error::Fault;

/// Whether lines are wrapped, and the parts of the current line.
#[derive(Debug, Default)]
pub(super) struct Wrap {
    state: State,
    /// Parts with their offsets in the input.
    parts: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No line was seen yet, or only parts of the first one.
    #[default]
    Open,
    /// Lines are not wrapped.
    Whole,
    /// Lines are wrapped.
    Wrapped(Shape),
}

/// Form of wrapped lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Number of characters in a part, including its prefix.
    columns: usize,
    /// Whether each part has a prefix.
    each: bool,
}

/// Returns the base64 behind a line's prefix; `None` if there is other text behind the prefix.
fn text(line: &[u8], prefix: usize) -> Option<&[u8]> {
    let text = line.get(prefix..)?;
    let is_base64 = text.iter().all(|byte| base64::is_base64(*byte));
    (is_base64 && !text.is_empty()).then_some(text)
}

impl Wrap {
    /// Returns the number of base64 characters in the parts.
    fn length(&self, column: usize, shape: Option<Shape>) -> usize {
        let prefixes = match shape {
            Some(Shape { each: true, .. }) => self.parts.len(),
            _ => self.parts.len().min(1),
        };
        let all: usize = self.parts.iter().map(|(_, line)| line.len()).sum();
        all.saturating_sub(prefixes * column)
    }

    /// Returns the column of the next part's text in its line, and its expected length.
    fn expected(&self, column: usize, shape: Shape) -> (usize, usize) {
        let prefix = if shape.each || self.parts.is_empty() {
            column
        } else {
            0
        };
        let missing = WIDTH.saturating_sub(self.length(column, Some(shape)));
        (prefix, missing.min(shape.columns.saturating_sub(prefix)))
    }

    /// Joins the parts to a line.
    fn join(&mut self, column: usize, shape: Shape) -> Option<(u64, Vec<u8>)> {
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        let (offset, mut line) = parts.next()?;
        for (_, part) in parts {
            let prefix = if shape.each { column } else { 0 };
            line.extend(part.get(prefix..).unwrap_or_default());
        }
        Some((offset, line))
    }

    /// Returns the pending lines at the end of the dump.
    fn finish(&mut self, column: usize) -> Vec<(u64, Vec<u8>)> {
        match self.state {
            State::Wrapped(shape) => self.join(column, shape).into_iter().collect(),
            _ => std::mem::take(&mut self.parts),
        }
    }
}

impl<R: Read> Container<R> {
    /// Handles a line of the log within a dump.
    pub(super) fn part(&mut self, line: Vec<u8>, offset: u64, out: &mut Vec<u8>) -> Option<Step> {
        let column = self.log.column;
        let has = |mark| memmem::find(&line, mark).is_some();
        if has(END) || has(BEGIN) {
            if let Some(fault) = self.finish_lines(out) {
                self.outside(&line);
                self.log.begun_again = self.open;
                return Some(fault);
            }
            return self.line(&line, offset, out);
        }
        if line.is_empty() {
            return None;
        }
        let wrap = &mut self.log.wrap;
        match wrap.state {
            State::Whole => self.line(&line, offset, out),
            State::Open => {
                let Some(own) = text(&line, column) else {
                    return self.first_parts(line, offset, out);
                };
                if wrap.parts.is_empty() && own.len() > 3 && own.len() < WIDTH {
                    wrap.parts.push((offset, line));
                    return None;
                }
                self.first_parts(line, offset, out)
            }
            State::Wrapped(shape) => self.next_part(shape, line, offset, out),
        }
    }

    /// Handles a line behind a part of the first line: it shows whether that line was complete.
    fn first_parts(&mut self, line: Vec<u8>, offset: u64, out: &mut Vec<u8>) -> Option<Step> {
        let column = self.log.column;
        let wrap = &mut self.log.wrap;
        let Some((_, first)) = wrap.parts.first() else {
            // A line of another task gives no information.
            if text(&line, column).is_some() {
                wrap.state = State::Whole;
            }
            return self.line(&line, offset, out);
        };
        let columns = first.len();
        let shapes = [false, true].map(|each| Shape { columns, each });
        let fits = |shape: &Shape| {
            let (prefix, length) = wrap.expected(column, *shape);
            text(&line, prefix).is_some_and(|text| text.len() == length)
        };
        if let Some(shape) = shapes.into_iter().find(fits) {
            wrap.parts.push((offset, line));
            if wrap.length(column, Some(shape)) < WIDTH {
                return None;
            }
            wrap.state = State::Wrapped(shape);
            let (offset, line) = wrap.join(column, shape)?;
            return self.line(&line, offset, out);
        }
        wrap.state = State::Whole;
        let fault = self.finish_lines(out);
        fault.or_else(|| self.line(&line, offset, out))
    }

    /// Handles the next part of a line, or the first one.
    fn next_part(
        &mut self,
        shape: Shape,
        line: Vec<u8>,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Option<Step> {
        let column = self.log.column;
        let wrap = &mut self.log.wrap;
        let (prefix, length) = wrap.expected(column, shape);
        let found = text(&line, prefix).map(<[u8]>::len);
        match found {
            Some(found) if found <= length => {
                wrap.parts.push((offset, line));
                // A shorter part is the last one.
                if found == length && wrap.length(column, Some(shape)) < WIDTH {
                    return None;
                }
                let (offset, line) = wrap.join(column, shape)?;
                self.line(&line, offset, out)
            }
            // The terminal was made wider for the last line.
            Some(found) if wrap.parts.is_empty() && found < WIDTH => self.line(&line, offset, out),
            // A terminal that was made wider no longer wraps lines.
            _ if wrap.parts.is_empty()
                && line
                    .get(base64_at(&line, column)..)
                    .is_some_and(|whole| whole.len() == WIDTH) =>
            {
                self.line(&line, offset, out)
            }
            // A line of another task between the dump's lines.
            _ if wrap.parts.is_empty() => {
                self.foreign_lines += 1;
                None
            }
            _ => {
                let fault = Fault {
                    offset,
                    decoded: false,
                    message: format!(
                        "expected {length} characters of base64 (wrapped lines: a terminal of {} columns), found another line",
                        shape.columns
                    ),
                };
                wrap.parts.clear();
                Some(self.finish_before(fault, out))
            }
        }
    }

    /// Handles the pending lines. Returns the first fault in them.
    pub(super) fn finish_lines(&mut self, out: &mut Vec<u8>) -> Option<Step> {
        let lines = self.log.wrap.finish(self.log.column);
        lines
            .into_iter()
            .find_map(|(offset, line)| self.line(&line, offset, out))
    }
}
