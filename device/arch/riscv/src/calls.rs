//! Reference functions for measuring the overhead of a hook's call: see [`Hooks`](kymo_recorder::cost::Hooks).

use core::arch::naked_asm;
use core::ffi::c_void;

/// Does nothing, in two instructions.
///
/// # Safety
/// May be called from any context.
#[unsafe(naked)]
pub unsafe extern "C" fn nothing(_: *const c_void, _: *const c_void) {
    naked_asm!("mv t1, ra", "jr t1")
}

/// Does the same, and calls [`nothing`] as compilers call hooks: with the function's address, and the return address as
/// the call site.
///
/// # Safety
/// As above.
#[unsafe(naked)]
pub unsafe extern "C" fn calling(_: *const c_void, _: *const c_void) {
    naked_asm!(
        "mv t2, ra",
        "lla a0, {nothing}",
        "mv a1, ra",
        "call {nothing}",
        "jr t2",
        nothing = sym nothing,
    )
}
