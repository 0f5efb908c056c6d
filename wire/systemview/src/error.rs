//! What can be wrong with a packet.

use core::fmt;

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, in bytes from the start of the packet.
    pub offset: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with bytes that should be a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It may be a packet, but bytes are missing at its end.
    Incomplete,
    /// A number has more than 32 bits, or more bytes than it needs.
    Number,
    /// The payload is longer than any.
    Length {
        /// Bytes, as the packet says.
        found: u32,
    },
    /// The fields of a packet take other than its length.
    Fields {
        /// Bytes of the payload, as the packet says.
        expected: usize,
        /// Bytes that its fields take, or all of them if they need more.
        found: usize,
    },
    /// Not a packet of a stream that is in order.
    Implausible,
    /// The stream lacks its beginning, and what it begins with may be the rest of a packet.
    Cut,
    /// A line of the target's log, which shares its way out with the packets.
    Log,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} of the packet", self.problem, self.offset)
    }
}

/// What was expected, and what was found.
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
