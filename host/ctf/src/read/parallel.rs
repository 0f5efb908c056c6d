//! Streams decoded side by side by several threads, and what was made of them in the order of time.
//!
//! A [pool](super::pool) of threads makes *blocks* of what streams tell, and the thread that asks for the result merges them. What
//! is costly (looking at fields, writing text) is done where the decoding is, by a function that the caller gives, so that
//! merging has only pieces to hand on.

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

/// Most messages in a block.
const MESSAGES: usize = 4096;

/// What a stream tells, damage included.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A message.
    Message(Message<'a>),
    /// Something could not be decoded; what of the stream follows it is reported next.
    Damage {
        /// What is wrong.
        error: DecodeError,
        /// What was left out; `None` if the input cannot be read any more.
        skipped: Option<Skipped>,
    },
}

/// What was made of messages that follow each other.
struct Items<T> {
    items: Vec<T>,
    /// For each message of which something was made its time, and where in `items` that ends.
    marks: Vec<(i64, usize)>,
    /// How many marks have been given out.
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

    /// Gives out what was made of the messages that are not later than `limit`, of one in any case.
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

/// What a function makes of what a stream tells.
struct Maker<F> {
    origins: Vec<Origin>,
    make: F,
    /// Items of a block after which it is full.
    full: usize,
}

impl<F> Maker<F> {
    /// Fills a block from a stream; `false` at its end.
    fn fill<T>(&self, index: usize, reader: &mut StreamReader, block: &mut Items<T>) -> bool
    where
        F: Fn(Origin, Told<'_>, &mut Vec<T>),
    {
        let Some(&origin) = self.origins.get(index) else {
            return false;
        };
        let mut last = NO_TIME;
        while block.marks.len() < MESSAGES && block.items.len() < self.full {
            let mut add = |time: i64, told: Told<'_>| {
                let before = block.items.len();
                (self.make)(origin, told, &mut block.items);
                if block.items.len() > before {
                    block.marks.push((time, block.items.len()));
                }
            };
            let time = match reader.ready() {
                Ok(Some(time)) => time,
                Ok(None) => return false,
                Err(error) => {
                    let skipped = reader.skip().ok().flatten();
                    add(last, Told::Damage { error, skipped });
                    continue;
                }
            };
            last = time;
            match reader.take(i64::MAX) {
                Some(Run::Packet(packet)) => add(time, Told::Message(Message::Packet(packet))),
                Some(Run::Gap(gap)) => add(time, Told::Message(Message::Gap(gap))),
                Some(Run::Events(events)) => {
                    for event in events {
                        last = event.time_ns().unwrap_or(NO_TIME);
                        add(last, Told::Message(Message::Event(event)));
                    }
                }
                None => return false,
            }
        }
        true
    }
}

/// What a function makes of the messages of any number of streams, decoded by several threads, in the order of their
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
    /// For each stream the block that is being given out.
    heads: Vec<Items<T>>,
    /// The streams that have something, by the time of it, but for the current one.
    queue: BinaryHeap<Reverse<(i64, usize)>>,
    /// The stream whose turn it was last.
    current: Option<usize>,
    /// Streams that have not been started.
    fresh: usize,
}

impl<T: Send + 'static> Parallel<T> {
    /// Begins to decode all streams of several traces by `threads` threads, the caller's included (which works in
    /// [`next_part`](Self::next_part)).
    ///
    /// `make` is called for all that each stream tells, in its order, and appends what it makes of that, if anything.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub fn new<'t>(
        traces: impl IntoIterator<Item = &'t Trace>,
        threads: usize,
        make: impl Fn(Origin, Told<'_>, &mut Vec<T>) + Send + Sync + 'static,
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

    /// What was made of the messages that come next, up to where another stream's come; `None` at the end of all streams.
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
            // At equal times the stream that was given first comes first.
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

    /// Puts a stream into the queue, with its next block if the one at hand has been given out.
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
