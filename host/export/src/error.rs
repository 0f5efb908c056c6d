//! Errors of an export.

use std::io;

use crate::Shape;

/// Reason why an export is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The destination does not have the format's shape.
    #[error("{format} is {expected}, but was to be written to {found}")]
    Shape {
        /// The format.
        format: &'static str,
        /// Its shape.
        expected: Shape,
        /// The destination's shape.
        found: Shape,
    },
    /// The format lists events, and the selection is by calls.
    #[error("{format} lists events, which cannot be selected by {option}")]
    Selection {
        /// The format.
        format: &'static str,
        /// The option that applies only to calls.
        option: &'static str,
    },
    /// Writing failed.
    #[error("the export could not be written")]
    Write(#[from] io::Error),
}
