//! One word for each thread: where its thread buffer is.

use core::ptr;

use crate::machine;

/// The calling thread's word; null in a new thread.
#[inline(always)]
pub fn get() -> *const u8 {
    machine::thread_buffer()
}

/// Sets the calling thread's word.
pub fn set(value: *const u8) {
    machine::set_thread_buffer(value);
}

/// The word of a thread that is being given its thread buffer: hooks of signal handlers that come meanwhile
/// count their events and go.
pub const BUSY: *const u8 = ptr::without_provenance(1);
