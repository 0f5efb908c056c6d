//! Linux as the recorder's target: the clock, the memory barrier, the stack, the wall clock.

use core::hint::black_box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kymo_recorder::Target;
use kymo_recorder::encode::Functions;
use kymo_recorder::hot::COUNTING;
use kymo_recorder::threads::{ThreadBuffer, ThreadPort, WallClock};
use kymo_wire::event::Layout;
use kymo_wire::process_file::region;

use crate::clock::Clock;
use crate::machine::{self, SIGNAL_FRAME};
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

    /// Compares stack pointers: the hook of a signal handler is farther below the interrupted hook than the frame that
    /// the kernel saves, and a hook after a jump is less far below, or above. That holds only within the thread's own
    /// stack, whose upper end is known. Above it is a handler's alternate stack, which the kernel does not report while
    /// it is disarmed (`SS_AUTODISARM`). (A handler must not switch stacks in other ways and return to the hook, as
    /// threads do that a program switches itself.) If the clock is read by a function call, that function may be
    /// instrumented, so that any hook may call hooks.
    fn has_left(&self, there: *mut u8) -> bool {
        let (here, there) = (machine::stack() as usize, there as usize);
        let end = stack_end();
        let far = here.saturating_add(SIGNAL_FRAME / 2) < there && there < end;
        here < end && !far && self.clock.is_counter() && !sys::is_on_signal_stack()
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
        let (now, ns, took) = far_below(|| {
            let before = sys::nanoseconds();
            let ns = sys::since_1970();
            let now = self.clock.now();
            // Both clocks were read within this time.
            (now, ns, sys::nanoseconds().saturating_sub(before))
        });
        Some(WallClock {
            now,
            ns,
            uncertainty: u32::try_from(took).unwrap_or(u32::MAX).max(1),
        })
    }
}

/// Returns the upper end of the calling thread's own stack, or an address above it. The C library allocates a thread's
/// data, and so the recorder's word, above the thread's stack, in one piece of memory. Above the first thread's stack
/// there is nothing that a program could use.
fn stack_end() -> usize {
    if sys::thread() == sys::process() {
        usize::MAX
    } else {
        machine::word() as usize
    }
}

/// Runs `work` as far down the stack as a signal handler would be. Hooks in functions that it calls are then not
/// mistaken for hooks of a thread that has left this one by a jump ([`ThreadPort::has_left`]).
#[inline(never)]
fn far_below<R>(work: impl FnOnce() -> R) -> R {
    let room = MaybeUninit::<[u8; SIGNAL_FRAME]>::uninit();
    black_box(&room);
    let result = work();
    black_box(&room);
    result
}
