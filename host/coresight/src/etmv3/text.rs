//! Text of packets, equal to the output of OpenCSD 1.8.0's `trc_pkt_lister`.

use std::fmt::{self, Write};

use super::{Branch, Config, Exception, Fields, ISync, Kind, Packet};
use crate::exception::Exceptions;

/// Writes a packet's name and content, as `trc_pkt_lister` does after the bytes.
///
/// # Errors
/// Returns the writer's error.
pub fn describe(config: &Config, packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let (name, meaning) = names(packet.kind);
    write!(out, "{name} : {meaning}")?;
    match packet.kind {
        Kind::BadSequence | Kind::IncompleteEot => write!(out, "[{}]", names(packet.began_as).0)?,
        // The reference always names the first kind here, regardless of the packet's header.
        Kind::BadTraceMode => out.write_str("[BRANCH_ADDRESS]")?,
        _ => {}
    }
    match packet.fields {
        Fields::None => Ok(()),
        Fields::PHeader {
            atoms,
            cycles,
            format,
        } => {
            out.write_str("; ")?;
            for at in 0..atoms.count {
                match (cycles > 0, format, at) {
                    (true, 1, _) | (true, 2, 0) => out.write_char('W')?,
                    (true, 3, 0) => waits(cycles, out)?,
                    _ => {}
                }
                out.write_char(if atoms.bits >> at & 1 == 1 { 'E' } else { 'N' })?;
            }
            if atoms.count == 0 {
                waits(cycles, out)?;
            }
            if cycles > 0 {
                write!(out, "; Cycles={cycles}")?;
            }
            Ok(())
        }
        Fields::Branch(branch) => write_branch(config, &branch, out),
        Fields::ISync(isync) => write_isync(&isync, out),
        Fields::Cycles(cycles) => write!(out, "; Cycles={cycles}"),
        Fields::ContextId(id) => write!(out, "; CtxtID={id:#x}"),
        Fields::Vmid(vmid) => write!(out, "; VMID={vmid:#x}"),
        Fields::Timestamp(value) => write!(out, "; TS={value:#x} ({value}) "),
        Fields::Data {
            address,
            value,
            tag,
        } => {
            if let Some(address) = address {
                write!(out, "; Addr={address}")?;
            }
            if let Some(value) = value {
                write!(out, "; Val={value:#x}")?;
            }
            if matches!(
                packet.kind,
                Kind::OutOfOrderData | Kind::OutOfOrderPlaceholder
            ) {
                write!(out, "; OO_Tag={tag:#x}")?;
            }
            Ok(())
        }
    }
}

fn waits(cycles: u32, out: &mut dyn Write) -> fmt::Result {
    (0..cycles).try_for_each(|_| out.write_char('W'))
}

fn write_branch(config: &Config, branch: &Branch, out: &mut dyn Write) -> fmt::Result {
    write!(out, "; Addr={}; ", branch.address)?;
    if branch.isa_changed {
        write!(out, "ISA={}; ", branch.isa.packet_name())?;
    }
    if let Some(context) = branch.context {
        out.write_str(if context.ns { "NS; " } else { "S; " })?;
        out.write_str(if context.hyp { "Hyp; " } else { "" })?;
    }
    branch
        .exception
        .map_or(Ok(()), |exception| write_exception(config, exception, out))
}

fn write_exception(config: &Config, exception: Exception, out: &mut dyn Write) -> fmt::Result {
    let Exception {
        number,
        cancels,
        resume,
    } = exception;
    out.write_str("Exception=")?;
    if config.is_m_profile {
        out.write_str(&Exceptions::EtmV3M.name(number.into()))?;
        if resume != 0 {
            write!(out, "; Resume={resume}")?;
        }
    } else {
        write!(out, "{}; ", Exceptions::Armv7.name(number.into()))?;
    }
    out.write_str(if cancels { "; Cancel prev instr" } else { "" })
}

fn write_isync(isync: &ISync, out: &mut dyn Write) -> fmt::Result {
    write!(out, "; ({}); ", isync.reason.name())?;
    if let Some(address) = isync.address {
        let label = if isync.current.is_some() {
            "Data Instr Addr"
        } else {
            "Addr"
        };
        write!(out, "{label}=0x{:08x}; ", address.value)?;
    }
    out.write_str(if isync.context.ns { "NS; " } else { "S; " })?;
    out.write_str(if isync.context.hyp { "Hyp; " } else { " " })?;
    if let Some(id) = isync.id {
        write!(out, "CtxtID={id:x}; ")?;
    }
    if isync.address.is_none() {
        return Ok(());
    }
    write!(out, "ISA={}; ", isync.isa.packet_name())?;
    if let Some(cycles) = isync.cycles {
        write!(out, "Cycles={cycles}; ")?;
    }
    isync
        .current
        .map_or(Ok(()), |current| write!(out, "Curr Instr Addr={current};"))
}

/// The name of a packet's kind in listings.
pub(crate) fn name(kind: Kind) -> &'static str {
    names(kind).0
}

fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::NotSync => ("NOTSYNC", "Trace Stream not synchronised"),
        Kind::IncompleteEot => ("INCOMPLETE_EOT.", "Incomplete packet at end of trace data."),
        Kind::BadSequence => ("BAD_SEQUENCE", "Invalid sequence for packet type."),
        Kind::BadTraceMode => ("BAD_TRACEMODE", "Invalid packet type for this trace mode."),
        Kind::Reserved => ("I_RESERVED", "Reserved Packet Header"),
        Kind::Async => ("A_SYNC", "Alignment Synchronisation."),
        Kind::CycleCount => ("CYCLE_COUNT", "Cycle Count."),
        Kind::ISync => ("I_SYNC", "Instruction Packet synchronisation."),
        Kind::ISyncCycle => (
            "I_SYNC_CYCLE",
            "Instruction Packet synchronisation with cycle count.",
        ),
        Kind::Trigger => ("TRIGGER", "Trace Trigger Event."),
        Kind::PHeader => ("P_HDR", "Atom P-header."),
        Kind::BranchAddress => ("BRANCH_ADDRESS", "Branch address."),
        Kind::StoreFailed => ("STORE_FAIL", "Data Store Failed."),
        Kind::OutOfOrderData => ("OOO_DATA", "Out of Order data value packet."),
        Kind::OutOfOrderPlaceholder => ("OOO_ADDR_PLC", "Out of Order data address placeholder."),
        Kind::NormalData => ("NORM_DATA", "Data trace packet."),
        Kind::DataSuppressed => ("DATA_SUPPRESSED", "Data trace suppressed."),
        Kind::ValueNotTraced => ("VAL_NOT_TRACED", "Data trace value not traced."),
        Kind::Ignore => ("IGNORE", "Packet ignored."),
        Kind::ContextId => ("CONTEXT_ID", "Context ID change."),
        Kind::Vmid => ("VMID", "VMID change."),
        Kind::ExceptionEntry => ("EXCEPTION_ENTRY", "Exception entry data marker."),
        Kind::ExceptionExit => ("EXCEPTION_EXIT", "Exception return."),
        Kind::Timestamp => ("TIMESTAMP", "Timestamp Value."),
    }
}
