//! Streams decoded side by side by several threads, and what was made of them in the order of time.
//!
//! Decoding a stream has to be done in order, but streams do not know of each other. So each thread takes a stream that
//! has little ready, makes a *block* of what comes next in it, and puts that in the stream's queue; the queues are short,
//! so memory is bounded. Whoever asks for the result merges the blocks, and where it finds none it does not wait but
//! makes one itself: with two threads, two processors are busy. What is costly (looking at fields, writing text) is done
//! where the decoding is, by a function that the caller gives, so that merging has only pieces to hand on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::messages::Origin;
use super::stream::{Message, NO_TIME, Run, Skipped, StreamReader};
use super::trace::Trace;
use crate::error::{DecodeError, OpenError};

/// Bytes that all blocks together may hold, as long as that leaves each a useful size.
const MEMORY: usize = 16 << 20;
/// Least and most bytes of results in a block.
const BLOCK: std::ops::RangeInclusive<usize> = (4 << 10)..=(256 << 10);
/// Most messages in a block.
const MESSAGES: usize = 4096;
/// Blocks of a stream that may wait: one more is being made, and one given out.
const AHEAD: usize = 2;

/// What a stream tells, damage included.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A message.
    Message(Message<'a>),
    /// Something could not be decoded; what of the stream follows it is told next.
    Damage {
        /// What is wrong.
        error: DecodeError,
        /// What was left out; `None` if the input cannot be read any more.
        skipped: Option<Skipped>,
    },
}

/// What was made of messages that follow each other.
struct Block<T> {
    items: Vec<T>,
    /// For each message of which something was made its time, and where in `items` that ends.
    marks: Vec<(i64, usize)>,
    /// How many marks have been given out.
    given: usize,
}

impl<T> Block<T> {
    const fn new() -> Self {
        Self {
            items: Vec::new(),
            marks: Vec::new(),
            given: 0,
        }
    }

