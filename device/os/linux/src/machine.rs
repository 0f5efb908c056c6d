//! What differs by processor: the word of each thread, the counter, and the numbers of a few
//! system calls. A processor is one file here; all else of this crate is the same everywhere.
//!
//! `#[thread_local]` is not stable, and `thread_local!` needs the standard library; so the word
//! `kymo_thread_buffer` is declared here, and read in assembly in the way of each processor.

#[cfg(target_arch = "aarch64")]
#[path = "machine/aarch64.rs"]
mod processor;

#[cfg(any(target_arch = "powerpc", target_arch = "powerpc64"))]
#[path = "machine/powerpc.rs"]
mod processor;

#[cfg(target_arch = "x86_64")]
#[path = "machine/x86_64.rs"]
mod processor;

#[cfg(not(any(
    target_arch = "aarch64",
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "x86_64"
)))]
compile_error!("Kymo's recorder does not know this processor under Linux yet: see machine.rs");

pub(crate) use processor::{
    GETTID, MEMBARRIER, STATX, TGKILL, UNLOAD_TICKS, counter, counter_is_steady, set_thread_buffer,
    stack, thread_buffer, word,
};

/// So many bytes, at least, a signal handler's frame lies below what it interrupts: what the kernel saves there, on any
/// of these processors.
pub(crate) const SIGNAL_FRAME: usize = 1024;

/// Assembly for a word of data that holds the address of a symbol.
#[cfg(target_pointer_width = "64")]
#[macro_export]
#[doc(hidden)]
macro_rules! address_of {
    ($symbol:literal) => {
        concat!(".8byte ", $symbol)
    };
}

/// Assembly for a word of data that holds the address of a symbol.
#[cfg(target_pointer_width = "32")]
#[macro_export]
#[doc(hidden)]
macro_rules! address_of {
    ($symbol:literal) => {
        concat!(".4byte ", $symbol)
    };
}

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",%nobits",
    ".balign {size}",
    ".globl kymo_thread_buffer",
    ".hidden kymo_thread_buffer",
    ".type kymo_thread_buffer,%object",
    ".size kymo_thread_buffer,{size}",
    "kymo_thread_buffer:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<usize>(),
);
