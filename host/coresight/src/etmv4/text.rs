//! Text of packets, equal to the output of OpenCSD 1.8.0's `trc_pkt_lister`.

use std::fmt::{self, Write};

use super::Config;
use super::packet::{Address, Atoms, Context, Fields, Kind, Packet};
use crate::exception::Exceptions;

/// Writes a packet's name and content, as `trc_pkt_lister` does after the bytes.
///
/// # Errors
/// Returns the writer's error.
pub fn describe(config: &Config, packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let (name, meaning) = names(packet.kind);
    write!(out, "{name} : {meaning}")?;
    match packet.kind {
        Kind::BadSequence | Kind::IncompleteEot | Kind::ReservedConfig | Kind::BadTraceMode => {
            return write!(out, "[{}]", names(packet.began_as).0);
        }
        _ => {}
    }
    match packet.fields {
        Fields::None | Fields::Number(_) | Fields::Conditional(_) | Fields::Results(_) => Ok(()),
        Fields::Atoms(atoms) => {
            out.write_str("; ")?;
            write_atoms(atoms, out)
        }
        Fields::Cancel { atoms, count } => cancel(packet.kind, atoms, count, out),
        Fields::Commit(count) => write!(out, "; Commit({count})"),
        Fields::Address(address) => write_address_packet(packet.kind, address, out),
        Fields::Context(context) => {
            out.write_str("; ")?;
            match context {
                Some(context) => write_context(context, out),
                None => out.write_str("Ctxt: Same"),
            }
        }
        Fields::AddressContext(address, context) => {
            write_address_packet(packet.kind, address, out)?;
            write_context(context, out)
        }
        Fields::TraceInfo(info) => {
            let counts_cycles = info.info & 1;
            write!(out, "; INFO={:#x} {{ CC.{counts_cycles}", info.info)?;
            if config.is_ete {
                write!(out, ", TSTATE.{}", info.info >> 6 & 1)?;
            }
            out.write_str(" }")?;
            if counts_cycles == 1 {
                write!(out, "; CC_THRESHOLD={:#x}", info.cycle_threshold)?;
            }
            if info.is_first {
                if let Some(depth) = info.speculation {
                    write!(out, "; INIT SPEC DEPTH={depth}")?;
                }
                out.write_str("; Decoder Sync point TINFO")?;
            }
            Ok(())
        }
        Fields::Timestamp { value, cycles } => {
            write!(out, "; Updated val = {value:#x}")?;
            cycles.map_or(Ok(()), |cycles| write!(out, "; CC={cycles:#x}"))
        }
        Fields::Cycles { count, commit } => {
            write!(out, "; Count={count:#x}")?;
            commit.map_or(Ok(()), |commit| write!(out, "; Commit({commit})"))
        }
        Fields::Exception { .. } if packet.kind != Kind::Exception => Ok(()),
        Fields::Exception {
            number,
            address,
            fault_pending,
        } => {
            write!(out, "; ")?;
            exception(config, number, fault_pending, out)?;
            match address {
                1 => out.write_str(" Ret Addr Follows;"),
                2 => out.write_str(" Ret Addr Follows, Match Prev;"),
                _ => Ok(()),
            }
        }
        Fields::Q(q) => {
            match q.count {
                Some(count) => write!(out, "; Count({count})")?,
                None => out.write_str("; Count(Unknown)")?,
            }
            let Some(address) = q.address else {
                return Ok(());
            };
            if q.is_match {
                write!(out, "; [{}]", address.match_index)?;
            }
            out.write_str("; Addr=")?;
            write_address(address, 64, out)
        }
        Fields::Instrumentation { level, value } => write!(out, "; EL{level}; Payload={value:#x}"),
    }
}

fn cancel(kind: Kind, atoms: Atoms, count: u32, out: &mut dyn Write) -> fmt::Result {
    out.write_str("; ")?;
    if atoms.count > 0 {
        out.write_str("Atom: ")?;
        write_atoms(atoms, out)?;
        out.write_str(", ")?;
    }
    match kind {
        Kind::Mispredict => out.write_str("Mispredict"),
        Kind::CancelF1 => write!(out, "Cancel({count})"),
        _ => write!(out, "Cancel({count}), Mispredict"),
    }
}

pub(crate) fn write_atoms(atoms: Atoms, out: &mut dyn Write) -> fmt::Result {
    for bit in 0..atoms.count {
        out.write_char(if atoms.bits >> bit & 1 == 1 { 'E' } else { 'N' })?;
    }
    Ok(())
}

