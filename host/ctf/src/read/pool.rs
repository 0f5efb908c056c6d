//! Thread pool that decodes streams in parallel.
//!
//! One stream must be decoded in order, but streams are independent. So each thread takes the stream with the fewest
//! finished blocks, fills a *block* with its next content, and appends the block to the stream's queue. The queues are
//! short, which bounds memory. A thread that requests a block while none is ready does not wait but fills one itself:
//! with two threads, two CPUs are busy. Idle threads sleep.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::stream::StreamReader;

/// Memory budget for all blocks, as long as each gets a useful size.
const MEMORY: usize = 16 << 20;
/// Least and most bytes in a block.
const BLOCK: std::ops::RangeInclusive<usize> = (4 << 10)..=(256 << 10);
/// Finished blocks of a stream; in addition, one is being filled, and one is in use by the caller.
const AHEAD: usize = 2;

/// Size of a block in bytes, for this number of streams.
pub(super) fn block_bytes(streams: usize) -> usize {
    let blocks = streams.max(1) * (AHEAD + 2);
    (MEMORY / blocks).clamp(*BLOCK.start(), *BLOCK.end())
}

/// Results for consecutive messages.
pub(super) trait Block: Default + Send + 'static {
    /// Clears it, so that it can be filled again.
    fn clear(&mut self);
    /// Whether it is empty.
    fn is_empty(&self) -> bool;
}

/// Fills a block from the stream with this index; `false` at its end.
type Make<B> = dyn Fn(usize, &mut StreamReader, &mut B) -> bool + Send + Sync;

/// State of one stream.
struct Slot<B> {
    /// `None` while a thread fills a block.
    reader: Option<Box<StreamReader>>,
    ready: VecDeque<B>,
    ended: bool,
}

struct State<B> {
    slots: Vec<Slot<B>>,
    /// Returned blocks, which can be filled again.
    spare: Vec<B>,
    /// The pool is being dropped.
    stop: bool,
    /// A thread has panicked.
    panicked: bool,
}

struct Shared<B> {
    state: Mutex<State<B>>,
    /// Signals that a block was filled or consumed.
    changed: Condvar,
    make: Box<Make<B>>,
}

/// A block to be filled.
struct Job<B> {
    index: usize,
    reader: Box<StreamReader>,
    block: B,
}

impl<B: Block> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        // No thread panics in the middle of an update while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a block; appends it to its stream's queue unless `keep`.
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

    /// The next block to fill: of the stream that has the fewest.
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

    /// Main loop of each thread.
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

/// Notifies the other threads if the caller's function panics, so that none waits for its block.
struct Unwinding<'s, B: Block>(&'s Shared<B>);

impl<B: Block> Drop for Unwinding<'_, B> {
    fn drop(&mut self) {
        self.0.lock().panicked = true;
        self.0.changed.notify_all();
    }
}

/// Streams, and the threads that decode them.
pub(super) struct Pool<B: Block> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Block> Pool<B> {
    /// Starts decoding streams with this number of threads, besides the one that requests [blocks](Self::next).
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
        // If a thread cannot be created, the others decode its streams.
        let threads = (0..threads).map_while(|_| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name("kymo-ctf".to_owned());
            builder.spawn(move || shared.run()).ok()
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    /// Number of threads, including the one that requests blocks.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Returns the next block of a stream: waits for the thread that fills it, or fills it. `None` at the end of the
    /// stream.
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
            // Another thread fills it: fill a different one in the meantime.
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
            // A thread that panicked has reported it.
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
