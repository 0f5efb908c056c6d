//! The clock: the processor's own counter where it can be trusted, else the kernel's.
//!
//! Reading the counter takes some 20 cycles on x86-64, asking the kernel twice as much and more. It
//! serves when it is known to run at one speed always; how fast is found by holding it against `CLOCK_MONOTONIC_RAW`, at the start and again whenever somebody asks: the
//! longer ago the start, the more exact.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::machine::{counter, counter_is_steady};
use crate::sys;
use crate::wide::Wide;

/// How long the two clocks are compared at least, in nanoseconds, before a rate is given.
const LEAST: u64 = 50_000_000;

/// The clock of a process. In nanoseconds until it is [set up](Self::set_up).
#[derive(Debug)]
pub struct Clock {
    /// The counter is the processor's.
    counter: AtomicBool,
    /// Both clocks at the start.
    start_ticks: Wide,
    start_nanoseconds: Wide,
}

impl Clock {
    /// Not set up.
    pub const fn new() -> Self {
        Self {
            counter: AtomicBool::new(false),
            start_ticks: Wide::new(),
            start_nanoseconds: Wide::new(),
        }
    }

    /// Chooses the counter and begins to measure its rate. Once, before anything is recorded.
    pub fn set_up(&self) {
        if counter_is_steady() {
            let (ticks, nanoseconds) = both();
            self.start_ticks.store(ticks);
            self.start_nanoseconds.store(nanoseconds);
            self.counter.store(true, Ordering::Relaxed);
        }
    }

    /// Whether ticks are those of the processor's counter.
    pub fn is_counter(&self) -> bool {
        self.counter.load(Ordering::Relaxed)
    }

    /// The time in ticks.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        if self.counter.load(Ordering::Relaxed) {
            counter()
        } else {
            sys::nanoseconds()
        }
    }

    /// Ticks a second. Waits, if need be, until the start is 50 ms ago.
    pub fn hz(&self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        if !self.counter.load(Ordering::Relaxed) {
            return SECOND;
        }
        let start = self.start_nanoseconds.load();
        loop {
            let (ticks, nanoseconds) = both();
            let passed = nanoseconds.wrapping_sub(start);
            if passed >= LEAST {
                let ticks = ticks.wrapping_sub(self.start_ticks.load());
                let hz = u128::from(ticks) * u128::from(SECOND) / u128::from(passed);
                return hz as u64;
            }
            sys::sleep(LEAST - passed);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Both clocks at one moment: of a few tries the one in which least time passed between the two
/// readings of the counter.
fn both() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..8 {
        let before = counter();
        let nanoseconds = sys::nanoseconds();
        let width = counter().wrapping_sub(before);
        if width < best.0 {
            best = (width, before.wrapping_add(width / 2), nanoseconds);
        }
    }
    (best.1, best.2)
}
