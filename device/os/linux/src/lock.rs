//! Locks of a process that may fork while they are held.
//!
//! A child of a fork has its parent's memory but only one of its threads: a lock that another thread of the parent held
//! is never released in the child. So a lock stores its owner, and a thread that finds the owner to be a nonexistent
//! thread or another process takes the lock over.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Attempts to acquire a lock without giving up the processor.
const SPINS: u32 = 1000;

/// Attempts after that, and the time between them in nanoseconds: half a second in all.
const SLEEPS: u32 = 5000;
const NAP_NS: u64 = 100_000;

/// Owner-aware lock with a timeout, for short critical sections. The owner may be waiting for a processor, which takes
/// long on a busy machine. Or it is the thread that a signal handler has interrupted, which would deadlock. So the lock
/// stores the owner's thread.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The thread that holds the lock; 0: none.
    thread: AtomicU32,
    /// An owner for which a timeout has expired: no thread waits for it again.
    given_up: AtomicU32,
}

impl Lock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self {
            thread: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
        }
    }

    /// Runs `work` under the lock. Returns `None` if this thread holds the lock already, or if the timeout expires.
    pub fn with<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if !self.acquire() {
            return None;
        }
        let result = work();
        self.thread.store(0, Ordering::Release);
        Some(result)
    }

    /// Frees the lock, whatever its owner. Called in the child of a fork, by its only thread.
    pub fn reset(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.given_up.store(0, Ordering::Relaxed);
    }

    #[inline(never)]
    fn acquire(&self) -> bool {
        let own = sys::thread();
        for look in 0..SPINS + SLEEPS {
            let Err(thread) = self.take(0, own) else {
                self.given_up.store(0, Ordering::Relaxed);
                return true;
            };
            if thread == own || thread == self.given_up.load(Ordering::Relaxed) {
                return false;
            }
            if look < SPINS {
                spin_loop();
                continue;
            }
            if sys::has_ended(sys::process(), thread) && self.take(thread, own).is_ok() {
                return true;
            }
            sys::sleep(NAP_NS);
        }
        let thread = self.thread.load(Ordering::Relaxed);
        self.given_up.store(thread, Ordering::Relaxed);
        false
    }

    fn take(&self, from: u32, own: u32) -> Result<u32, u32> {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.thread.compare_exchange(from, own, success, failure)
    }
}

/// Exclusive access for one user at a time, held for long and by any thread of the process: to read the recording, or
/// to communicate with the host. It stores the owner's process.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The process that holds it; 0: none.
    process: AtomicU32,
}

impl Claim {
    /// Creates a claim that no process holds.
    pub const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
        }
    }

    /// Acquires it; returns false if it is held in this process.
    pub fn take(&self) -> bool {
        let own = sys::process();
        let found = self.process.swap(own, Ordering::Acquire);
        found != own
    }

    /// Releases it.
    pub fn release(&self) {
        self.process.store(0, Ordering::Release);
    }

    /// Returns whether it is held in this process.
    pub fn is_held(&self) -> bool {
        self.process.load(Ordering::Acquire) == sys::process()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_second_waits_though_the_first_takes_long() {
        let lock = Lock::new();
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.with(|| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                })
            });
            begins.recv().unwrap();
            assert_eq!(lock.with(|| 7), Some(7));
        });
    }

    #[test]
    fn a_thread_that_interrupts_itself_is_refused() {
        let lock = Lock::new();
        assert_eq!(lock.with(|| lock.with(|| ())), Some(None));
        assert_eq!(lock.with(|| 1), Some(1));
    }

    #[test]
    fn an_owner_that_is_no_thread_of_this_process_loses_the_lock() {
        // Thread 1 exists, but in process 1 and not in this one.
        let lock = Lock::new();
        lock.thread.store(1, Ordering::Relaxed);
        assert_eq!(lock.with(|| 2), Some(2));
        assert_eq!(lock.thread.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_owner_that_keeps_the_lock_is_waited_for_once() {
        let lock = Lock::new();
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let shared = &lock;
        thread::scope(|scope| {
            scope.spawn(move || {
                shared.with(|| {
                    begun.send(()).unwrap();
                    let _ = ends.recv();
                })
            });
            begins.recv().unwrap();
            assert_eq!(lock.with(|| ()), None);
            assert_ne!(lock.given_up.load(Ordering::Relaxed), 0);
            assert_eq!(lock.with(|| ()), None);
            drop(end);
        });
        assert_eq!(lock.with(|| 1), Some(1));
        assert_eq!(lock.given_up.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_claim_of_another_process_is_void() {
        let claim = Claim::new();
        assert!(claim.take());
        assert!(!claim.take());
        assert!(claim.is_held());
        claim.process.store(1, Ordering::Relaxed);
        assert!(!claim.is_held());
        assert!(claim.take());
        claim.release();
        assert!(claim.take());
    }
}
