//! Trace elements: protocol-independent events of a processor's execution.

mod software;

pub use software::{ItmMessage, Software, StmKind, StmMessage};

use std::fmt::{self, Write};

use crate::instruction::{Class, Instruction, Purpose};
use crate::isa::Isa;
use crate::memory::MemorySpace;

/// One element of a decoded trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    /// Nothing is known from here until the next synchronization.
    NoSync(Unsynced),
    /// Tracing begins, or begins again after a gap.
    TraceOn {
        /// Why.
        why: TraceOn,
        /// Cycles since the last count, if counted here.
        cycles: Option<u32>,
    },
    /// The trace ends.
    End(Unsynced),
    /// The processor's context.
    Context(Context),
    /// Instructions that executed one after another.
    Range(Range),
    /// Instructions that executed on an unknown path.
    RangeWithoutPath {
        /// Address of the first instruction.
        start: u64,
        /// Address at which execution continues.
        next: u64,
        /// Number of instructions; 0 if unknown.
        count: u32,
    },
    /// Execution where no image has the code.
    NotAccessible {
        /// Address.
        address: u64,
        /// Memory space.
        space: MemorySpace,
    },
    /// Execution at an unknown address.
    AddressUnknown,
    /// An exception.
    Exception {
        /// Number.
        number: u32,
        /// Preferred return address, if known.
        return_address: Option<u64>,
        /// Whether that is also the target of the branch before.
        is_branch_target: bool,
        /// Whether the return address is not from the trace (ETMv3) but the current address of the flow. The text omits
        /// it.
        is_inferred: bool,
    },
    /// Return from an exception.
    ExceptionReturn,
    /// A timestamp. All elements before it happened before it.
    Timestamp {
        /// Value.
        value: u64,
        /// Cycles since the last count, if counted.
        cycles: Option<u32>,
    },
    /// Cycles since the last count.
    Cycles(u32),
    /// An event of the trace unit, by number; `None` is a trigger.
    Event(Option<u8>),
    /// Position to which a later timestamp belongs.
    TimestampMarker,
    /// A transaction.
    Transaction(Transaction),
    /// A value that software wrote into the trace.
    Instrumentation {
        /// Exception level.
        level: u8,
        /// Value.
        value: u64,
    },
    /// A conditional instruction that is no branch (ETMv4), with the key of its result.
    Conditional {
        /// Key.
        key: u32,
    },
    /// The result of a conditional instruction.
    ConditionalResult {
        /// Key.
        key: u32,
        /// Result.
        result: ConditionalResult,
    },
    /// Earlier conditional instructions have no result.
    ConditionalFlush,
    /// A load or store of the instruction before (ETMv3), as far as it is traced.
    Data {
        /// Address.
        address: Option<u32>,
        /// Value.
        value: Option<u32>,
    },
    /// A store that failed: an exclusive one.
    StoreFailed,
    /// The trace unit suppressed data to save bandwidth for instructions.
    DataSuppressed,
    /// A message of an STM or ITM.
    Software(Software),
}

/// Result of a conditional instruction, in the form of TRCIDR0.CONDTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionalResult {
    /// The condition was not met.
    Failed,
    /// The condition was met.
    Passed,
    /// The trace unit does not know.
    Unknown,
    /// The condition flags, N, Z, C and V in bits 3 to 0.
    Flags(u8),
}

/// Reason for the loss of synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unsynced {
    /// Decoding has just begun.
    Init,
    /// The decoder was reset.
    Reset,
    /// The trace unit lost packets.
    Overflow,
    /// The trace unit discarded speculative elements.
    Discard,
    /// A packet is invalid.
    BadPacket,
    /// The trace does not fit the code at this address.
    BadImage(u64),
    /// The run that begins at this address has an invalid opcode. Only if the decoder checks opcodes.
    BadOpcode(u64),
    /// The recorder's buffer was full; the following trace is missing.
    Truncated,
    /// The recorder reports gaps in the trace before.
    Partial,
    /// Another user of the trace unit has the missing trace.
    Collision,
    /// The trace ends.
    EndOfTrace,
}

