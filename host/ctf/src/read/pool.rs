//! Streams decoded side by side by several threads: who decodes which.
//!
//! Decoding a stream has to be done in order, but streams do not know of each other. So each thread takes a stream that
//! has little ready, makes a *block* of what comes next in it, and puts that in the stream's queue; the queues are short,
//! so memory is bounded. A thread that wants a block and finds none does not wait but makes one: with two threads, two
//! processors are busy. Threads that have nothing to do sleep.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::stream::StreamReader;

/// Bytes that all blocks together may hold, as long as that leaves each a useful size.
const MEMORY: usize = 16 << 20;
/// Least and most bytes in a block.
const BLOCK: std::ops::RangeInclusive<usize> = (4 << 10)..=(256 << 10);
/// Blocks of a stream that may wait: one more is being made, and one given out.
const AHEAD: usize = 2;

/// Bytes that a block of one of so many streams may hold.
pub(super) fn block_bytes(streams: usize) -> usize {
    let blocks = streams.max(1) * (AHEAD + 2);
    (MEMORY / blocks).clamp(*BLOCK.start(), *BLOCK.end())
}

/// What is made of messages that follow each other.
pub(super) trait Block: Default + Send + 'static {
    /// Empties it, to be filled again.
    fn clear(&mut self);
    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool;
}

/// Fills a block from a stream of this number; `false` at its end.
type Make<B> = dyn Fn(usize, &mut StreamReader, &mut B) -> bool + Send + Sync;

/// A stream among those that are decoded.
struct Slot<B> {
    /// Missing while a thread makes a block.
    reader: Option<Box<StreamReader>>,
    ready: VecDeque<B>,
    ended: bool,
}

struct State<B> {
    slots: Vec<Slot<B>>,
    /// Blocks that have been given out, to be filled again.
    spare: Vec<B>,
    /// Nobody wants any more.
    stop: bool,
    /// A thread has panicked.
    panicked: bool,
}

struct Shared<B> {
    state: Mutex<State<B>>,
    /// A block was made, or taken.
    changed: Condvar,
    make: Box<Make<B>>,
}

/// A block that is to be made.
struct Job<B> {
    index: usize,
    reader: Box<StreamReader>,
    block: B,
}

impl<B: Block> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // Who panics does not hold it in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a block; puts it into its stream's queue unless `keep`.
    fn work(&self, job: Job<B>, keep: bool) -> Option<B> {
        let Job {
            index,
            mut reader,
            mut block,
        } = job;
        let guard = Unwinding(self);
        let more = (self.make)(index, &mut reader, &mut block);
        mem::forget(guard);
        let mut state = self.lock();
        let slot = state.slots.get_mut(index)?;
        slot.reader = Some(reader);
        slot.ended = !more;
        let mut kept = None;
        if !block.is_empty() {
            match keep {
                true => kept = Some(block),
                false => slot.ready.push_back(block),
            }
        }
        drop(state);
        self.changed.notify_all();
        kept
    }

    /// A block that a thread should make: for the stream that has the fewest.
    fn job(&self, state: &mut State<B>) -> Option<Job<B>> {
        let free =
            |slot: &Slot<B>| slot.reader.is_some() && !slot.ended && slot.ready.len() < AHEAD;
        let slots = state.slots.iter().enumerate();
        let (index, _) = slots
            .filter(|(_, slot)| free(slot))
            .min_by_key(|(_, slot)| slot.ready.len())?;
        Self::begin(state, index)
    }

    fn begin(state: &mut State<B>, index: usize) -> Option<Job<B>> {
        let reader = state.slots.get_mut(index)?.reader.take()?;
        let block = state.spare.pop().unwrap_or_default();
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
struct Unwinding<'s, B: Block>(&'s Shared<B>);

impl<B: Block> Drop for Unwinding<'_, B> {
    fn drop(&mut self) {
        self.0.lock().panicked = true;
        self.0.changed.notify_all();
    }
}

/// Streams and the threads that decode them.
pub(super) struct Pool<B: Block> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Block> Pool<B> {
    /// Begins to decode streams by so many threads, beside that which asks for [blocks](Self::next).
    pub(super) fn new(
        readers: impl IntoIterator<Item = StreamReader>,
        threads: usize,
        make: impl Fn(usize, &mut StreamReader, &mut B) -> bool + Send + Sync + 'static,
    ) -> Self {
        let slots = readers.into_iter().map(|reader| Slot {
            reader: Some(Box::new(reader)),
            ready: VecDeque::new(),
            ended: false,
        });
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                slots: slots.collect(),
                spare: Vec::new(),
                stop: false,
                panicked: false,
            }),
            changed: Condvar::new(),
            make: Box::new(make),
        });
        // Streams that cannot have a thread of their own are decoded by the others.
        let threads = (0..threads).map_while(|_| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name("kymo-ctf".to_owned());
            builder.spawn(move || shared.run()).ok()
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    /// How many threads there are, with that which asks for blocks.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// The next block of a stream: waits for who makes it, or makes it. `None` at the end of the stream.
    ///
    /// # Panics
    /// When one of the threads has panicked.
    pub(super) fn next(&self, index: usize, mut done: B) -> Option<B> {
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
            // Another thread makes it: meanwhile another one.
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

impl<B: Block> Drop for Pool<B> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl<B: Block> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}
