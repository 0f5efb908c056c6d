//! Hooks that are never left, and threads that have ended: what they left undone is given up.
//!
//! The memory of a thread that has ended is another one's then: a program that begins a thread for each request would
//! run out of memory, and of numbers for streams. In mode *stream* that is so as soon as the host has all of it. Else
//! the thread buffers of so many ended threads are kept as they are ([`Process::set_ended_threads`]); after that, or without
//! memory, a new thread goes on in the oldest one's, whose packets it overwrites one by one, as it would its own: a
//! reader sees by their numbers how many are gone. In mode *fixed* it goes on where there is room.
//!
//! The kernel is asked ([`sys::has_ended`]), not the thread: it may end in many ways, and calls hooks to the last.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{Queue, ThreadBuffer, ThreadPort as _};
use kymo_wire::link::Mode;

use crate::port::Linux;
use crate::process::{Lock, Process, belong};
use crate::sys;

/// The thread buffers of so many ended threads are kept where the program doesn't say.
const DEFAULT_KEPT: u32 = 1024;

/// A file that is longer than this grows only where no ended thread has left a buffer.
const FILE_BYTES: usize = 512 << 20;

/// So many thread buffers a new thread looks at, whether their threads have ended, and so many of ended ones, whether they
/// have room: however many there are, it takes no longer.
const LOOKS: usize = 4;

/// The thread buffers of ended threads.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Held by the one who uses what follows, if there is no reader; a reader does, who waits for it once.
    pub lock: Lock,
    /// The longest ended first.
    thread_buffers: Queue<Linux>,
    /// The thread buffer that was looked at last.
    looked: Cell<Option<&'static ThreadBuffer<Linux>>>,
    /// How many are kept.
    kept: AtomicU32,
}

impl Ended {
    /// No thread has ended, in the child of a fork.
    pub fn forget(&self) {
        self.lock.reset();
        self.thread_buffers.clear();
        self.looked.set(None);
    }

    /// No thread has ended.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            thread_buffers: Queue::new(),
            looked: Cell::new(None),
            kept: AtomicU32::new(DEFAULT_KEPT),
        }
    }
}

/// Whether there is something in a thread buffer to be closed, told, or given up if its thread has ended.
pub(crate) fn has_something(thread_buffer: &ThreadBuffer<Linux>) -> bool {
    thread_buffer.needs_seal() || thread_buffer.writer().stream().is_reserved()
}

impl Process {
    /// The thread buffers of how many ended threads are kept for a reader while there is memory, but in mode *stream*.
    pub fn set_ended_threads(&self, kept: u32) {
        self.ended.kept.store(kept, Ordering::Relaxed);
    }

    /// The thread buffer of a thread that has ended, for the calling one, which has none: if there are enough of them, or
    /// there is `need`. Signals wait.
    pub(crate) fn inherit(&self, need: bool) -> Option<&'static ThreadBuffer<Linux>> {
        let ended = &self.ended;
        let thread_buffer = ended.lock.with(|| {
            // What is being read stays as it is.
            if self.reading.is_held() {
                return None;
            }
            self.look();
            let enough = ended.thread_buffers.length() > ended.kept.load(Ordering::Relaxed)
                || self.recording.bytes() > FILE_BYTES;
            if !(enough || need || self.mode() == Mode::Stream) {
                return None;
            }
            for _ in 0..LOOKS {
                let thread_buffer = ended.thread_buffers.pop()?;
                if thread_buffer.needs_seal() {
                    // SAFETY: there is nobody whose thread buffer it is, and no reader but that of a stream.
                    unsafe { thread_buffer.seal(self.port.now()) };
                }
                if thread_buffer.has_room() {
                    // SAFETY: as above, and it is this thread's turn.
                    unsafe { thread_buffer.give(self.port.now(), sys::process(), sys::thread()) };
                    belong(thread_buffer);
                    return Some(thread_buffer);
                }
                // What is kept first stays, until all is forgotten.
                if self.mode() != Mode::Fixed {
                    ended.thread_buffers.push(thread_buffer);
                }
            }
            None
        });
        thread_buffer.flatten()
    }

    /// All thread buffers have been emptied, those of ended threads too. By a reader.
    pub(crate) fn forget_ended(&self) {
        while self.ended.thread_buffers.pop().is_some() {}
        for thread_buffer in self
            .thread_buffers
            .iter()
            .filter(|thread_buffer| thread_buffer.has_ended())
        {
            self.ended.thread_buffers.push(thread_buffer);
        }
    }

    /// Looks whether threads have ended, a few at a time.
    fn look(&self) {
        for _ in 0..LOOKS {
            let next = self.ended.looked.get().and_then(ThreadBuffer::older);
            let Some(thread_buffer) = next.or_else(|| self.thread_buffers.iter().next()) else {
                return;
            };
            self.ended.looked.set(Some(thread_buffer));
            if !thread_buffer.has_ended() {
                self.end_buffer(thread_buffer);
            }
        }
    }

    /// The calling thread is about to read, or to end for good: it may have left a hook by a jump. (To be called where
    /// the stack is not much deeper than in the program.)
    #[inline(never)]
    pub(crate) fn return_by(&self, gate: &Gate, sure: bool) {
        if let Some(thread_buffer) = self.existing_buffer() {
            thread_buffer.return_by(&self.port, gate, sure);
        }
    }

    /// Looks which threads have ended since, of all thread buffers or of those in which there is something, and seals what they
    /// left. For a reader.
    pub(crate) fn end_buffers(&self, all: bool) {
        for thread_buffer in self.thread_buffers.iter() {
            if !thread_buffer.has_ended() {
                if all || has_something(thread_buffer) {
                    self.end_buffer(thread_buffer);
                }
            } else if thread_buffer.needs_seal() {
                // There may be room by now to tell what was lost.
                // SAFETY: there is nobody whose thread buffer it is, and one reader.
                unsafe { thread_buffer.seal(self.port.now()) };
            }
        }
    }

    /// Gives up what a thread left undone, if it has ended.
    #[inline(never)]
    fn end_buffer(&self, thread_buffer: &'static ThreadBuffer<Linux>) {
        let process = sys::process();
        if thread_buffer.process() == process && sys::has_ended(process, thread_buffer.owner()) {
            // SAFETY: it has, and there is one reader.
            unsafe { thread_buffer.end(self.port.now()) };
            self.ended.thread_buffers.push(thread_buffer);
        }
    }
}
