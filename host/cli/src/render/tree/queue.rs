//! Lines that wait for the end of a call which may turn out to be one line.
//!
//! When a call begins, its line is held back until the next thing happens in the same stream. If
//! that is its end, the line becomes `f();`, else it was the line that opens a block. Lines of
//! other streams wait behind it, up to [`LOOK_AHEAD`] of them: then it is taken to be long and
//! opens a block.

use std::collections::VecDeque;

use kymo_analysis::calls::CallId;
use kymo_event::StreamId;

/// How many lines wait at most.
const LOOK_AHEAD: usize = 4096;

/// The lines that wait, oldest first.
#[derive(Debug)]
pub struct Queue<L> {
    lines: VecDeque<Waiting<L>>,
    /// The number of the first of them, counted from the beginning of the trace.
    first: u64,
    /// By stream: the call whose line is held back, and the number of that line.
    held: Vec<Option<Held>>,
}

#[derive(Debug)]
struct Waiting<L> {
    line: L,
    /// The stream whose next step decides about the line; `None` if it is decided.
    held_for: Option<StreamId>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    call: CallId,
    number: u64,
}

impl<L> Default for Queue<L> {
    fn default() -> Self {
        Self {
            lines: VecDeque::new(),
            first: 0,
            held: Vec::new(),
        }
    }
}

impl<L> Queue<L> {
    /// Adds a line of a stream, after which its held one is known to open a block.
    pub fn push(&mut self, stream: StreamId, line: L) {
        self.settle(stream);
        self.lines.push_back(Waiting {
            line,
            held_for: None,
        });
    }

    /// Adds the opening line of a call, and holds it back.
    pub fn hold(&mut self, stream: StreamId, call: CallId, line: L) {
        self.settle(stream);
        let number = self.first + self.lines.len() as u64;
        self.lines.push_back(Waiting {
            line,
            held_for: Some(stream),
        });
        let index = stream.0 as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, None);
        }
        self.held[index] = Some(Held { call, number });
    }

    /// The line of `call`, if it is held back: now it can be changed, and is decided then.
    pub fn release(&mut self, stream: StreamId, call: CallId) -> Option<&mut L> {
        let held = self.held.get(stream.0 as usize)?.as_ref()?;
        if held.call != call {
            return None;
        }
        Some(&mut self.take_held(stream)?.line)
    }

    /// The next line that can be written.
    pub fn pop(&mut self) -> Option<L> {
        let stream = self.lines.front()?.held_for;
        if let Some(stream) = stream {
            if self.lines.len() <= LOOK_AHEAD {
                return None;
            }
            self.settle(stream);
        }
        self.first += 1;
        self.lines.pop_front().map(|waiting| waiting.line)
    }

    /// Decides that all lines are what they are.
    pub fn settle_all(&mut self) {
        self.held.clear();
        for waiting in &mut self.lines {
            waiting.held_for = None;
        }
    }

    fn settle(&mut self, stream: StreamId) {
        self.take_held(stream);
    }

    fn take_held(&mut self, stream: StreamId) -> Option<&mut Waiting<L>> {
        let held = self.held.get_mut(stream.0 as usize)?.take()?;
        let index = usize::try_from(held.number.checked_sub(self.first)?).ok()?;
        let waiting = self.lines.get_mut(index)?;
        waiting.held_for = None;
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::Time;

    use super::super::line::{BLANK, GAP, Line};
    use super::*;
    use crate::render::times::Times;

    fn line(text: &str) -> Line {
        let mut line = Line::new(Vec::new(), Time(0), &Times::default());
        line.columns(&format!("{GAP}{BLANK}"));
        line.push(text);
        line
    }

    /// All lines that can be written, without their times.
    fn drain(queue: &mut Queue<Line>) -> Vec<String> {
        let lines = std::iter::from_fn(|| queue.pop());
        let texts = lines.map(|line| String::from_utf8(line.finish()).unwrap());
        let texts = texts.map(|line| line[28..].trim_end().to_owned());
        texts.collect()
    }

    const ONE: StreamId = StreamId(1);
    const OTHER: StreamId = StreamId(2);

    #[test]
    fn a_call_without_anything_in_it_is_one_line() {
        let mut queue = Queue::default();
        queue.hold(ONE, CallId(1), line("f() {"));
        assert_eq!(drain(&mut queue), [""; 0]);
        assert_eq!(queue.release(ONE, CallId(2)), None);
        assert_eq!(queue.release(OTHER, CallId(1)), None);
        queue.release(ONE, CallId(1)).unwrap().close(false);
        assert_eq!(drain(&mut queue), ["f();"]);
        assert_eq!(queue.release(ONE, CallId(1)), None);
    }

    #[test]
    fn whatever_comes_next_in_its_stream_makes_it_a_block() {
        let mut queue = Queue::default();
        queue.hold(ONE, CallId(1), line("f() {"));
        queue.push(ONE, line("marker"));
        assert_eq!(drain(&mut queue), ["f() {", "marker"]);
        queue.hold(ONE, CallId(2), line("g() {"));
        queue.hold(ONE, CallId(3), line("h() {"));
        assert_eq!(drain(&mut queue), ["g() {"]);
        queue.settle_all();
        assert_eq!(drain(&mut queue), ["h() {"]);
    }

    #[test]
    fn other_streams_wait_behind_it_in_the_order_of_time() {
        let mut queue = Queue::default();
        queue.hold(ONE, CallId(1), line("f() {"));
        queue.hold(OTHER, CallId(2), line("g() {"));
        queue.push(OTHER, line("inside g"));
        assert_eq!(drain(&mut queue), [""; 0]);
        queue.release(ONE, CallId(1)).unwrap().close(false);
        assert_eq!(drain(&mut queue), ["f();", "g() {", "inside g"]);
    }

    #[test]
    fn they_do_not_wait_for_ever() {
        let mut queue = Queue::default();
        queue.hold(ONE, CallId(1), line("f() {"));
        for _ in 0..LOOK_AHEAD - 1 {
            queue.push(OTHER, line("x"));
            assert_eq!(queue.pop(), None);
        }
        queue.push(OTHER, line("x"));
        assert_eq!(drain(&mut queue).len(), LOOK_AHEAD + 1);
        assert_eq!(queue.release(ONE, CallId(1)), None, "it is a block now");
    }
}
