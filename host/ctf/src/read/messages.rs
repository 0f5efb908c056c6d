//! Merge of streams by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use super::cursor::Cursor;
use super::stream::{Message, Run, Skipped, StreamReader};
use super::trace::Trace;
use crate::error::{DecodeError, OpenError, StreamError};

/// Memory budget for the windows of all streams, as long as each gets a useful size.
const MEMORY: usize = 16 << 20;
/// Least and most bytes that a stream reads at once.
pub(super) const CHUNK: std::ops::RangeInclusive<usize> = (16 << 10)..=(256 << 10);

/// Origin of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Index of the trace among those that are merged.
    pub trace: usize,
    /// Index of the stream in its trace.
    pub stream: usize,
}

/// The messages of any number of streams, merged by time.
///
/// The order within a stream never changes: where its own time goes backward, so does that of the whole. At equal times
/// streams keep the order in which they were passed. Messages without a time are returned as soon as they are found.
#[derive(Debug)]
pub struct Messages {
    cursors: Vec<(Origin, Cursor)>,
    /// Number of decoding threads.
    threads: usize,
    /// Streams with a message, by its time, except for the current one.
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    /// The stream of the last message.
    current: Option<usize>,
    /// Time up to which the current stream's events precede those of all others.
    limit: i64,
    /// Streams to be started, or resumed after damage; the next one is last.
    waiting: Vec<usize>,
}

/// Readers of all streams of several traces, which share a memory budget.
pub(super) fn readers<'t>(
    traces: impl IntoIterator<Item = &'t Trace>,
) -> Result<Vec<(Origin, StreamReader)>, OpenError> {
    let traces: Vec<&Trace> = traces.into_iter().collect();
    let count: usize = traces.iter().map(|trace| trace.stream_names().len()).sum();
    let chunk = (MEMORY / count.max(1)).clamp(*CHUNK.start(), *CHUNK.end());
    let mut readers = Vec::with_capacity(count);
    for (index, trace) in traces.iter().enumerate() {
        let refuse_foreign = trace.has_own_uuid();
        for stream in 0..trace.stream_names().len() {
            if let Some(mut reader) = trace.reader_with(stream, chunk)? {
                reader.refuse_foreign(refuse_foreign);
                readers.push((
                    Origin {
                        trace: index,
                        stream,
                    },
                    reader,
                ));
            }
        }
    }
    Ok(readers)
}

