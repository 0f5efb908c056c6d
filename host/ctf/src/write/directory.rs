//! Writer of a trace directory: the metadata, and a file for each stream with content.
//!
//! The metadata is written first, so that the output of a killed program is readable. The file of a stream is created
//! when its first packet is complete: readers interpret an empty file as a stream, and some complain.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StreamWriter;
use crate::error::{CreateError, WriteError};
use crate::metadata::{Metadata, Version};
use crate::plan::Plan;

/// Name of the metadata file.
const METADATA: &str = "metadata";

/// Maximum length in characters of a stream's name in its file name.
const MAX_NAME: usize = 100;

/// Writes a trace into a directory.
///
/// ```
/// use kymo_ctf::metadata::{ByteOrder, Clock, ClockId, EventClass, Metadata, StreamClass, Version, standard};
/// use kymo_ctf::{Trace, TraceWriter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("kymo-ctf-doc-{}", std::process::id()));
/// let order = ByteOrder::Little;
/// let mut metadata = Metadata::new(order);
/// metadata.clocks.push(Clock::new("monotonic", 1_000_000_000));
/// metadata.packet_header = Some(standard::packet_header(order));
/// let mut class = StreamClass::new(0);
/// class.packet_context = Some(standard::packet_context(order, ClockId(0)));
/// class.event_header = Some(standard::event_header(order, ClockId(0)));
/// class.events.push(EventClass::new(0, "tick".into()));
/// metadata.streams.push(class);
///
/// let mut trace = TraceWriter::create(&directory, metadata, Version::Ctf2)?;
/// let mut stream = trace.stream(0, "cpu 0")?;
/// stream.begin_packet(10, &[])?;
/// stream.event(0, 15, &[])?;
/// stream.end_packet(20, 0)?;
/// stream.finish()?;
/// trace.stream(0, "cpu 1")?; // holds nothing, so there is no file of it
///
/// assert_eq!(Trace::open(&directory)?.stream_names().collect::<Vec<_>>(), ["cpu_0"]);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TraceWriter {
    directory: PathBuf,
    version: Version,
    plan: Arc<Plan>,
    /// File names in use, each with the number of the last duplicate.
    taken: BTreeMap<String, u64>,
}

impl TraceWriter {
    /// Starts a trace: creates the directory, if it is missing, and writes the metadata.
    ///
    /// # Errors
    /// When this version of CTF cannot represent the metadata, when the directory is not empty (its files would become
    /// part of the trace), or when it cannot be written.
    pub fn create(
        directory: impl Into<PathBuf>,
        metadata: Metadata,
        version: Version,
    ) -> Result<Self, CreateError> {
        let directory = directory.into();
        let plan = Arc::new(Plan::new(metadata)?);
        let text = plan.metadata().to_text(version)?;
        let io = |source| CreateError::Io {
            path: directory.clone(),
            source,
        };
        fs::create_dir_all(&directory).map_err(io)?;
        if fs::read_dir(&directory).map_err(io)?.next().is_some() {
            return Err(CreateError::NotEmpty { path: directory });
        }
        let trace = Self {
            directory,
            version,
            plan,
            taken: BTreeMap::from([(METADATA.to_owned(), 1)]),
        };
        trace.write_metadata(&text)?;
        Ok(trace)
    }

    /// The compiled metadata.
    #[must_use]
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Where the trace is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts a stream of the class at position `stream_class`. Its file name is derived from `name`, made valid and
    /// unique.
    ///
    /// # Errors
    /// Those of [`StreamWriter::new`].
    pub fn stream(
        &mut self,
        stream_class: usize,
        name: &str,
    ) -> Result<StreamWriter<StreamFile>, WriteError> {
        let name = self.file_name(name);
        let path = self.directory.join(name);
        StreamWriter::new(
            Arc::clone(&self.plan),
            stream_class,
            StreamFile { path, file: None },
        )
    }

    /// Replaces the metadata when more facts are known than at the start: labels, the environment. The layout of the
    /// streams must not change.
    ///
    /// # Errors
    /// Those of [`create`](Self::create). Then the previous metadata remains.
    pub fn describe(&self, metadata: &Metadata) -> Result<(), CreateError> {
        self.write_metadata(&metadata.to_text(self.version)?)
    }

    /// Writes the metadata file, under a temporary name first, so that a complete file exists at all times.
    fn write_metadata(&self, text: &str) -> Result<(), CreateError> {
        let path = self.directory.join(METADATA);
        let whole = self.directory.join(".metadata.new");
        fs::write(&whole, text)
            .and_then(|()| fs::rename(&whole, &path))
            .map_err(|source| CreateError::Io { path, source })
    }

    fn file_name(&mut self, wanted: &str) -> String {
        let simple = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let characters = wanted.chars().take(MAX_NAME);
        let name: String = characters
            .map(|c| if simple(c) { c } else { '_' })
            .collect();
        // Readers ignore files whose names begin with a dot.
        let name = match name.strip_prefix('.') {
            Some(rest) => format!("_{rest}"),
            None if name.is_empty() => "stream".to_owned(),
            None => name,
        };
        let mut free = name.clone();
        let mut number = self.taken.get(&name).copied().unwrap_or(0);
        while self.taken.contains_key(&free) {
            free = format!("{name}_{number}");
            number += 1;
        }
        // The next stream of the same name finds its number without a search.
        self.taken.insert(name, number.max(1));
        self.taken.entry(free.clone()).or_insert(1);
        free
    }
}

/// File of a stream, created at the first write.
#[derive(Debug)]
pub struct StreamFile {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(File::create_new(&self.path)?)),
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}
