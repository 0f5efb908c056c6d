//! x86-64. The thread-local word uses the initial-exec model: the linker fixes its offset, and reading it takes two
//! instructions and no call. (A shared library that is opened late with `dlopen` may find no room for it; link the
//! recorder to the program.)

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::ffi::c_long;

pub const GETTID: c_long = 186;
pub const MEMBARRIER: c_long = 324;
pub const TGKILL: c_long = 234;
pub const SIGPROCMASK: c_long = 14;
pub const STATX: c_long = 332;

/// Interval between checks whether a library was unloaded: a power of two of ticks, some microseconds. Shorter than the
/// time to unload a library and load another.
pub const UNLOAD_TICKS: u32 = 14;

#[inline(always)]
pub fn thread_buffer() -> *const u8 {
    let value: *const u8;
    // SAFETY: it reads the thread's own word, which exists as long as the thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + kymo_thread_buffer@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) value,
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
        asm!("mov {0}, rsp", out(reg) value, options(nostack, nomem, preserves_flags));
    }
    value
}

pub fn set_thread_buffer(value: *const u8) {
    // SAFETY: it writes the thread's own word, which only this module uses.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + kymo_thread_buffer@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Reads the TSC.
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: user programs may read the TSC, unless the process forbade it itself (prctl).
    unsafe { _rdtsc() }
}

/// What the kernel calls the counter if it uses it as its clock source.
pub const CLOCK_SOURCE: Option<&[u8]> = Some(b"tsc");

/// Returns whether the processor reports that the TSC's frequency is constant (*invariant*). Virtual machines and
/// emulators may hide that.
pub fn counter_is_steady() -> bool {
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let cpuid = |leaf| {
        // SAFETY: every x86-64 processor has the instruction.
        #[allow(unused_unsafe, reason = "in older Rust it is an unsafe function")]
        unsafe {
            __cpuid(leaf)
        }
    };
    cpuid(0x8000_0000).eax >= POWER_MANAGEMENT && cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
}
