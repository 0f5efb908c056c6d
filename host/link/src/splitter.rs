//! Takes what a target sends apart: console text here, frames there.
//!
//! The traced program and the recorder share the line, and they do not wait for each other: text
//! stands between frames and, when the program interrupts the recorder, in the middle of one. Bytes
//! get lost and damaged besides. So the splitter believes only a checksum: what lies between two
//! zero bytes and has the right CRC-32 is a frame, whatever was expected there; everything else is
//! text, or damage. When a frame is not right as it is, the splitter looks for a run of text in it
//! whose removal makes it right, which gives back both the frame and the text.
//!
//! Text is given on line by line. Text that waits for the end of its line, or for a zero byte that
//! would make a frame of it, can be had with [`Splitter::flush`].

use std::ops::Range;

use kymo_wire::link::Frame;
use kymo_wire::link::frame::MAX_WIRE;

/// The longest run of bytes between two zeros that is still taken for a frame, maybe with text in
/// it.
const MAX_SEGMENT: usize = 4096;

/// The longest damaged frame in which text is looked for: the search is quadratic.
const MAX_SEARCH: usize = 1024;

/// The shortest content of a frame between its zeros: kind, request, CRC and COBS's byte.
const MIN_ENCODED: usize = 7;

/// What the line carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text of the program's (or a reply in text): a line with its end, or a part of one.
    Text(&'a [u8]),
    /// A frame that arrived whole.
    Frame(Frame<'a>),
    /// Bytes that are neither: a frame that was damaged, or the part of one.
    Damaged(&'a [u8]),
}

/// What the next bytes are thought to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Text, until a zero byte opens a frame.
    Text,
    /// A frame, until a zero byte closes it.
    Frame,
}

/// The state of taking a stream of bytes apart. See the module's description.
#[derive(Debug)]
pub struct Splitter {
    expect: Expect,
    /// What arrived and was not given on yet; without zero bytes.
    held: Vec<u8>,
    /// Where in `held` the first byte stands that text does not have: while text is expected, a
    /// frame may begin there whose opening zero was lost.
    control: Option<usize>,
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Splitter {
    /// A splitter that expects text.
    pub const fn new() -> Self {
        Self {
            expect: Expect::Text,
            held: Vec::new(),
            control: None,
        }
    }

    /// Takes the next bytes and gives what they complete to `sink`, in the order of arrival.
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

    /// Gives out text that waits for the end of its line: for when nothing has come for a while.
    /// The beginning of a frame is kept.
    pub fn flush(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.expect == Expect::Text {
            self.give_text(sink);
        }
    }

    /// Stops waiting for the end of a frame that has begun, because the sender has fallen silent
    /// in the middle of it: text behind its beginning is given out.
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

    /// A byte was added to text: is a line complete, or has it become too long?
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

    /// Gives out what is held as text.
    fn give_text(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if !self.held.is_empty() {
            sink(Piece::Text(&self.held));
        }
        self.held.clear();
        self.control = None;
    }

    /// A zero byte came where text was expected: it opens a frame, unless it closes one whose
    /// opening zero was lost.
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

    /// A zero byte came where a frame was expected: it closes it, unless something was lost.
    fn end_frame(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            // Two zeros: the first closed a frame that we missed, the second opens one.
            return;
        }
        let mut scratch = self.held.clone();
        if let Some(frame) = decode(&mut scratch) {
            sink(Piece::Frame(frame));
        } else if self.recover(sink) {
            // The frame and the text that stood in it have been given out.
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

    /// Looks for a run of text in what is held whose removal leaves a frame, and gives both out.
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

/// The frame that these bytes are; `None` also for what only a host sends.
fn decode(bytes: &mut [u8]) -> Option<Frame<'_>> {
    if !(MIN_ENCODED..=MAX_WIRE - 2).contains(&bytes.len()) {
        return None;
    }
    Frame::decode(bytes).filter(|frame| !matches!(frame, Frame::Command { .. }))
}

/// Whether text does not have this byte. It has tabs, line ends, backspaces, bells, form feeds, escape
/// sequences, and any character set's letters above ASCII.
const fn is_control(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, 0x07 | 0x08 | b'\t' | b'\n' | 0x0C | b'\r' | 0x1B)
}

/// Where the text begins that `bytes` end with.
fn text_at_end(bytes: &[u8]) -> usize {
    let after_control = bytes
        .iter()
        .rposition(|byte| is_control(*byte))
        .map_or(0, |at| at + 1);
    // Within that, take the longest end that is UTF-8: the bytes of a frame seldom are.
    (after_control..=bytes.len())
        .find(|&at| std::str::from_utf8(&bytes[at..]).is_ok())
        .unwrap_or(bytes.len())
}

/// The runs of text in a damaged frame whose removal would leave something of a frame's length.
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

/// Of all runs whose removal leaves the same bytes as that of `run`, which is the first of them:
/// one that ends a line, if there is one. Programs seldom write half a line at once.
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

/// The body of the fuzz target for the splitter, which a test runs too: whatever arrives, and
/// however it is cut up, nothing panics, nothing is given out twice, and everything that is not a
/// zero byte or part of a frame is given out.
pub fn fuzz_splitter(data: &[u8]) {
    let cuts = data.first().map_or(1, |first| usize::from(first % 17) + 1);
    let whole = split(data, data.len().max(1));
    let cut = split(data, cuts);
    assert_eq!(whole, cut, "how bytes are cut up must not matter");
    let non_zero = data.iter().filter(|byte| **byte != 0).count();
    let given: usize = whole.0 + whole.1 + whole.2;
    // A frame that encodes its content in a longer way than ours is counted too short.
    let exact = whole.1 == 0;
    assert!(
        given == non_zero || (!exact && given < non_zero),
        "every byte is given out once: {given} of {non_zero}"
    );
}

/// Splits `data` fed in pieces of `cut` bytes; gives the bytes of text, of frames (as they stood on
/// the line), and of damage.
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
