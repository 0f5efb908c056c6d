//! Errors and faults of an input.

use std::fmt;

/// Failure of the operating system to read the input. The records read before it have been returned.
#[derive(Debug)]
pub struct Error {
    /// Number of bytes of the input that were read.
    pub offset: u64,
    /// Error of the operating system.
    pub source: std::io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read at offset {}: {}", self.offset, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Invalid data in the input. The rest of its dump is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Offset in bytes: in the data decoded from base64 or zlib if `decoded`, else in the input.
    pub offset: u64,
    /// Whether the offset counts decoded bytes.
    pub decoded: bool,
    /// Expected and found data.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.decoded {
            " of the decoded bytes"
        } else {
            ""
        };
        write!(f, "at offset {}{of}: {}", self.offset, self.message)
    }
}
