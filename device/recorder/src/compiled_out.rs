//! What stands for the state of a part that is compiled out of a recorder (a feature of this crate): it takes no
//! memory, is always nothing, and lets the compiler see that. The part's code stays as it is, so that every build
//! compiles it.

use core::marker::PhantomData;

/// A value that stands for none.
pub(crate) trait Nothing: Copy {
    /// It.
    const NOTHING: Self;
}

impl Nothing for u32 {
    const NOTHING: Self = 0;
}

impl<T> Nothing for *const T {
    const NOTHING: Self = core::ptr::null();
}

/// In place of a cell.
#[derive(Debug)]
pub(crate) struct CompiledOut<T>(PhantomData<T>);

impl<T: Nothing> CompiledOut<T> {
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
}
