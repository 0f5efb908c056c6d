//! A lock between CPUs, for what may take its time: never on the recording path.

use super::CpusPort;
use crate::sync::{AtomicBool, Ordering};

/// The lock. Whoever waits for it has interrupts masked; who has it waits for nobody.
#[derive(Debug)]
pub(super) struct Lock(AtomicBool);

impl Lock {
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the lock if it is free.
    pub fn try_take(&self) -> bool {
        self.0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Gives it back.
    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Does `work` once the lock is free. Interrupts are masked, or an interrupt handler that wants
    /// the lock of what it interrupted would wait for ever.
    pub fn with<R>(&self, port: &impl CpusPort, work: impl FnOnce() -> R) -> R {
        while !self.try_take() {
            port.pause();
        }
        let result = work();
        self.release();
        result
    }

    /// Does `work` if the lock is free.
    pub fn try_with<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        self.try_take().then(|| {
            let result = work();
            self.release();
            result
        })
    }
}
