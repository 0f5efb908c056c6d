//! Atomics: the processor's own, or in a [model](crate) those of loom, which tries every order in
//! which threads can meet, and everything that each could see of the others.
//!
//! Loom's cannot be made at compile time, nor outside of a model; so in a model these are made when
//! they are first used. Two things are there for models only: [`Owned`] stands for data without
//! atomics, and fails a model in which it can be used by two threads at once; and a model may weaken
//! one kind of ordering, to show that it would be found.
//!
//! Loom takes sequentially consistent loads and stores for acquiring and releasing ones. Here such a
//! load, and what loads and stores at once, has a fence before it, as some processors' compilers do
//! it: with that any store before is in order with it, and no more than the language promises.

#[cfg(not(loom))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence, fence},
};
#[cfg(loom)]
pub use modelled::*;

/// How often a reader looks for something that is about to happen.
pub const SPINS: u32 = if cfg!(loom) { 8 } else { 1_000_000 };

/// All that a recorder shares lies on one processor, where interrupts are masked for every change: what
/// microcontrollers of these kinds have is [`single`](crate::single) alone. So no access need be atomic
/// as a whole, and only the compiler must be kept from moving any.
pub(crate) const ALONE: bool = cfg!(all(
    not(loom),
    target_os = "none",
    any(
        target_arch = "arm",
        target_arch = "riscv32",
        target_arch = "riscv64"
    )
));

/// How many of a counter there are that only recorders of several processors or threads have a use for.
pub(crate) const SHARED: usize = if ALONE { 0 } else { 1 };

/// Loads a number; what is loaded after that is as new as it.
#[inline(always)]
pub(crate) fn load_acquire(from: &AtomicU32) -> u32 {
    if ALONE {
        let value = from.load(Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        value
    } else {
        from.load(Ordering::Acquire)
    }
}

/// Stores a number; who loads it [so](load_acquire) finds what was stored before.
#[inline(always)]
pub(crate) fn store_release(to: &AtomicU32, value: u32) {
    if ALONE {
        compiler_fence(Ordering::Release);
        to.store(value, Ordering::Relaxed);
    } else {
        to.store(value, Ordering::Release);
    }
}

/// [`load_acquire`] of an address.
#[inline(always)]
pub(crate) fn load_address<A>(from: &AtomicPtr<A>) -> *mut A {
    if ALONE {
        let value = from.load(Ordering::Relaxed);
        compiler_fence(Ordering::Acquire);
        value
    } else {
        from.load(Ordering::Acquire)
    }
}

/// [`store_release`] of an address.
#[inline(always)]
pub(crate) fn store_address<A>(to: &AtomicPtr<A>, value: *mut A) {
    if ALONE {
        compiler_fence(Ordering::Release);
        to.store(value, Ordering::Relaxed);
    } else {
        to.store(value, Ordering::Release);
    }
}

/// Who sees anything that is stored behind this sees all that was stored before.
#[inline(always)]
pub(crate) fn release() {
    if ALONE {
        compiler_fence(Ordering::Release);
    } else {
        fence(Ordering::Release);
    }
}

/// Changes a number at once, whoever else does so at this moment; returns what it was. Where there is no
/// compare-and-swap, or nobody else ([`ALONE`]), the caller has interrupts masked.
#[inline(always)]
pub(crate) fn change(number: &AtomicU32, change: impl Fn(u32) -> u32) -> u32 {
    #[cfg_attr(not(target_has_atomic = "32"), allow(unused_mut))]
    let mut old = number.load(Ordering::Relaxed);
    #[cfg(target_has_atomic = "32")]
    if !ALONE {
        while let Err(now) =
            number.compare_exchange_weak(old, change(old), Ordering::AcqRel, Ordering::Relaxed)
        {
            old = now;
        }
        return old;
    }
    store_release(number, change(old));
    old
}

/// Adds to a counter that only one context writes: a load and a store.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU32, more: u32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

/// Loads a word of memory that others may store to meanwhile; nothing is ordered by it.
///
/// # Safety
/// `from` points to a word, aligned, that is only used by this function and [`store_word`].
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn load_word(from: *const u32) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(from.cast_mut()) }.load(Ordering::Relaxed)
}

/// Stores a word of memory that others may load meanwhile; nothing is ordered by it.
///
/// # Safety
/// As [`load_word`].
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn store_word(to: *mut u32, word: u32) {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(to) }.store(word, Ordering::Relaxed);
}

/// Stands for data that one thread at a time owns. Nothing, except in a model.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct Owned;

#[cfg(not(loom))]
impl Owned {
    /// Data that nobody has used.
    pub const fn new() -> Self {
        Self
    }

    /// The data is read now.
    #[inline(always)]
    pub fn read(&self) {}

    /// The data is written now.
    #[inline(always)]
    pub fn written(&self) {}
}

#[cfg(loom)]
#[allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::new_without_default,
    reason = "they are those of core, and for models only"
)]
mod modelled {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;
    use std::fmt;
    use std::rc::Rc;
    use std::sync::OnceLock;

    use loom::sync::atomic as loomed;
    pub use loom::sync::atomic::Ordering;

    std::thread_local! {
        /// What the model that runs weakens.
        pub static WEAK: Cell<Option<Weak>> = const { Cell::new(None) };
        /// The words of memory that a model watches. (All its threads are one of the system's.)
        static WATCHED: RefCell<HashMap<usize, Rc<loomed::AtomicU32>>> = RefCell::default();
    }

