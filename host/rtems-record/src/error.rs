//! What can be wrong with an input.

use std::fmt;

/// The operating system refused to read on. What came before has been given.
#[derive(Debug)]
pub struct Error {
    /// How far reading came, in bytes of the input.
    pub offset: u64,
    /// Why not.
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

/// A place in the input that is not what it should be. The rest of its dump is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where: in bytes of what base64 or zlib decode to if `decoded`, else of the input.
    pub offset: u64,
    /// Whether the offset counts decoded bytes.
    pub decoded: bool,
    /// What was expected, and what was found.
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
