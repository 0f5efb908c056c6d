//! Whose turn it is to write what all threads share and only one may write: facts of the metadata.
//!
//! They are rare and short, so who comes second waits. But the first may be waiting for a processor, which takes
//! long on a busy machine, and may be the very thread that a signal handler has interrupted, which would wait for
//! ever. So a turn knows its thread.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// So often another one's turn is looked at without giving the processor away.
const SPINS: u32 = 1000;

/// So often it is looked at after that, and what passes in between: half a second in all.
const SLEEPS: u32 = 5000;
const NAP_NS: u64 = 100_000;

/// A turn.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The thread whose turn it is; 0: nobody's.
    thread: AtomicU32,
    /// One that was waited for in vain: nobody waits for it again. (A fork has the turn that another thread of
    /// its parent had, and nobody who would end it.)
    given_up: AtomicU32,
}

impl Turn {
    /// Nobody's.
    pub const fn new() -> Self {
        Self {
            thread: AtomicU32::new(0),
            given_up: AtomicU32::new(0),
        }
    }

    /// Does `work` in its turn; `None` if this thread was at it already, or another one does not end.
    pub fn take<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if !self.begin() {
            return None;
        }
        let result = work();
        self.thread.store(0, Ordering::Release);
        Some(result)
    }

    #[inline(never)]
    fn begin(&self) -> bool {
        let own = sys::thread();
        for look in 0..SPINS + SLEEPS {
            let free = self
                .thread
                .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
            let Err(thread) = free else {
                self.given_up.store(0, Ordering::Relaxed);
                return true;
            };
            if thread == own || thread == self.given_up.load(Ordering::Relaxed) {
                return false;
            }
            if look < SPINS {
                spin_loop();
            } else {
                let before = sys::Errno::last();
                sys::sleep(NAP_NS);
                before.set();
            }
        }
        let thread = self.thread.load(Ordering::Relaxed);
        self.given_up.store(thread, Ordering::Relaxed);
        false
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
    fn who_comes_second_waits_though_the_first_takes_long() {
        let turn = Turn::new();
        let (begun, begins) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                turn.take(|| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                })
            });
            begins.recv().unwrap();
            assert_eq!(turn.take(|| 7), Some(7));
        });
    }

    #[test]
    fn who_interrupts_himself_is_told() {
        let turn = Turn::new();
        assert_eq!(turn.take(|| turn.take(|| ())), Some(None));
        assert_eq!(turn.take(|| 1), Some(1));
    }

    #[test]
    fn who_does_not_end_is_waited_for_once() {
        // No thread has this number.
        let gone = u32::MAX;
        let turn = Turn::new();
        turn.thread.store(gone, Ordering::Relaxed);
        assert_eq!(turn.take(|| ()), None);
        assert_eq!(turn.given_up.load(Ordering::Relaxed), gone);
        assert_eq!(turn.take(|| ()), None);
        // It has ended after all.
        turn.thread.store(0, Ordering::Relaxed);
        assert_eq!(turn.take(|| 1), Some(1));
        assert_eq!(turn.given_up.load(Ordering::Relaxed), 0);
    }
}
