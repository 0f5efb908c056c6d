//! What can go wrong with a whole input, as opposed to damage inside it, which is an event.

use std::path::PathBuf;

use thiserror::Error;

use crate::MappingError;

/// An input that cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be opened.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{}: the file is empty, expected a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is none of the formats that are known.
    #[error("{}: not a trace that kymo knows: found {found}, expected {expected}", path.display())]
    Unknown {
        /// The input.
        path: PathBuf,
        /// What would have been recognised.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Several traces, at least one of which is Kymo's own or a dump of Zephyr's instrumentation: each has a
    /// clock of its own, so they cannot be merged.
    #[error(
        "{}: expected one trace, found {} with clocks of their own: {}",
        path.display(), traces.len(), traces.join(", ")
    )]
    Several {
        /// The directory.
        path: PathBuf,
        /// The traces that are in it.
        traces: Vec<String>,
    },
    /// The identity of a target, as a raw Kymo file begins with it, cannot be used.
    #[error("{}: identity at offset 0: {message}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// It is a recording that a target of another version of Kymo's made.
    #[error("{}: expected a recording of format {expected}, found one of format {found}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The format of packets and metadata that is read.
        expected: u32,
        /// That of the recording.
        found: u32,
    },
    /// The log of a console has no dump that can be used.
    #[error("{}: {message}", path.display())]
    Console {
        /// The log.
        path: PathBuf,
        /// What was expected, and what is there.
        message: String,
    },
    /// There is no recording to be found in a dump of a target's memory.
    #[error("{}: {message}", path.display())]
    Memory {
        /// The dump.
        path: PathBuf,
        /// What was expected, and what is there.
        message: String,
    },
    /// A trace of ftrace's cannot be used.
    #[error("{}: {message}", path.display())]
    Ftrace {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What was expected, and what is there.
        message: String,
    },
    /// A directory is the running kernel's tracefs: reading its raw pages would wait for events, and take them away.
    #[error("{}: this is the tracefs of a running kernel, and no recording", path.display())]
    LiveTracefs {
        /// The directory.
        path: PathBuf,
    },
    /// A recording of RTEMS's events does not say what is needed to read it.
    #[error("{}: {message}", path.display())]
    Record {
        /// The input.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// Where, what was expected, and what is there.
        message: String,
    },
    /// A recording of hardware trace cannot be used.
    #[error("{}: {message}", path.display())]
    HardwareTrace {
        /// The input.
        path: PathBuf,
        /// Where, what was expected, and what is there.
        message: String,
    },
    /// Several recordings cannot be put on one time line.
    #[error("{}: {message}", path.display())]
    Together {
        /// The recording that does not go with the others.
        path: PathBuf,
        /// Why not.
        message: String,
    },
    /// The mapping does not fit the trace.
    #[error("the mapping does not fit the trace: {0}")]
    Mapping(#[from] MappingError),
    /// The metadata of a trace directory cannot be used.
    #[error("{}: {message}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// Where in the text, in bytes.
        offset: u64,
        /// What is wrong with it, with line and column.
        message: String,
    },
}

impl OpenError {
    /// Where in the input the fault lies, in bytes from its start; 0 where it is the whole input.
    pub const fn offset(&self) -> u64 {
        match self {
            Self::Metadata { offset, .. }
            | Self::Ftrace { offset, .. }
            | Self::Record { offset, .. } => *offset,
            Self::Io { .. }
            | Self::Empty { .. }
            | Self::LiveTracefs { .. }
            | Self::Unknown { .. }
            | Self::Several { .. }
            | Self::Version { .. }
            | Self::Console { .. }
            | Self::Memory { .. }
            | Self::HardwareTrace { .. }
            | Self::Together { .. }
            | Self::Mapping(_)
            | Self::Identity { .. } => 0,
        }
    }
}

/// Why a source cannot go on. What was given before it stands; after it there is nothing more.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    #[error("{stream}: cannot read at offset {offset}: {source}")]
    Io {
        /// The stream's file.
        stream: String,
        /// Where, in bytes.
        offset: u64,
        /// Why not.
        source: std::io::Error,
    },
}