impl Messages {
    /// Merges all streams of several traces.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub fn merge<'t>(traces: impl IntoIterator<Item = &'t Trace>) -> Result<Self, OpenError> {
        Self::merge_by(traces, 1)
    }

    /// Merges all streams of several traces with `threads` decoding threads, including the caller's: the others decode
    /// ahead.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub fn merge_by<'t>(
        traces: impl IntoIterator<Item = &'t Trace>,
        threads: usize,
    ) -> Result<Self, OpenError> {
        let (cursors, threads) = Cursor::all(readers(traces)?, threads);
        Ok(Self {
            waiting: (0..cursors.len()).rev().collect(),
            cursors,
            threads,
            queue: BinaryHeap::new(),
            current: None,
            limit: i64::MAX,
        })
    }

    /// The messages of one stream, the first of its trace, read from `input`.
    #[must_use]
    pub fn of_stream(trace: &Trace, input: Box<dyn Read + Send>) -> Self {
        let origin = Origin {
            trace: 0,
            stream: 0,
        };
        let plan = trace.plan().clone();
        let reader = StreamReader::with_chunk(plan, input, *CHUNK.end());
        Self {
            cursors: vec![(origin, Cursor::here(reader))],
            threads: 1,
            queue: BinaryHeap::new(),
            current: None,
            limit: i64::MAX,
            waiting: vec![0],
        }
    }

    /// Number of decoding threads, including the caller's.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the next message and its stream; `None` at the end of all streams.
    ///
    /// # Errors
    /// The error of a stream. That stream ends there, unless the damage is [skipped](Self::skip); the next call
    /// continues with the other streams.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<(Origin, Message<'_>)>, StreamError> {
        let Some(index) = self.turn()? else {
            return Ok(None);
        };
        let cursor = self.cursors.get_mut(index);
        Ok(cursor.and_then(|(origin, cursor)| Some((*origin, cursor.take_one()?))))
    }

    /// As [`next_message`](Self::next_message), but returns as many events at once as precede those of all other
    /// streams.
    ///
    /// # Errors
    /// Those of [`next_message`](Self::next_message).
    #[inline]
    pub fn next_run(&mut self) -> Result<Option<(Origin, Run<'_>)>, StreamError> {
        let Some(index) = self.turn()? else {
            return Ok(None);
        };
        let (limit, cursor) = (self.limit, self.cursors.get_mut(index));
        Ok(cursor.and_then(|(origin, cursor)| Some((*origin, cursor.take(limit)?))))
    }

    /// Calls `reported` for each message, in order: the fastest way to read a trace.
    ///
    /// # Errors
    /// The error of a stream, after `reported` was called for all earlier messages. A further call continues as
    /// [`next_message`](Self::next_message) does.
    pub fn for_each(
        &mut self,
        mut reported: impl FnMut(Origin, Message<'_>),
    ) -> Result<(), StreamError> {
        while let Some(mut index) = self.turn()? {
            // Fast path for events: streams alternate within this loop.
            while let Some((origin, cursor)) = self.cursors.get_mut(index) {
                match cursor.take(self.limit) {
                    Some(Run::Packet(packet)) => reported(*origin, Message::Packet(packet)),
                    Some(Run::Gap(gap)) => reported(*origin, Message::Gap(gap)),
                    Some(Run::Events(events)) => {
                        for event in events {
                            reported(*origin, Message::Event(event));
                        }
                    }
                    None => {}
                }
                let (Some(time), Some(first)) = (cursor.next_time(), self.queue.peek_mut()) else {
                    break;
                };
                if time > self.limit {
                    let mut first = first;
                    let Reverse(next) = std::mem::replace(&mut *first, Reverse((time, index)));
                    drop(first);
                    index = self.select(next.1);
                }
            }
        }
        Ok(())
    }

    /// Selects the stream with the next message, which is ready.
    #[inline(always)]
    fn turn(&mut self) -> Result<Option<usize>, StreamError> {
        // The usual case: one more event of the same stream.
        if let Some(index) = self.current
            && let Some((_, cursor)) = self.cursors.get(index)
            && cursor.next_time().is_some_and(|time| time <= self.limit)
        {
            return Ok(Some(index));
        }
        self.find_next()
    }

    fn find_next(&mut self) -> Result<Option<usize>, StreamError> {
        if let Some(index) = self.current.take()
            && let Some(time) = self.ready(index)?
        {
            if time <= self.limit {
                self.current = Some(index);
                return Ok(Some(index));
            }
            // Reuse the entry at the front of the queue.
            let next = match self.queue.peek_mut() {
                Some(mut first) => std::mem::replace(&mut *first, Reverse((time, index))),
                None => Reverse((time, index)),
            };
            return Ok(Some(self.select(next.0.1)));
        }
        while let Some(index) = self.waiting.pop() {
            if let Some(time) = self.ready(index)? {
                self.queue.push(Reverse((time, index)));
            }
        }
        let next = self.queue.pop();
        Ok(next.map(|Reverse((_, index))| self.select(index)))
    }

    /// Makes the stream `index`, which has been removed from the queue, the current one.
    #[inline(always)]
    fn select(&mut self, index: usize) -> usize {
        self.current = Some(index);
        self.limit = match self.queue.peek() {
            None => i64::MAX,
            // At equal times the stream that was passed first has priority.
            Some(Reverse((time, other))) if index < *other => *time,
            Some(Reverse((time, _))) => time.saturating_sub(1),
        };
        index
    }

    /// Finds the next message of a stream.
    #[inline]
    fn ready(&mut self, index: usize) -> Result<Option<i64>, StreamError> {
        let Some((origin, cursor)) = self.cursors.get_mut(index) else {
            return Ok(None);
        };
        cursor.ready().map_err(|error: DecodeError| StreamError {
            origin: *origin,
            error,
        })
    }

    /// After an error of a stream: continues it after the damage, and reports the skipped part.
    ///
    /// `None` if there was no error. See [`StreamReader::skip`].
    ///
    /// # Errors
    /// The stream cannot be read.
    pub fn skip(&mut self, origin: Origin) -> Result<Option<Skipped>, StreamError> {
        let mut cursors = self.cursors.iter_mut().enumerate();
        let Some((index, (_, cursor))) = cursors.find(|(_, (it, _))| *it == origin) else {
            return Ok(None);
        };
        let skipped = cursor.skip();
        let skipped = skipped.map_err(|error| StreamError { origin, error })?;
        if skipped.is_some_and(|skipped| skipped.to.is_some()) {
            self.waiting.push(index);
        }
        Ok(skipped)
    }
}
