//! Spin lock between CPUs, for slow operations only: never on the recording path.

use super::CpusPort;
use crate::sync::{AtomicBool, Ordering};

/// The lock. CPUs wait for it with interrupts masked; its holder waits for no CPU that waits for it.
#[derive(Debug)]
pub(super) struct Lock(AtomicBool);

impl Lock {
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Acquires the lock if it is free.
    pub fn try_take(&self) -> bool {
        self.0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock.
    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Runs `work` with the lock held. The caller has masked interrupts: otherwise an interrupt handler could wait
    /// forever for a lock that the context it interrupted holds.
    pub fn with<R>(&self, port: &impl CpusPort, work: impl FnOnce() -> R) -> R {
        while !self.try_take() {
            port.pause();
        }
        let result = work();
        self.release();
        result
    }

    /// Runs `work` with the lock held if it is free.
    pub fn try_with<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.try_take().then(|| {
            let result = work();
            self.release();
            result
        })
    }
}
