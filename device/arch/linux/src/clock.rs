//! The clock: the processor's own counter where it can be trusted, else the kernel's.
//!
//! Reading the counter takes some 20 cycles on x86-64, asking the kernel twice as much and more. It
//! serves when it is known to run at one speed always; how fast is found by holding it against `CLOCK_MONOTONIC_RAW`, at the start and again whenever somebody asks: the
//! longer ago the start, the more exact.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use kymo_wire::process_file::header;

use crate::machine::{counter, counter_is_steady};
use crate::recording::put;
use crate::sys;
use crate::wide::Wide;

/// How long the two clocks are compared at least, in nanoseconds, before a rate is given.
const LEAST: u64 = 50_000_000;

const SECOND: u64 = 1_000_000_000;

/// The clock of a process. In nanoseconds until it is [set up](Self::set_up).
#[derive(Debug)]
pub struct Clock {
    /// The counter is the processor's.
    counter: AtomicBool,
    /// Both clocks at the start.
    start_ticks: Wide,
    start_nanoseconds: Wide,
    /// The header of the file that the process records into, for pairs of both clocks; null without
    /// one.
    header: AtomicPtr<u8>,
    /// When the next pair is due, in ticks.
    due: Wide,
    /// A thread writes a pair.
    writing: AtomicBool,
}

impl Clock {
    /// Not set up.
    pub const fn new() -> Self {
        Self {
            counter: AtomicBool::new(false),
            start_ticks: Wide::new(),
            start_nanoseconds: Wide::new(),
            header: AtomicPtr::new(null_mut()),
            due: Wide::new(),
            writing: AtomicBool::new(false),
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

    /// Has pairs of both clocks written into the header of a file from now on.
    pub fn publish(&self, header: *mut u8) {
        let is_counter = self.is_counter();
        put(header, header::COUNTER, u32::from(is_counter));
        if is_counter {
            put(header, header::FIRST_PAIR, self.start_ticks.load());
            put(
                header,
                header::FIRST_PAIR + 8,
                self.start_nanoseconds.load(),
            );
            self.due.store(0);
            self.header.store(header, Ordering::Release);
        }
    }

    /// Writes no more pairs: the file is another process's.
    pub fn withdraw(&self) {
        self.header.store(null_mut(), Ordering::Relaxed);
        self.writing.store(false, Ordering::Relaxed);
    }

    /// Writes a pair at `now` if one is due. They are due at growing distances: their rate is as exact
    /// as the time since the start is long.
    #[inline]
    pub fn refresh(&self, now: u64) {
        if now >= self.due.load() {
            self.write_pair();
        }
    }

    #[cold]
    #[inline(never)]
    fn write_pair(&self) {
        let header = self.header.load(Ordering::Acquire);
        if header.is_null() {
            return self.due.store(u64::MAX);
        }
        if self.writing.swap(true, Ordering::Acquire) {
            return;
        }
        let (ticks, nanoseconds) = both();
        // SAFETY: the header is mapped, and the field is aligned.
        let count = unsafe { &*header.add(header::PAIR_COUNT).cast::<AtomicU32>() };
        let next = count.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let slot = header::PAIRS + next as usize % 2 * header::PAIR_BYTES;
        put(header, slot, ticks);
        put(header, slot + 8, nanoseconds);
        count.store(next, Ordering::Release);
        let passed = ticks.wrapping_sub(self.start_ticks.load());
        let wait = (passed / 8).clamp(1 << 14, 1 << 31);
        self.due.store(ticks.saturating_add(wait));
        self.writing.store(false, Ordering::Release);
    }

    /// Ticks a second as measured since the start, which may be a moment ago: exact enough for times
    /// between the two.
    pub fn hz_by_now(&self) -> u64 {
        if !self.is_counter() {
            return SECOND;
        }
        let (ticks, nanoseconds) = both();
        let passed = nanoseconds.wrapping_sub(self.start_nanoseconds.load());
        let ticks = ticks.wrapping_sub(self.start_ticks.load());
        let hz = u128::from(ticks) * u128::from(SECOND) / u128::from(passed.max(1));
        (hz as u64).max(1)
    }

    /// Ticks a second. Waits, if need be, until the start is 50 ms ago.
    pub fn hz(&self) -> u64 {
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