    /// From now on a word of memory may be seen as it was before, wherever that is allowed. Each that is
    /// watched makes a model many times as long; of all others the newest value is seen.
    #[cfg(test)]
    pub(crate) fn watch(word: *const u32) {
        // SAFETY: a model watches words of memory that it has.
        let value = unsafe { word.read() };
        let word = (word as usize, Rc::new(loomed::AtomicU32::new(value)));
        WATCHED.with_borrow_mut(|watched| watched.extend([word]));
    }

    /// Watches nothing any more: at the end of each run.
    #[cfg(test)]
    pub(crate) fn watch_nothing() {
        WATCHED.with_borrow_mut(HashMap::clear);
    }

    fn watched(word: *const u32) -> Option<Rc<loomed::AtomicU32>> {
        WATCHED.with_borrow(|watched| watched.get(&(word as usize)).cloned())
    }

    pub unsafe fn load_word(from: *const u32) -> u32 {
        match watched(from) {
            Some(word) => word.load(Ordering::Relaxed),
            // SAFETY: there is a word, by this function's contract.
            None => unsafe { from.read() },
        }
    }

    pub unsafe fn store_word(to: *mut u32, word: u32) {
        match watched(to) {
            Some(watched) => watched.store(word, Ordering::Relaxed),
            // SAFETY: as above.
            None => unsafe { to.write(word) },
        }
    }

    /// An ordering that is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Weak {
        /// Stores and exchanges release nothing.
        Release,
        /// Loads and exchanges acquire nothing.
        Acquire,
        /// Fences do nothing.
        Fence,
    }

    fn weak(weak: Weak) -> bool {
        WEAK.get() == Some(weak)
    }

    /// The ordering that is left of this one; of a sequentially consistent one `less`, if fences do
    /// nothing.
    fn left(order: Ordering, less: Ordering) -> Ordering {
        match order {
            Ordering::SeqCst if weak(Weak::Fence) => less,
            Ordering::Release if weak(Weak::Release) => Ordering::Relaxed,
            Ordering::Acquire if weak(Weak::Acquire) => Ordering::Relaxed,
            Ordering::AcqRel if weak(Weak::Release) => Ordering::Acquire,
            Ordering::AcqRel if weak(Weak::Acquire) => Ordering::Release,
            order => order,
        }
    }

    /// The ordering that is left of a load's, which may have a fence before it.
    fn loading(order: Ordering) -> Ordering {
        if order == Ordering::SeqCst {
            fence(order);
        }
        left(order, Ordering::Acquire)
    }

    /// The same of what loads and stores at once.
    fn exchanging(order: Ordering) -> Ordering {
        if order == Ordering::SeqCst {
            fence(order);
        }
        left(order, Ordering::AcqRel)
    }

    /// The ordering that is left of a store's.
    fn storing(order: Ordering) -> Ordering {
        left(order, Ordering::Release)
    }

    pub fn compiler_fence(_: Ordering) {}

    pub fn fence(order: Ordering) {
        if !weak(Weak::Fence) {
            loomed::fence(order);
        }
    }

    pub fn spin_loop() {
        loom::thread::yield_now();
    }

    macro_rules! atomic {
        ($name:ident$(<$of:ident>)?, $value:ty) => {
            pub struct $name$(<$of>)? {
                first: $value,
                real: OnceLock<loomed::$name$(<$of>)?>,
            }

            // SAFETY: what is inside is only used as the atomic that it stands for.
            unsafe impl$(<$of>)? Sync for $name$(<$of>)? {}
            // SAFETY: as above.
            unsafe impl$(<$of>)? Send for $name$(<$of>)? {}

            impl$(<$of>)? $name$(<$of>)? {
                pub const fn new(first: $value) -> Self {
                    Self { first, real: OnceLock::new() }
                }

                fn real(&self) -> &loomed::$name$(<$of>)? {
                    self.real.get_or_init(|| loomed::$name::new(self.first))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.real().load(loading(order))
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.real().store(value, storing(order));
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.real().swap(value, exchanging(order))
                }

                pub fn compare_exchange(
                    &self,
                    old: $value,
                    new: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.real().compare_exchange(
                        old,
                        new,
                        exchanging(done),
                        left(failed, Ordering::Acquire),
                    )
                }

                pub fn compare_exchange_weak(
                    &self,
                    old: $value,
                    new: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(old, new, done, failed)
                }
            }

            impl$(<$of>)? fmt::Debug for $name$(<$of>)? {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(stringify!($name))
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU32, u32);
    atomic!(AtomicPtr<T>, *mut T);

    impl AtomicU32 {
        pub fn fetch_add(&self, more: u32, order: Ordering) -> u32 {
            self.real().fetch_add(more, exchanging(order))
        }

        pub fn fetch_sub(&self, less: u32, order: Ordering) -> u32 {
            self.real().fetch_sub(less, exchanging(order))
        }
    }

    pub struct Owned(OnceLock<loom::cell::UnsafeCell<()>>);

    // SAFETY: nothing is inside; loom is told of its uses.
    unsafe impl Sync for Owned {}

    impl Owned {
        pub const fn new() -> Self {
            Self(OnceLock::new())
        }

        fn cell(&self) -> &loom::cell::UnsafeCell<()> {
            self.0.get_or_init(|| loom::cell::UnsafeCell::new(()))
        }

        pub fn read(&self) {
            self.cell().with(|_| ());
        }

        pub fn written(&self) {
            self.cell().with_mut(|_| ());
        }
    }

    impl fmt::Debug for Owned {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Owned")
        }
    }
}
