//! What can go wrong with an export.

use std::io;

use crate::{Shape, Summary};

/// Why an export is not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError<E> {
    /// The source failed. Everything that it gave before is written, and the file is whole.
    #[error("the trace could not be read to its end")]
    Source {
        /// Why.
        #[source]
        error: E,
        /// What was exported all the same.
        summary: Summary,
    },
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
    /// Writing failed.
    #[error("the export could not be written")]
    Write(#[from] io::Error),
}
