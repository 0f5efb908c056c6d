//! Records written in place, for C.

use core::ffi::c_void;

use kymo::system;

/// Reserves a record.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_reserve(size: usize) -> *mut c_void {
    system::reserve(size).cast()
}

/// Finishes a reserved record, or discards it if `kind` is 0.
///
/// # Safety
/// `record` came from `kymo_reserve`, or is null, and is used for the last time.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_commit(record: *mut c_void, kind: u16) {
    if !record.is_null() {
        // SAFETY: by this function's contract.
        unsafe { system::commit(record.cast(), kind) };
    }
}

/// Discards a reserved record.
///
/// # Safety
/// Same as `kymo_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_discard(record: *mut c_void) {
    // SAFETY: by this function's contract.
    unsafe { kymo_commit(record, 0) };
}
