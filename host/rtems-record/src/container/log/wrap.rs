//! Lines of a dump that a terminal wrapped at its width: 76 characters behind a time are more than the 80 of most.
//!
//! Where the first line is shorter than RTEMS writes them and the next ones are as long as what is missing of it, all
//! lines are put together again; a prefix may be in front of the first part, or of each part.

use std::io::Read;

use memchr::memmem;

use super::{BEGIN, Container, END, Step, WIDTH, base64_at};
use crate::container::base64;
use crate::error::Fault;

/// Whether lines are wrapped, and the parts of one that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Wrap {
    state: State,
    /// With the offsets at which they begin.
    parts: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No line was seen, or parts of the first one.
    #[default]
    Open,
    /// Lines are as they were written.
    Whole,
    /// They are wrapped.
    Wrapped(Shape),
}

/// How lines are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Characters of a part, with its prefix.
    columns: usize,
    /// Whether something stands in front of each part.
    each: bool,
}

/// Where a line's base64 begins that has nothing else behind its prefix.
fn text(line: &[u8], prefix: usize) -> Option<&[u8]> {
    let text = line.get(prefix..)?;
    let is_base64 = text.iter().all(|byte| base64::is_base64(*byte));
    (is_base64 && !text.is_empty()).then_some(text)
}

impl Wrap {
    /// Characters of base64 in the parts.
    fn length(&self, column: usize, shape: Option<Shape>) -> usize {
        let prefixes = match shape {
            Some(Shape { each: true, .. }) => self.parts.len(),
            _ => self.parts.len().min(1),
        };
        let all: usize = self.parts.iter().map(|(_, line)| line.len()).sum();
        all.saturating_sub(prefixes * column)
    }

    /// The characters that the next part has in such a shape, and where they begin in its line.
    fn expected(&self, column: usize, shape: Shape) -> (usize, usize) {
        let prefix = if shape.each || self.parts.is_empty() {
            column
        } else {
            0
        };
        let missing = WIDTH.saturating_sub(self.length(column, Some(shape)));
        (prefix, missing.min(shape.columns.saturating_sub(prefix)))
    }

    /// The line that the parts are of.
    fn join(&mut self, column: usize, shape: Shape) -> Option<(u64, Vec<u8>)> {
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        let (offset, mut line) = parts.next()?;
        for (_, part) in parts {
            let prefix = if shape.each { column } else { 0 };
            line.extend(part.get(prefix..).unwrap_or_default());
        }
        Some((offset, line))
    }

    /// The lines that have not been given out, at the end of the dump.
    fn finish(&mut self, column: usize) -> Vec<(u64, Vec<u8>)> {
        match self.state {
            State::Wrapped(shape) => self.join(column, shape).into_iter().collect(),
            _ => std::mem::take(&mut self.parts),
        }
    }
}

impl<R: Read> Container<R> {
    /// A line of a dump as it stands in the log.
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

    /// Of the first line a part is there: this one shows whether that was all of it.
    fn first_parts(&mut self, line: Vec<u8>, offset: u64, out: &mut Vec<u8>) -> Option<Step> {
        let column = self.log.column;
        let wrap = &mut self.log.wrap;
        let Some((_, first)) = wrap.parts.first() else {
            // A line of others does not tell.
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

    /// The next part of a line, or the first one.
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
                // A part that is shorter is the last one.
                if found == length && wrap.length(column, Some(shape)) < WIDTH {
                    return None;
                }
                let (offset, line) = wrap.join(column, shape)?;
                self.line(&line, offset, out)
            }
            // A terminal that has become wider wraps no line any more.
            _ if wrap.parts.is_empty()
                && line
                    .get(base64_at(&line, column)..)
                    .is_some_and(|whole| whole.len() == WIDTH) =>
            {
                self.line(&line, offset, out)
            }
            // Others write between the lines.
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

    /// Takes the lines that have not been given out; the fault that they have.
    pub(super) fn finish_lines(&mut self, out: &mut Vec<u8>) -> Option<Step> {
        let lines = self.log.wrap.finish(self.log.column);
        lines
            .into_iter()
            .find_map(|(offset, line)| self.line(&line, offset, out))
    }
}
