//! Atomics: the processor's own or, in a [model](crate), those of loom, which tries every interleaving of threads and
//! every value that each could see.
//!
//! Loom's atomics can't be created at compile time, nor outside of a model; so in a model these are created at first
//! use. Two things exist for models only: [`Owned`] represents data without atomics, and fails a model in which two
//! threads can use it at once; and a model may weaken one kind of ordering, to show that the error would be found.
//!
//! Loom treats sequentially consistent loads and stores as acquiring and releasing ones. Here such a load or exchange
//! has a fence before it, as compilers of some processors generate it: any store before is then ordered with it, and no
//! more than the language guarantees.

#[cfg(not(loom))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence, fence},
};
#[cfg(loom)]
pub use modelled::*;

/// Number of polls of a reader that waits for an imminent event.
pub const SPINS: u32 = if cfg!(loom) { 8 } else { 1_000_000 };

/// Whether everything that a recorder shares is used by one processor, with interrupts masked for every change:
/// microcontrollers of these kinds have only [`single`](crate::single). So no access need be atomic as a whole, and
/// only the compiler must be kept from reordering.
pub(crate) const ALONE: bool = cfg!(all(
    not(loom),
    target_os = "none",
    any(
        target_arch = "arm",
        target_arch = "riscv32",
        target_arch = "riscv64"
    )
));

/// Number of instances of a counter that only recorders of several processors or threads need: 0 or 1.
pub(crate) const SHARED: usize = if ALONE { 0 } else { 1 };

/// Loads a number with acquire ordering.
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

/// Stores a number with release ordering: a context that loads it with [`load_acquire`] sees everything stored before.
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

/// Release fence: a context that sees anything stored after it sees everything stored before.
#[inline(always)]
pub(crate) fn release() {
    if ALONE {
        compiler_fence(Ordering::Release);
    } else {
        fence(Ordering::Release);
    }
}

/// Changes a number atomically; returns the previous value. On processors without compare-and-swap, or with no other
/// context ([`ALONE`]), the caller has masked interrupts.
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

/// Loads a word of memory that others may store to meanwhile, with relaxed ordering.
///
/// # Safety
/// `from` points to a word, aligned, that is only used by this function and [`store_word`].
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn load_word(from: *const u32) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(from.cast_mut()) }.load(Ordering::Relaxed)
}

/// Stores a word of memory that others may load meanwhile, with relaxed ordering.
///
/// # Safety
/// As [`load_word`].
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn store_word(to: *mut u32, word: u32) {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(to) }.store(word, Ordering::Relaxed);
}

/// Represents data that one thread at a time owns. Empty, except in a model.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct Owned;

#[cfg(not(loom))]
impl Owned {
    /// Data that no thread has used.
    pub const fn new() -> Self {
        Self
    }

    /// Marks a read of the data.
    #[inline(always)]
    pub fn read(&self) {}

    /// Marks a write of the data.
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
        /// The ordering that the running model weakens.
        pub static WEAK: Cell<Option<Weak>> = const { Cell::new(None) };
        /// The words of memory that a model watches. (All threads of a model run in one thread of the system.)
        static WATCHED: RefCell<HashMap<usize, Rc<loomed::AtomicU32>>> = RefCell::default();
    }

    /// Makes loom track a word of memory, so that threads may see its older values wherever that is allowed. Each such
    /// word makes a model many times as long; of all other words threads see the newest value.
    #[cfg(test)]
    pub(crate) fn watch(word: *const u32) {
        // SAFETY: a model watches words of memory that it has.
        let value = unsafe { word.read() };
        let word = (word as usize, Rc::new(loomed::AtomicU32::new(value)));
        WATCHED.with_borrow_mut(|watched| watched.extend([word]));
    }

    /// Stops tracking: at the end of each run.
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

    /// A kind of ordering that a model omits.
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

    /// The ordering that remains of this one; `less` of a sequentially consistent one, if fences do nothing.
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

    /// The ordering that remains of a load's, which may have a fence before it.
    fn loading(order: Ordering) -> Ordering {
        if order == Ordering::SeqCst {
            fence(order);
        }
        left(order, Ordering::Acquire)
    }

    /// The ordering that remains of an exchange's, which may have a fence before it.
    fn exchanging(order: Ordering) -> Ordering {
        if order == Ordering::SeqCst {
            fence(order);
        }
        left(order, Ordering::AcqRel)
    }

    /// The ordering that remains of a store's.
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

    // SAFETY: it holds no data; loom tracks its uses.
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
