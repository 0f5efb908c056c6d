//! Recovery from hooks that never return, and reuse of the buffers of exited threads.
//!
//! A new thread takes over the memory of an exited one: otherwise a program that creates a thread for each request
//! would run out of memory, and of stream numbers. In mode *stream* it does so as soon as the host has received all of
//! it. In the other modes the buffers of a number of exited threads are kept unchanged
//! ([`Process::set_ended_threads`]). Beyond that, or without memory, a new thread continues in the oldest of these
//! buffers, and overwrites its packets one by one, like its own: a reader sees by their sequence numbers how many are
//! gone. In mode *fixed* it continues in a buffer that has room.
//!
//! The recorder queries the kernel ([`sys::has_ended`]), not the thread, which may exit in many ways, and calls hooks
//! to its end.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{Queue, ThreadBuffer, ThreadPort as _};
use kymo_wire::link::Mode;

use super::{Process, belong};
use crate::lock::Lock;
use crate::port::Linux;
use crate::sys;

/// Number of exited threads whose buffers are kept by default.
const DEFAULT_KEPT: u32 = 1024;

/// Size of a file, in bytes, beyond which it grows only if no buffer of an exited thread is available.
const FILE_BYTES: usize = 512 << 20;

/// Maximum number of thread buffers that a new thread checks for an exited owner, and of exited threads' buffers that
/// it checks for room. It bounds the time that this takes.
const LOOKS: usize = 4;

/// Thread buffers of exited threads.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Protects the following fields while there is no reader. A reader, who has waited for it once, uses them without
    /// it.
    pub lock: Lock,
    /// The thread that exited first is first.
    thread_buffers: Queue<Linux>,
    /// The thread buffer that was checked last.
    looked: Cell<Option<&'static ThreadBuffer<Linux>>>,
    /// Number of buffers to keep.
    kept: AtomicU32,
}

impl Ended {
    /// Removes all entries, in the child of a fork.
    pub fn forget(&self) {
        self.lock.reset();
        self.thread_buffers.clear();
        self.looked.set(None);
    }

    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            thread_buffers: Queue::new(),
            looked: Cell::new(None),
            kept: AtomicU32::new(DEFAULT_KEPT),
        }
    }
}

/// Returns whether a thread buffer holds something to be closed, reported, or discarded once its thread has exited.
pub(crate) fn has_something(thread_buffer: &ThreadBuffer<Linux>) -> bool {
    thread_buffer.needs_seal() || thread_buffer.writer().stream().is_reserved()
}

impl Process {
    /// Sets how many exited threads' buffers are kept for a reader while there is memory. Not used in mode *stream*.
    pub fn set_ended_threads(&self, kept: u32) {
        self.ended.kept.store(kept, Ordering::Relaxed);
    }

    /// Assigns the buffer of an exited thread to the calling thread, which has none: if more than the configured number
    /// are kept, or if `need` is set. Signals are blocked.
    pub(crate) fn inherit(&self, need: bool) -> Option<&'static ThreadBuffer<Linux>> {
        let ended = &self.ended;
        let thread_buffer = ended.lock.with(|| {
            // A buffer that is being read must not change.
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
                    // SAFETY: the thread buffer has no owner, and no reader except that of a stream.
                    unsafe { thread_buffer.seal(self.port.now()) };
                }
                if thread_buffer.has_room() {
                    // SAFETY: as above, and this thread has removed it from the queue.
                    unsafe { thread_buffer.give(self.port.now(), sys::process(), sys::thread()) };
                    belong(thread_buffer);
                    return Some(thread_buffer);
                }
                // In mode *fixed* a full buffer is kept until all events are cleared.
                if self.mode() != Mode::Fixed {
                    ended.thread_buffers.push(thread_buffer);
                }
            }
            None
        });
        thread_buffer.flatten()
    }

    /// Rebuilds the queue after all thread buffers have been cleared, including those of exited threads. Called by a
    /// reader.
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

    /// Checks a few threads for exit.
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

    /// Handles the case that the calling thread has left a hook by a jump; called before it reads, or exits. (Call it
    /// where the stack is not much deeper than in the program.)
    #[inline(never)]
    pub(crate) fn return_by(&self, gate: &Gate, sure: bool) {
        if let Some(thread_buffer) = self.existing_buffer() {
            thread_buffer.return_by(&self.port, gate, sure);
        }
    }

    /// Checks which threads have exited since, and seals their buffers: of all threads, or only of those whose buffers
    /// hold something. Called by a reader.
    pub(crate) fn end_buffers(&self, all: bool) {
        for thread_buffer in self.thread_buffers.iter() {
            if !thread_buffer.has_ended() {
                if all || has_something(thread_buffer) {
                    self.end_buffer(thread_buffer);
                }
            } else if thread_buffer.needs_seal() {
                // There may be room now to report losses.
                // SAFETY: the thread buffer has no owner, and there is one reader.
                unsafe { thread_buffer.seal(self.port.now()) };
            }
        }
    }

    /// Discards unfinished records of a thread, if it has exited.
    #[inline(never)]
    fn end_buffer(&self, thread_buffer: &'static ThreadBuffer<Linux>) {
        let process = sys::process();
        if thread_buffer.process() == process && sys::has_ended(process, thread_buffer.owner()) {
            // SAFETY: the thread has exited, and there is one reader.
            unsafe { thread_buffer.end(self.port.now()) };
            self.ended.thread_buffers.push(thread_buffer);
        }
    }
}
