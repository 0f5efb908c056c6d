//! `libkymo.a`: the crate `kymo` as a static library for C programs. See `include/kymo.h`.
#![cfg_attr(not(test), no_std)]

pub use kymo_rust::{abi, jumps};

/// Nothing in the recorder panics; if something does, the program must not go on recording
/// nonsense.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    kymo_rust::abort()
}

// Rust's own arithmetic (64-bit division where the processor has none) comes compiled for programs
// that unwind, and names the function that would do it. Nothing here unwinds, so nobody calls it. It
// is weak, for programs that bring the real one. On x86-64 nothing asks for it.
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
core::arch::global_asm!(
    ".pushsection .text",
    ".weak rust_eh_personality",
    ".type rust_eh_personality,%function",
    ".balign 4",
    "rust_eh_personality:",
    ".4byte 0",
    ".popsection",
);
