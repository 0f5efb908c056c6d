//! Errors of decoding a packet.

use core::fmt;

/// Reason why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset in bytes from the start of the packet.
    pub offset: usize,
    /// The error at that offset.
    pub problem: Problem,
}

/// Error in bytes that should be a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It may be a packet whose last bytes are missing.
    Incomplete,
    /// A number has more than 32 bits, or more bytes than it needs.
    Number,
    /// The payload is longer than the maximum.
    Length {
        /// Length in bytes in the packet.
        found: u32,
    },
    /// The size of the packet's fields differs from its length.
    Fields {
        /// Bytes of the payload, according to the packet's length.
        expected: usize,
        /// Bytes of its fields; more than the payload has if they need more.
        found: usize,
    },
    /// Not a packet of an intact stream.
    Implausible,
    /// The stream lacks its start, and its first bytes may be the rest of a packet.
    Cut,
    /// A line of the target's log, which shares the output with the packets.
    Log,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the packet", self.problem, self.offset)
    }
}

/// Describes what was expected and what was found.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("expected a whole packet, found the end"),
            Self::Number => f.write_str("expected a number of 32 bits, found other bytes"),
            Self::Length { found } => {
                write!(
                    f,
                    "expected at most {} bytes of payload, found a length of {found}",
                    crate::decode::MAX_PAYLOAD
                )
            }
            Self::Fields { expected, found } => {
                write!(
                    f,
                    "expected fields of {expected} bytes, found fields of {found}"
                )
            }
            Self::Log => f.write_str("expected a packet, found a line of the target's log"),
            Self::Cut => f.write_str("expected a packet, found what may be the rest of one"),
            Self::Implausible => f.write_str("expected a packet, found bytes that are none"),
        }
    }
}

impl core::error::Error for DecodeError {}
