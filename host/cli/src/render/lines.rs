//! Buffer of lines of calls, in which the last line of each stream may still change.
//!
//! A call without callees is one line, `f();`, and one with callees opens a block, `f() {`. The next step of its
//! stream decides which: until then the line of a call that begins is [held](LineBuffer::hold), without its ending.
//! Lines of other streams follow it in the buffer meanwhile, up to [`LOOK_AHEAD`] bytes. Beyond that the call is
//! assumed to be long, and opens a block.
//!
//! Lines are composed in the buffer itself. With one stream, the held line is the last one, and its ending is
//! appended there. A held line with others behind it is a [`Cut`] of the text, and its ending is inserted when the
//! text is written.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;

use kymo_analysis::calls::CallId;
use kymo_event::StreamId;

/// The ending of a line that opens a block.
const OPENING: &[u8] = b" {\n";

/// Maximum size of text that waits for the ending of an earlier line, in bytes.
const LOOK_AHEAD: usize = 256 << 10;

/// Size at which text is written, in bytes.
const CHUNK: usize = 64 << 10;

/// The column width of most lines.
const USUAL: usize = 11;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct LineBuffer {
    text: Vec<u8>,
    /// The last line, if it is held.
    last: Option<Held>,
    /// Held lines with others behind them, in text order.
    cuts: VecDeque<Cut>,
    /// The sequence number of the first cut.
    first: u64,
    /// Per stream: the sequence number of the cut that its next line decides.
    waiting: Vec<Option<u64>>,
    /// The size of the text that remained after the last write.
    rest: usize,
}

/// A line without its ending. Positions count from the begin of the text.
#[derive(Debug)]
struct Held {
    stream: StreamId,
    call: CallId,
    /// The position of its begin.
    begin: usize,
    /// The position of the column for the call's duration.
    column: Range<usize>,
}

/// A held line with others behind it.
#[derive(Debug)]
struct Cut {
    line: Held,
    /// The position of the ending.
    at: usize,
    /// The ending, once decided.
    ending: Option<Vec<u8>>,
}

impl LineBuffer {
    /// Begins a line of a stream; the stream's held line, if any, opens a block. The caller appends the line to the
    /// text, and then [ends](Self::end) or [holds](Self::hold) it.
    #[inline]
    pub fn begin(&mut self, stream: StreamId) -> &mut Vec<u8> {
        match self.last.take() {
            Some(last) if last.stream == stream => self.text.extend_from_slice(OPENING),
            None if self.cuts.is_empty() => {}
            last => self.begin_between(stream, last),
        }
        &mut self.text
    }

    /// [`begin`](Self::begin) while lines of several streams are held.
    #[inline(never)]
    fn begin_between(&mut self, stream: StreamId, last: Option<Held>) {
        if let Some(last) = last {
            let index = last.stream.0 as usize;
            if self.waiting.len() <= index {
                self.waiting.resize(index + 1, None);
            }
            self.waiting[index] = Some(self.first + self.cuts.len() as u64);
            self.cuts.push_back(Cut {
                line: last,
                at: self.text.len(),
                ending: None,
            });
        }
        if let Some(cut) = self.take_waiting(stream) {
            cut.ending = Some(OPENING.to_vec());
        }
    }

    /// Ends the current line, and strips trailing spaces.
    #[inline]
    pub fn end(&mut self) {
        while self.text.last() == Some(&b' ') {
            self.text.pop();
        }
        self.text.push(b'\n');
    }

    /// Holds the current line, which begins at `begin` in the text, for a call: its ending follows from the next step
    /// of its stream.
    #[inline]
    pub fn hold(&mut self, stream: StreamId, call: CallId, begin: usize, column: Range<usize>) {
        self.last = Some(Held {
            stream,
            call,
            begin,
            column,
        });
    }

    /// If the line of a call is held: fills in its duration column, and returns the buffer for its ending.
    #[inline]
    pub fn release(
        &mut self,
        stream: StreamId,
        call: CallId,
        column: Option<&[u8]>,
    ) -> Option<&mut Vec<u8>> {
        match &self.last {
            Some(last) if last.stream == stream => {
                if last.call != call {
                    return None;
                }
                let place = last.column.clone();
                self.last = None;
                if let Some(column) = column {
                    self.fill(place, column);
                }
                Some(&mut self.text)
            }
            _ if self.cuts.is_empty() => None,
            _ => self.release_cut(stream, call, column),
        }
    }

