//! Linux as the recorder's target: the clock, the memory barrier, the stack, the wall clock.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_recorder::Target;
use kymo_recorder::encode::Functions;
use kymo_recorder::hot::COUNTING;
use kymo_recorder::threads::{Frame, ThreadBuffer, ThreadPort, WallClock};
use kymo_wire::event::Layout;
use kymo_wire::process_file::region;

use crate::clock::Clock;
use crate::machine;
use crate::sys;

/// Linux as target and thread port.
#[derive(Debug)]
pub struct Linux {
    pub(crate) clock: Clock,
    pub(crate) fenced: AtomicBool,
    /// Period of the clock in which the wall-clock time was recorded last.
    pub(crate) wall_clock_reported: AtomicU32,
}

/// Length of a period in ticks, as a power of two. The wall-clock time is recorded once per period: with a clock of 1
/// GHz or more every one or two seconds.
const WALL_CLOCK_BITS: u32 = 31;

/// Returns the number of the current period of the clock; never 0, which means none.
pub(crate) fn period(now: u64) -> u32 {
    ((now >> WALL_CLOCK_BITS) as u32).max(1)
}

impl Linux {
    /// Creates a port whose clock is not measured yet.
    pub(crate) const fn new() -> Self {
        Self {
            clock: Clock::new(),
            fenced: AtomicBool::new(false),
            wall_clock_reported: AtomicU32::new(0),
        }
    }

    /// Returns the clock's frequency in ticks per second. May wait about 50 ms to measure it.
    pub(crate) fn hz(&self) -> u64 {
        self.clock.hz()
    }

    /// Returns whether hooks may take the fast path. The fast path in assembly reads the processor's counter, relies on
    /// the reader's memory barrier, and does not shift function addresses.
    pub(crate) fn is_fast(&self, functions: Functions) -> bool {
        let usual = self.clock.is_counter()
            && !self.fenced()
            && functions.layout::<Self>().function_shift == 0
            && COUNTING;
        usual || !cfg!(target_arch = "x86_64")
    }
}

impl Target for Linux {
    const LAYOUT: Layout = Layout::NATIVE;
    const NAMES_EXITS: bool = true;
}

impl ThreadPort for Linux {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline(always)]
    fn fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn stack(&self) -> *mut u8 {
        machine::stack()
    }

    /// The memory of a stack has one owner at a time. So the interrupted hook is gone if its frame, which begins at
    /// `there`, lies within the frame of the hook that asks or of the function that called it: and only then. Which
    /// stack a handler runs on makes no difference: one that the kernel does not report while it is disarmed
    /// (`SS_AUTODISARM`), a local array of a function that has not returned, or a coroutine's. (A handler must not
    /// switch to another stack for good, and something else back to the hook, as threads do that a program switches
    /// itself.)
    fn has_left(&self, there: *mut u8, frame: Frame) -> bool {
        let (own, hook, there) = (
            machine::stack() as usize,
            frame.stack as usize,
            there as usize,
        );
        (own..=hook).contains(&there)
            || hook < there && sys::first_above(hook, frame.caller).is_some_and(|it| there <= it)
    }

    fn refresh(&self, thread_buffer: &ThreadBuffer<Self>, now: u64) {
        let thread_buffer = core::ptr::from_ref(thread_buffer).cast::<u8>().cast_mut();
        // SAFETY: a thread buffer's region begins with its header, and this is the thread buffer's thread.
        unsafe {
            self.clock
                .refresh(thread_buffer.wrapping_sub(region::BYTES), now)
        };
    }

    fn wall_clock_due(&self, now: u64) -> bool {
        let period = period(now);
        let reported = self.wall_clock_reported.load(Ordering::Relaxed);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        period != reported
            && self
                .wall_clock_reported
                .compare_exchange(reported, period, success, failure)
                .is_ok()
    }

    fn wall_clock(&self) -> Option<WallClock> {
        let before = sys::nanoseconds();
        let ns = sys::since_1970();
        let now = self.clock.now();
        // Both clocks were read within this time.
        let took = sys::nanoseconds().saturating_sub(before);
        Some(WallClock {
            now,
            ns,
            uncertainty: u32::try_from(took).unwrap_or(u32::MAX).max(1),
        })
    }
}