impl Unsynced {
    /// Name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Unsynced::Init => "init-decoder",
            Unsynced::Reset => "reset-decoder",
            Unsynced::Overflow => "overflow",
            Unsynced::Discard => "discard",
            Unsynced::BadPacket | Unsynced::BadOpcode(_) => "bad-packet",
            Unsynced::BadImage(_) => "bad-program-image",
            Unsynced::Truncated => "truncated",
            Unsynced::Partial => "partial",
            Unsynced::Collision => "collision",
            Unsynced::EndOfTrace => "end-of-trace",
        }
    }
}

/// Reason why tracing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceOn {
    /// Tracing was switched on, or a filter passed.
    Normal,
    /// After an overflow.
    Overflow,
    /// After debug state.
    Debug,
}

/// The processor's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Context {
    /// Instruction set.
    pub isa: Isa,
    /// Exception level, if known.
    pub level: Option<u8>,
    /// Security state.
    pub security: Security,
    /// AArch64.
    pub is_64_bit: bool,
    /// VMID, if known.
    pub vmid: Option<u32>,
    /// Context ID, if known.
    pub context_id: Option<u32>,
    /// Cycles since the last count, if counted here.
    pub cycles: Option<u32>,
}

/// Security state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Security {
    /// Secure.
    #[default]
    Secure,
    /// Non-secure.
    NonSecure,
    /// Root.
    Root,
    /// Realm.
    Realm,
}

impl Security {
    /// Machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Security::Secure => "secure",
            Security::NonSecure => "non_secure",
            Security::Root => "root",
            Security::Realm => "realm",
        }
    }
}

impl TraceOn {
    /// Machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            TraceOn::Normal => "begin_or_filter",
            TraceOn::Overflow => "overflow",
            TraceOn::Debug => "debug_restart",
        }
    }
}

impl Context {
    /// Memory space in which the processor executes.
    pub fn space(&self) -> MemorySpace {
        let level = usize::from(self.level.unwrap_or_default() & 3);
        match (self.security, self.level) {
            (Security::Secure, None) => MemorySpace::ANY_S,
            (Security::NonSecure, None) => MemorySpace::ANY_N,
            (Security::Realm, None) => MemorySpace::ANY_R,
            (Security::Root, _) => MemorySpace::ROOT,
            (Security::Secure, _) => [
                MemorySpace::EL1S,
                MemorySpace::EL1S,
                MemorySpace::EL2S,
                MemorySpace::EL3,
            ][level],
            (Security::NonSecure, _) => [
                MemorySpace::EL1N,
                MemorySpace::EL1N,
                MemorySpace::EL2N,
                MemorySpace::EL3,
            ][level],
            (Security::Realm, _) => [
                MemorySpace::EL1R,
                MemorySpace::EL1R,
                MemorySpace::EL2R,
                MemorySpace::ROOT,
            ][level],
        }
    }
}

/// State change of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transaction {
    /// A transaction is active at the start of the trace.
    Init,
    /// It starts.
    Start,
    /// It commits.
    Commit,
    /// It fails.
    Fail,
}

/// Instructions that executed one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Address of the first instruction.
    pub start: u64,
    /// End address of the last instruction.
    pub end: u64,
    /// Number of instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// Whether the last instruction was taken, for a branch, or executed.
    pub is_taken: bool,
    /// The last instruction.
    pub last: Last,
    /// Number of the block, if the range is one; see [`crate::flow::Blocks`].
    pub block: Option<u32>,
    /// Cycles since the last count, if counted here.
    pub cycles: Option<u32>,
    /// Whether the upper half of an instruction in it is 0: A64 has no such instruction, so it is no code.
    pub has_no_opcode: bool,
}

/// Way in which execution leaves a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leave {
    /// To the next instruction: the range ends without a branch, or with one that was not taken.
    Next,
    /// By a branch whose target is in the instruction.
    Jump,
    /// By a branch whose target is in a register or in memory.
    IndirectJump,
    /// By a call whose target is in the instruction. It returns to the end of the range.
    Call,
    /// By a call whose target is in a register or in memory.
    IndirectCall,
    /// By a return from a call; in A32 and T32, by an instruction that is a return by convention.
    Return,
    /// By a return from an exception.
    ExceptionReturn,
}

