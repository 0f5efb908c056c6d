//! Linux as a recorder sees it: the time, the barrier, the stack, the time of day.

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

/// Linux as a target and port.
#[derive(Debug)]
pub struct Linux {
    pub(crate) clock: Clock,
    pub(crate) fenced: AtomicBool,
    /// In which period of the clock the time of day was recorded last.
    pub(crate) wall_clock_told: AtomicU32,
}

/// The time of day is recorded once in so many ticks, as a power of two: with a clock of a GHz or more
/// every one or two seconds.
const WALL_CLOCK_BITS: u32 = 31;

/// In which period of the clock this is; not 0, which is none yet.
pub(crate) fn period(now: u64) -> u32 {
    ((now >> WALL_CLOCK_BITS) as u32).max(1)
}

impl Linux {
    /// Not measured yet.
    pub(crate) const fn new() -> Self {
        Self {
            clock: Clock::new(),
            fenced: AtomicBool::new(false),
            wall_clock_told: AtomicU32::new(0),
        }
    }

    /// Ticks a second. May wait some 50 ms to find out.
    pub(crate) fn hz(&self) -> u64 {
        self.clock.hz()
    }

    /// Whether hooks may take the fast path. Where they do that in assembly, that reads the
    /// processor's counter, relies on a barrier of the reader's, and does not shift functions.
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

    /// A hook of a handler lies farther below than what the kernel saves, and one behind a jump less far, or above.
    /// That holds within the thread's own stack, of which the upper end is known: above it is a stack of a
    /// handler's own, which the kernel does not tell of while it is disarmed (`SS_AUTODISARM`). (A handler must
    /// not go to another stack in other ways and come back to the hook, as threads do that a program switches
    /// itself.) A clock that has to be asked for may be instrumented, so that any hook calls hooks.
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
        let told = self.wall_clock_told.load(Ordering::Relaxed);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        period != told
            && self
                .wall_clock_told
                .compare_exchange(told, period, success, failure)
                .is_ok()
    }

    fn wall_clock(&self) -> Option<WallClock> {
        let (now, ns, took) = far_below(|| {
            let before = sys::nanoseconds();
            let ns = sys::since_1970();
            let now = self.clock.now();
            // Both were read within this time.
            (now, ns, sys::nanoseconds().saturating_sub(before))
        });
        Some(WallClock {
            now,
            ns,
            uncertainty: u32::try_from(took).unwrap_or(u32::MAX).max(1),
        })
    }
}

/// The upper end of the calling thread's own stack, or an address above it. The C library puts the data of a
/// thread, and so the recorder's word, above the thread's stack, in one piece of memory; above the stack of
/// the first thread is nothing that a program could use.
fn stack_end() -> usize {
    if sys::thread() == sys::process() {
        usize::MAX
    } else {
        machine::word() as usize
    }
}

/// Does `work` as far below in the stack as a signal's handler: hooks in what it calls are not taken for those of a
/// thread that has left this one ([`ThreadPort::has_left`]).
#[inline(never)]
fn far_below<R>(work: impl FnOnce() -> R) -> R {
    let room = MaybeUninit::<[u8; SIGNAL_FRAME]>::uninit();
    black_box(&room);
    let result = work();
    black_box(&room);
    result
}