    fn clear(&mut self) {
        self.items.clear();
        self.marks.clear();
        self.given = 0;
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

/// A stream among those that are decoded.
struct Slot<T> {
    /// Missing while somebody makes a block.
    reader: Option<Box<StreamReader>>,
    ready: VecDeque<Block<T>>,
    ended: bool,
}

struct State<T> {
    slots: Vec<Slot<T>>,
    /// Blocks that have been given out, to be filled again.
    spare: Vec<Block<T>>,
    /// Nobody wants any more.
    stop: bool,
    /// A thread has panicked.
    panicked: bool,
}

type Make<T> = dyn Fn(Origin, Told<'_>, &mut Vec<T>) + Send + Sync;

struct Shared<T> {
    state: Mutex<State<T>>,
    /// A block was made, or taken.
    changed: Condvar,
    origins: Vec<Origin>,
    make: Box<Make<T>>,
    /// Items of a block after which it is full.
    full: usize,
}

/// A block that is to be made.
struct Job<T> {
    index: usize,
    reader: Box<StreamReader>,
    block: Block<T>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Who panics does not hold it in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a block; puts it into its stream's queue unless `keep`.
    fn work(&self, job: Job<T>, keep: bool) -> Option<Block<T>> {
        let Job {
            index,
            mut reader,
            mut block,
        } = job;
        let guard = Unwinding(self);
        let more = self.fill(index, &mut reader, &mut block);
        mem::forget(guard);
        let mut state = self.lock();
        let slot = state.slots.get_mut(index)?;
        slot.reader = Some(reader);
        slot.ended = !more;
        let mut kept = None;
        if !block.marks.is_empty() {
            match keep {
                true => kept = Some(block),
                false => slot.ready.push_back(block),
            }
        }
        drop(state);
        self.changed.notify_all();
        kept
    }

    /// Fills a block from a stream; `false` at its end.
    fn fill(&self, index: usize, reader: &mut StreamReader, block: &mut Block<T>) -> bool {
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

    /// A block that somebody should make: for the stream that has the fewest.
    fn job(&self, state: &mut State<T>) -> Option<Job<T>> {
        let free =
            |slot: &Slot<T>| slot.reader.is_some() && !slot.ended && slot.ready.len() < AHEAD;
        let slots = state.slots.iter().enumerate();
        let (index, _) = slots
            .filter(|(_, slot)| free(slot))
            .min_by_key(|(_, slot)| slot.ready.len())?;
        Self::begin(state, index)
    }

    fn begin(state: &mut State<T>, index: usize) -> Option<Job<T>> {
        let reader = state.slots.get_mut(index)?.reader.take()?;
        let block = state.spare.pop().unwrap_or_else(Block::new);
        Some(Job {
            index,
            reader,
            block,
        })
    }

    /// What each thread does.
    fn run(&self) {
        let mut state = self.lock();
        while !state.stop && !state.panicked {
            match self.job(&mut state) {
                Some(job) => {
                    drop(state);
                    self.work(job, false);
                    state = self.lock();
                }
                None if state.slots.iter().all(|slot| slot.ended) => return,
                None => {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Tells the others when the caller's function panics, so that nobody waits for its block.
struct Unwinding<'s, T>(&'s Shared<T>);

impl<T> Drop for Unwinding<'_, T> {
    fn drop(&mut self) {
        self.0.lock().panicked = true;
        self.0.changed.notify_all();
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
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
    /// For each stream the block that is being given out.
    heads: Vec<Block<T>>,
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
        let (mut origins, mut slots) = (Vec::new(), Vec::new());
        for (origin, reader) in readers {
            origins.push(origin);
            slots.push(Slot {
                reader: Some(Box::new(reader)),
                ready: VecDeque::new(),
                ended: false,
            });
        }
        let blocks = slots.len().max(1) * (AHEAD + 2);
        let bytes = (MEMORY / blocks).clamp(*BLOCK.start(), *BLOCK.end());
        let shared = Arc::new(Shared {
            full: (bytes / mem::size_of::<T>().max(1)).max(1),
            origins,
            state: Mutex::new(State {
                slots,
                spare: Vec::new(),
                stop: false,
                panicked: false,
            }),
            changed: Condvar::new(),
            make: Box::new(make),
        });
        // Streams that cannot have a thread of their own are decoded by the others.
        let others = threads.min(shared.origins.len()).saturating_sub(1);
        let threads = (0..others).map_while(|_| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name("kymo-ctf".to_owned());
            builder.spawn(move || shared.run()).ok()
        });
        Ok(Self {
            threads: threads.collect(),
            heads: shared.origins.iter().map(|_| Block::new()).collect(),
            queue: BinaryHeap::new(),
            current: None,
            fresh: 0,
            shared,
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
            *self.shared.origins.get(index)?,
            head.items.get(range).unwrap_or(&[]),
        ))
    }

    /// Puts a stream into the queue, with its next block if the one at hand has been given out.
    fn queue_up(&mut self, index: usize) {
        let Some(head) = self.heads.get_mut(index) else {
            return;
        };
        if head.next_time().is_none() {
            let done = mem::replace(head, Block::new());
            let next = self.next_block(index, done);
            if let (Some(head), Some(block)) = (self.heads.get_mut(index), next) {
                *head = block;
            }
        }
        if let Some(time) = self.heads.get(index).and_then(Block::next_time) {
            self.queue.push(Reverse((time, index)));
        }
    }

    /// The next block of a stream: waits for who makes it, or makes it.
    fn next_block(&self, index: usize, mut done: Block<T>) -> Option<Block<T>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        done.clear();
        state.spare.push(done);
        loop {
            assert!(
                !state.panicked,
                "a thread that decodes a stream has panicked"
            );
            let slot = state.slots.get_mut(index)?;
            if let Some(block) = slot.ready.pop_front() {
                drop(state);
                shared.changed.notify_all();
                return Some(block);
            }
            if slot.reader.is_some() {
                if slot.ended {
                    return None;
                }
                let job = Shared::begin(&mut state, index)?;
                drop(state);
                if let Some(block) = shared.work(job, true) {
                    return Some(block);
                }
                state = shared.lock();
                continue;
            }
            // Somebody is at it: meanwhile another one.
            match shared.job(&mut state) {
                Some(job) => {
                    drop(state);
                    shared.work(job, false);
                    state = shared.lock();
                }
                None => {
                    state = shared
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl<T: Send + 'static> Drop for Parallel<T> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Parallel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("streams", &self.heads.len())
            .field("threads", &(self.threads.len() + 1))
            .finish_non_exhaustive()
    }
}
