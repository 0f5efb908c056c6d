//! The System Trace Macrocell (Arm DDI 0528): packets of MIPI STPv2 as CoreSight's STM writes them.
//!
//! The stream is one of nibbles, the low half of a byte first; a packet can begin in the middle of a byte. [`Packet`]
//! therefore has its extent in nibbles as well as in bytes; a byte that two packets share is listed with both, the other
//! packet's half as zero.

mod decoder;
mod text;

pub use decoder::Decoder;
pub use text::describe;
pub(crate) use text::name;

/// What a packet is.
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
    /// What it is.
    pub kind: Kind,
    /// For a packet that is wrong or cut short, what it began as.
    pub began_as: Kind,
    /// Position of its first nibble in the stream.
    pub start_nibble: usize,
    /// Nibbles.
    pub nibbles: usize,
    /// Master after the packet.
    pub master: u8,
    /// Channel after the packet.
    pub channel: u16,
    /// Data, error code, trigger, version or frequency.
    pub value: u64,
    /// Whether it is a marker (D..M).
    pub is_marker: bool,
    /// Timestamp, whole, and the low bits that the packet had.
    pub timestamp: Option<(u64, u8)>,
}

impl Packet {
    /// Position of the byte that has its first nibble.
    pub fn start(&self) -> usize {
        self.start_nibble / 2
    }

    /// Position behind the byte that has its last nibble.
    pub fn end(&self) -> usize {
        (self.start_nibble + self.nibbles).div_ceil(2)
    }
}
