//! Errors in reading inputs. Damage inside a trace is not an error: a packet or an element reports it.

use std::path::PathBuf;

/// Why an input cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the input cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A line of an `.ini` file is neither a section, a key nor a comment.
    #[error("{path}:{line}: expected [section], key=value or a comment, found {found:?}", path = path.display())]
    Ini {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The line.
        found: String,
    },
    /// A value of a snapshot or of a configuration is missing or not a number.
    #[error("{place}: expected {expected}, found {found:?}")]
    Value {
        /// File and key.
        place: String,
        /// The expected content.
        expected: &'static str,
        /// The content found; empty if it is missing.
        found: String,
    },
    /// A file that a snapshot names is not there.
    #[error("{place}: expected the file {file} beside it, found none: copy it there, or take the line out", file = file.display())]
    Absent {
        /// File, section and key that name it.
        place: String,
        /// The file, relative to the snapshot's directory.
        file: PathBuf,
    },
    /// A binary structure ends too early or contradicts itself.
    #[error("offset {offset:#x}: expected {expected}, found {found}")]
    Format {
        /// Offset in the file, in bytes.
        offset: u64,
        /// The expected content.
        expected: &'static str,
        /// The content found.
        found: String,
    },
    /// The input is a program or the memory of one.
    #[error(
        "expected hardware trace, found {what}: INPUT is the trace; code that ran belongs to --trace-image (of a raw buffer or a \
         snapshot) or --symfs (of a perf.data), names to --elf"
    )]
    Program {
        /// The kind of program or memory image.
        what: &'static str,
    },
    /// The hardware trace is not CoreSight's.
    #[error("the hardware trace is of {kind}, expected Arm CoreSight")]
    OtherTrace {
        /// The name of the kind.
        kind: String,
    },
}
