//! Iterates over the thread buffers of all threads while recording is frozen.

use kymo_recorder::threads::ThreadBuffer;

use super::View;
use crate::port::Linux;
use crate::sys;

impl View<'_> {
    /// Calls `what` for each thread buffer that may be read.
    pub(super) fn each_buffer(&self, what: impl Fn(&ThreadBuffer<Linux>)) {
        let thread_buffers = self.process.thread_buffers.iter();
        thread_buffers
            .filter(|thread_buffer| thread_buffer.readable())
            .for_each(what);
    }
}

/// Waits until a thread buffer's thread has left its hook; returns false if that takes more than `patience`
/// nanoseconds.
pub(super) fn outside(thread_buffer: &ThreadBuffer<Linux>, patience: u64) -> bool {
    // The common case is checked first: of many threads few are in a hook, and all threads wait for this.
    if !thread_buffer.inside() {
        return true;
    }
    let start = sys::nanoseconds();
    while thread_buffer.inside() {
        if sys::nanoseconds().wrapping_sub(start) > patience {
            return false;
        }
        sys::sleep(10_000);
    }
    true
}
