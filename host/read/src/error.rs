//! Errors that concern a whole input. Damage inside an input is an event instead.

use std::path::PathBuf;

use thiserror::Error;

use crate::MappingError;

/// Error from opening an input.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system reports an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The input.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The input is empty.
    #[error("{}: the file is empty, expected a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The input has none of the known formats.
    #[error("{}: not a trace that kymo knows: found {found}, expected {expected}", path.display())]
    Unknown {
        /// The input.
        path: PathBuf,
        /// The formats that are recognized.
        expected: String,
        /// Description of the input.
        found: String,
    },
    /// Several traces, at least one of which is Kymo's own or a dump of Zephyr's instrumentation. Each has its own
    /// clock, so they cannot be merged.
    #[error(
        "{}: expected one trace, found {} with clocks of their own: {}",
        path.display(), traces.len(), traces.join(", ")
    )]
    Several {
        /// The directory.
        path: PathBuf,
        /// The traces in it.
        traces: Vec<String>,
    },
    /// The target identity at the start of a raw Kymo file is invalid.
    #[error("{}: identity at offset 0: {message}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
    /// The recording was made by a target with another version of Kymo.
    #[error("{}: expected a recording of format {expected}, found one of format {found}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The supported format of packets and metadata.
        expected: u32,
        /// The format of the recording.
        found: u32,
    },
    /// A console log has no usable dump.
    #[error("{}: {message}", path.display())]
    Console {
        /// The log.
        path: PathBuf,
        /// Expected and found data.
        message: String,
    },
    /// A dump of a target's memory contains no recording.
    #[error("{}: {message}", path.display())]
    Memory {
        /// The dump.
        path: PathBuf,
        /// Expected and found data.
        message: String,
    },
    /// An ftrace trace is invalid.
    #[error("{}: {message}", path.display())]
    Ftrace {
        /// The file.
        path: PathBuf,
        /// Offset in it.
        offset: u64,
        /// Expected and found data.
        message: String,
    },
    /// The directory is the running kernel's tracefs. Reading its raw pages would wait for events and consume them.
    #[error("{}: this is the tracefs of a running kernel, and no recording", path.display())]
    LiveTracefs {
        /// The directory.
        path: PathBuf,
    },
    /// An RTEMS event recording lacks the data that is needed to read it.
    #[error("{}: {message}", path.display())]
    Record {
        /// The input.
        path: PathBuf,
        /// Offset in it.
        offset: u64,
        /// Location, expected and found data.
        message: String,
    },
    /// A recording of hardware trace is invalid.
    #[error("{}: {message}", path.display())]
    HardwareTrace {
        /// The input.
        path: PathBuf,
        /// Location, expected and found data.
        message: String,
    },
    /// Several recordings cannot be aligned on one timeline.
    #[error("{}: {message}", path.display())]
    Together {
        /// The recording that cannot be aligned with the others.
        path: PathBuf,
        /// Reason.
        message: String,
    },
    /// The mapping does not match the trace.
    #[error("the mapping does not fit the trace: {0}")]
    Mapping(#[from] MappingError),
    /// The metadata of a trace directory is invalid.
    #[error("{}: {message}", path.display())]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// Offset in the text, in bytes.
        offset: u64,
        /// Description of the problem, with line and column.
        message: String,
    },
}

impl OpenError {
    /// Returns the offset of the fault in the input, in bytes; 0 if the fault concerns the whole input.
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

/// Error after which a source cannot continue. The events returned before it are valid, and none follow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reports an error.
    #[error("{stream}: cannot read at offset {offset}: {source}")]
    Io {
        /// File of the stream.
        stream: String,
        /// Offset in bytes.
        offset: u64,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
