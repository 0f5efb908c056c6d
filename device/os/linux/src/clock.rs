//! Clock of a process: the processor's counter if it is steady, else the kernel's clock.
//!
//! Reading the counter takes about 20 cycles on x86-64, calling the kernel twice as much or more. The counter is used
//! if its frequency is known to be constant. Its frequency is measured against `CLOCK_MONOTONIC_RAW`, at the start and
//! at each request: the more time has passed since the start, the more exact it is.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_wire::process_file::{PAIR_BYTES, header, region};

use crate::fields::put;
use crate::machine::{CLOCK_SOURCE, counter, counter_is_steady};
use crate::sys;
use crate::wide::Wide;

/// Minimum time, in nanoseconds, over which the two clocks are compared for a frequency.
const LEAST: u64 = 50_000_000;

const SECOND: u64 = 1_000_000_000;

/// Unit, in ticks as a power of two, of the time at which a pair is due.
const DUE_BITS: u32 = 14;

/// The clock of a process. It counts nanoseconds until it is [set up](Self::set_up).
#[derive(Debug)]
pub struct Clock {
    /// Whether the clock is the processor's counter.
    counter: AtomicBool,
    /// Values of both clocks at the start.
    start_ticks: Wide,
    start_nanoseconds: Wide,
}

impl Clock {
    /// Creates a clock that is not set up.
    pub const fn new() -> Self {
        Self {
            counter: AtomicBool::new(false),
            start_ticks: Wide::new(),
            start_nanoseconds: Wide::new(),
        }
    }

    /// Chooses the counter and begins to measure its frequency. Called once, before anything is recorded.
    pub fn set_up(&self) {
        if counter_is_steady() || is_clock_source() {
            let (ticks, nanoseconds) = both(8);
            self.start_ticks.store(ticks);
            self.start_nanoseconds.store(nanoseconds);
            self.counter.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether ticks are those of the processor's counter.
    pub fn is_counter(&self) -> bool {
        self.counter.load(Ordering::Relaxed)
    }

    /// Returns the time in ticks.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        if self.counter.load(Ordering::Relaxed) {
            counter()
        } else {
            sys::nanoseconds()
        }
    }

    /// Writes the clock's fields in the header of a file. A file that is created long after the start, such as that of
    /// a fork, contains the pair of clock values at the start, so that the frequency is known even if the process is
    /// short-lived.
    pub fn describe(&self, header: *mut u8) {
        put(header, header::COUNTER, u32::from(self.is_counter()));
        put(header, header::FIRST_PAIR, self.start_ticks.load());
        put(
            header,
            header::FIRST_PAIR + 8,
            self.start_nanoseconds.load(),
        );
    }

    /// Writes a pair of clock values into the header of a region, if one is due at `now`. The intervals grow: the
    /// frequency is as exact as the time since the start is long.
    ///
    /// # Safety
    /// A region begins there, and the calling thread owns it.
    #[inline]
    pub unsafe fn refresh(&self, region: *mut u8, now: u64) {
        // SAFETY: the region begins with a header, in which this is aligned.
        let due = unsafe { region.add(region::PAIR_DUE).cast::<u32>().read() };
        let behind = ((now >> DUE_BITS) as u32).wrapping_sub(due);
        if behind < u32::MAX / 2 && self.is_counter() {
            self.write_pair(region);
        }
    }

    /// Writes the first pair into the header of a new region: the thread may exit, or be killed, before the next pair
    /// is due.
    pub(crate) fn begin(&self, region: *mut u8) {
        if self.is_counter() {
            self.write_pair(region);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_pair(&self, region: *mut u8) {
        let (ticks, nanoseconds) = both(2);
        // SAFETY: as above.
        let count = unsafe { &*region.add(region::PAIR_COUNT).cast::<AtomicU32>() };
        let next = count.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let slot = region::PAIRS + next as usize % 2 * PAIR_BYTES;
        put(region, slot, ticks);
        put(region, slot + 8, nanoseconds);
        count.store(next, Ordering::Release);
        let passed = ticks.wrapping_sub(self.start_ticks.load());
        let wait = (passed / 8).clamp(1 << DUE_BITS, 1 << 31);
        let due = (ticks.wrapping_add(wait) >> DUE_BITS) as u32;
        put(region, region::PAIR_DUE, due);
    }

    /// Returns the frequency in ticks per second, measured since the start, however recent: exact enough for times
    /// between the start and now.
    pub fn hz_by_now(&self) -> u64 {
        if !self.is_counter() {
            return SECOND;
        }
        let (ticks, nanoseconds) = both(8);
        let passed = nanoseconds.wrapping_sub(self.start_nanoseconds.load());
        let ticks = ticks.wrapping_sub(self.start_ticks.load());
        let hz = u128::from(ticks) * u128::from(SECOND) / u128::from(passed.max(1));
        (hz as u64).max(1)
    }

    /// Returns the frequency in ticks per second. Waits, if necessary, until 50 ms have passed since the start.
    pub fn hz(&self) -> u64 {
        self.hz_over(LEAST)
    }

    /// Returns the frequency in ticks per second, measured over at least `least` nanoseconds since the start. Waits if
    /// necessary.
    pub(crate) fn hz_over(&self, least: u64) -> u64 {
        if !self.counter.load(Ordering::Relaxed) {
            return SECOND;
        }
        let start = self.start_nanoseconds.load();
        loop {
            let (ticks, nanoseconds) = both(8);
            let passed = nanoseconds.wrapping_sub(start);
            if passed >= least {
                let ticks = ticks.wrapping_sub(self.start_ticks.load());
                let hz = u128::from(ticks) * u128::from(SECOND) / u128::from(passed);
                return hz as u64;
            }
            sys::sleep(least - passed);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads both clocks at the same time. Of several attempts it returns the one with the shortest interval between its
/// two readings of the counter.
fn both(tries: u32) -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..tries {
        let before = counter();
        let nanoseconds = sys::nanoseconds();
        let width = counter().wrapping_sub(before);
        if width < best.0 {
            best = (width, before.wrapping_add(width / 2), nanoseconds);
        }
    }
    (best.1, best.2)
}

/// Returns whether the kernel, which monitors the counter, uses it as its clock source.
fn is_clock_source() -> bool {
    const CLOCK: &[u8] = b"/sys/devices/system/clocksource/clocksource0/current_clocksource\0";
    let mut name = [0; 8];
    CLOCK_SOURCE.is_some_and(|counter| {
        sys::read_front(CLOCK, &mut name).is_ok_and(|name| name.trim_ascii_end() == counter)
    })
}
