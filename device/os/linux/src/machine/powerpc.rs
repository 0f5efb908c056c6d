//! PowerPC, 32 and 64 bits. The thread-local word uses the local-exec model, which needs no register for a table's
//! address. So the recorder can be linked to a program, but not into a shared library. The counter is the time base,
//! whose frequency is constant by definition.

use core::arch::asm;
use core::ffi::c_long;

pub const GETTID: c_long = 207;
pub const MEMBARRIER: c_long = 365;
pub const TGKILL: c_long = 250;
pub const SIGPROCMASK: c_long = 174;
pub const STATX: c_long = 383;

/// The register that holds the address of the thread's data under Linux.
#[cfg(target_arch = "powerpc")]
macro_rules! thread_register {
    () => {
        "2"
    };
}
#[cfg(target_arch = "powerpc64")]
macro_rules! thread_register {
    () => {
        "13"
    };
}

/// The instructions that load and store a word.
#[cfg(target_arch = "powerpc")]
macro_rules! access {
    (load) => {
        "lwz"
    };
    (store) => {
        "stw"
    };
}
#[cfg(target_arch = "powerpc64")]
macro_rules! access {
    (load) => {
        "ld"
    };
    (store) => {
        "std"
    };
}

/// Interval between checks whether a library was unloaded: a power of two of ticks, some microseconds. Shorter than the
/// time to unload a library and load another.
pub const UNLOAD_TICKS: u32 = 9;

#[inline(always)]
pub fn thread_buffer() -> *const u8 {
    let value: *const u8;
    // SAFETY: it reads the thread's own word, which exists as long as the thread.
    unsafe {
        asm!(
            concat!("addis {0}, ", thread_register!(), ", kymo_thread_buffer@tprel@ha"),
            concat!(access!(load), " {0}, kymo_thread_buffer@tprel@l({0})"),
            out(reg_nonzero) value,
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
        asm!("mr {0}, 1", out(reg) value, options(nostack, nomem, preserves_flags));
    }
    value
}

pub fn set_thread_buffer(value: *const u8) {
    // SAFETY: it writes the thread's own word, which only this module uses.
    unsafe {
        asm!(
            concat!("addis {0}, ", thread_register!(), ", kymo_thread_buffer@tprel@ha"),
            concat!(access!(store), " {1}, kymo_thread_buffer@tprel@l({0})"),
            out(reg_nonzero) _,
            in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Reads the time base.
#[cfg(target_arch = "powerpc")]
#[inline(always)]
pub fn counter() -> u64 {
    loop {
        let (upper, lower, again): (u32, u32, u32);
        // SAFETY: user programs may read the time base.
        unsafe {
            asm!(
                "mftbu {0}",
                "mftb {1}",
                "mftbu {2}",
                out(reg) upper,
                out(reg) lower,
                out(reg) again,
                options(nostack, nomem, preserves_flags),
            );
        }
        if upper == again {
            return u64::from(upper) << 32 | u64::from(lower);
        }
    }
}

/// Reads the time base.
#[cfg(target_arch = "powerpc64")]
#[inline(always)]
pub fn counter() -> u64 {
    let value;
    // SAFETY: user programs may read the time base.
    unsafe {
        asm!("mftb {0}", out(reg) value, options(nostack, nomem, preserves_flags));
    }
    value
}

/// See [`crate::clock`]: only where the processor may not say that the counter is steady.
pub const CLOCK_SOURCE: Option<&[u8]> = None;

pub fn counter_is_steady() -> bool {
    true
}
