//! One line of the tree, from its columns to its end.

use anstyle::Style;
use kymo_event::{Duration, Time};

use crate::render::duration::{Human, WIDTH};
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

/// What stands between a time and a duration.
pub const GAP: &str = "  ";

/// The column of durations with nothing in it: one more for the mark.
pub const BLANK: &str = "           ";
const _: () = assert!(BLANK.len() == WIDTH + 1);

/// What stands behind a call that opens a block.
pub const OPENING: &str = " {";
/// Behind one that is a line.
const LEAF: &str = ";";
/// Behind one that is a line although it called others, which are not shown.
const FOLDED: &str = " { ... }";

impl Line {
    /// A line with a time alone.
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
        let duration = text.len() + GAP.len();
        Self { text, duration }
    }

    /// Adds the columns behind the time, of which the first is that of the duration, behind a [gap](GAP).
    #[inline]
    pub fn columns(&mut self, columns: &str) {
        self.push(columns);
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

    /// Adds levels of indentation.
    #[inline]
    pub fn indent(&mut self, levels: u32) {
        const SPACES: &str = "                                                                ";
        let width = 2 * levels as usize;
        match SPACES.get(..width) {
            Some(spaces) => {
                self.push(spaces);
            }
            None => self.text.resize(self.text.len() + width, b' '),
        }
    }

    /// Makes a line that was the beginning of a block the whole call; `folded` if there was
    /// something in the block that is not shown.
    pub fn close(&mut self, folded: bool) -> &mut Self {
        if self.text.ends_with(OPENING.as_bytes()) {
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
