//! AArch64. The thread-local word uses the initial-exec model, as on x86-64. The counter is the generic timer's, whose
//! frequency is constant by definition.

use core::arch::asm;
use core::ffi::c_long;

pub const GETTID: c_long = 178;
pub const MEMBARRIER: c_long = 283;
pub const TGKILL: c_long = 131;
pub const SIGPROCMASK: c_long = 135;
pub const STATX: c_long = 291;

/// Interval between checks whether a library was unloaded: a power of two of ticks, some microseconds. Shorter than the
/// time to unload a library and load another.
pub const UNLOAD_TICKS: u32 = 9;

#[inline(always)]
pub fn thread_buffer() -> *const u8 {
    let value: *const u8;
    // SAFETY: it reads the thread's own word, which exists as long as the thread.
    unsafe {
        asm!(
            "mrs {1}, tpidr_el0",
            "adrp {0}, :gottprel:kymo_thread_buffer",
            "ldr {0}, [{0}, :gottprel_lo12:kymo_thread_buffer]",
            "ldr {0}, [{1}, {0}]",
            out(reg) value,
            out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    value
}

/// Returns the stack pointer.
#[inline(always)]
pub fn stack() -> *mut u8 {
    let value;
    // SAFETY: it reads a register.
    unsafe {
        asm!("mov {0}, sp", out(reg) value, options(nostack, nomem, preserves_flags));
    }
    value
}

pub fn set_thread_buffer(value: *const u8) {
    // SAFETY: it writes the thread's own word, which only this module uses.
    unsafe {
        asm!(
            "mrs {1}, tpidr_el0",
            "adrp {0}, :gottprel:kymo_thread_buffer",
            "ldr {0}, [{0}, :gottprel_lo12:kymo_thread_buffer]",
            "str {2}, [{1}, {0}]",
            out(reg) _,
            out(reg) _,
            in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Reads the generic timer.
#[inline(always)]
pub fn counter() -> u64 {
    let value;
    // SAFETY: Linux lets user programs read the virtual counter.
    unsafe {
        asm!("mrs {0}, cntvct_el0", out(reg) value, options(nostack, nomem, preserves_flags));
    }
    value
}

/// See [`crate::clock`]: only where the processor may not say that the counter is steady.
pub const CLOCK_SOURCE: Option<&[u8]> = None;

pub fn counter_is_steady() -> bool {
    true
}
