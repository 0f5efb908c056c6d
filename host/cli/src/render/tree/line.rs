//! One line of the tree, from its columns to its end.

use anstyle::Style;
use kymo_event::{Duration, Time};

use crate::render::duration::{Human, WIDTH, push_padded};
use crate::render::palette::{paint, paint_with};
use crate::render::times::Times;

/// A line that is being written, or waits to be. It is text, kept as bytes: millions of lines are put together of parts
/// that need no look at their characters.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    text: Vec<u8>,
    /// Where the column of the duration begins, in bytes.
    duration: usize,
}

/// The column of durations with nothing in it.
const BLANK: &[u8; WIDTH + 1] = b"           ";

/// What stands behind a call that opens a block.
const OPENING: &[u8] = b" {";
/// Behind one that is a line.
const LEAF: &str = ";";
/// Behind one that is a line although it called others, which are not shown.
const FOLDED: &str = " { ... }";

impl Line {
    /// A line with a time, and nothing in the column of durations.
    ///
    /// `text` is a line that has been written, whose room serves again.
    pub fn new(mut text: Vec<u8>, time: Time, times: &Times) -> Self {
        text.clear();
        match times.digits(time) {
            Some(digits) => text.extend_from_slice(digits.as_bytes()),
            None => {
                let mut column = String::new();
                times.push(time, &mut column);
                text.extend_from_slice(column.as_bytes());
            }
        }
        text.extend_from_slice(b"  ");
        let duration = text.len();
        text.extend_from_slice(BLANK);
        Self { text, duration }
    }

    /// Fills in the duration; with a doubt, marked as possibly wrong.
    pub fn set_duration(&mut self, duration: Duration, doubt: bool) {
        let mark = if doubt { b'?' } else { b' ' };
        let range = self.duration..self.duration + BLANK.len();
        if let Some(digits) = Human(duration).digits()
            && let Some([column @ .., last]) = self.text.get_mut(range.clone())
        {
            column.copy_from_slice(&digits);
            *last = mark;
            return;
        }
        let column = Human(duration).to_string();
        self.text.splice(range, column.bytes().chain([mark]));
    }

    /// Adds text as it is.
    #[inline]
    pub fn push(&mut self, text: &str) -> &mut Self {
        self.text.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds text in a style.
    pub fn paint(&mut self, style: Style, text: &str) -> &mut Self {
        let mut painted = String::new();
        paint(&mut painted, style, text);
        self.push(&painted)
    }

    /// Adds text in a style, as `write` does.
    pub fn paint_with(&mut self, style: Style, write: impl FnOnce(&mut String)) {
        let mut painted = String::new();
        paint_with(&mut painted, style, write);
        self.push(&painted);
    }

    /// Adds a number of a processor.
    pub fn processor(&mut self, number: u32) {
        let mut column = String::new();
        push_padded(&mut column, number.into(), 3);
        self.push("  ").push(&column);
    }

    /// Adds so many spaces.
    pub fn spaces(&mut self, count: usize) {
        self.text.resize(self.text.len() + count, b' ');
    }

    /// Adds levels of indentation.
    pub fn indent(&mut self, levels: u32) -> &mut Self {
        self.spaces(2 * levels as usize);
        self
    }

    /// Makes the line of a call the beginning of a block.
    pub fn open(&mut self) {
        self.text.extend_from_slice(OPENING);
    }

    /// Makes a line that was the beginning of a block the whole call; `folded` if there was
    /// something in the block that is not shown.
    pub fn close(&mut self, folded: bool) -> &mut Self {
        if self.text.ends_with(OPENING) {
            self.text.truncate(self.text.len() - OPENING.len());
        }
        self.push(if folded { FOLDED } else { LEAF })
    }

    /// The whole line with its end, and without spaces before that.
    pub fn finish(mut self) -> Vec<u8> {
        while self.text.last() == Some(&b' ') {
            self.text.pop();
        }
        self.text.push(b'\n');
        self.text
    }
}
