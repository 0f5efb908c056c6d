//! Weak reference to the program's structure for duration mode. Rust cannot express it, so it is written in assembly.

use super::Control;
#[cfg(target_has_atomic = "ptr")]
use crate::cpus::CpuDuration;

#[cfg(all(target_os = "none", target_pointer_width = "32"))]
core::arch::global_asm!(
    ".weak kymo_duration",
    ".pushsection .rodata.kymo_duration_address,\"a\"",
    ".balign 4",
    ".globl kymo_duration_address",
    ".hidden kymo_duration_address",
    "kymo_duration_address:",
    ".4byte kymo_duration",
    ".popsection",
);

#[cfg(all(target_os = "none", target_pointer_width = "32"))]
// SAFETY: the assembly above defines the word.
unsafe extern "C" {
    static kymo_duration_address: *const Control;
}

/// Symbol that `KYMO_DURATION` refers to, so that a program that defines the structure does not link with a library
/// without duration mode.
#[cfg(target_os = "none")]
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
static kymo_duration_part: u8 = 0;

/// The program's structure, if it defines one.
#[cfg(all(target_os = "none", target_pointer_width = "32"))]
pub(crate) fn program() -> Option<&'static Control> {
    // SAFETY: the linker made it the address of the program's structure, or null.
    unsafe { kymo_duration_address.as_ref() }
}

/// The program's structure: there is none on these targets.
#[cfg(not(all(target_os = "none", target_pointer_width = "32")))]
pub(crate) fn program() -> Option<&'static Control> {
    None
}

// Weak reference to the program's structures for several processors. (Not `.weak`: link-time optimization may have put
// the program's definition into the same module.)
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
core::arch::global_asm!(
    ".weakref kymo_cpu_duration_if_any, kymo_cpu_duration",
    ".pushsection .rodata.kymo_cpu_duration_address,\"a\"",
    ".balign 8",
    ".globl kymo_cpu_duration_address",
    ".hidden kymo_cpu_duration_address",
    "kymo_cpu_duration_address:",
    ".8byte kymo_cpu_duration_if_any",
    ".popsection",
);

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
// SAFETY: the assembly above defines the word.
unsafe extern "C" {
    static kymo_cpu_duration_address: *const CpuDuration;
}

/// The program's structures for several processors, if it defines them.
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
pub(crate) fn cpus_program() -> Option<&'static CpuDuration> {
    // SAFETY: the linker made it the address of the program's structure, or null.
    unsafe { kymo_cpu_duration_address.as_ref() }
}

/// The program's structures for several processors: there are none on these targets.
#[cfg(all(
    target_has_atomic = "ptr",
    not(all(target_os = "none", target_arch = "aarch64"))
))]
pub(crate) fn cpus_program() -> Option<&'static CpuDuration> {
    None
}
