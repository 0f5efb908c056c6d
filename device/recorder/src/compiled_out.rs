//! Placeholder for the state of a feature that is compiled out: it takes no memory, and always has a constant value,
//! from which the compiler removes the feature's code. That code stays unchanged in the source, so every build checks
//! it.

use core::marker::PhantomData;

/// A type with a constant for "no value".
pub(crate) trait Nothing: Copy {
    /// The constant.
    const NOTHING: Self;
}

impl Nothing for u32 {
    const NOTHING: Self = 0;
}

impl<T> Nothing for *const T {
    const NOTHING: Self = core::ptr::null();
}

/// Replaces a `Cell`.
#[derive(Debug)]
pub(crate) struct CompiledOut<T>(PhantomData<T>);

impl<T: Nothing> CompiledOut<T> {
    /// Ignores the value.
    pub const fn new(_: T) -> Self {
        Self(PhantomData)
    }

    /// Returns the constant.
    #[inline(always)]
    pub fn get(&self) -> T {
        T::NOTHING
    }

    /// Does nothing.
    #[inline(always)]
    pub fn set(&self, _: T) {}
}
