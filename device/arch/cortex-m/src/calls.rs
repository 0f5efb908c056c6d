//! Reference functions for measuring the overhead of a hook's call: see [`Hooks`](kymo_recorder::cost::Hooks).

use core::arch::naked_asm;
use core::ffi::c_void;

/// Does nothing, in two instructions.
///
/// # Safety
/// May be called from any context.
#[unsafe(naked)]
pub unsafe extern "C" fn nothing(_: *const c_void, _: *const c_void) {
    naked_asm!("push {{r4, lr}}", "pop {{r4, pc}}")
}

/// Does the same, and calls [`nothing`] as compilers call hooks: the function's address comes from a literal, the call
/// site from the register of the return address.
///
/// # Safety
/// As above.
#[unsafe(naked)]
pub unsafe extern "C" fn calling(_: *const c_void, _: *const c_void) {
    naked_asm!(
        "push {{r4, lr}}",
        "ldr r0, 2f",
        "mov r1, lr",
        "bl {nothing}",
        "pop {{r4, pc}}",
        ".p2align 2",
        "2: .word 0",
        nothing = sym nothing,
    )
}