fn write_address_packet(kind: Kind, address: Address, out: &mut dyn Write) -> fmt::Result {
    match kind {
        Kind::AddressMatch | Kind::SourceMatch => {
            write!(
                out,
                ", [{}]; Addr=0x{:016X}; ",
                address.match_index, address.value
            )
        }
        Kind::AddressShortIs0
        | Kind::AddressShortIs1
        | Kind::SourceShortIs0
        | Kind::SourceShortIs1 => {
            out.write_str("; Addr=")?;
            write_address(address, 64, out)
        }
        _ => {
            out.write_str("; Addr=")?;
            write_address(address, address.bits, out)?;
            out.write_str("; ")
        }
    }
}

/// Writes the full address, and the part from the packet if it has fewer than `shown` bits.
fn write_address(address: Address, shown: u8, out: &mut dyn Write) -> fmt::Result {
    write!(out, "0x{:016X}", address.value)?;
    if address.bits > 0 && address.bits < shown {
        write!(
            out,
            " ~[0x{:X}]",
            address.value & ((1u64 << address.bits) - 1)
        )?;
    }
    Ok(())
}

fn write_context(context: Context, out: &mut dyn Write) -> fmt::Result {
    let state = if context.is_64_bit {
        "AArch64,"
    } else {
        "AArch32, "
    };
    let security = match (context.nse, context.ns) {
        (false, false) => "S",
        (false, true) => "NS",
        (true, false) => "Root",
        (true, true) => "Realm",
    };
    write!(out, "Ctxt: {state}EL{}, {security}; ", context.level)?;
    if let Some(id) = context.context_id {
        write!(out, "CID=0x{id:08x}; ")?;
    }
    if let Some(vmid) = context.vmid {
        write!(out, "VMID=0x{vmid:04x}; ")?;
    }
    Ok(())
}

fn exception(
    config: &Config,
    number: u16,
    fault_pending: bool,
    out: &mut dyn Write,
) -> fmt::Result {
    let exceptions = if config.is_m_profile {
        Exceptions::EtmV4M
    } else {
        Exceptions::EtmV4
    };
    write!(out, " {};", exceptions.name(number.into()))?;
    if config.is_m_profile && fault_pending {
        out.write_str(" Fault Pending;")?;
    }
    Ok(())
}

/// The name of a packet's kind in listings.
pub(crate) fn name(kind: Kind) -> &'static str {
    names(kind).0
}

