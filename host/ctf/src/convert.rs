//! Traces of one version of CTF as traces of the same or the other: whole or in part, and mended where they are damaged.
//!
//! Nothing here knows what events mean. Names, fields and values are kept, in the order of the trace; headers become the
//! usual ones, which every reader takes, so a trace that some readers refuse (without sizes and times in its packets, as
//! Zephyr's) is one that they read. What the wanted version has no word for becomes what comes nearest to it, and what was
//! changed is counted ([`Summary::changes`]).
//!
//! Losses stay what they are, where they are: discarded events are counted in the packets, and lost packets leave a hole
//! in the numbers of the packets. What is lost to damage, of which nobody knows how much it was, is one such packet.
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
use crate::read::{Event, Packet, Skipped, StreamReader, Trace};
use crate::write::TraceWriter;

pub use self::adapt::{Change, Changes};

/// What of a trace is wanted. Everything, of who says nothing else.
pub trait Select {
    /// Whether the streams of a file are wanted.
    fn stream(&mut self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// The first and last time that are wanted of the streams of the last file that was asked for, in nanoseconds from the
    /// origin of their clocks. What has no time is wanted.
    fn span(&self) -> (i64, i64) {
        (i64::MIN, i64::MAX)
    }

    /// Whether the events of a packet may be, and what is missing before it is.
    fn packet(&mut self, packet: &Packet<'_>) -> bool {
        let _ = packet;
        true
    }

    /// Whether an event is wanted.
    fn event(&mut self, event: &Event<'_>) -> bool {
        let _ = event;
        true
    }

    /// Whether an event is wanted although it may lie outside the span: without it, what is within could not be understood.
    /// Asked for every event of the file, in order.
    fn outside(&mut self, event: &Event<'_>) -> bool {
        let _ = event;
        false
    }

    /// What is added to the facts in the environment of the trace, once all its streams are read: `beyond` if there are
    /// events behind the span.
    fn facts(&self, beyond: bool) -> Vec<(String, EnvValue)> {
        let _ = beyond;
        Vec::new()
    }
}

/// All of a trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everything;

impl Select for Everything {}

/// How to convert.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    /// The version of CTF to write.
    pub version: Version,
    /// Whether to go on behind damage. If not, a stream ends there.
    pub repair: bool,
}

/// What was done.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Events that were written.
    pub events: u64,
    /// Of those, how many are outside the span that is wanted, for what is within.
    pub outside: u64,
    /// Events that were read and are not wanted.
    pub left_out: u64,
    /// Streams that hold something.
    pub streams: u64,
    /// Events that the streams had discarded.
    pub discarded: u64,
    /// Packets that were missing. Where the source doesn't know how many, it is one.
    pub lost_packets: u64,
    /// What the wanted version of CTF could not say.
    pub changes: Changes,
    /// Places where a stream is damaged.
    pub damaged: u64,
    /// The first thousand of them, in the order of the streams.
    pub damage: Vec<Damage>,
    /// What there is to say of streams that end with the [unused rest](crate::Skipped::is_unused) of a buffer.
    pub unused: Vec<String>,
    /// Packets whose times did not enclose those of their events and do now.
    pub mended_times: u64,
    /// Steps of time that go back, which are kept.
    pub backward: u64,
}

/// Damage that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The stream, by its name in the trace.
    pub stream: String,
    /// What is wrong, and where.
    pub error: DecodeError,
    /// What was left out because of that; `None` if the stream ends here, as it was not to be repaired.
    pub skipped: Option<Skipped>,
    /// Events of the damaged packet that were kept.
    pub kept: u64,
}

/// A conversion that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The result cannot be begun.
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
        /// Why.
        source: WriteError,
    },
}

impl Conversion {
    /// A conversion of everything, up to where a stream is damaged.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            repair: false,
        }
    }

    /// Converts a trace into a directory, which is made; an empty one may be there.
    ///
    /// One stream is read after the other, and one packet is held in memory. A file that holds packets of several streams
    /// becomes several files.
    ///
    /// # Errors
    /// When a file cannot be opened or written, or a part of the metadata cannot be said in this version. Damage is none:
    /// it is in the summary.
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
            if let Some(input) = trace.stream(index)? {
                let reader = StreamReader::of(trace.plan().clone(), input);
                converter.stream(name, reader, select)?;
            }
        }
        let (summary, used, beyond) = (converter.summary, converter.used, converter.beyond);
        let facts = select.facts(beyond);
        if !facts.is_empty() {
            let mut metadata = writer.plan().metadata().clone();
            let is_new = |name: &str| facts.iter().all(|(new, _)| new != name);
            metadata.environment.retain(|(name, _)| is_new(name));
            metadata.environment.extend(facts);
            writer.describe(&metadata)?;
        }
        // Some readers of CTF 2 take one class of streams at most: those that have none are not needed.
        if used.contains(&true) && used.contains(&false) {
            let mut metadata = writer.plan().metadata().clone();
            let mut used = used.into_iter();
            metadata.streams.retain(|_| used.next() == Some(true));
            writer.describe(&metadata)?;
        }
        Ok(summary)
    }
}
