//! Records of the program's own, of any size, written in place.
//!
//! `kymo.h` has the whole story. A [`Block`] is a reserved record; it is in the trace once it has been
//! [committed](Block::commit), and leaves nothing behind when it is dropped before anything else was
//! recorded.
//!
//! ```no_run
//! if let Some(mut block) = kymo::blocks::reserve(3) {
//!     block.copy_from_slice(b"abc");
//!     block.commit(1);
//! }
//! ```

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::forget;
use core::ops::{Deref, DerefMut};

use crate::system;

/// A reserved record: its bytes, which may hold anything at first.
#[derive(Debug)]
pub struct Block {
    data: *mut u8,
    length: usize,
    /// It belongs to the thread that reserved it.
    here: PhantomData<*mut u8>,
}

/// Reserves a record of so many bytes; `None` if nothing is recorded now, or there is no room (which is
/// counted). At most as many as a packet holds beside its header and some 30 bytes.
pub fn reserve(length: usize) -> Option<Block> {
    let data = system::reserve(length);
    (!data.is_null()).then_some(Block {
        data,
        length,
        here: PhantomData,
    })
}

impl Block {
    /// Finishes the record. `kind` tells one of the program's types of records from another, and is
    /// not 0 (then the record is discarded).
    pub fn commit(self, kind: u16) {
        // SAFETY: it came from `reserve`, and is forgotten.
        unsafe { system::commit(self.data, kind) };
        forget(self);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the recorder keeps so many bytes for us; any of them is initialized memory.
        unsafe { core::slice::from_raw_parts(self.data, self.length) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else writes to them.
        unsafe { core::slice::from_raw_parts_mut(self.data, self.length) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it came from `reserve`, and is gone.
        unsafe { system::commit(self.data, 0) };
    }
}

/// Reserves a record.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_reserve(size: usize) -> *mut c_void {
    system::reserve(size).cast()
}

/// Finishes a reserved record.
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

/// Takes a reserved record back.
///
/// # Safety
/// As of `kymo_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_discard(record: *mut c_void) {
    // SAFETY: by this function's contract.
    unsafe { kymo_commit(record, 0) };
}
