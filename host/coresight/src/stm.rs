//! System Trace Macrocell (Arm DDI 0528): MIPI STPv2 packets as CoreSight's STM writes them.
//!
//! The stream consists of nibbles, the low half of a byte first; a packet can begin in the middle of a byte. [`Packet`]
//! therefore has its extent in nibbles as well as in bytes. Listings show a byte that two packets share with both, with
//! the other packet's half as zero.

mod decoder;
mod text;

pub use decoder::Decoder;
pub use text::describe;
pub(crate) use text::name;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the names are the protocol's, and `describe` spells them out"
)]
pub enum Kind {
    NotSync,
    IncompleteEot,
    BadSequence,
    Reserved,
    Async,
    Version,
    Frequency,
    Null,
    Trigger,
    GlobalError,
    MasterError,
    Master8,
    Master16,
    Channel8,
    Channel16,
    Flag,
    Data4,
    Data8,
    Data16,
    Data32,
    Data64,
}

/// One packet of an STM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Kind of the packet.
    pub kind: Kind,
    /// For an invalid or truncated packet, the kind that its header announced.
    pub began_as: Kind,
    /// Position of its first nibble in the stream.
    pub start_nibble: usize,
    /// Length in nibbles.
    pub nibbles: usize,
    /// Master after the packet.
    pub master: u16,
    /// Channel after the packet.
    pub channel: u16,
    /// Data, error code, trigger, version or frequency.
    pub value: u64,
    /// Whether it is a marker (D..M).
    pub is_marker: bool,
    /// Full timestamp, and the number of low bits that the packet carried.
    pub timestamp: Option<(u64, u8)>,
}

impl Packet {
    /// Position of the byte with its first nibble.
    pub fn start(&self) -> usize {
        self.start_nibble / 2
    }

    /// Position after the byte with its last nibble.
    pub fn end(&self) -> usize {
        (self.start_nibble + self.nibbles).div_ceil(2)
    }
}
