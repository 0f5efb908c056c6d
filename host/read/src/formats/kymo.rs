//! Readers and writers of Kymo's own recordings: dumps, raw files and trace directories.
//!
//! All forms hold the same packets ([`kymo_wire::event`]) and differ in how they describe the
//! packets' layout:
//!
//! - a *dump* is packets alone; the target's [`Identity`] describes them;
//! - a *raw file* is the identity as a line of text, followed by a dump: `kymo_save` writes it on
//!   Linux, and [`write_raw`] stores a dump in this form;
//! - a *console* log contains the same as text, printed by a target that crashed;
//! - a *trace directory* is CTF: `metadata`, and one file per stream ([`write_trace`]).
//!
//! [`MemoryDump`] turns the contents of a target's RAM into a dump, with the help of the program.
//!
//! All forms are read the same way: [`Pieces`] finds the packets in the bytes and passes them to
//! the CTF reader, with the CTF metadata that describes them. [`open_dump`] reads a dump without
//! a file in between; [`RawFile`] returns the dump of a raw file, ready to be written as a trace
//! directory.

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

/// Packets as a target sent them, with the target's identity and the ranges that are missing.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    /// The identity of the target.
    pub identity: &'a Identity,
    /// The packets, one after the other.
    pub bytes: &'a [u8],
    /// The parts of `bytes` that never arrived; their contents are ignored.
    pub missing: &'a [Range<u64>],
    /// A display name of the origin: the name of a link or a program.
    pub target: &'a str,
}

impl<'a> Dump<'a> {
    /// Iterates over the packets and the damage of the dump.
    pub const fn pieces(&self) -> Pieces<'a> {
        Pieces::new(self.identity.layout, self.bytes, self.missing)
    }
}
