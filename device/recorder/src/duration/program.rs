//! The program's structure for duration mode, if it defines one: a weak reference, which Rust cannot express.

use super::Control;

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

/// What `KYMO_DURATION` refers to, so that a library without duration mode cannot be linked with a program that defines
/// its structure.
#[cfg(target_os = "none")]
#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
static kymo_duration_part: u8 = 0;

/// The structure.
#[cfg(all(target_os = "none", target_pointer_width = "32"))]
pub(crate) fn program() -> Option<&'static Control> {
    // SAFETY: the linker made it the address of the program's structure, or null.
    unsafe { kymo_duration_address.as_ref() }
}

/// The structure.
#[cfg(not(all(target_os = "none", target_pointer_width = "32")))]
pub(crate) fn program() -> Option<&'static Control> {
    None
}
