//! Program Trace Macrocell (Arm IHI 0035, PFT 1.0 and 1.1): packets.

mod decoder;
mod text;

pub use decoder::Decoder;
pub use text::describe;
pub(crate) use text::name;

use crate::etmv4::Atoms;
use crate::isa::{Isa, PartialAddress, SyncReason};

/// Configuration of a PTM, from its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// ETMCR.
    pub cr: u32,
    /// ETMCCER.
    pub ccer: u32,
    /// ETMIDR.
    pub idr: u32,
    /// ETMTRACEIDR.
    pub trace_idr: u32,
}

impl Config {
    /// The trace ID that the unit's bytes carry.
    pub fn trace_id(&self) -> u8 {
        (self.trace_idr & 0x7f) as u8
    }

    /// Whether cycles are counted (ETMCR bit 12).
    pub fn is_cycle_accurate(&self) -> bool {
        self.cr >> 12 & 1 == 1
    }

    /// Whether timestamps are traced (ETMCR.TS).
    pub fn has_timestamps(&self) -> bool {
        self.cr >> 28 & 1 == 1
    }

    /// Bytes of a context ID in a packet (ETMCR bits 15:14).
    pub fn context_id_bytes(&self) -> usize {
        [0, 1, 2, 4][(self.cr >> 14 & 3) as usize]
    }

    /// Whether the return stack is enabled: predicted returns have no address packet (ETMCR bit 29, ETMCCER bit 23).
    pub fn uses_return_stack(&self) -> bool {
        self.cr >> 29 & 1 == 1 && self.ccer >> 23 & 1 == 1
    }

    /// Whether DMB and DSB are waypoints (ETMCCER bit 24).
    pub fn has_barrier_waypoints(&self) -> bool {
        self.ccer >> 24 & 1 == 1
    }

    /// Whether timestamps have 64 bits instead of 48 (ETMCCER bit 29).
    pub fn has_64_bit_timestamps(&self) -> bool {
        self.ccer >> 29 & 1 == 1
    }

    /// Whether timestamps are binary instead of Gray coded (ETMCCER bit 28).
    pub fn has_binary_timestamps(&self) -> bool {
        self.ccer >> 28 & 1 == 1
    }
}

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
    ISync,
    Trigger,
    WaypointUpdate,
    Ignore,
    ContextId,
    Vmid,
    Atom,
    Timestamp,
    ExceptionReturn,
    BranchAddress,
}

/// One packet of a PTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Kind of the packet.
    pub kind: Kind,
    /// For an invalid or truncated packet, the kind that its header announced.
    pub began_as: Kind,
    /// Position of its first byte in the stream.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// Cycles since the last count, if the packet has them.
    pub cycles: Option<u32>,
    /// Decoded content.
    pub fields: Fields,
}

impl Packet {
    /// Position after its last byte.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Decoded content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// No content besides the kind.
    None,
    /// Atoms.
    Atoms(Atoms),
    /// A branch's or waypoint's address.
    Branch(Branch),
    /// Synchronization with an address.
    ISync {
        /// Reason for the synchronization.
        reason: SyncReason,
        /// Address of the next instruction.
        address: PartialAddress,
        /// Instruction set.
        isa: Isa,
        /// Context.
        context: Context,
    },
    /// A full timestamp, and the number of low bits that the packet carried.
    Timestamp {
        /// Value.
        value: u64,
        /// Bits.
        bits: u8,
    },
    /// Context ID.
    ContextId(u32),
    /// VMID.
    Vmid(u8),
}

/// Branch address, with the changes of state that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address.
    pub address: PartialAddress,
    /// Instruction set at the address.
    pub isa: Isa,
    /// Whether the instruction set differs from the previous one.
    pub isa_changed: bool,
    /// Exception, by its number.
    pub exception: Option<u16>,
    /// Context, if the packet has it.
    pub context: Option<Context>,
}

/// Security state and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Context {
    /// Not Secure.
    pub ns: bool,
    /// Hypervisor mode.
    pub hyp: bool,
    /// Alternative instruction set (ThumbEE instead of Thumb).
    pub alt_isa: bool,
    /// Context ID, in packets that have it.
    pub id: Option<u32>,
}