    #[inline(never)]
    fn release_cut(
        &mut self,
        stream: StreamId,
        call: CallId,
        column: Option<&[u8]>,
    ) -> Option<&mut Vec<u8>> {
        let number = (*self.waiting.get(stream.0 as usize)?)?;
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let line = &self.cuts.get(index)?.line;
        if line.call != call {
            return None;
        }
        if let Some(column) = column {
            self.fill(line.column.clone(), column);
        }
        let cut = self.take_waiting(stream)?;
        Some(cut.ending.insert(Vec::new()))
    }

    /// Takes the cut that the next line of a stream decides.
    fn take_waiting(&mut self, stream: StreamId) -> Option<&mut Cut> {
        let number = self.waiting.get_mut(stream.0 as usize)?.take()?;
        // A line with an earlier number has been written already.
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.cuts.get_mut(index)
    }

    /// Fills in the column of a line.
    #[inline]
    pub fn fill(&mut self, place: Range<usize>, column: &[u8]) {
        let blank = self.text.get_mut(place.clone());
        // A copy of known width needs no call.
        if let Some(Ok(blank)) = blank.map(<&mut [u8; USUAL]>::try_from)
            && let Ok(column) = <&[u8; USUAL]>::try_from(column)
        {
            *blank = *column;
        } else {
            self.fill_any(place, column);
        }
    }

    /// The same for any width: the text behind it moves.
    #[inline(never)]
    fn fill_any(&mut self, place: Range<usize>, column: &[u8]) {
        let from = place.end;
        self.text.splice(place.clone(), column.iter().copied());
        let moved = |at: &mut usize| {
            if *at >= from {
                *at = *at + column.len() - place.len();
            }
        };
        for cut in &mut self.cuts {
            moved(&mut cut.at);
            cut.line.for_each_place(moved);
        }
        if let Some(last) = &mut self.last {
            last.for_each_place(moved);
        }
    }

    /// Decides that all held lines open blocks.
    pub fn settle(&mut self) {
        if self.last.take().is_some() {
            self.text.extend_from_slice(OPENING);
        }
        for cut in &mut self.cuts {
            cut.ending.get_or_insert_with(|| OPENING.to_vec());
        }
        self.waiting.clear();
    }

    /// Writes the decided text, once there may be enough of it.
    ///
    /// # Errors
    /// Those of writing.
    #[inline]
    pub fn write_some(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.text.len() < self.rest + CHUNK {
            true => Ok(()),
            false => self.write(out),
        }
    }

    /// Writes the decided text.
    ///
    /// # Errors
    /// Those of writing.
    #[inline(never)]
    pub fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut from = 0;
        let mut until = None;
        while let Some(cut) = self.cuts.front() {
            let ending: &[u8] = match &cut.ending {
                Some(ending) => ending,
                None if self.text.len() - cut.at > LOOK_AHEAD => OPENING,
                None => {
                    until = Some(cut.line.begin);
                    break;
                }
            };
            out.write_all(self.text.get(from..cut.at).unwrap_or_default())?;
            out.write_all(ending)?;
            from = cut.at;
            self.cuts.pop_front();
            self.first += 1;
        }
        let last = self.last.as_ref().map(|last| last.begin);
        let until = until.or(last).unwrap_or(self.text.len());
        out.write_all(self.text.get(from..until).unwrap_or_default())?;
        self.text.drain(..until);
        for cut in &mut self.cuts {
            cut.at -= until;
            cut.line.for_each_place(|at| *at -= until);
        }
        if let Some(last) = &mut self.last {
            last.for_each_place(|at| *at -= until);
        }
        self.rest = self.text.len();
        Ok(())
    }
}

