//! Text of packets, equal to the output of OpenCSD 1.8.0's `trc_pkt_lister`.

use std::fmt::{self, Write};

use super::{Kind, Packet};

/// Writes a packet's name and content, as `trc_pkt_lister` does after the bytes.
///
/// # Errors
/// Returns the writer's error.
pub fn describe(packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let (name, meaning) = names(packet.kind);
    let value = packet.value;
    let may_be_marked = matches!(
        packet.kind,
        Kind::Data4
            | Kind::Data8
            | Kind::Data16
            | Kind::Data32
            | Kind::Data64
            | Kind::Flag
            | Kind::Trigger
    );
    let mark = if packet.is_marker && may_be_marked {
        ("M", " + marker")
    } else {
        ("", "")
    };
    let time = if packet.timestamp.is_some() && packet.kind != Kind::Null {
        ("TS", " + timestamp")
    } else {
        ("", "")
    };
    write!(
        out,
        "{name}{}{}:{meaning}{}{}",
        mark.0, time.0, mark.1, time.1
    )?;
    match packet.kind {
        Kind::IncompleteEot | Kind::BadSequence => write!(out, "[{}]", names(packet.began_as).0)?,
        Kind::Version => write!(out, "; Ver={value}")?,
        Kind::Frequency => write!(out, "; Freq={value}Hz")?,
        Kind::Trigger => write!(out, "; TrigData=0x{value:02x}")?,
        Kind::Master8 => write!(out, "; Master=0x{:02x}", packet.master)?,
        Kind::Master16 => write!(out, "; Master=0x{:04x}", packet.master)?,
        Kind::Channel8 | Kind::Channel16 => write!(out, "; Chan=0x{:04x}", packet.channel)?,
        Kind::Data4 => write!(out, "; Data=0x{value:x}")?,
        Kind::Data8 => write!(out, "; Data=0x{value:02x}")?,
        Kind::Data16 => write!(out, "; Data=0x{value:04x}")?,
        Kind::Data32 => write!(out, "; Data=0x{value:08x}")?,
        Kind::Data64 => write!(out, "; Data=0x{value:016x}")?,
        _ => {}
    }
    let Some((value, bits)) = packet.timestamp else {
        return Ok(());
    };
    write!(out, "; TS=0x{value:016X}")?;
    if bits > 0 {
        let mask = u64::MAX >> (64 - bits);
        write!(out, " ~[0x{:X}]", value & mask)?;
    }
    Ok(())
}

/// The name of a packet's kind in listings.
pub(crate) fn name(kind: Kind) -> &'static str {
    names(kind).0
}

fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::NotSync => ("NOTSYNC", "STM not synchronised"),
        Kind::IncompleteEot => (
            "INCOMPLETE_EOT",
            "Incomplete packet flushed at end of trace",
        ),
        Kind::BadSequence => ("BAD_SEQUENCE", "Invalid sequence in packet"),
        Kind::Reserved => ("RESERVED", "Reserved Packet Header"),
        Kind::Async => ("ASYNC", "Alignment synchronisation packet"),
        Kind::Version => ("VERSION", "Version packet"),
        Kind::Frequency => ("FREQ", "Frequency packet"),
        Kind::Null => ("NULL", "Null packet"),
        Kind::Trigger => ("TRIG", "Trigger packet"),
        Kind::GlobalError => ("GERR", "Global Error"),
        Kind::MasterError => ("MERR", "Master Error"),
        Kind::Master8 => ("M8", "Set current master"),
        Kind::Master16 => ("M16", "Set current master"),
        Kind::Channel8 => ("C8", "Set current channel"),
        Kind::Channel16 => ("C16", "Set current channel"),
        Kind::Flag => ("FLAG", "Flag packet"),
        Kind::Data4 => ("D4", "4 bit data"),
        Kind::Data8 => ("D8", "8 bit data"),
        Kind::Data16 => ("D16", "16 bit data"),
        Kind::Data32 => ("D32", "32 bit data"),
        Kind::Data64 => ("D64", "64 bit data"),
    }
}
