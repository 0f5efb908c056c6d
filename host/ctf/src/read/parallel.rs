//! Parallel decoding: applies a function to the messages of streams in several threads, and merges its results by time.
//!
//! A [pool](super::pool) of threads fills *blocks* with results, and the thread that requests them merges the blocks.
//! The expensive work (reading fields, formatting text) is part of the caller's function, which runs in the decoding
//! threads, so merging only passes on finished pieces.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::mem;
use std::ops::Range;

use super::messages::Origin;
use super::pool::{Block, Pool, block_bytes};
use super::stream::{Message, NO_TIME, Run, Skipped, StreamReader};
use super::trace::Trace;
use crate::error::{DecodeError, OpenError};

/// Maximum number of messages in a block.
const MESSAGES: usize = 4096;

/// An event of decoding a stream, including damage.
#[derive(Debug, Clone, Copy)]
pub enum Reported<'a> {
    /// A message.
    Message(Message<'a>),
    /// A part could not be decoded; decoding continues after it.
    Damage {
        /// The error.
        error: DecodeError,
        /// The skipped part; `None` if the input cannot be read any further.
        skipped: Option<Skipped>,
    },
}

/// Results for consecutive messages.
struct Items<T> {
    items: Vec<T>,
    /// The time of each message with results, and the end of its results in `items`.
    marks: Vec<(i64, usize)>,
    /// Number of marks returned so far.
    given: usize,
}

impl<T> Items<T> {
    const fn new() -> Self {
        Self {
            items: Vec::new(),
            marks: Vec::new(),
            given: 0,
        }
    }

    fn next_time(&self) -> Option<i64> {
        self.marks.get(self.given).map(|(time, _)| *time)
    }

    /// Returns the results of messages up to `limit`, but always those of at least one message.
    fn take(&mut self, limit: i64) -> Range<usize> {
        let end_of = |marks: &[(i64, usize)], count: usize| {
            let last = count.checked_sub(1).and_then(|last| marks.get(last));
            last.map_or(0, |(_, end)| *end)
        };
        let start = end_of(&self.marks, self.given);
        let rest = self.marks.get(self.given..).unwrap_or(&[]);
        let later = rest.iter().position(|(time, _)| *time > limit);
        self.given += later.map_or(rest.len(), |count| count.max(1));
        start..end_of(&self.marks, self.given)
    }
}

impl<T: Send + 'static> Block for Items<T> {
    fn clear(&mut self) {
        self.items.clear();
        self.marks.clear();
        self.given = 0;
    }

    fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The caller's function with the size of blocks.
struct Maker<F> {
    origins: Vec<Origin>,
    make: F,
    /// Number of items after which a block is full.
    full: usize,
}

impl<F> Maker<F> {
    /// Fills a block from a stream; `false` at its end.
    fn fill<T>(&self, index: usize, reader: &mut StreamReader, block: &mut Items<T>) -> bool
    where
        F: Fn(Origin, Reported<'_>, &mut Vec<T>),
    {
        let Some(&origin) = self.origins.get(index) else {
            return false;
        };
        let mut last = NO_TIME;
        while block.marks.len() < MESSAGES && block.items.len() < self.full {
            let mut add = |time: i64, reported: Reported<'_>| {
                let before = block.items.len();
                (self.make)(origin, reported, &mut block.items);
                if block.items.len() > before {
                    block.marks.push((time, block.items.len()));
                }
            };
            let time = match reader.ready() {
                Ok(Some(time)) => time,
                Ok(None) => return false,
                Err(error) => {
                    let skipped = reader.skip().ok().flatten();
                    add(last, Reported::Damage { error, skipped });
                    continue;
                }
            };
            last = time;
            match reader.take(i64::MAX) {
                Some(Run::Packet(packet)) => add(time, Reported::Message(Message::Packet(packet))),
                Some(Run::Gap(gap)) => add(time, Reported::Message(Message::Gap(gap))),
                Some(Run::Events(events)) => {
                    for event in events {
                        last = event.time_ns().unwrap_or(NO_TIME);
                        add(last, Reported::Message(Message::Event(event)));
                    }
                }
                None => return false,
            }
        }
        true
    }
}

