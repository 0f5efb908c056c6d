//! What stands for the state of a part that is left out of a recorder (a feature of this crate): it takes no
//! memory, is always nothing, and lets the compiler see that.
//!
//! The part's code stays as it is, so that it is compiled in every build. Nobody calls it, for a part that is
//! left out does not [exist](crate::profile::Profile::exists).

use core::marker::PhantomData;

use crate::sync::Ordering;

/// A value that stands for none.
pub(crate) trait Nothing: Copy {
    /// It.
    const NOTHING: Self;
}

impl Nothing for bool {
    const NOTHING: Self = false;
}

impl Nothing for u8 {
    const NOTHING: Self = 0;
}

impl Nothing for u16 {
    const NOTHING: Self = 0;
}

impl Nothing for u32 {
    const NOTHING: Self = 0;
}

impl Nothing for u64 {
    const NOTHING: Self = 0;
}

impl<T: Copy> Nothing for Option<T> {
    const NOTHING: Self = None;
}

impl<T> Nothing for *const T {
    const NOTHING: Self = core::ptr::null();
}

/// In place of a cell, or of an atomic that is used as one.
#[derive(Debug)]
pub(crate) struct LeftOut<T>(PhantomData<T>);

#[allow(dead_code, reason = "each part has its own needs")]
impl<T: Nothing> LeftOut<T> {
    /// Forgets the value.
    pub const fn new(_: T) -> Self {
        Self(PhantomData)
    }

    /// Nothing.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::NOTHING
    }

    /// Does nothing.
    #[inline(always)]
    pub fn set(&self, _: T) {}

    /// Returns nothing.
    #[inline(always)]
    pub fn replace(&self, _: T) -> T {
        T::NOTHING
    }

    /// Nothing.
    #[inline(always)]
    pub fn load(&self, _: Ordering) -> T {
        T::NOTHING
    }

    /// Does nothing.
    #[inline(always)]
    pub fn store(&self, _: T, _: Ordering) {}
}
