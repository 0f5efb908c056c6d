//! A number of 64 bits that several threads read and write, also on processors that have no such
//! access: there it is two halves and a count of the writings, which is odd while one goes on.
//!
//! For times that nothing but statistics and patience depend on: two that write at once on such a
//! processor may leave a mixture of both, and a reader gives up after a while.

#[cfg(target_has_atomic = "64")]
mod only {
    use core::sync::atomic::{AtomicU64, Ordering};

    /// The number.
    #[derive(Debug, Default)]
    pub struct Wide(AtomicU64);

    impl Wide {
        /// Zero.
        pub const fn new() -> Self {
            Self(AtomicU64::new(0))
        }

        /// What it is.
        pub fn load(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        /// Makes it another.
        pub fn store(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(not(target_has_atomic = "64"))]
mod only {
    use core::sync::atomic::{AtomicU32, Ordering, fence};

    /// How often a reader looks again.
    const TRIES: u32 = 1000;

    /// The number.
    #[derive(Debug, Default)]
    pub struct Wide {
        writings: AtomicU32,
        upper: AtomicU32,
        lower: AtomicU32,
    }

    impl Wide {
        /// Zero.
        pub const fn new() -> Self {
            Self {
                writings: AtomicU32::new(0),
                upper: AtomicU32::new(0),
                lower: AtomicU32::new(0),
            }
        }

        /// What it is.
        pub fn load(&self) -> u64 {
            let mut value = 0;
            for _ in 0..TRIES {
                let before = self.writings.load(Ordering::Acquire);
                let upper = self.upper.load(Ordering::Relaxed);
                let lower = self.lower.load(Ordering::Relaxed);
                value = u64::from(upper) << 32 | u64::from(lower);
                fence(Ordering::Acquire);
                if before.is_multiple_of(2) && self.writings.load(Ordering::Relaxed) == before {
                    break;
                }
                core::hint::spin_loop();
            }
            value
        }

        /// Makes it another.
        pub fn store(&self, value: u64) {
            self.writings.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::Release);
            self.upper.store((value >> 32) as u32, Ordering::Relaxed);
            self.lower.store(value as u32, Ordering::Relaxed);
            self.writings.fetch_add(1, Ordering::Release);
        }
    }
}

pub use only::Wide;
