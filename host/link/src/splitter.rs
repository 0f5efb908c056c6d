//! Splits the bytes from a target into console text and frames.
//!
//! The traced program and the recorder share the line without synchronization: text appears between frames and, when
//! the program interrupts the recorder, within a frame. Bytes also get lost and damaged. The splitter therefore relies
//! only on the checksum: bytes between two zero bytes with the right CRC-32 are a frame, whatever was expected there;
//! everything else is text, or damage. When a frame does not match, the splitter searches it for a run of text whose
//! removal makes it match, which recovers both the frame and the text.
//!
//! Text is passed on line by line. [`Splitter::flush`] passes on text that waits for the end of its line, or for a zero
//! byte that would make it a frame.

use std::ops::Range;

use kymo_wire::link::Frame;
use kymo_wire::link::frame::MAX_WIRE;

/// Longest run of bytes between two zeros that can still be a frame, possibly with text in it.
const MAX_SEGMENT: usize = 4096;

/// Longest damaged frame that is searched for text: the search is quadratic.
const MAX_SEARCH: usize = 1024;

/// Shortest frame between its zeros: kind, request, CRC and COBS's byte.
const MIN_ENCODED: usize = 7;

/// A part of the byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text of the program (or a textual reply): a line with its end, or a part of one.
    Text(&'a [u8]),
    /// A frame that arrived intact.
    Frame(Frame<'a>),
    /// Bytes that are neither: a damaged frame, or a part of one.
    Damaged(&'a [u8]),
}

/// What the next bytes are assumed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Text, until a zero byte opens a frame.
    Text,
    /// A frame, until a zero byte closes it.
    Frame,
}

/// State of the splitter. See the module's description.
#[derive(Debug)]
pub struct Splitter {
    expect: Expect,
    /// Bytes that arrived and were not passed on yet; without zero bytes.
    held: Vec<u8>,
    /// Position in `held` of the first byte that does not occur in text: while text is expected, a frame whose opening
    /// zero was lost may begin there.
    control: Option<usize>,
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Splitter {
    /// Creates a splitter that expects text.
    pub const fn new() -> Self {
        Self {
            expect: Expect::Text,
            held: Vec::new(),
            control: None,
        }
    }

    /// Adds bytes and passes what they complete to `sink`, in the order of arrival.
    pub fn push(&mut self, bytes: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        for &byte in bytes {
            if byte == 0 {
                match self.expect {
                    Expect::Text => self.end_text(sink),
                    Expect::Frame => self.end_frame(sink),
                }
                continue;
            }
            self.held.push(byte);
            match self.expect {
                Expect::Text => self.continue_text(byte, sink),
                Expect::Frame if self.held.len() >= MAX_SEGMENT => self.give_up_frame(sink),
                Expect::Frame => {}
            }
        }
    }

    /// Passes on text that waits for the end of its line: for when nothing has arrived for a while. The beginning of a
    /// frame is kept.
    pub fn flush(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.expect == Expect::Text {
            self.give_text(sink);
        }
    }

    /// Stops waiting for the end of an incomplete frame, because the sender has fallen silent: passes on the text after
    /// its beginning.
    pub fn give_up_frame(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.expect == Expect::Frame && !self.held.is_empty() && !self.recover(sink) {
            let text = text_at_end(&self.held);
            let (damaged, text) = self.held.split_at(text);
            if !damaged.is_empty() {
                sink(Piece::Damaged(damaged));
            }
            if !text.is_empty() {
                sink(Piece::Text(text));
            }
        }
        if self.expect == Expect::Frame {
            self.held.clear();
            self.expect = Expect::Text;
        }
    }

    /// Handles a byte added to text: passes the text on if the line is complete or too long.
    fn continue_text(&mut self, byte: u8, sink: &mut impl FnMut(Piece<'_>)) {
        match self.control {
            None if is_control(byte) => self.control = Some(self.held.len() - 1),
            None if byte == b'\n' => self.give_text(sink),
            _ => {}
        }
        if self.held.len() >= MAX_SEGMENT {
            self.give_text(sink);
        }
    }

    /// Passes on the held bytes as text.
    fn give_text(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if !self.held.is_empty() {
            sink(Piece::Text(&self.held));
        }
        self.held.clear();
        self.control = None;
    }

    /// Handles a zero byte where text was expected: it opens a frame, or closes one whose opening zero was lost.
    fn end_text(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        let start = self.control.unwrap_or(0);
        let (text, encoded) = self.held.split_at(start);
        if let Some(frame) = decode(&mut encoded.to_vec()) {
            if !text.is_empty() {
                sink(Piece::Text(text));
            }
            sink(Piece::Frame(frame));
            self.held.clear();
            self.control = None;
        } else {
            self.give_text(sink);
            self.expect = Expect::Frame;
        }
    }

    /// Handles a zero byte where a frame was expected: it closes the frame, unless something was lost.
    fn end_frame(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            // Two zeros: the first closed a frame whose beginning was lost, the second opens one.
            return;
        }
        let mut scratch = self.held.clone();
        if let Some(frame) = decode(&mut scratch) {
            sink(Piece::Frame(frame));
        } else if self.recover(sink) {
            // The frame and the text in it have been passed on.
        } else if text_at_end(&self.held) == 0 {
            // All of a frame but its opening zero was lost; this zero opens the next.
            sink(Piece::Text(&self.held));
            self.held.clear();
            return;
        } else {
            sink(Piece::Damaged(&self.held));
        }
        self.held.clear();
        self.expect = Expect::Text;
    }

    /// Searches the held bytes for a run of text whose removal leaves a frame, and passes both on.
    fn recover(&self, sink: &mut impl FnMut(Piece<'_>)) -> bool {
        let mut scratch = Vec::new();
        for run in text_runs(&self.held) {
            scratch.clear();
            scratch.extend_from_slice(&self.held[..run.start]);
            scratch.extend_from_slice(&self.held[run.end..]);
            if let Some(frame) = decode(&mut scratch) {
                sink(Piece::Text(&self.held[likely_line(&self.held, run)]));
                sink(Piece::Frame(frame));
                return true;
            }
        }
        false
    }
}

/// Decodes a frame; `None` also for frames that only a host sends.
fn decode(bytes: &mut [u8]) -> Option<Frame<'_>> {
    if !(MIN_ENCODED..=MAX_WIRE - 2).contains(&bytes.len()) {
        return None;
    }
    Frame::decode(bytes).filter(|frame| !matches!(frame, Frame::Command { .. }))
}

/// Whether this byte does not occur in text. Text has tabs, line ends, backspaces, bells, form feeds, escape sequences,
/// and any character set's letters above ASCII.
const fn is_control(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, 0x07 | 0x08 | b'\t' | b'\n' | 0x0C | b'\r' | 0x1B)
}

/// Start of the text at the end of `bytes`.
fn text_at_end(bytes: &[u8]) -> usize {
    let after_control = bytes
        .iter()
        .rposition(|byte| is_control(*byte))
        .map_or(0, |at| at + 1);
    // Within that, the longest UTF-8 suffix: the bytes of a frame are rarely UTF-8.
    (after_control..=bytes.len())
        .find(|&at| std::str::from_utf8(&bytes[at..]).is_ok())
        .unwrap_or(bytes.len())
}

/// Runs of text in a damaged frame whose removal leaves bytes of a frame's length.
fn text_runs(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let length = bytes.len();
    let searched = if length <= MAX_SEARCH { length } else { 0 };
    (0..searched).flat_map(move |start| {
        let most = length.saturating_sub(MIN_ENCODED).min(length - start);
        let least = (length + 2).saturating_sub(MAX_WIRE).max(1);
        let printable = bytes[start..]
            .iter()
            .take(most)
            .take_while(|byte| !is_control(**byte))
            .count();
        let text = match std::str::from_utf8(&bytes[start..start + printable]) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        (least..=text).rev().map(move |size| start..start + size)
    })
}

/// Of all runs whose removal leaves the same bytes as that of `run`, which is the first of them, returns one that ends
/// a line, if there is one. Programs rarely write half a line at once.
fn likely_line(bytes: &[u8], run: Range<usize>) -> Range<usize> {
    let size = run.len();
    let mut start = run.start;
    loop {
        let end = start + size;
        if bytes.get(end - 1) == Some(&b'\n') {
            return start..end;
        }
        if bytes.get(end).is_none_or(|next| *next != bytes[start]) {
            return run;
        }
        start += 1;
    }
}

/// Body of the splitter's fuzz target, which a test also runs: for any bytes in chunks of any size, nothing panics,
/// nothing is passed on twice, and everything except zero bytes and frames is passed on.
pub fn fuzz_splitter(data: &[u8]) {
    let cuts = data.first().map_or(1, |first| usize::from(first % 17) + 1);
    let whole = split(data, data.len().max(1));
    let cut = split(data, cuts);
    assert_eq!(whole, cut, "how bytes are cut up must not matter");
    let non_zero = data.iter().filter(|byte| **byte != 0).count();
    let given: usize = whole.0 + whole.1 + whole.2;
    // A frame whose content the sender encoded in a longer way than ours is counted too short.
    let exact = whole.1 == 0;
    assert!(
        given == non_zero || (!exact && given < non_zero),
        "every byte is given out once: {given} of {non_zero}"
    );
}

/// Splits `data`, fed in chunks of `cut` bytes; returns the bytes of text, of frames (as encoded), and of damage.
fn split(data: &[u8], cut: usize) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    let mut count = |piece: Piece<'_>| match piece {
        Piece::Text(text) => counts.0 += text.len(),
        Piece::Frame(frame) => {
            let mut wire = [0; MAX_WIRE];
            counts.1 += frame.encode(&mut wire).map_or(0, |length| length - 2);
        }
        Piece::Damaged(bytes) => counts.2 += bytes.len(),
    };
    let mut splitter = Splitter::new();
    for bytes in data.chunks(cut) {
        splitter.push(bytes, &mut count);
    }
    splitter.flush(&mut count);
    splitter.give_up_frame(&mut count);
    counts
}

#[cfg(test)]
mod tests;
