//! Profile tables, with the feature `table`: each CPU keeps one, and a thread goes from CPU to CPU in the middle of its
//! calls.

use core::ffi::c_void;
use core::hint::{black_box, spin_loop};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

use kymo::CpuBuffers;

use crate::CPUS;

/// Whether the program has tables.
const EXISTS: bool = cfg!(feature = "table");

/// Number of functions for which each CPU has room.
pub const SLOTS: u32 = if EXISTS { 64 } else { 0 };
/// Number of shadow stacks: each CPU has one for interrupts, and one for code without a thread; there is one thread.
pub const STACKS: u32 = 2 * CPUS + 1;
/// Number of frames of each.
pub const DEPTH: u32 = 24;

/// Sizes of a slot and a frame in bytes (`kymo_slot_t`, `kymo_frame_t`).
const SLOT: u32 = 48;
const FRAME: u32 = 32;

/// Size of memory that there is only with tables.
const fn size(bytes: u32) -> usize {
    if EXISTS { bytes as usize } else { 128 }
}

static SLOT_MEMORY: CpuBuffers<{ size(CPUS * 64 * SLOT) }> = CpuBuffers::new();
static FRAME_MEMORY: CpuBuffers<{ size(STACKS * DEPTH * FRAME) }> = CpuBuffers::new();

/// Memory for slots; null without tables.
pub const fn slots() -> *mut c_void {
    if EXISTS {
        SLOT_MEMORY.get()
    } else {
        null_mut()
    }
}

/// Memory for frames; null without tables.
pub const fn frames() -> *mut c_void {
    if EXISTS {
        FRAME_MEMORY.get()
    } else {
        null_mut()
    }
}

/// Number of times that the thread runs on each CPU.
const LAPS: u32 = 100;

/// The thread's number.
const THREAD: usize = 1;

/// Number of times that the thread has run.
static LEGS: AtomicU32 = AtomicU32::new(0);

// SAFETY: the recorder defines them.
unsafe extern "C" {
    safe fn __cyg_profile_func_enter(function: *const c_void, caller: *const c_void);
    safe fn __cyg_profile_func_exit(function: *const c_void, caller: *const c_void);
}

/// From CPU 0 to 3, or from 4 to 7. (Different from [`leg`], so that the two are not merged.)
extern "C" fn journey() {
    black_box(3);
}

/// From one CPU to the next.
extern "C" fn leg() {
    black_box(1);
}

/// Runs the thread on this CPU, in turns with the others: `journey` is called on CPUs 0 and 4 and ends on 3 and 7, and
/// each of three calls of `leg` in between ends on the CPU behind the one on which it began.
pub fn travel(cpu: u16) {
    if !EXISTS {
        return;
    }
    let enter = |function: extern "C" fn()| {
        __cyg_profile_func_enter(function as *const c_void, null_mut());
    };
    let exit = |function: extern "C" fn()| {
        __cyg_profile_func_exit(function as *const c_void, null_mut());
    };
    for lap in 0..LAPS {
        let number = lap * CPUS + u32::from(cpu);
        while LEGS.load(Ordering::Acquire) != number {
            spin_loop();
        }
        kymo::switched_in(THREAD);
        match number % 4 {
            0 => enter(journey),
            _ => exit(leg),
        }
        match number % 4 {
            3 => exit(journey),
            _ => enter(leg),
        }
        kymo::switched_out(THREAD);
        LEGS.store(number + 1, Ordering::Release);
    }
}
