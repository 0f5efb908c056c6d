//! User-defined records of any size, written in place; `kymo.h` describes them in full.
//!
//! A [`Block`] is a reserved record. It becomes part of the trace when it is [committed](Block::commit). When it is
//! dropped instead, it leaves nothing behind unless something else was recorded since.
//!
//! ```no_run
//! if let Some(mut block) = kymo::blocks::reserve(3) {
//!     block.copy_from_slice(b"abc");
//!     block.commit(1);
//! }
//! ```

use core::marker::PhantomData;
use core::mem::forget;
use core::ops::{Deref, DerefMut};

use crate::system;

/// A reserved record. Its initial bytes are arbitrary.
#[derive(Debug)]
pub struct Block {
    data: *mut u8,
    length: usize,
    /// Makes the block neither `Send` nor `Sync`: it belongs to the thread that reserved it.
    here: PhantomData<*mut u8>,
}

/// Reserves a record of `length` bytes. Returns `None` if nothing is recorded at present, or if there is no room (which
/// is counted). The maximum is the size of a packet less its header and about 30 bytes.
pub fn reserve(length: usize) -> Option<Block> {
    let data = system::reserve(length);
    (!data.is_null()).then_some(Block {
        data,
        length,
        here: PhantomData,
    })
}

impl Block {
    /// Finishes the record. `kind` identifies the type of record; 0 discards the record.
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
