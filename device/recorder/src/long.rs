//! A number of 64 bits that lies where a word of the machine may.
//!
//! Microcontrollers of 32 bits align 64 to 8 bytes, which leaves holes in structures of words; none of them
//! reads or writes such a number in one access anyway.

use core::cell::Cell;

/// The number.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(target_pointer_width = "32", repr(C, packed(4)))]
struct Long(u64);

/// A cell of such a number.
#[derive(Debug)]
pub(crate) struct LongCell(Cell<Long>);

impl LongCell {
    /// With this number.
    pub const fn new(value: u64) -> Self {
        Self(Cell::new(Long(value)))
    }

    /// The number.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.get().0
    }

    /// Changes it.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.set(Long(value));
    }
}
