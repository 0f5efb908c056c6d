//! Fields of the headers in a recording's file ([`kymo_wire::process_file`]).

use core::sync::atomic::{AtomicU32, Ordering};

use kymo_wire::process_file::region;

/// Stores a field of a region's header.
pub(crate) fn put<T>(memory: *mut u8, at: usize, value: T) {
    // SAFETY: the owner of a region has its header, in which the offsets of the fields are multiples of their sizes.
    unsafe { memory.add(at).cast::<T>().write(value) };
}

/// Sets a region's kind, once the rest of its header is complete.
pub(crate) fn publish(memory: *mut u8, kind: u32) {
    // SAFETY: as above.
    let place = unsafe { &*memory.add(region::KIND).cast::<AtomicU32>() };
    place.store(kind, Ordering::Release);
}
