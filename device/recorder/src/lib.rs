//! The recorder: the code that runs inside the traced program.
//!
//! Hooks pass events to it. The recorder decides whether to record ([`gate`]), encodes the event ([`hot`] in the usual
//! case, [`encode`] in all cases) into the packets ([`buffer`]) of its CPU or thread, and updates the profile table
//! ([`profile`]). A host requests both over the link ([`link`]).
//!
//! The recorder does not allocate, and depends only on `kymo-wire`. Hooks don't wait for each other, except where
//! recording on several CPUs is turned on or off. Traits supply what differs by processor and system, so that the same
//! code runs on a Cortex-M, in a Linux process, and as many instances side by side in a test:
//!
//! - [`single`]: one processor whose interrupts can be masked; one stream.
//! - `cpus` (where the processor has compare-and-swap): processors that run one program; one stream for each.
//! - `threads` (where the processor has compare-and-swap): threads of a process; one stream for each, with signals in
//!   place of interrupts.
//! - [`minimal`]: like `single`, for targets with little flash: records calls only, and is read from memory.
//!
//! The API for programs, in C and in Rust, is the crate `kymo` (folder `device/kymo`).
#![cfg_attr(not(any(test, loom)), no_std)]

use kymo_wire::event::Layout;

mod bits64;
pub mod buffer;
pub mod by_memory;
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
mod plain;
pub mod profile;
pub mod retained;
mod stopper;
pub mod sums;
pub mod survivors;
pub mod sync;
mod unaligned;
mod writer;

pub use drivers::single;
#[cfg(target_has_atomic = "ptr")]
pub use drivers::{cpus, threads};
pub use event::{Edge, Event};
pub use writer::{Writer, WriterMemory};

/// Layout and constraints of a target. Tests record for machines other than the one they run on.
pub trait Target {
    /// The layout of its packets.
    const LAYOUT: Layout;

    /// A record that is filled in place may be finished on another processor than the one that reserved it.
    const FINISHED_ELSEWHERE: bool = false;

    /// A thread may continue on another processor in the middle of a call: the profile table's shadow stacks of threads
    /// are then shared by all of them ([`profile::Pool`]).
    const MIGRATES: bool = false;

    /// Streams may be [asked](encode::Stream::name_exits) to name the function of each exit.
    const NAMES_EXITS: bool = false;

    /// Masks interrupts for a few instructions, where an interrupt handler may record into the same buffer as the code
    /// it preempts. Returns the state for [`unmask_interrupts`](Self::unmask_interrupts). Does nothing on other targets.
    #[inline(always)]
    fn mask_interrupts() -> usize {
        0
    }

    /// Returns `it` while hiding its address from the optimizer. Compilers materialize the address of a static with two
    /// instructions at each use, even in functions that receive it as an argument; an address that they don't know
    /// stays in a register. Does nothing where an address takes one instruction.
    #[inline(always)]
    fn somewhere<R>(it: &R) -> &R {
        it
    }

    /// Restores the interrupt state to `was`, which [`mask_interrupts`](Self::mask_interrupts) returned.
    #[inline(always)]
    fn unmask_interrupts(was: usize) {
        let _ = was;
    }
}
