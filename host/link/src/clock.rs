//! The clock by which waits are measured.
//!
//! A [`Transport`](crate::Transport) brings its clock with it: all that waits for bytes of it, or gives it up, asks that one.
//! So a transport of a test can let time pass without waiting. What waits for no transport (for a connection to be
//! accepted, a file to change) goes by the system's.

use std::time::{Duration, Instant};

/// Source of time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Instant;

    /// Waits for so long.
    fn sleep(&self, duration: Duration);

    /// How long ago a time was; zero if it is yet to come.
    fn since(&self, time: Instant) -> Duration {
        self.now().saturating_duration_since(time)
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
