//! Decoder for Arm CoreSight hardware trace, from formatter frames to executed instructions.
//!
//! The layers are separate; each one can be used without those above it:
//!
//! 1. [`frames`]: the formatter's 16-byte frames, TPIU synchronization, one byte stream for each trace ID.
//! 2. Packets, one module for each protocol: [`etmv4`] (all of ETMv4 and ETE), [`etmv3`], [`ptm`], [`stm`], [`itm`].
//!    A packet borrows nothing and allocates nothing; its text is that of OpenCSD's `trc_pkt_lister`.
//! 3. [`flow`]: packets and memory images become [elements](element): ranges of executed instructions, exceptions,
//!    contexts, times. A straight run of instructions is decoded once for each address space and reused.
//!
//! `disassembly` (a cargo feature of that name) has instructions as text.
//! [`calls`] has which functions were entered and left, [`clock`] when; [`counts`] what ran how often, for hot spots; [`listing`] has
//! packets and elements as text.
//! [`snapshot`] reads OpenCSD's snapshot directories, [`perf`] the trace in a perf.data file. The crate knows nothing of
//! events, symbols or terminals, and depends on no other crate of Kymo.
#![forbid(unsafe_code)]

pub mod calls;
pub mod clock;
pub mod counts;
#[cfg(feature = "disassembly")]
pub mod disassembly;
pub mod doubts;
pub mod element;
mod error;
pub mod etmv3;
pub mod etmv4;
pub mod exception;
mod file;
pub mod flow;
pub mod frames;
pub mod input;
pub mod instruction;
pub mod isa;
pub mod itm;
pub mod listing;
pub mod memory;
pub mod perf;
pub mod ptm;
pub mod remarks;
pub mod selection;
pub mod snapshot;
mod source;
pub mod stm;

pub use error::Error;
pub use source::{Protocol, Source};
