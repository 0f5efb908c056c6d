//! Packets of ETMv4 and ETE, and their fields.

/// Kind of a packet. The first byte determines it, for some kinds together with the configuration.
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
    ReservedConfig,
    Extension,
    Async,
    Discard,
    Overflow,
    TraceInfo,
    Timestamp,
    TraceOn,
    FunctionReturn,
    Exception,
    ExceptionReturn,
    PeReset,
    TransactionFail,
    Instrumentation,
    TransactionStart,
    TransactionCommit,
    CycleCountF1,
    CycleCountF2,
    CycleCountF3,
    DataSyncNumbered,
    DataSyncUnnumbered,
    Commit,
    CancelF1,
    CancelF1Mispredict,
    Mispredict,
    CancelF2,
    CancelF3,
    ConditionalF1,
    ConditionalF2,
    ConditionalF3,
    ConditionalFlush,
    ConditionalResultF1,
    ConditionalResultF2,
    ConditionalResultF3,
    ConditionalResultF4,
    Ignore,
    Event,
    Context,
    AddressContext32Is0,
    AddressContext32Is1,
    AddressContext64Is0,
    AddressContext64Is1,
    TimestampMarker,
    AddressMatch,
    AddressShortIs0,
    AddressShortIs1,
    Address32Is0,
    Address32Is1,
    Address64Is0,
    Address64Is1,
    Q,
    SourceMatch,
    SourceShortIs0,
    SourceShortIs1,
    Source32Is0,
    Source32Is1,
    Source64Is0,
    Source64Is1,
    AtomF1,
    AtomF2,
    AtomF3,
    AtomF4,
    AtomF5,
    AtomF6,
}

impl Kind {
    /// Whether it is a source address: a branch was taken there.
    pub fn is_source(self) -> bool {
        matches!(
            self,
            Kind::SourceMatch
                | Kind::SourceShortIs0
                | Kind::SourceShortIs1
                | Kind::Source32Is0
                | Kind::Source32Is1
                | Kind::Source64Is0
                | Kind::Source64Is1
        )
    }
}

/// One packet of ETMv4 or ETE.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fields {
    /// No content besides the kind.
    None,
    /// Atoms, and for the packets of speculation how many elements are cancelled after them.
    Atoms(Atoms),
    /// Atoms of a mispredict or cancel packet, and the number of elements that it cancels.
    Cancel {
        /// Atoms before the cancel.
        atoms: Atoms,
        /// Elements cancelled.
        count: u32,
    },
    /// Elements committed.
    Commit(u32),
    /// A full address.
    Address(Address),
    /// A context; `None` if it is unchanged.
    Context(Option<Context>),
    /// An address and a context.
    AddressContext(Address, Context),
    /// Trace configuration at a point of synchronization.
    TraceInfo(TraceInfo),
    /// A full timestamp, and the cycles since the last count.
    Timestamp {
        /// Value.
        value: u64,
        /// Cycles, if counted.
        cycles: Option<u32>,
    },
    /// Cycles since the last count; 0 means unknown.
    Cycles {
        /// Cycles.
        count: u32,
        /// Elements committed, if the packet has the count (TRCIDR0.COMMOPT is 0).
        commit: Option<i32>,
    },
    /// An exception.
    Exception {
        /// Number.
        number: u16,
        /// E1:E0: 1 an address follows, 2 it is also the target of the branch before.
        address: u8,
        /// M profile: a fault is pending.
        fault_pending: bool,
    },
    /// A bit or a number in the header: events, data synchronization markers.
    Number(u8),
    /// A Q element.
    Q(QElement),
    /// Instrumentation by the PE: exception level and value.
    Instrumentation {
        /// Exception level.
        level: u8,
        /// Value.
        value: u64,
    },
    /// Conditional instructions or their results, as many bits as the packet has.
    Conditional(u32),
    /// Results of conditional instructions, with their keys.
    Results([Option<KeyedResult>; 2]),
}

/// The result of a conditional instruction, with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedResult {
    /// Key.
    pub key: u32,
    /// Result: condition flags, or 1 if the condition was met.
    pub result: u8,
    /// Whether the result also applies to the instructions up to this key (CI).
    pub implies_instructions: bool,
}

/// Atoms, the oldest in bit 0; 1 is E (taken), 0 is N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Atoms {
    /// One bit each.
    pub bits: u32,
    /// Number of atoms, at most 24.
    pub count: u8,
}

/// Full address, completed from the address history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Address {
    /// Value.
    pub value: u64,
    /// Instruction set bit: 0 for A64 and A32, 1 for T32.
    pub is: u8,
    /// Number of low bits in the packet itself; 0 for an exact match.
    pub bits: u8,
    /// Entry of the history that an exact match repeats.
    pub match_index: u8,
}

/// The PE's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Context {
    /// Exception level.
    pub level: u8,
    /// AArch64.
    pub is_64_bit: bool,
    /// Not Secure; with `nse` Realm.
    pub ns: bool,
    /// Root, or with `ns` Realm.
    pub nse: bool,
    /// Context ID (CONTEXTIDR), if in the packet.
    pub context_id: Option<u32>,
    /// VMID or virtual context ID, if in the packet.
    pub vmid: Option<u32>,
}

/// A trace info packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TraceInfo {
    /// The INFO section: bit 0 is set if cycles are counted, bit 6 if a transaction is in progress.
    pub info: u32,
    /// The KEY section.
    pub key: u32,
    /// Number of P0 elements already speculative here, if the packet has it.
    pub speculation: Option<u32>,
    /// Cycle count threshold.
    pub cycle_threshold: u32,
    /// Whether it is the first one of the stream.
    pub is_first: bool,
}

/// A Q packet: instructions that executed without atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QElement {
    /// Low four bits of the header.
    pub form: u8,
    /// Number of instructions, if known.
    pub count: Option<u32>,
    /// Address at which execution continues, if the packet has it.
    pub address: Option<Address>,
    /// Whether that address is an exact match.
    pub is_match: bool,
}