impl Range {
    /// Way in which execution leaves the range. An exception after the range is in addition to that.
    #[inline]
    pub fn leave(&self) -> Leave {
        match (self.last.class, self.last.purpose) {
            _ if !self.is_taken => Leave::Next,
            (Class::Branch, Purpose::Call) => Leave::Call,
            (Class::Branch, _) => Leave::Jump,
            (Class::Indirect, Purpose::Call) => Leave::IndirectCall,
            (Class::Indirect, Purpose::Return | Purpose::ImpliedReturn) => Leave::Return,
            (Class::Indirect, Purpose::ExceptionReturn) => Leave::ExceptionReturn,
            (Class::Indirect, Purpose::None | Purpose::Compare) => Leave::IndirectJump,
            _ => Leave::Next,
        }
    }
}

impl Range {
    /// Whether it ends with an unconditional branch that was not taken, so that the code differs from the code that
    /// ran.
    pub fn is_mismatch(&self) -> bool {
        let is_branch = matches!(self.last.class, Class::Branch | Class::Indirect);
        let is_always_taken = !self.last.is_conditional && !self.last.may_be_skipped;
        !self.is_taken && is_branch && is_always_taken
    }
}

/// The last instruction of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Last {
    /// Bytes.
    pub size: u8,
    /// Its class in the trace.
    pub class: Class,
    /// Purpose of a branch.
    pub purpose: Purpose,
    /// Whether it is conditional.
    pub is_conditional: bool,
    /// Whether a T32 branch without a condition of its own may not be taken: an IT instruction before it can make it
    /// conditional, or it counts a loop.
    pub may_be_skipped: bool,
}

impl From<&Instruction> for Last {
    fn from(instruction: &Instruction) -> Self {
        Last {
            size: instruction.size,
            class: instruction.class,
            purpose: instruction.purpose,
            is_conditional: instruction.is_conditional,
            may_be_skipped: instruction.counts_loop,
        }
    }
}

impl Element {
    /// Writes the element as `trc_pkt_lister` does after offset and ID.
    ///
    /// # Errors
    /// What the writer returns.
    pub fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("OCSD_GEN_TRC_ELEM_")?;
        match *self {
            Element::NoSync(why) => write!(out, "NO_SYNC( [{}])", why.name()),
            Element::End(why) => write!(out, "EO_TRACE( [{}])", why.name()),
            Element::TraceOn { why, cycles } => {
                let why = match why {
                    TraceOn::Normal => "begin or filter",
                    TraceOn::Overflow => "overflow",
                    TraceOn::Debug => "debug restart",
                };
                write!(out, "TRACE_ON( [{why}]")?;
                close(cycles, out)
            }
            Element::Context(context) => context.describe(out),
            Element::Range(range) => range.describe(out),
            Element::RangeWithoutPath { start, next, count } => {
                write!(
                    out,
                    "I_RANGE_NOPATH(first {start:#x}:[next {next:#x}] num_i({count}) )"
                )
            }
            Element::NotAccessible { address, space } => {
                write!(
                    out,
                    "ADDR_NACC( {address:#x}; Memspace [{:#x}:{}] )",
                    space.0,
                    space.name()
                )
            }
            Element::AddressUnknown => out.write_str("ADDR_UNKNOWN()"),
            Element::Exception {
                number,
                return_address,
                is_branch_target,
                is_inferred,
            } => {
                out.write_str("EXCEPTION(")?;
                if let Some(address) = return_address.filter(|_| !is_inferred) {
                    write!(out, "pref ret addr:{address:#x}")?;
                    out.write_str(if is_branch_target {
                        " [addr also prev br tgt]; "
                    } else {
                        "; "
                    })?;
                }
                write!(out, "excep num (0x{number:02x}) )")
            }
            Element::ExceptionReturn => out.write_str("EXCEPTION_RET()"),
            Element::Timestamp { value, cycles } => {
                write!(out, "TIMESTAMP( [ TS=0x{value:012x}]; ")?;
                close(cycles, out)
            }
            Element::Cycles(cycles) => {
                out.write_str("CYCLE_COUNT(")?;
                close(Some(cycles), out)
            }
            Element::Event(None) => out.write_str("EVENT( Trigger; )"),
            Element::Event(Some(number)) => write!(out, "EVENT( Numbered:{number}; )"),
            Element::TimestampMarker => {
                out.write_str("SYNC_MARKER( [Timestamp marker(0x00000000)])")
            }
            Element::Transaction(turn) => {
                let turn = match turn {
                    Transaction::Init => "Init",
                    Transaction::Start => "Start",
                    Transaction::Commit => "Commit",
                    Transaction::Fail => "Fail",
                };
                write!(out, "MEMTRANS({turn})")
            }
            Element::Instrumentation { level, value } => {
                write!(out, "INSTRUMENTATION(EL{level}; 0x{value:016x})")
            }
            Element::Conditional { key } => write!(out, "COND_I( key:{key:#x} )"),
            Element::ConditionalResult { key, result } => {
                write!(out, "COND_RES( key:{key:#x}; ")?;
                match result {
                    ConditionalResult::Failed => out.write_str("fail )"),
                    ConditionalResult::Passed => out.write_str("pass )"),
                    ConditionalResult::Unknown => out.write_str("unknown )"),
                    ConditionalResult::Flags(flags) => write!(out, "NZCV:{flags:04b} )"),
                }
            }
            Element::ConditionalFlush => out.write_str("COND_FLUSH()"),
            Element::Data { address, value } => {
                out.write_str("DATA(")?;
                if let Some(address) = address {
                    write!(out, " addr:{address:#010x};")?;
                }
                if let Some(value) = value {
                    write!(out, " value:{value:#010x};")?;
                }
                out.write_str(" )")
            }
            Element::StoreFailed => out.write_str("STORE_FAIL()"),
            Element::DataSuppressed => out.write_str("DATA_SUPPRESSED()"),
            Element::Software(software) => software.describe(out),
        }
    }
}

