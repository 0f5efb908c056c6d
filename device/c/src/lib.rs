//! `libkymo.a`: the crates `kymo` and `kymo-abi` as a static library for C programs. See `include/kymo.h`.
#![cfg_attr(not(test), no_std)]

pub use kymo_abi as abi;

/// Stops the program. The recorder never panics; if it does, the program must not continue to record corrupt data.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    kymo::abort()
}

// The personality function for unwinding, which Rust's precompiled arithmetic names (64-bit division for processors
// that lack it). Nothing here unwinds, so it is never called. It is weak, for programs that bring the real one. On
// x86-64 nothing references it.
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
