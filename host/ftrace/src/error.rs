//! Why bytes could not be read.

use std::borrow::Cow;
use std::fmt;

/// Something in the input is not what its format says: what was expected, what was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Bytes from the start of the input.
    pub offset: u64,
    /// What the format has there.
    pub expected: Cow<'static, str>,
    /// What is there.
    pub found: String,
}

impl Error {
    pub(crate) fn new(
        offset: u64,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            expected,
            found,
        } = self;
        write!(f, "expected {expected}, found {found} at offset {offset}")
    }
}

impl std::error::Error for Error {}
