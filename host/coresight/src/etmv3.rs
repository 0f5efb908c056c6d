//! ETMv3 (Arm IHI 0014): packets of instruction and data trace.

mod decoder;
mod text;

pub use decoder::Decoder;
pub use text::describe;
pub(crate) use text::name;

use crate::etmv4::Atoms;
use crate::isa::{Isa, PartialAddress, SyncReason};

/// Configuration of an ETMv3, from its registers.
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
    /// Whether the core is of the Armv7-M profile.
    pub is_m_profile: bool,
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

    /// Whether instructions are traced (not ETMCR bit 20).
    pub fn traces_instructions(&self) -> bool {
        self.cr >> 20 & 1 == 0
    }

    /// Whether data values are traced (ETMCR bit 2).
    pub fn traces_data_values(&self) -> bool {
        self.cr >> 2 & 1 == 1
    }

    /// Whether data addresses are traced (ETMCR bit 3).
    pub fn traces_data_addresses(&self) -> bool {
        self.cr >> 3 & 1 == 1
    }

    /// Whether data addresses or data values are traced.
    pub fn traces_data(&self) -> bool {
        self.cr >> 2 & 3 != 0
    }

    /// Whether branch packets use the alternative encoding (ETMIDR bit 20).
    pub fn has_alternative_branches(&self) -> bool {
        self.idr >> 20 & 1 == 1
    }

    /// Whether timestamps have 64 bits instead of 48 (ETMCCER bit 29).
    pub fn has_64_bit_timestamps(&self) -> bool {
        self.ccer >> 29 & 1 == 1
    }

    /// Whether the core has the virtualization extensions (ETMCCER bit 26).
    pub fn has_virtualization(&self) -> bool {
        self.ccer >> 26 & 1 == 1
    }

    /// Minor version: the 5 of ETMv3.5.
    pub fn minor_version(&self) -> u32 {
        self.idr >> 4 & 0xf
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
    BadTraceMode,
    Reserved,
    Async,
    CycleCount,
    ISync,
    ISyncCycle,
    Trigger,
    PHeader,
    BranchAddress,
    StoreFailed,
    OutOfOrderData,
    OutOfOrderPlaceholder,
    NormalData,
    DataSuppressed,
    ValueNotTraced,
    Ignore,
    ContextId,
    Vmid,
    ExceptionEntry,
    ExceptionExit,
    Timestamp,
}

/// One packet of an ETMv3.
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
    /// Atoms, and in cycle-accurate mode the cycles with them.
    PHeader {
        /// Atoms.
        atoms: Atoms,
        /// Cycles; 0 if they are not counted, or if the atoms took none.
        cycles: u32,
        /// Format of the packet, 1 to 4.
        format: u8,
    },
    /// A branch's address.
    Branch(Branch),
    /// Synchronization with an address.
    ISync(ISync),
    /// Cycles since the last count.
    Cycles(u32),
    /// Context ID.
    ContextId(u32),
    /// VMID.
    Vmid(u8),
    /// A full timestamp.
    Timestamp(u64),
    /// Data.
    Data {
        /// Address, if the packet has one.
        address: Option<PartialAddress>,
        /// Value, if the packet has one.
        value: Option<u32>,
        /// Tag of out-of-order data.
        tag: u8,
    },
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
    /// Exception, if the packet has one.
    pub exception: Option<Exception>,
    /// Context, if the packet has it.
    pub context: Option<Context>,
}

/// An exception in a branch packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Number; 0 means no exception: the packet only changes the context.
    pub number: u16,
    /// Whether the instruction before was cancelled.
    pub cancels: bool,
    /// M profile: where an interrupted instruction resumes.
    pub resume: u8,
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
}

/// I-sync packet: synchronization with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ISync {
    /// Reason for the synchronization.
    pub reason: SyncReason,
    /// Address of the next instruction; `None` if only data is traced.
    pub address: Option<PartialAddress>,
    /// Instruction set.
    pub isa: Isa,
    /// Context.
    pub context: Context,
    /// Context ID, if traced.
    pub id: Option<u32>,
    /// Cycles since the last count.
    pub cycles: Option<u32>,
    /// For a load or store in progress (LSiP), the address of the instruction that executes meanwhile; `address` is
    /// then that of the load or store.
    pub current: Option<PartialAddress>,
}
