//! Replay on a thread of its own: the thread that reads a trace also rebuilds its calls, and another thread consumes
//! the steps.
//!
//! Steps are stored per batch, in the order of the batches ([`Feeder`]), and passed on when the consumer processes
//! the same batch ([`Steps`]). A step's event is therefore that of the consumer's batch, and the result is the same
//! as if the consumer had replayed the trace itself. The queue holds as many blocks as there are batches in transit
//! between the threads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kymo_event::{Batch, EventRef, Row, Time, TraceInfo};

use super::{Observer, Origin, Replay};
use crate::calls::{self, Ahead, Begin, Calls, End, Step, TrackId, TrackInfo};

/// A [`Step`] that refers to its event by index in the batch.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Track {
        track: TrackId,
        info: TrackInfo,
    },
    Begin(Begin),
    End(End),
    State {
        track: TrackId,
        time: Time,
        cpu: Option<kymo_event::Cpu>,
        running: bool,
        recorded: bool,
    },
    ClockAhead(Ahead),
    Event {
        track: Option<TrackId>,
        event: usize,
    },
}

/// The steps of one batch, or those at the end of the trace with the final [`Calls`].
#[derive(Default)]
struct Block {
    steps: Vec<(Option<Origin>, Kept)>,
    end: Option<Calls>,
}

/// Blocks in the queue, and used blocks for reuse.
#[derive(Default)]
struct Queue {
    blocks: VecDeque<Block>,
    spare: Vec<Block>,
    /// Whether the feeder is gone, so that no more blocks will arrive.
    ended: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signals a new block, or the end.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rebuilds calls for another thread.
#[derive(Debug)]
pub struct Feeder {
    replay: Replay,
    steps: Steps,
}

/// The consumer's end of a [`Feeder`].
#[derive(Clone)]
pub struct Steps(Arc<Shared>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Feeder {
    /// Creates a feeder for a replay, which must be a [whole](super::Options::is_whole) one.
    pub fn new(replay: Replay) -> Self {
        Self {
            replay,
            steps: Steps(Arc::default()),
        }
    }

    /// A handle by which the consumer receives the steps.
    pub fn steps(&self) -> Steps {
        self.steps.clone()
    }

    /// Makes and queues the steps of the next batch.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) {
        let mut block = self.steps.0.lock().spare.pop().unwrap_or_default();
        block.steps.clear();
        let mut keeping = Keeping {
            rows: batch.rows(),
            steps: &mut block.steps,
        };
        self.replay.batch_to(info, batch, &mut keeping);
        self.steps.put(block);
    }

    /// Makes and queues the steps at the end of the trace.
    pub fn finish(mut self, info: &TraceInfo) {
        let mut block = Block::default();
        let mut keeping = Keeping {
            rows: &[],
            steps: &mut block.steps,
        };
        self.replay.finish_to(info, &mut keeping);
        let nothing = Calls::new(&TraceInfo::default(), calls::Options::default());
        block.end = Some(std::mem::replace(&mut self.replay.calls, nothing));
        self.steps.put(block);
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        // Wakes a consumer that would otherwise wait for more blocks.
        self.steps.0.lock().ended = true;
        self.steps.0.changed.notify_all();
    }
}

impl Steps {
    fn put(&self, block: Block) {
        self.0.lock().blocks.push_back(block);
        self.0.changed.notify_all();
    }

    /// Waits for the next block; `None` if no more will arrive.
    fn next(&self) -> Option<Block> {
        let mut queue = self.0.lock();
        loop {
            if let Some(block) = queue.blocks.pop_front() {
                return Some(block);
            }
            if queue.ended {
                return None;
            }
            let waited = self.0.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes the steps of a batch to `out`.
    pub(super) fn batch_to(&self, batch: &Batch, out: &mut impl Observer) {
        if let Some(block) = self.next() {
            block.give(batch, out);
            self.0.lock().spare.push(block);
        }
    }

    /// Passes the steps at the end of the trace to `out`, and returns the reconstruction with all counts.
    pub(super) fn finish_to(&self, out: &mut impl Observer) -> Option<Calls> {
        let block = self.next()?;
        block.give(&Batch::default(), out);
        block.end
    }
}

impl Block {
    #[inline]
    fn give(&self, batch: &Batch, out: &mut impl Observer) {
        for (origin, kept) in &self.steps {
            let step = match *kept {
                Kept::Begin(begin) => Step::Begin(begin),
                Kept::End(end) => Step::End(end),
                Kept::Track { track, info } => Step::Track { track, info },
                Kept::State {
                    track,
                    time,
                    cpu,
                    running,
                    recorded,
                } => Step::State {
                    track,
                    time,
                    cpu,
                    running,
                    recorded,
                },
                Kept::ClockAhead(ahead) => Step::ClockAhead(ahead),
                Kept::Event { track, event } => match batch.get(event) {
                    Some(event) => Step::Event { track, event },
                    None => continue,
                },
            };
            out.step(*origin, step);
        }
    }
}

/// Stores the steps of the batch that has these rows.
struct Keeping<'b> {
    rows: &'b [Row],
    steps: &'b mut Vec<(Option<Origin>, Kept)>,
}

impl Keeping<'_> {
    /// The index of an event in the batch.
    fn place(&self, event: EventRef<'_>) -> usize {
        let place = std::ptr::from_ref(event.row).addr() - self.rows.as_ptr().addr();
        place / size_of::<Row>()
    }
}

impl Observer for Keeping<'_> {
    #[inline(always)]
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        let kept = match step {
            Step::Begin(begin) => Kept::Begin(begin),
            Step::End(end) => Kept::End(end),
            Step::Track { track, info } => Kept::Track { track, info },
            Step::State {
                track,
                time,
                cpu,
                running,
                recorded,
            } => Kept::State {
                track,
                time,
                cpu,
                running,
                recorded,
            },
            Step::ClockAhead(ahead) => Kept::ClockAhead(ahead),
            Step::Event { track, event } => Kept::Event {
                track,
                event: self.place(event),
            },
        };
        self.steps.push((origin, kept));
    }
}
