//! What can go wrong with an export.

use std::io;

use crate::Shape;

/// Why an export is not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The destination is not of the format's shape.
    #[error("{format} is {expected}, but was to be written to {found}")]
    Shape {
        /// The format.
        format: &'static str,
        /// Its shape.
        expected: Shape,
        /// That of the destination.
        found: Shape,
    },
    /// The format lists events, and was asked to select by calls.
    #[error("{format} lists events, which cannot be selected by {option}")]
    Selection {
        /// The format.
        format: &'static str,
        /// What of the selection asks for calls.
        option: &'static str,
    },
    /// Writing failed.
    #[error("the export could not be written")]
    Write(#[from] io::Error),
}
