//! Errors in the input.

use std::borrow::Cow;
use std::fmt;

/// Deviation of the input from its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Offset in bytes from the start of the input.
    pub offset: u64,
    /// What the format requires there.
    pub expected: Cow<'static, str>,
    /// What the input has there.
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
