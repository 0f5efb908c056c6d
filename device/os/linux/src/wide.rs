//! 64-bit number that several threads read and write, also on processors without 64-bit atomics. There it consists of
//! two halves and a sequence count, which is odd while a write is in progress.
//!
//! Used only for times in statistics and timeouts: on such a processor two concurrent writes may leave a mixture of
//! both, and a reader gives up after a number of attempts.

#[cfg(target_has_atomic = "64")]
mod only {
    use core::sync::atomic::{AtomicU64, Ordering};

    /// The number.
    #[derive(Debug, Default)]
    pub struct Wide(AtomicU64);

    impl Wide {
        /// Creates a zero.
        pub const fn new() -> Self {
            Self(AtomicU64::new(0))
        }

        /// Reads the number.
        pub fn load(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        /// Writes the number.
        pub fn store(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(not(target_has_atomic = "64"))]
mod only {
    use core::sync::atomic::{AtomicU32, Ordering, fence};

    /// Number of attempts of a reader.
    const TRIES: u32 = 1000;

    /// The number.
    #[derive(Debug, Default)]
    pub struct Wide {
        writings: AtomicU32,
        upper: AtomicU32,
        lower: AtomicU32,
    }

    impl Wide {
        /// Creates a zero.
        pub const fn new() -> Self {
            Self {
                writings: AtomicU32::new(0),
                upper: AtomicU32::new(0),
                lower: AtomicU32::new(0),
            }
        }

        /// Reads the number.
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

        /// Writes the number.
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