fn close(cycles: Option<u32>, out: &mut dyn Write) -> fmt::Result {
    match cycles {
        Some(cycles) => write!(out, " [CC={cycles}]; )"),
        None => out.write_char(')'),
    }
}

impl Context {
    fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "PE_CONTEXT((ISA={}) ", self.isa.short_name())?;
        if let Some(level) = self.level {
            write!(out, "EL{level}")?;
        }
        out.write_str(match self.security {
            Security::Secure => "S; ",
            Security::NonSecure => "N; ",
            Security::Root => "Root; ",
            Security::Realm => "Realm; ",
        })?;
        out.write_str(if self.is_64_bit {
            "64-bit; "
        } else {
            "32-bit; "
        })?;
        if let Some(vmid) = self.vmid {
            write!(out, "VMID={vmid:#x}; ")?;
        }
        if let Some(id) = self.context_id {
            write!(out, "CTXTID={id:#x}; ")?;
        }
        close(self.cycles, out)
    }
}

impl Range {
    fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        let Range {
            start, end, count, ..
        } = *self;
        let taken = if self.is_taken { 'E' } else { 'N' };
        write!(
            out,
            "INSTR_RANGE(exec range={start:#x}:[{end:#x}] num_i({count}) "
        )?;
        write!(
            out,
            "last_sz({}) (ISA={}) {taken} ",
            self.last.size,
            self.isa.short_name()
        )?;
        out.write_str(match self.last.class {
            Class::Other => "--- ",
            Class::Branch => "BR  ",
            Class::Indirect => "iBR ",
            Class::Isb => "ISB ",
            Class::Barrier => "DSB.DMB",
            Class::Wait => "WFI.WFE",
            Class::TransactionStart => "TSTART",
            Class::Access => "LD.ST ",
        })?;
        out.write_str(match self.last.purpose {
            Purpose::None | Purpose::Compare => "",
            Purpose::Call => "b+link ",
            Purpose::Return => "A64:ret ",
            Purpose::ExceptionReturn => "A64:eret ",
            Purpose::ImpliedReturn => "V7:impl ret",
        })?;
        let is_listed = self.last.is_conditional && self.last.purpose != Purpose::Compare;
        out.write_str(if is_listed { " <cond>" } else { "" })?;
        close(self.cycles, out)
    }
}
