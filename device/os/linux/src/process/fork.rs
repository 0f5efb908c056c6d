//! Resets the recorder in the child of a fork: the child starts with empty buffers.
//!
//! The child inherits its parent's buffers, which may be mapped from a file that both would write to. Of its parent's
//! threads it has only one; operations of the others on the recorder never complete. So the child discards all of that
//! before it records anything, and gets buffers and a file of its own at its first event. Most children call `exec`
//! before that.
//!
//! The C library does not report children of the system call `clone`: see [`wiped`](super::wiped).
//!
//! A child of `vfork` runs in its parent's thread and memory, so its calls are recorded there.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{ThreadBuffer, ThreadPort as _};
use kymo_wire::process_file::region;

use super::Process;
use super::set_up::or_default;
use crate::port::Linux;
use crate::sys::{self, files};
use crate::thread;

/// The process's only recorder, for [`forked`].
static RECORDER: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
static GATE: AtomicPtr<Gate> = AtomicPtr::new(ptr::null_mut());

/// Called by the C library before each fork.
extern "C" fn forking() {
    if let Some((process, gate)) = recorder() {
        process.keep_gate(gate);
    }
}

/// Called by the C library in the child of each fork, before the program continues there.
pub(super) extern "C" fn forked() {
    if let Some((process, gate)) = recorder() {
        sys::without_signals(|| {
            process.restore_gate(gate);
            process.start_as_child(gate);
        });
        process.serve_child();
    }
}

pub(crate) fn recorder() -> Option<(&'static Process, &'static Gate)> {
    let process = RECORDER.load(Ordering::Acquire);
    let gate = GATE.load(Ordering::Acquire);
    // SAFETY: both are null, or statics.
    unsafe { process.as_ref().zip(gate.as_ref()) }
}

impl Process {
    /// Registers handlers that reset the recorder in children of this process.
    pub(super) fn watch_forks(&'static self, gate: &'static Gate) {
        RECORDER.store(ptr::from_ref(self).cast_mut(), Ordering::Release);
        GATE.store(ptr::from_ref(gate).cast_mut(), Ordering::Release);
        files::at_fork(forking, forked);
    }

    /// Discards the parent's state. The process has one thread, and signals are blocked.
    #[cold]
    #[inline(never)]
    pub(super) fn start_as_child(&self, gate: &Gate) {
        let own = thread::get().cast::<ThreadBuffer<Linux>>();
        thread::set(ptr::null());
        for thread_buffer in self.thread_buffers.iter() {
            let memory = ptr::from_ref(thread_buffer)
                .cast::<u8>()
                .wrapping_sub(region::BYTES);
            // SAFETY: a thread buffer's region begins with its header, which holds its size. If a signal handler that
            // interrupted a hook forks, that hook continues with this thread's thread buffer: its memory is replaced by
            // zeroed memory. The other thread buffers have no user.
            unsafe {
                let memory = memory.cast_mut();
                let bytes = memory.add(region::SIZE).cast::<u64>().read() as usize;
                if ptr::eq(thread_buffer, own) {
                    files::replace(memory, bytes);
                } else {
                    sys::unmap(memory, bytes);
                }
            }
        }
        // SAFETY: there is no other thread, and no thread has a thread buffer any more.
        unsafe {
            self.thread_buffers.forget();
            self.link.reset();
            self.recording.fork();
        }
        self.numbers.forget();
        self.ended.forget();
        self.metadata_lock.reset();
        self.leave_server();
        self.images.fork();
        self.followers.fork();

        self.reading.release();
        self.polling.release();
        self.ending.store(false, Ordering::Relaxed);
        self.stuck.store(false, Ordering::Relaxed);
        self.unbuffered.store(0, Ordering::Relaxed);
        self.patience.store(0);
        self.recorded.store(0);
        self.on_since.store(self.port.now());
        self.reader.forget();
        self.bytes_at_start.store(0, Ordering::Relaxed);
        self.port.wall_clock_reported.store(0, Ordering::Relaxed);
        self.forked.store(true, Ordering::Release);
        gate.start_as_child();
    }

    /// Creates a child's file and metadata, before its first record.
    #[inline]
    pub(super) fn begin_child(&self) {
        if self.forked.load(Ordering::Relaxed) && self.forked.swap(false, Ordering::Acquire) {
            self.set_up_child();
        }
    }

    #[cold]
    #[inline(never)]
    fn set_up_child(&self) {
        self.port
            .fenced
            .store(!sys::register_barrier(), Ordering::Relaxed);
        self.open_recording();
        let bytes = or_default(self.config().metadata_size, super::DEFAULT_METADATA);
        if let Some((memory, bytes)) = self.metadata_memory(bytes) {
            // SAFETY: the memory is new, aligned to 64 bytes, and never given back; the parent's memory is not written
            // any more.
            unsafe { self.metadata.move_to(memory, bytes) };
        }
    }
}
