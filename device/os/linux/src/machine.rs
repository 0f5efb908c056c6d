//! Processor-specific code: access to the thread-local word, the counter, and a few system call numbers. Each processor
//! has one file here; the rest of the crate is the same everywhere.
//!
//! `#[thread_local]` is unstable, and `thread_local!` needs the standard library. So the word `kymo_thread_buffer` is
//! declared here, and read in assembly, in each processor's own way.

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
    CLOCK_SOURCE, GETTID, MEMBARRIER, SIGPROCMASK, STATX, TGKILL, UNLOAD_TICKS, counter,
    counter_is_steady, set_thread_buffer, stack, thread_buffer,
};

/// Assembly for a data word that holds the address of a symbol.
#[cfg(target_pointer_width = "64")]
#[macro_export]
#[doc(hidden)]
macro_rules! address_of {
    ($symbol:literal) => {
        concat!(".8byte ", $symbol)
    };
}

/// Assembly for a data word that holds the address of a symbol.
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
