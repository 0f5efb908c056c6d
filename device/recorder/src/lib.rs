//! Kymo's recorder: what runs inside the traced program.
//!
//! Hooks tell it that something happened; it decides whether to record ([`gate`]), encodes the
//! event ([`hot`] what is usual, [`encode`] everything) into the packets ([`buffer`]) of its CPU or
//! thread, and keeps the table of functions ([`profile`]). A host asks for both over the link ([`link`]).
//!
//! The recorder allocates nothing, waits for nothing and depends on nothing but `kymo-wire`. What
//! differs by processor and system comes in through traits, so that the same code runs on a
//! Cortex-M, in a Linux process, and many times side by side in a test:
//!
//! - [`single`]: one processor whose interrupts can be masked; one stream.
//! - `cpus` (likewise): processors that run one program; a stream each.
//! - `threads` (where the processor has compare-and-swap): threads of a process; a stream each,
//!   signals in place of interrupts.
//! - [`minimal`]: the first of these where flash is short: calls alone, read from memory.
//!
//! The words that programs use are in the crate `kymo` (folder `device/rust`), for C and for Rust.
#![cfg_attr(not(any(test, loom)), no_std)]

use kymo_wire::event::Layout;

mod bits64;
pub mod buffer;
pub mod clock;
#[cfg(all(
    not(feature = "profile"),
    any(
        not(feature = "promotions"),
        all(target_os = "none", target_pointer_width = "32")
    )
))]
mod compiled_out;
#[cfg(feature = "conditions")]
pub mod conditions;
pub mod config;
mod console;
pub mod cost;
pub mod drivers;
#[cfg(feature = "duration")]
pub mod duration;
pub mod encode;
mod event;
pub mod gate;
mod header;
pub mod hot;
pub mod identity;
pub mod items;
pub mod link;
mod memory;
pub mod metadata;
pub mod minimal;
#[cfg(all(test, loom))]
mod model;
pub mod profile;
pub mod retained;
pub mod survivors;
pub mod sync;
mod unaligned;
mod writer;

pub use drivers::single;
#[cfg(target_has_atomic = "ptr")]
pub use drivers::{cpus, threads};
pub use event::{Edge, Event};
pub use writer::Writer;

/// What packets look like on a target. Tests record for other machines than the one they run on.
pub trait Target {
    /// The layout.
    const LAYOUT: Layout;

    /// All who record and read run on one processor: only interrupts come between them, and
    /// [`hold`](Self::hold) keeps these off.
    const SINGLE: bool = false;

    /// A record that is filled in place may be finished on another processor than where it was reserved.
    const FINISHED_ELSEWHERE: bool = false;

    /// Streams may be [asked](encode::Stream::name_exits) to name the function of each exit.
    const NAMES_EXITS: bool = false;

    /// Keeps interrupts off for a few instructions, where whoever records may be interrupted by
    /// somebody who records the same; returns what [`let_go`](Self::let_go) needs. Elsewhere nothing.
    #[inline(always)]
    fn hold() -> usize {
        0
    }

    /// The same, of which the compiler does not know any more where it is. The address of a static is put
    /// together of two instructions wherever it is used, even in functions that are given it; what is
    /// not known stays in a register. Where an address takes less this is nothing.
    #[inline(always)]
    fn somewhere<R>(it: &R) -> &R {
        it
    }

    /// Makes interrupts again what they were before the [`hold`](Self::hold) that returned `was`.
    #[inline(always)]
    fn let_go(was: usize) {
        let _ = was;
    }
}
