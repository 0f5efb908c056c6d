//! Hooks that are never left, and threads that have ended: what they left undone is given up.
//!
//! The memory of a thread that has ended is another one's then: a program that begins a thread for each request would
//! run out of memory, and of numbers for streams. In mode *stream* that is so as soon as the host has all of it. Else
//! the lanes of so many ended threads are kept as they are ([`Process::set_ended_threads`]); after that, or without
//! memory, a new thread goes on in the oldest one's, whose packets it overwrites one by one, as it would its own: a
//! reader sees by their numbers how many are gone. In mode *fixed* it goes on where there is room.
//!
//! The kernel is asked ([`sys::has_ended`]), not the thread: it may end in many ways, and calls hooks to the last.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{Lane, Queue, ThreadPort as _};
use kymo_wire::link::Mode;

use crate::port::Linux;
use crate::process::{Lock, Process, belong};
use crate::sys;

/// The lanes of so many ended threads are kept where the program doesn't say.
const DEFAULT_KEPT: u32 = 1024;

/// A file that is longer than this grows only where no ended thread has left a buffer.
const FILE_BYTES: usize = 512 << 20;

/// So many lanes a new thread looks at, whether their threads have ended, and so many of ended ones, whether they
/// have room: however many there are, it takes no longer.
const LOOKS: usize = 4;

/// The lanes of ended threads.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Held by the one who uses what follows, if there is no reader; a reader does, who waits for it once.
    pub lock: Lock,
    /// The longest ended first.
    lanes: Queue<Linux>,
    /// The lane that was looked at last.
    looked: Cell<Option<&'static Lane<Linux>>>,
    /// How many are kept.
    kept: AtomicU32,
}

impl Ended {
    /// No thread has ended, in the child of a fork.
    pub fn forget(&self) {
        self.lock.reset();
        self.lanes.clear();
        self.looked.set(None);
    }

    /// No thread has ended.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            lanes: Queue::new(),
            looked: Cell::new(None),
            kept: AtomicU32::new(DEFAULT_KEPT),
        }
    }
}

/// Whether there is something in a lane to be closed, told, or given up if its thread has ended.
pub(crate) fn has_something(lane: &Lane<Linux>) -> bool {
    lane.needs_seal() || lane.writer().stream().is_reserved()
}

impl Process {
    /// The lanes of how many ended threads are kept for a reader while there is memory, but in mode *stream*.
    pub fn set_ended_threads(&self, kept: u32) {
        self.ended.kept.store(kept, Ordering::Relaxed);
    }

    /// The lane of a thread that has ended, for the calling one, which has none: if there are enough of them, or
    /// there is `need`. Signals wait.
    pub(crate) fn inherit(&self, need: bool) -> Option<&'static Lane<Linux>> {
        let ended = &self.ended;
        let lane = ended.lock.with(|| {
            // What is being read stays as it is.
            if self.reading.is_held() {
                return None;
            }
            self.look();
            let enough = ended.lanes.length() > ended.kept.load(Ordering::Relaxed)
                || self.recording.bytes() > FILE_BYTES;
            if !(enough || need || self.mode() == Mode::Stream) {
                return None;
            }
            for _ in 0..LOOKS {
                let lane = ended.lanes.pop()?;
                if lane.needs_seal() {
                    // SAFETY: there is nobody whose lane it is, and no reader but that of a stream.
                    unsafe { lane.seal(self.port.now()) };
                }
                if lane.has_room() {
                    // SAFETY: as above, and it is this thread's turn.
                    unsafe { lane.give(self.port.now(), sys::process(), sys::thread()) };
                    belong(lane);
                    return Some(lane);
                }
                // What is kept first stays, until all is forgotten.
                if self.mode() != Mode::Fixed {
                    ended.lanes.push(lane);
                }
            }
            None
        });
        lane.flatten()
    }

    /// All lanes have been emptied, those of ended threads too. By a reader.
    pub(crate) fn forget_ended(&self) {
        while self.ended.lanes.pop().is_some() {}
        for lane in self.lanes.iter().filter(|lane| lane.has_ended()) {
            self.ended.lanes.push(lane);
        }
    }

    /// Looks whether threads have ended, a few at a time.
    fn look(&self) {
        for _ in 0..LOOKS {
            let next = self.ended.looked.get().and_then(Lane::older);
            let Some(lane) = next.or_else(|| self.lanes.iter().next()) else {
                return;
            };
            self.ended.looked.set(Some(lane));
            if !lane.has_ended() {
                self.end_lane(lane);
            }
        }
    }

    /// The calling thread is about to read, or to end for good: it may have left a hook by a jump. (To be called where
    /// the stack is not much deeper than in the program.)
    #[inline(never)]
    pub(crate) fn return_by(&self, gate: &Gate, sure: bool) {
        if let Some(lane) = self.existing_lane() {
            lane.return_by(&self.port, gate, sure);
        }
    }

    /// Looks which threads have ended since, of all lanes or of those in which there is something, and seals what they
    /// left. For a reader.
    pub(crate) fn end_lanes(&self, all: bool) {
        for lane in self.lanes.iter() {
            if !lane.has_ended() {
                if all || has_something(lane) {
                    self.end_lane(lane);
                }
            } else if lane.needs_seal() {
                // There may be room by now to tell what was lost.
                // SAFETY: there is nobody whose lane it is, and one reader.
                unsafe { lane.seal(self.port.now()) };
            }
        }
    }

    /// Gives up what a thread left undone, if it has ended.
    #[inline(never)]
    fn end_lane(&self, lane: &'static Lane<Linux>) {
        let process = sys::process();
        if lane.process() == process && sys::has_ended(process, lane.owner()) {
            // SAFETY: it has, and there is one reader.
            unsafe { lane.end(self.port.now()) };
            self.ended.lanes.push(lane);
        }
    }
}
