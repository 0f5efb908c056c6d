//! Records `setjmp` and `longjmp`, for programs that are linked with `--wrap` (see `kymo.h`).
//!
//! A function that `longjmp` abandons has no exit. The trace records which `setjmp` a `longjmp` returns to, so that a
//! reader knows exactly which calls were abandoned, at no cost to any other event.
//!
//! A wrapper of `setjmp` must not have a stack frame, because `setjmp` saves the state of its caller. The wrappers are
//! therefore assembly: they record, and jump to the real function with all registers unchanged. The real functions are
//! weak references: a program that wraps nothing has none, and never calls the wrappers. (A weak reference does not
//! pull a function out of an archive, so the linker needs `-u`.)

use core::ffi::c_void;

use kymo::system;
use kymo_recorder::Event;

/// Records that `setjmp` is about to be called with this buffer.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_setjmp(buffer: *const c_void) {
    system::hook(Event::Setjmp(buffer as usize));
}

/// Records that `longjmp` is about to be called with this buffer.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_longjmp(buffer: *const c_void) {
    system::hook(Event::Longjmp(buffer as usize));
}

/// Defines one wrapper: calls `$record`, then jumps to the real function.
#[cfg(all(target_arch = "arm", target_os = "none"))]
macro_rules! wrap {
    ($name:literal, $record:literal) => {
        core::arch::global_asm!(
            concat!(".weak __real_", $name),
            concat!(".pushsection .text.__wrap_", $name, ",\"ax\",%progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ",%function"),
            ".balign 4",
            ".thumb_func",
            concat!("__wrap_", $name, ":"),
            // The arguments and the return address, which Armv6-M cannot pop into `lr`.
            "push {{r0, r1, r2, lr}}",
            concat!("bl ", $record),
            "pop {{r0, r1, r2, r3}}",
            "mov lr, r3",
            "ldr r3, 1f",
            "bx r3",
            ".balign 4",
            concat!("1: .word __real_", $name),
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
        );
    };
}

/// Defines one wrapper: calls `$record`, then jumps to the real function.
#[cfg(target_arch = "x86_64")]
macro_rules! wrap {
    ($name:literal, $record:literal) => {
        core::arch::global_asm!(
            concat!(".weak __real_", $name),
            concat!(".pushsection .text.__wrap_", $name, ",\"ax\",@progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ",@function"),
            concat!("__wrap_", $name, ":"),
            "endbr64",
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            concat!("call ", $record),
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            concat!("jmp qword ptr [rip + __real_", $name, "@GOTPCREL]"),
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
        );
    };
}

/// Defines one wrapper: calls `$record`, then jumps to the real function.
#[cfg(target_arch = "aarch64")]
macro_rules! wrap {
    ($name:literal, $record:literal) => {
        core::arch::global_asm!(
            concat!(".weak __real_", $name),
            concat!(".pushsection .text.__wrap_", $name, ",\"ax\",%progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ",%function"),
            ".balign 4",
            concat!("__wrap_", $name, ":"),
            "stp x0, x1, [sp, #-32]!",
            "str x30, [sp, #16]",
            concat!("bl ", $record),
            "ldr x30, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            concat!("adrp x16, :got:__real_", $name),
            concat!("ldr x16, [x16, :got_lo12:__real_", $name, "]"),
            "br x16",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
        );
    };
}

/// Defines one wrapper: calls `$record`, then jumps to the real function.
#[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
macro_rules! wrap {
    ($name:literal, $record:literal) => {
        #[cfg(target_arch = "riscv32")]
        wrap!($name, $record, ".word", "sw", "lw");
        #[cfg(target_arch = "riscv64")]
        wrap!($name, $record, ".dword", "sd", "ld");
    };
    ($name:literal, $record:literal, $word:literal, $store:literal, $load:literal) => {
        core::arch::global_asm!(
            concat!(".weak __real_", $name),
            concat!(".pushsection .text.__wrap_", $name, ",\"ax\",%progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".type __wrap_", $name, ",%function"),
            ".balign 8",
            concat!("1: ", $word, " __real_", $name),
            concat!("__wrap_", $name, ":"),
            "addi sp, sp, -32",
            concat!($store, " ra, 0(sp)"),
            concat!($store, " a0, 8(sp)"),
            concat!($store, " a1, 16(sp)"),
            concat!("call ", $record),
            concat!($load, " ra, 0(sp)"),
            concat!($load, " a0, 8(sp)"),
            concat!($load, " a1, 16(sp)"),
            "addi sp, sp, 32",
            concat!($load, " t0, 1b"),
            "jr t0",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
        );
    };
}

#[cfg(not(any(target_arch = "powerpc", target_arch = "powerpc64")))]
wrap!("setjmp", "kymo_setjmp");
#[cfg(not(any(target_arch = "powerpc", target_arch = "powerpc64")))]
wrap!("longjmp", "kymo_longjmp");

/// Wrappers for the names that glibc's headers give to these functions, and for `sigsetjmp` and `siglongjmp`.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod linux {
    wrap!("_setjmp", "kymo_setjmp");
    wrap!("__sigsetjmp", "kymo_setjmp");
    wrap!("_longjmp", "kymo_longjmp");
    wrap!("siglongjmp", "kymo_longjmp");
    wrap!("__longjmp_chk", "kymo_longjmp");
}
