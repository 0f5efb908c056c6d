//! Converter of traces between versions of CTF, whole or in part. It also repairs damaged traces.
//!
//! The converter does not interpret events. It preserves names, fields and values, in the order of the trace, and
//! writes standard headers, so that readers accept a trace that some reject (without sizes and times in its packets, as
//! Zephyr's). A construct that the target version lacks is replaced by the nearest equivalent, and counted
//! ([`Summary::changes`]).
//!
//! Losses are preserved in place: packets count discarded events, and lost packets are a gap in the sequence numbers.
//! Content lost to damage, of unknown size, becomes one lost packet.
//!
//! ```
//! use kymo_ctf::convert::{Conversion, Everything};
//! use kymo_ctf::metadata::Version;
//! use kymo_ctf::Trace;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("kymo-ctf-convert-{}", std::process::id()));
//! let metadata = b"/* CTF 1.8 */
//!     trace { major = 1; minor = 8; byte_order = be; };
//!     event { name = tick; fields := struct { integer { size = 12; } n; }; };
//! ";
//! let trace = Trace::from_memory(metadata, [("stream", &[0x12, 0x34, 0x56][..])])?;
//! let summary = Conversion::new(Version::Ctf2).run(&trace, &directory, &mut Everything)?;
//! assert_eq!(summary.events, 2);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```

mod adapt;
mod stream;
mod tokens;

use std::path::PathBuf;

use self::adapt::{Adapted, adapt};
use self::stream::Converter;
use crate::error::{CreateError, DecodeError, OpenError, WriteError};
use crate::metadata::{EnvValue, Version};
use crate::read::{Event, Packet, Skipped, Trace};
use crate::write::TraceWriter;

pub use self::adapt::{Change, Changes};

/// Selection of the part of a trace to convert. Defaults to everything.
pub trait Select {
    /// Whether to convert the streams of a file.
    fn stream(&mut self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// The first and last time to convert of the streams of the last file passed to `stream`, in nanoseconds from the
    /// origin of their clocks. Everything without a time is converted.
    fn span(&self) -> (i64, i64) {
        (i64::MIN, i64::MAX)
    }

    /// Whether the events of a packet, and the losses before it, may be converted.
    fn packet(&mut self, packet: &Packet<'_>) -> bool {
        let _ = packet;
        true
    }

    /// Whether to convert an event.
    fn event(&mut self, event: &Event<'_>) -> bool {
        let _ = event;
        true
    }

    /// Whether to convert an event even if it is outside the span, because events within the span depend on it. Called
    /// for every event of the file, in order.
    fn outside(&mut self, event: &Event<'_>) -> bool {
        let _ = event;
        false
    }

    /// Facts to add to the environment of the trace, once all its streams are read. `beyond`: there are events after
    /// the span.
    fn facts(&self, beyond: bool) -> Vec<(String, EnvValue)> {
        let _ = beyond;
        Vec::new()
    }
}

/// Selects a whole trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everything;

impl Select for Everything {}

/// Converter with its settings.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    /// The version of CTF to write.
    pub version: Version,
    /// Whether to continue after damage. If not, a stream ends there.
    pub repair: bool,
}

/// Result of a conversion.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Number of events written.
    pub events: u64,
    /// Number of these that are outside the selected span, but needed for the events within.
    pub outside: u64,
    /// Number of events read and not selected.
    pub left_out: u64,
    /// Number of streams with content.
    pub streams: u64,
    /// Number of events that the streams had discarded.
    pub discarded: u64,
    /// Number of missing packets. Where the source doesn't state how many, it counts as one.
    pub lost_packets: u64,
    /// Changes for parts of the trace that the target version of CTF cannot represent.
    pub changes: Changes,
    /// Number of places where a stream is damaged.
    pub damaged: u64,
    /// The first thousand of them, in stream order.
    pub damage: Vec<Damage>,
    /// Remarks on streams that end with the [unused rest](crate::Skipped::is_unused) of a buffer.
    pub unused: Vec<String>,
    /// Number of packets whose times did not enclose those of their events and now do.
    pub mended_times: u64,
    /// Number of backward steps of time, which are preserved.
    pub backward: u64,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The name of the stream in the trace.
    pub stream: String,
    /// The error, with its position.
    pub error: DecodeError,
    /// The part that was skipped; `None` if the stream ends here because repair was not requested.
    pub skipped: Option<Skipped>,
    /// Number of events of the damaged packet that were kept.
    pub kept: u64,
}

/// A conversion that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The output cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A stream cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A stream cannot be written.
    #[error("stream {stream}: {source}")]
    Write {
        /// Its name in the trace.
        stream: String,
        /// The reason.
        source: WriteError,
    },
}

impl Conversion {
    /// Creates a conversion of everything, which ends a stream at the first damage.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            repair: false,
        }
    }

    /// Converts a trace into a directory, which it creates unless there is an empty one.
    ///
    /// It reads one stream after another, and holds one packet in memory. A file that holds packets of several streams
    /// becomes several files.
    ///
    /// # Errors
    /// When a file cannot be opened or written, or this version cannot represent a part of the metadata. Damage is not
    /// an error: the summary reports it.
    pub fn run(
        &self,
        trace: &Trace,
        directory: impl Into<PathBuf>,
        select: &mut dyn Select,
    ) -> Result<Summary, ConvertError> {
        let adapted = adapt(trace.plan(), self.version).map_err(CreateError::from)?;
        let Adapted {
            metadata,
            streams: extras,
            changes,
        } = adapted;
        let mut writer = TraceWriter::create(directory, metadata, self.version)?;
        let mut converter = Converter {
            conversion: *self,
            writer: &mut writer,
            extras: &extras,
            summary: Summary {
                changes,
                ..Summary::default()
            },
            span: (i64::MIN, i64::MAX),
            beyond: false,
            numbered: adapt::is_numbered(trace.metadata()),
            used: vec![false; extras.len()],
        };
        for (index, name) in trace.stream_names().enumerate() {
            if !select.stream(name) {
                continue;
            }
            converter.span = select.span();
            if let Some(reader) = trace.reader(index)? {
                converter.stream(name, reader, select)?;
            }
        }
        let (summary, used, beyond) = (converter.summary, converter.used, converter.beyond);
        let facts = select.facts(beyond);
        // Some readers of CTF 2 support at most one stream class, so unused ones are dropped.
        let drops = used.contains(&true) && used.contains(&false);
        if drops || !facts.is_empty() {
            let mut metadata = writer.plan().metadata().clone();
            let is_new = |name: &str| facts.iter().all(|(new, _)| new != name);
            metadata.environment.retain(|(name, _)| is_new(name));
            metadata.environment.extend(facts);
            if drops {
                let mut used = used.into_iter();
                metadata.streams.retain(|_| used.next() == Some(true));
            }
            writer.describe(&metadata)?;
        }
        Ok(summary)
    }
}