/// Results of a function for the messages of any number of streams, decoded by several threads, in the order of their
/// times: that of [`Messages`](super::Messages).
///
/// ```no_run
/// use std::io::Write;
/// use kymo_ctf::{Message, Parallel, Told, Trace, text::Layout};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let traces = Trace::open_all("trace")?;
/// let layouts = Layout::of(&traces);
/// let mut lines = Parallel::new(&traces, 2, move |origin, told, out| match told {
///     Told::Message(Message::Event(event)) => {
///         layouts[origin.trace].event(out, &event);
///         out.push(b'\n');
///     }
///     Told::Message(_) => {}
///     Told::Damage { error, .. } => out.extend_from_slice(format!("damaged: {error}\n").as_bytes()),
/// })?;
/// let mut out = std::io::stdout().lock();
/// while let Some((_origin, lines)) = lines.next_part() {
///     out.write_all(lines)?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Parallel<T: Send + 'static> {
    pool: Pool<Items<T>>,
    origins: Vec<Origin>,
    /// The current block of each stream.
    heads: Vec<Items<T>>,
    /// Streams with results, by the time of the next one, except for the current stream.
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    /// The stream of the last results.
    current: Option<usize>,
    /// Number of streams that have not been started.
    fresh: usize,
}

impl<T: Send + 'static> Parallel<T> {
    /// Starts decoding all streams of several traces in `threads` threads, including the caller's (which works in
    /// [`next_part`](Self::next_part)).
    ///
    /// `make` is called for every message of a stream, in the order of the stream, and appends its results, if any.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub fn new<'t>(
        traces: impl IntoIterator<Item = &'t Trace>,
        threads: usize,
        make: impl Fn(Origin, Reported<'_>, &mut Vec<T>) + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let readers = super::messages::readers(traces)?;
        let (origins, readers): (Vec<_>, Vec<_>) = readers.into_iter().unzip();
        let maker = Maker {
            full: (block_bytes(origins.len()) / mem::size_of::<T>().max(1)).max(1),
            origins: origins.clone(),
            make,
        };
        let others = threads.min(origins.len()).saturating_sub(1);
        Ok(Self {
            heads: origins.iter().map(|_| Items::new()).collect(),
            pool: Pool::new(readers, others, move |index, reader, block| {
                maker.fill(index, reader, block)
            }),
            origins,
            queue: BinaryHeap::new(),
            current: None,
            fresh: 0,
        })
    }

    /// Returns the next results, up to the next ones of another stream; `None` at the end of all streams.
    ///
    /// # Panics
    /// When the caller's function has panicked in one of the threads.
    pub fn next_part(&mut self) -> Option<(Origin, &[T])> {
        if let Some(index) = self.current.take() {
            self.queue_up(index);
        }
        while self.fresh < self.heads.len() {
            self.fresh += 1;
            self.queue_up(self.fresh - 1);
        }
        let Reverse((_, index)) = self.queue.pop()?;
        let limit = match self.queue.peek() {
            None => i64::MAX,
            // At equal times the stream that was passed first has priority.
            Some(Reverse((time, other))) if index < *other => *time,
            Some(Reverse((time, _))) => time.saturating_sub(1),
        };
        self.current = Some(index);
        let head = self.heads.get_mut(index)?;
        let range = head.take(limit);
        Some((
            *self.origins.get(index)?,
            head.items.get(range).unwrap_or(&[]),
        ))
    }

    /// Adds a stream to the queue, with its next block if the current one has been returned completely.
    fn queue_up(&mut self, index: usize) {
        let Some(head) = self.heads.get_mut(index) else {
            return;
        };
        if head.next_time().is_none() {
            let done = mem::take(head);
            let next = self.pool.next(index, done);
            if let (Some(head), Some(block)) = (self.heads.get_mut(index), next) {
                *head = block;
            }
        }
        if let Some(time) = self.heads.get(index).and_then(Items::next_time) {
            self.queue.push(Reverse((time, index)));
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Parallel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("streams", &self.heads.len())
            .field("threads", &self.pool.threads())
            .finish_non_exhaustive()
    }
}
