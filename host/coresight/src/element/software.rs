//! Elements for messages of STM and ITM.

use std::fmt::{self, Write};

/// Message from software or hardware through an STM or ITM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Through an STM.
    Stm(StmMessage),
    /// Through an ITM.
    Itm {
        /// The message.
        message: ItmMessage,
        /// Whether messages before it are lost.
        overflowed: bool,
    },
}

/// A message of an STM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StmMessage {
    /// Kind of the message.
    pub kind: StmKind,
    /// Master and channel; `None` before the trace has them.
    pub place: Option<(u16, u16)>,
    /// Data, error code, trigger or frequency.
    pub value: u64,
    /// Bits of the value; 0 if there is none.
    pub bits: u8,
    /// Whether it is marked, as the first or last packet of a software message.
    pub is_marker: bool,
    /// Complete timestamp.
    pub timestamp: Option<u64>,
}

/// Kind of an STM message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StmKind {
    /// Data, or a flag: a marker without data.
    Data,
    /// A trigger.
    Trigger,
    /// The frequency of timestamps, in Hz.
    Frequency,
    /// A master lost messages.
    MasterError,
    /// Messages are lost.
    GlobalError,
}

/// A message of an ITM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItmMessage {
    /// A write to a stimulus port.
    Software {
        /// Port, with its page.
        port: u32,
        /// Value.
        value: u32,
        /// Bytes written.
        bytes: u8,
    },
    /// A packet of the DWT.
    Hardware {
        /// Discriminator of the DWT packet.
        discriminator: u8,
        /// Payload.
        value: u32,
        /// Size of the payload in bytes.
        bytes: u8,
    },
    /// A local timestamp.
    LocalTimestamp {
        /// Ticks since the previous local timestamp.
        ticks: u32,
        /// TC: bit 0 if the timestamp is delayed, bit 1 if the packet before it is.
        delay: u8,
        /// Ticks since the trace began, or messages were lost.
        total: u64,
    },
    /// A complete global timestamp.
    GlobalTimestamp(u64),
}

impl Software {
    /// Writes the element as `trc_pkt_lister` does.
    ///
    /// # Errors
    /// What the writer returns.
    pub(super) fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        match self {
            Software::Stm(message) => message.describe(out),
            Software::Itm {
                message,
                overflowed,
            } => {
                out.write_str("ITMTRACE(")?;
                if *overflowed {
                    out.write_str("ITM_OVERFLOW; ")?;
                }
                message.describe(out)
            }
        }
    }
}

impl StmMessage {
    fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("SWTRACE(")?;
        if self.kind == StmKind::GlobalError {
            return out.write_str("{Global Error.})");
        }
        match self.place {
            Some((master, channel)) => {
                write!(out, " (Ma:0x{master:02x}; Ch:0x{channel:02x}) ")?;
            }
            None => out.write_str("(Ma:0x??; Ch:0x??) ")?,
        }
        if self.bits > 0 {
            let digits = usize::from(self.bits / 4);
            write!(out, "0x{:0digits$x}; ", self.value)?;
        }
        if self.is_marker {
            out.write_str("+Mrk ")?;
        }
        if self.kind == StmKind::Trigger {
            out.write_str("Trig ")?;
        }
        if let Some(timestamp) = self.timestamp {
            write!(out, " [ TS=0x{timestamp:012x}]; ")?;
        }
        out.write_str(match self.kind {
            StmKind::Frequency => "Freq)",
            StmKind::MasterError => "{Master Error.})",
            _ => ")",
        })
    }
}

impl ItmMessage {
    fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        match *self {
            ItmMessage::Software { port, value, bytes } => {
                let digits = 2 * usize::from(bytes);
                write!(out, "ITM_SWIT (ch: {port:#x}; Data: 0x{value:0digits$x}) )")
            }
            ItmMessage::Hardware {
                discriminator,
                value,
                bytes,
            } => {
                let digits = 2 * usize::from(bytes);
                write!(
                    out,
                    "ITM_DWT (desc: {discriminator:#x}; Data: 0x{value:0digits$x}) )"
                )
            }
            ItmMessage::LocalTimestamp {
                ticks,
                delay,
                total,
            } => {
                let delay = ["TS Sync", "TS Delay", "Packet Delay", "TS and Packet Delay"]
                    [usize::from(delay & 3)];
                write!(
                    out,
                    "ITM_TS_LOCAL ( TS delta: 0x{ticks:08x}, {{ {delay}}}; TS cumulative: 0x{total:016x}) )"
                )
            }
            ItmMessage::GlobalTimestamp(value) => {
                write!(out, "ITM_TS_GLOBAL ( TS: 0x{value:016x}) )")
            }
        }
    }
}
