//! One line of the tree, from its columns to its end.

use anstyle::Style;
use kymo_event::{Duration, Time};

use crate::render::duration::{Human, WIDTH, push_padded};
use crate::render::palette::{paint, paint_with};
use crate::render::times::Times;

/// A line that is being written, or waits to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    text: String,
    /// Where the column of the duration begins, in bytes.
    duration: usize,
}

/// The column of durations with nothing in it.
const BLANK: &str = "           ";
const _: () = assert!(BLANK.len() == WIDTH + 1);

/// What stands behind a call that opens a block.
const OPENING: &str = " {";
/// Behind one that is a line.
const LEAF: &str = ";";
/// Behind one that is a line although it called others, which are not shown.
const FOLDED: &str = " { ... }";

impl Line {
    /// A line with a time, and nothing in the column of durations.
    ///
    /// `text` is a line that has been written, whose room serves again.
    pub fn new(mut text: String, time: Time, times: &Times) -> Self {
        text.clear();
        times.push(time, &mut text);
        text.push_str("  ");
        let duration = text.len();
        text.push_str(BLANK);
        Self { text, duration }
    }

    /// Fills in the duration; with a doubt, marked as possibly wrong.
    pub fn set_duration(&mut self, duration: Duration, doubt: bool) {
        let mut column = String::with_capacity(WIDTH + 1);
        Human(duration).push(&mut column);
        column.push(if doubt { '?' } else { ' ' });
        let range = self.duration..self.duration + WIDTH + 1;
        self.text.replace_range(range, &column);
    }

    /// Adds text as it is.
    pub fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds text in a style.
    pub fn paint(&mut self, style: Style, text: &str) -> &mut Self {
        paint(&mut self.text, style, text);
        self
    }

    /// Adds text in a style, as `write` does.
    pub fn paint_with(&mut self, style: Style, write: impl FnOnce(&mut String)) {
        paint_with(&mut self.text, style, write);
    }

    /// Adds a number of a processor.
    pub fn processor(&mut self, number: u32) {
        self.text.push_str("  ");
        push_padded(&mut self.text, number.into(), 3);
    }

    /// Adds so many spaces.
    pub fn spaces(&mut self, count: usize) {
        self.text.extend(std::iter::repeat_n(' ', count));
    }

    /// Adds levels of indentation.
    pub fn indent(&mut self, levels: u32) -> &mut Self {
        for _ in 0..levels {
            self.text.push_str("  ");
        }
        self
    }

    /// Makes the line of a call the beginning of a block.
    pub fn open(&mut self) {
        self.text.push_str(OPENING);
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
    pub fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        self.text.push('\n');
        self.text
    }
}
