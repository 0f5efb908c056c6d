//! Thread-local word that holds the address of the thread's buffer.

use core::ptr;

use crate::machine;

/// Returns the calling thread's word; null in a new thread.
#[inline(always)]
pub fn get() -> *const u8 {
    machine::thread_buffer()
}

/// Sets the calling thread's word.
pub fn set(value: *const u8) {
    machine::set_thread_buffer(value);
}

/// The word of a thread whose buffer is being created. Hooks of signal handlers that run meanwhile count their events
/// as lost and return.
pub const BUSY: *const u8 = ptr::without_provenance(1);
