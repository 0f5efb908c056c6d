//! Text of packets, equal to the output of OpenCSD 1.8.0's `trc_pkt_lister`.

use std::fmt::{self, Write};

use super::{Kind, Packet};

/// Writes a packet's name and content, as `trc_pkt_lister` does after the bytes.
///
/// # Errors
/// Returns the writer's error.
pub fn describe(packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let (name, meaning) = names(packet.kind);
    let Packet {
        source,
        value,
        size,
        ..
    } = *packet;
    write!(out, "{name}: ")?;
    match packet.kind {
        Kind::Software => write!(out, "{{src id: 0x{source:02x}}}  {}", Sized(packet))?,
        Kind::Hardware => {
            write!(out, "{{desc: 0x{source:02x}}} ")?;
            hardware(packet, out)?;
        }
        Kind::LocalTimestamp => {
            let delay = [
                "TS Sync",
                "TS Delayed",
                "TS Sync, Packet Delayed",
                "TS Delayed, Packet Delayed",
            ];
            write!(
                out,
                "{} {{ {} }}",
                Sized(packet),
                delay[usize::from(source & 3)]
            )?;
        }
        Kind::GlobalTimestamp1 => {
            let highest = [6, 13, 20, 25][usize::from(size.clamp(1, 4) - 1)];
            write!(out, "{{ TS bits [{highest}:0]")?;
            if source & 1 != 0 {
                out.write_str(", Clk change")?;
            }
            if source & 2 != 0 {
                out.write_str(", Clk wrap")?;
            }
            write!(out, "}} {}", Sized(packet))?;
        }
        Kind::GlobalTimestamp2 => {
            let highest = if size == 5 { 63 } else { 47 };
            write!(out, "{{ TS bits [{highest}:26]}} {}", Sized(packet))?;
        }
        Kind::Extension if size == 2 && source == 0 => {
            write!(out, "{{stim port page}} 0x{value:02x}")?
        }
        Kind::Extension => {
            let bits = usize::from(size) + 1;
            write!(
                out,
                "{{unknown extension type, {bits} bits }} 0x{value:0width$x}",
                width = bits / 4 + 1
            )?;
        }
        Kind::IncompleteEot | Kind::BadSequence => {
            write!(out, "[Init type: {}] ", names(packet.began_as).0)?;
        }
        Kind::Async | Kind::Overflow | Kind::Reserved | Kind::NotSync => {}
    }
    write!(out, "; '{meaning}'")
}

/// A payload with as many digits as its bytes have.
struct Sized<'a>(&'a Packet);

impl fmt::Display for Sized<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "0x{:0width$x}",
            self.0.value,
            width = 2 * usize::from(self.0.size)
        )
    }
}

/// What the DWT says.
fn hardware(packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    let Packet { source, value, .. } = *packet;
    match source {
        0 => {
            write!(out, "[Event Counter: 0x{value:02x}; Flags: ")?;
            for (bit, name) in ["CPI", "EXC", "Sleep", "LSU", "Fold", "CYC"]
                .iter()
                .enumerate()
            {
                write!(
                    out,
                    " {} ",
                    if value >> bit & 1 == 1 { name } else { "---" }
                )?;
            }
            out.write_str("] ")
        }
        1 => {
            let how = ["reserved", "entered", "exited", "returned to"][value as usize >> 12 & 3];
            write!(out, "[Exception Num:  0x{:04x}({how}) ]", value & 0x1ff)
        }
        2 => write!(out, "[PC Sample: {}] ", Sized(packet)),
        8..=23 => {
            let comparator = source >> 1 & 3;
            let value = Sized(packet);
            match (source >> 3, source & 1) {
                (1, 0) => write!(out, "[Data Trc: comp={comparator}; PC Value={value} ] "),
                (1, _) => write!(out, "[Data Trc: comp={comparator}; Address={value} ] "),
                (_, 0) => write!(out, "[Data Trc: comp={comparator}; Val read: {value}] "),
                (_, _) => write!(out, "[Data Trc: comp={comparator}; Val write: {value}] "),
            }
        }
        _ => out.write_str("[Reserved discriminator value] "),
    }
}

/// The name of a packet's kind in listings.
pub(crate) fn name(kind: Kind) -> &'static str {
    names(kind).0
}

fn names(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::NotSync => ("ITM_NOTSYNC", "ITM data stream not synchronised"),
        Kind::IncompleteEot => (
            "ITM_INCOMPLETE_EOT",
            "Incomplete packet flushed at end of trace",
        ),
        Kind::BadSequence => ("ITM_BAD_SEQUENCE", "Invalid sequence in packet"),
        Kind::Reserved => ("ITM_RESERVED", "Reserved Packet Header"),
        Kind::Async => ("ITM_ASYNC", "Alignment synchronisation packet"),
        Kind::Overflow => ("ITM_OVERFLOW", "ITM overflow packet"),
        Kind::Software => ("ITM_SWIT", "Software Stimulus write packet"),
        Kind::Hardware => ("ITM_DWT", "DWT hardware stimulus write"),
        Kind::LocalTimestamp => ("ITM_TS_LOCAL", "Local Timestamp"),
        Kind::GlobalTimestamp1 => ("ITM_GTS_1", "Global Timestamp [25:0]"),
        Kind::GlobalTimestamp2 => ("ITM_GTS_2", "Global Timestamp [{63|42}:26]"),
        Kind::Extension => ("ITM_EXTENSION", "Extension packet"),
    }
}
