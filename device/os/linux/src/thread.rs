//! One word for each thread: where its lane is.

use core::ptr;

use crate::machine;

/// The calling thread's word; null in a new thread.
#[inline(always)]
pub fn get() -> *const u8 {
    machine::lane()
}

/// Sets the calling thread's word.
pub fn set(value: *const u8) {
    machine::set_lane(value);
}

/// The word of a thread that is being given its lane: hooks of signal handlers that come meanwhile
/// count their events and go.
pub const BUSY: *const u8 = ptr::without_provenance(1);
