//! Kymo's own recordings: dumps, raw files and trace directories.
//!
//! All three hold the same packets ([`kymo_wire::event`]) and differ in how they say what the
//! packets look like:
//!
//! - a *dump* is packets alone; who sent it has said the rest in its [`Identity`];
//! - a *raw file* is the identity as a line of text, then a dump: what `kymo_save` writes on Linux,
//!   and what a dump becomes when it is kept as it is ([`write_raw`]);
//! - the same as text in the log of a *console*, where a target died;
//! - a *trace directory* is CTF: `metadata`, and one file a stream ([`write_trace`]).
//!
//! What is still in a target's RAM becomes a dump with the help of the program ([`MemoryDump`]).
//!
//! Reading goes the same way for all: the packets are picked out of the bytes ([`Pieces`]) and
//! given, with the CTF metadata that describes them, to the CTF reader. [`open_dump`] reads a dump
//! without writing it anywhere first; [`RawFile`] gives the dump in a raw file, to be written as a
//! trace directory.

mod clock_checks;
mod clocks;
pub(crate) mod console;
mod describe;
mod feed;
mod header_table;
mod heads;
mod images;
mod interned;
mod live;
mod marker_names;
mod memory;
mod names;
mod open_files;
mod other;
mod packets;
mod piped;
mod quick_check;
mod rare;
mod raw;
mod record;
mod records;
mod row_stream;
mod source;
mod straight;
mod stream;
mod stream_packets;
mod streams;
mod tail;
mod ticks;
mod whole_calls;
mod write;

pub use clock_checks::{add_host_check, clock_checks, host_check_packet, loss_packet};
pub(crate) use describe::is_native;
pub(crate) use images::MovedImages;
pub use live::Live;
pub use memory::{MemoryDump, MemoryTable, recorded_memory};
pub use packets::{Damaged, Fault, Packet, Piece, Pieces};
pub(crate) use piped::{open_described, open_raw};
pub use raw::RawFile;
pub(crate) use raw::{PREFIX_BYTES, is_raw};
pub use record::{Recording, RecordingFigures, Taken};
pub(crate) use records::number;
pub use source::open_dump;
pub(crate) use source::{Chosen, open_directory};
pub use streams::StreamKind;
pub use tail::Tail;
pub use write::{
    Program, WriteError, Written, WrittenStream, check_replaceable, clear, write_raw, write_trace,
};

use std::ops::Range;

pub use kymo_wire::link::Identity;

/// A dump: what a target sent, and what is known of it besides.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    /// Who sent it.
    pub identity: &'a Identity,
    /// The packets, one behind the other.
    pub bytes: &'a [u8],
    /// The parts of `bytes` that never arrived; what stands there does not matter.
    pub missing: &'a [Range<u64>],
    /// What it came from, for people: a link's name, a program's name.
    pub target: &'a str,
}

impl<'a> Dump<'a> {
    /// The dump taken apart.
    pub const fn pieces(&self) -> Pieces<'a> {
        Pieces::new(self.identity.layout, self.bytes, self.missing)
    }
}
