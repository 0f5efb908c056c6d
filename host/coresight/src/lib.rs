//! Decoder for Arm CoreSight hardware trace, from formatter frames to executed instructions.
//!
//! The layers are separate; each one can be used without those above it:
//!
//! 1. [`frames`]: the formatter's 16-byte frames, TPIU synchronization, one byte stream for each trace ID.
//! 2. Packets, one module for each protocol: [`etmv4`] (all of ETMv4 and ETE), [`etmv3`], [`ptm`], [`stm`], [`itm`].
//!    A packet neither borrows nor allocates; its text equals the output of OpenCSD's `trc_pkt_lister`.
//! 3. [`flow`]: turns packets and memory images into [elements](element): ranges of executed instructions, exceptions,
//!    contexts, timestamps. It decodes a straight run of instructions once for each address space and reuses it.
//!
//! [`calls`] reports function entries and exits, [`clock`] assigns timestamps, [`counts`] counts executions for hot
//! spots, and [`fit`] compares programs with the code of a recording. [`listing`] prints packets and elements as text;
//! `disassembly` (a cargo feature of that name) prints instructions. [`snapshot`] reads OpenCSD's snapshot directories, [`perf`] the trace in a perf.data file.
//!
//! The crate does not handle events, symbols or terminals, and depends on no other crate of Kymo.
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
pub mod fit;
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