/// Returns name and meaning, with the reference tool's spelling and typos (`I_SCR_ADDR_...`), so that listings match.
fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::NotSync => ("I_NOT_SYNC", "I Stream not synchronised"),
        Kind::IncompleteEot => ("I_INCOMPLETE_EOT", "Incomplete packet at end of trace."),
        Kind::BadSequence => ("I_BAD_SEQUENCE", "Invalid Sequence in packet."),
        Kind::BadTraceMode => ("I_BAD_TRACEMODE", "Invalid Packet for trace mode."),
        Kind::Reserved => ("I_RESERVED", "Reserved Packet Header"),
        Kind::ReservedConfig => (
            "I_RESERVED_CFG",
            "Reserved header for current configuration.",
        ),
        Kind::Extension => ("I_EXTENSION", "Extension packet header."),
        Kind::Async => ("I_ASYNC", "Alignment Synchronisation."),
        Kind::Discard => ("I_DISCARD", "Discard."),
        Kind::Overflow => ("I_OVERFLOW", "Overflow."),
        Kind::TraceInfo => ("I_TRACE_INFO", "Trace Info."),
        Kind::Timestamp => ("I_TIMESTAMP", "Timestamp."),
        Kind::TraceOn => ("I_TRACE_ON", "Trace On."),
        Kind::FunctionReturn => ("I_FUNC_RET", "V8M - function return."),
        Kind::Exception => ("I_EXCEPT", "Exception."),
        Kind::ExceptionReturn => ("I_EXCEPT_RTN", "Exception Return."),
        Kind::PeReset => ("I_PE_RESET", "PE Reset."),
        Kind::TransactionFail => ("I_TRANS_FAIL", "Transaction Fail."),
        Kind::Instrumentation => ("I_ITE", "Instrumentation"),
        Kind::TransactionStart => ("I_TRANS_ST", "Transaction Start."),
        Kind::TransactionCommit => ("I_TRANS_COMMIT", "Transaction Commit."),
        Kind::CycleCountF1 => ("I_CCNT_F1", "Cycle Count format 1."),
        Kind::CycleCountF2 => ("I_CCNT_F2", "Cycle Count format 2."),
        Kind::CycleCountF3 => ("I_CCNT_F3", "Cycle Count format 3."),
        Kind::DataSyncNumbered => ("I_NUM_DS_MKR", "Data Synchronisation Marker - Numbered."),
        Kind::DataSyncUnnumbered => (
            "I_UNNUM_DS_MKR",
            "Data Synchronisation Marker - Unnumbered.",
        ),
        Kind::Commit => ("I_COMMIT", "Commit"),
        Kind::CancelF1 => ("I_CANCEL_F1", "Cancel Format 1."),
        Kind::CancelF1Mispredict => ("I_CANCEL_F1_MISPRED", "Cancel Format 1 + Mispredict."),
        Kind::Mispredict => ("I_MISPREDICT", "Mispredict."),
        Kind::CancelF2 => ("I_CANCEL_F2", "Cancel Format 2."),
        Kind::CancelF3 => ("I_CANCEL_F3", "Cancel Format 3."),
        Kind::ConditionalF1 => ("I_COND_I_F1", "Conditional Instruction, format 1."),
        Kind::ConditionalF2 => ("I_COND_I_F2", "Conditional Instruction, format 2."),
        Kind::ConditionalF3 => ("I_COND_I_F3", "Conditional Instruction, format 3."),
        Kind::ConditionalFlush => ("I_COND_FLUSH", "Conditional Flush."),
        Kind::ConditionalResultF1 => ("I_COND_RES_F1", "Conditional Result, format 1."),
        Kind::ConditionalResultF2 => ("I_COND_RES_F2", "Conditional Result, format 2."),
        Kind::ConditionalResultF3 => ("I_COND_RES_F3", "Conditional Result, format 3."),
        Kind::ConditionalResultF4 => ("I_COND_RES_F4", "Conditional Result, format 4."),
        Kind::Ignore => ("I_IGNORE", "Ignore."),
        Kind::Event => ("I_EVENT", "Trace Event."),
        Kind::Context => ("I_CTXT", "Context Packet."),
        Kind::AddressContext32Is0 => (
            "I_ADDR_CTXT_L_32IS0",
            "Address & Context, Long, 32 bit, IS0.",
        ),
        Kind::AddressContext32Is1 => (
            "I_ADDR_CTXT_L_32IS1",
            "Address & Context, Long, 32 bit, IS1.",
        ),
        Kind::AddressContext64Is0 => (
            "I_ADDR_CTXT_L_64IS0",
            "Address & Context, Long, 64 bit, IS0.",
        ),
        Kind::AddressContext64Is1 => (
            "I_ADDR_CTXT_L_64IS1",
            "Address & Context, Long, 64 bit, IS1.",
        ),
        Kind::TimestampMarker => ("I_TS_MARKER", "Timestamp Marker"),
        Kind::AddressMatch => ("I_ADDR_MATCH", "Exact Address Match."),
        Kind::AddressShortIs0 => ("I_ADDR_S_IS0", "Address, Short, IS0."),
        Kind::AddressShortIs1 => ("I_ADDR_S_IS1", "Address, Short, IS1."),
        Kind::Address32Is0 => ("I_ADDR_L_32IS0", "Address, Long, 32 bit, IS0."),
        Kind::Address32Is1 => ("I_ADDR_L_32IS1", "Address, Long, 32 bit, IS1."),
        Kind::Address64Is0 => ("I_ADDR_L_64IS0", "Address, Long, 64 bit, IS0."),
        Kind::Address64Is1 => ("I_ADDR_L_64IS1", "Address, Long, 64 bit, IS1."),
        Kind::Q => ("I_Q", "Q Packet."),
        Kind::SourceMatch => ("I_SRC_ADDR_MATCH", "Exact Source Address Match."),
        Kind::SourceShortIs0 => ("I_SRC_ADDR_S_IS0", "Source Address, Short, IS0."),
        Kind::SourceShortIs1 => ("I_SRC_ADDR_S_IS1", "Source Address, Short, IS1."),
        Kind::Source32Is0 => ("I_SCR_ADDR_L_32IS0", "Source Address, Long, 32 bit, IS0."),
        Kind::Source32Is1 => ("I_SRC_ADDR_L_32IS1", "Source Address, Long, 32 bit, IS1."),
        Kind::Source64Is0 => ("I_SRC_ADDR_L_64IS0", "Source Address, Long, 64 bit, IS0."),
        Kind::Source64Is1 => ("I_SRC_ADDR_L_64IS1", "Source Address, Long, 64 bit, IS1."),
        Kind::AtomF1 => ("I_ATOM_F1", "Atom format 1."),
        Kind::AtomF2 => ("I_ATOM_F2", "Atom format 2."),
        Kind::AtomF3 => ("I_ATOM_F3", "Atom format 3."),
        Kind::AtomF4 => ("I_ATOM_F4", "Atom format 4."),
        Kind::AtomF5 => ("I_ATOM_F5", "Atom format 5."),
        Kind::AtomF6 => ("I_ATOM_F6", "Atom format 6."),
    }
}
