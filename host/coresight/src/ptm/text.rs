//! Text of packets, equal to the output of OpenCSD 1.8.0's `trc_pkt_lister`.

use std::fmt::{self, Write};

use super::{Context, Fields, Kind, Packet};
use crate::exception::Exceptions;

/// Writes a packet's name and content, as `trc_pkt_lister` does after the bytes.
///
/// # Errors
/// Returns the writer's error.
pub fn describe(packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let (name, meaning) = names(packet.kind);
    write!(out, "{name} : {meaning}; ")?;
    if packet.kind == Kind::BadSequence {
        write!(out, "[{}]; ", names(packet.began_as).0)?;
    }
    match packet.fields {
        Fields::None => {}
        Fields::Atoms(atoms) => {
            crate::etmv4::write_atoms(atoms, out)?;
            out.write_str("; ")?;
        }
        Fields::Branch(branch) => {
            write!(out, "Addr={}; ", branch.address)?;
            if branch.isa_changed {
                write!(out, "ISA={}; ", branch.isa.packet_name())?;
            }
            if let Some(Context { ns, hyp, .. }) = branch.context {
                out.write_str(if ns { "NS; " } else { "S; " })?;
                out.write_str(if hyp { "Hyp; " } else { "" })?;
            }
            if let Some(number) = branch.exception {
                let name = match Exceptions::Armv7.knows(number.into()) {
                    true => Exceptions::Armv7.name(number.into()),
                    false => "Unknown".into(),
                };
                write!(out, "Excep={name} [{number:02x}]; ")?;
            }
        }
        Fields::ISync {
            reason,
            address,
            isa,
            context,
        } => {
            write!(out, "({}); Addr=0x{:08x}; ", reason.name(), address.value)?;
            out.write_str(if context.ns { "NS; " } else { "S; " })?;
            out.write_str(if context.hyp { "Hyp; " } else { " " })?;
            if let Some(id) = context.id {
                write!(out, "CtxtID={id:08x}; ")?;
            }
            write!(out, "ISA={}; ", isa.packet_name())?;
        }
        Fields::Timestamp { value, bits } => {
            write!(out, "TS=0x{value:016X}")?;
            if bits > 0 {
                write!(out, " ~[0x{:X}]", value & (u64::MAX >> (64 - bits.min(64))))?;
            }
            write!(out, "({value}); ")?;
        }
        Fields::ContextId(id) => write!(out, "CtxtID=0x{id:08x}; ")?,
        Fields::Vmid(vmid) => write!(out, "VMID=0x{vmid:02x}; ")?,
    }
    packet
        .cycles
        .map_or(Ok(()), |cycles| write!(out, "Cycles={cycles}; "))
}

/// The name of a packet's kind in listings.
pub(crate) fn name(kind: Kind) -> &'static str {
    names(kind).0
}

fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::NotSync => ("NOTSYNC", "PTM Not Synchronised"),
        Kind::IncompleteEot => (
            "INCOMPLETE_EOT",
            "Incomplete packet flushed at end of trace",
        ),
        Kind::BadSequence => ("BAD_SEQUENCE", "Invalid sequence in packet"),
        Kind::Reserved => ("RESERVED", "Reserved Packet Header"),
        Kind::Async => ("ASYNC", "Alignment Synchronisation Packet"),
        Kind::ISync => ("ISYNC", "Instruction Synchronisation packet"),
        Kind::Trigger => ("TRIGGER", "Trigger Event packet"),
        Kind::WaypointUpdate => ("WP_UPDATE", "Waypoint update packet"),
        Kind::Ignore => ("IGNORE", "Ignore packet"),
        Kind::ContextId => ("CTXTID", "Context ID packet"),
        Kind::Vmid => ("VMID", "VM ID packet"),
        Kind::Atom => ("ATOM", "Atom packet"),
        Kind::Timestamp => ("TIMESTAMP", "Timestamp packet"),
        Kind::ExceptionReturn => ("ERET", "Exception return packet"),
        Kind::BranchAddress => ("BRANCH_ADDRESS", "Branch address packet"),
    }
}
