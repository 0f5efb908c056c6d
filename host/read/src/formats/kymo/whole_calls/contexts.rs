//! Places entries among the records of their clock tick.
//!
//! A call's record shows when the call began, to the tick, but not what else had happened in that tick. Its end shows
//! the *context*: a thread, or one run of an interrupt handler. A call begins in the context in which it ends, so its
//! entry lies between the switches and interrupts that delimit this context. Where several places fit, the last is
//! used.

use std::collections::{HashMap, VecDeque};

use kymo_event::{Event, EventKind, EventRef, Gap, RowKind, StreamId, ThreadId, Time};

use super::WAITING;

/// Maximum number of active interrupts that are distinguished.
const NESTED: usize = 256;

/// Maximum number of changes of one tick that are considered.
const CHANGES: usize = 256;

/// What had the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Context {
    #[default]
    Unknown,
    Thread(Option<ThreadId>),
    /// A run of an interrupt handler, by the number of the record that began it.
    Handler(i64),
}

/// A record that changed the context.
#[derive(Clone, Copy, Debug)]
struct Change {
    time: Time,
    number: i64,
    before: Context,
    after: Context,
}

/// Contexts of a stream's records.
#[derive(Debug, Default)]
struct Stream {
    /// The context without active interrupts.
    thread: Context,
    /// The active interrupts, the innermost last.
    handlers: Vec<i64>,
    /// The changes since the last output, in the order of the records.
    changes: VecDeque<Change>,
}

impl Stream {
    fn now(&self) -> Context {
        let innermost = self.handlers.last();
        innermost.map_or(self.thread, |number| Context::Handler(*number))
    }

    fn forget(&mut self) {
        self.handlers.clear();
        self.thread = Context::Unknown;
    }

    /// Whether a call whose record is the last one can have begun in `context`.
    fn fits(&self, is_open: bool, call: &Event, context: Context) -> bool {
        let thread = Context::Thread(call.thread);
        match (context, is_open) {
            (Context::Unknown, _) => true,
            // Open calls are recorded by a reader, in a context of its own.
            (Context::Thread(_), true) => context == thread,
            (Context::Handler(number), true) => {
                self.handlers.contains(&number) && [thread, Context::Unknown].contains(&self.thread)
            }
            (_, false) => match self.now() {
                Context::Handler(_) => context == self.now(),
                Context::Thread(_) | Context::Unknown => context == thread,
            },
        }
    }
}

/// Contexts of all streams' records.
#[derive(Debug, Default)]
pub(super) struct Contexts(HashMap<StreamId, Stream>);

impl Contexts {
    /// Follows the record with this number; the output has reached `given`.
    pub(super) fn follow(&mut self, event: EventRef<'_>, number: i64, given: Time) {
        let row = event.row;
        let gap = match event.event.map(|event| &event.kind) {
            Some(EventKind::Gap(gap)) => gap.is_loss() || matches!(gap, Gap::InInterrupt { .. }),
            Some(EventKind::Recording { .. }) => true,
            _ => false,
        };
        let is_change = matches!(
            row.kind,
            RowKind::SwitchedIn | RowKind::SwitchedOut | RowKind::IsrEnter | RowKind::IsrExit
        );
        if !gap && !is_change {
            return;
        }
        let stream = self.0.entry(row.stream).or_default();
        let before = stream.now();
        match row.kind {
            RowKind::SwitchedIn => stream.thread = Context::Thread(row.thread()),
            RowKind::SwitchedOut => stream.thread = Context::Thread(None),
            RowKind::IsrEnter if stream.handlers.len() < NESTED => stream.handlers.push(number),
            RowKind::IsrExit if !stream.handlers.is_empty() => {
                stream.handlers.pop();
            }
            _ => stream.forget(),
        }
        let after = stream.now();
        while stream.changes.len() >= WAITING
            || (stream.changes.front())
                .is_some_and(|first| first.time.0 < given.0.saturating_sub(1))
        {
            stream.changes.pop_front();
        }
        if before != after {
            stream.changes.push_back(Change {
                time: row.time,
                number,
                before,
                after,
            });
        }
    }

    /// The place of a call's entry: its time, and the number of the record in front of which it belongs in its tick;
    /// `i64::MAX` for behind all. `call` is the event of the call's record, the last one. Times converted from ticks
    /// may be off by 1 ns.
    pub(super) fn place(&self, begin: Time, call: &Event, is_open: bool) -> (Time, i64) {
        let last = (begin, i64::MAX);
        let Some(stream) = self.0.get(&call.stream) else {
            return last;
        };
        let changes = &stream.changes;
        let fits = |context| stream.fits(is_open, call, context);
        let until = changes.partition_point(|change| change.time <= begin);
        let near = changes.range(..until).rev().take(CHANGES);
        let mut near = near.take_while(|change| change.time.0 >= begin.0.saturating_sub(1));
        match until.checked_sub(1).and_then(|index| changes.get(index)) {
            Some(change) if !fits(change.after) => {}
            None if changes.front().is_some_and(|next| !fits(next.before)) => {}
            _ => return last,
        }
        if let Some(change) = near.find(|change| fits(change.before)) {
            return (change.time, change.number);
        }
        let mut later = changes.range(until..).take(CHANGES);
        let mut later = later
            .by_ref()
            .take_while(|change| change.time.0 <= begin.0.saturating_add(1))
            .peekable();
        while let Some(change) = later.next() {
            if fits(change.after) {
                let next = later.peek().map_or(i64::MAX, |next| next.number);
                return (change.time, next);
            }
        }
        last
    }
}
