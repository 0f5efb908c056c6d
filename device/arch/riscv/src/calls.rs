//! What the call of a hook takes: see [`Calls`](kymo_recorder::cost::Calls).

use core::arch::naked_asm;
use core::ffi::c_void;

/// Does nothing.
///
/// # Safety
/// It may be called from anywhere.
#[unsafe(naked)]
pub unsafe extern "C" fn nothing(_: *const c_void, _: *const c_void) {
    naked_asm!("ret")
}

/// Calls [`nothing`] as compilers call hooks: with the function's address, and the return address as the
/// call site.
///
/// # Safety
/// As above.
#[unsafe(naked)]
pub unsafe extern "C" fn calling(_: *const c_void, _: *const c_void) {
    naked_asm!(
        "addi sp, sp, -16",
        ".if {bits} == 64",
        "sd ra, 8(sp)",
        ".else",
        "sw ra, 8(sp)",
        ".endif",
        "lla a0, {nothing}",
        "mv a1, ra",
        "call {nothing}",
        ".if {bits} == 64",
        "ld ra, 8(sp)",
        ".else",
        "lw ra, 8(sp)",
        ".endif",
        "addi sp, sp, 16",
        "ret",
        bits = const usize::BITS,
        nothing = sym nothing,
    )
}

/// The same without the call.
///
/// # Safety
/// As above.
#[unsafe(naked)]
pub unsafe extern "C" fn not_calling(_: *const c_void, _: *const c_void) {
    naked_asm!(
        "addi sp, sp, -16",
        ".if {bits} == 64",
        "sd ra, 8(sp)",
        "ld ra, 8(sp)",
        ".else",
        "sw ra, 8(sp)",
        "lw ra, 8(sp)",
        ".endif",
        "addi sp, sp, 16",
        "ret",
        bits = const usize::BITS,
    )
}