impl Held {
    fn for_each_place(&mut self, change: impl Fn(&mut usize)) {
        change(&mut self.begin);
        change(&mut self.column.start);
        change(&mut self.column.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StreamId = StreamId(1);
    const OTHER: StreamId = StreamId(2);

    /// Lines with a column of two bytes in front.
    #[derive(Default)]
    struct Lines {
        buffer: LineBuffer,
        written: Vec<u8>,
    }

    impl Lines {
        fn push(&mut self, stream: StreamId, text: &str) {
            self.buffer.begin(stream).extend_from_slice(text.as_bytes());
            self.buffer.end();
        }

        fn hold(&mut self, stream: StreamId, call: u64, text: &str) {
            let buffer = self.buffer.begin(stream);
            let begin = buffer.len();
            buffer.extend_from_slice(format!("  {text}").as_bytes());
            self.buffer
                .hold(stream, CallId(call), begin, begin..begin + 2);
        }

        fn release(&mut self, stream: StreamId, call: u64, column: &str) -> bool {
            let column = Some(column.as_bytes());
            let ending = self.buffer.release(stream, CallId(call), column);
            ending
                .map(|ending| ending.extend_from_slice(b";\n"))
                .is_some()
        }

        /// The lines that can be written.
        fn written(&mut self) -> Vec<String> {
            self.written.clear();
            self.buffer.write(&mut self.written).unwrap();
            let text = str::from_utf8(&self.written).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn a_call_without_anything_in_it_is_one_line() {
        let mut lines = Lines::default();
        lines.hold(ONE, 1, "f()");
        assert_eq!(lines.written(), [""; 0]);
        assert!(!lines.release(ONE, 2, "12"));
        assert!(!lines.release(OTHER, 1, "12"));
        assert!(lines.release(ONE, 1, "12"));
        assert_eq!(lines.written(), ["12f();"]);
        assert!(!lines.release(ONE, 1, "12"));
    }

    #[test]
    fn whatever_comes_next_in_its_stream_makes_it_a_block() {
        let mut lines = Lines::default();
        lines.hold(ONE, 1, "f()");
        lines.push(ONE, "marker  ");
        assert_eq!(lines.written(), ["  f() {", "marker"]);
        lines.hold(ONE, 2, "g()");
        lines.hold(ONE, 3, "h()");
        assert_eq!(lines.written(), ["  g() {"]);
        lines.buffer.settle();
        assert_eq!(lines.written(), ["  h() {"]);
    }

    #[test]
    fn other_streams_wait_behind_it_in_the_order_of_time() {
        // A column that is too wide moves all that is behind it.
        for column in ["12", "12345"] {
            let mut lines = Lines::default();
            lines.push(ONE, "first");
            lines.hold(ONE, 1, "f()");
            lines.hold(OTHER, 2, "g()");
            lines.push(OTHER, "inside g");
            lines.hold(OTHER, 3, "h()");
            assert_eq!(lines.written(), ["first"]);
            assert!(!lines.release(ONE, 9, column));
            assert!(lines.release(ONE, 1, column));
            assert!(!lines.release(ONE, 1, column));
            assert_eq!(
                lines.written(),
                [&format!("{column}f();"), "  g() {", "inside g"]
            );
            assert!(lines.release(OTHER, 3, column));
            assert_eq!(lines.written(), [format!("{column}h();")]);
        }
    }

    #[test]
    fn several_lines_wait_at_once() {
        let mut lines = Lines::default();
        for stream in 0..4 {
            lines.hold(StreamId(stream), stream.into(), &format!("f{stream}()"));
        }
        assert!(lines.release(StreamId(2), 2, "22"));
        assert!(lines.release(StreamId(3), 3, "33333"));
        lines.push(StreamId(1), "inside 1");
        assert_eq!(lines.written(), [""; 0]);
        assert!(lines.release(StreamId(0), 0, "0000"));
        assert_eq!(
            lines.written(),
            ["0000f0();", "  f1() {", "22f2();", "33333f3();", "inside 1"]
        );
        assert!(!lines.release(StreamId(1), 1, "11"), "it is a block now");
    }

    #[test]
    fn they_do_not_wait_for_ever() {
        let mut lines = Lines::default();
        lines.hold(ONE, 1, "f()");
        let text = "x".repeat(1000);
        for _ in 0..LOOK_AHEAD / 1001 {
            lines.push(OTHER, &text);
            assert_eq!(lines.written(), [""; 0]);
        }
        lines.push(OTHER, &text);
        assert_eq!(lines.written().len(), 2 + LOOK_AHEAD / 1001);
        assert!(!lines.release(ONE, 1, "12"), "it is a block now");
        assert!(lines.buffer.text.is_empty() && lines.buffer.cuts.is_empty());
    }
}
