//! Traces: metadata with its streams, on disk or in memory.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::messages::Messages;
use super::stream::{self, StreamReader};
use crate::error::{MetadataError, OpenError};
use crate::metadata::{Metadata, Warning};
use crate::plan::Plan;

/// Maximum depth of directories below the given one in which traces are searched: LTTng nests four. Links to
/// directories are not followed.
pub const MAX_LEVELS: u32 = 8;

/// Storage of a stream's bytes.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File(PathBuf),
    Memory(Arc<[u8]>),
    /// A ring, and the offset of its oldest packet.
    Ring(Box<Self>, u64),
    /// Files of one stream, with their names, in order.
    Joined(Vec<(String, Self)>),
}

/// A trace: metadata with its streams.
///
/// [`messages`](Self::messages) opens the streams, so a trace can be read any number of times.
#[derive(Debug)]
pub struct Trace {
    pub(super) plan: Arc<Plan>,
    pub(super) name: String,
    pub(super) streams: Vec<(String, Source)>,
    pub(super) warnings: Vec<Warning>,
    /// Whether the begins of packets stand for their numbers, which they do not state.
    pub(super) by_begin: bool,
}

/// Bytes in memory as a reader.
pub(super) struct Shared {
    pub(super) bytes: Arc<[u8]>,
    pub(super) at: usize,
}

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let read = rest.read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

impl Trace {
    /// Opens the trace in a directory: the file `metadata`, and streams in all other files of the directory.
    ///
    /// Names that start with a dot are ignored, and so are directories (such as LTTng's `index`).
    ///
    /// # Errors
    /// When there is no such directory, no metadata, invalid metadata, or an entry that is neither a regular file nor a
    /// directory ([`OpenError::NotAFile`]).
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        Self::open_named(directory, String::new())
    }

    /// Opens all traces in a directory and those below it, up to [`MAX_LEVELS`] deep, as LTTng writes them.
    ///
    /// # Errors
    /// When there is none, or any of them cannot be opened.
    pub fn open_all(directory: impl AsRef<Path>) -> Result<Vec<Self>, OpenError> {
        let directory = directory.as_ref();
        let mut traces = Vec::new();
        find_traces(directory, String::new(), MAX_LEVELS, &mut traces)?;
        if traces.is_empty() {
            return Err(OpenError::NoTrace {
                path: directory.to_owned(),
            });
        }
        Ok(traces)
    }

    fn open_named(directory: &Path, name: String) -> Result<Self, OpenError> {
        let metadata = directory.join("metadata");
        let streams = streams_in(directory, &metadata)?;
        Self::with_metadata(&metadata, name, streams)
    }

    /// Opens the streams of a directory with metadata from another path: all files in it except `metadata` and hidden
    /// ones.
    ///
    /// # Errors
    /// When the directory or the metadata cannot be read, or the metadata is invalid.
    pub fn open_described(
        directory: impl AsRef<Path>,
        metadata: impl AsRef<Path>,
    ) -> Result<Self, OpenError> {
        let metadata = metadata.as_ref();
        let streams = streams_in(directory.as_ref(), metadata)?;
        Self::with_metadata(metadata, String::new(), streams)
    }

    fn with_metadata(
        path: &Path,
        name: String,
        streams: Vec<(String, Source)>,
    ) -> Result<Self, OpenError> {
        let fail = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let found = fs::metadata(path).map_err(fail)?.file_type();
        if let Some(found) = special(found) {
            return Err(OpenError::NotAFile {
                path: path.to_owned(),
                found,
            });
        }
        let bytes = fs::read(path).map_err(fail)?;
        let parsed = Metadata::parse(&bytes)
            .and_then(|parsed| Ok((Plan::new(parsed.metadata)?, parsed.warnings)));
        let (plan, warnings) = parsed.map_err(|source| OpenError::Metadata {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            plan: Arc::new(plan),
            name,
            streams,
            warnings,
            by_begin: false,
        })
    }

    /// Opens separately stored metadata and streams, each stream with a name.
    ///
    /// # Errors
    /// When the metadata cannot be read, or is invalid.
    pub fn open_streams(
        metadata: impl AsRef<Path>,
        streams: impl IntoIterator<Item = (String, PathBuf)>,
    ) -> Result<Self, OpenError> {
        let streams = streams.into_iter();
        let streams = streams.map(|(name, path)| (name, Source::File(path)));
        Self::with_metadata(metadata.as_ref(), String::new(), streams.collect())
    }

    /// Creates a trace from memory: the content of the metadata file, and streams with names.
    ///
    /// A stream may contain packets of several streams, one after the other, as a dump of a target's buffers does.
    ///
    /// # Errors
    /// When the metadata is invalid.
    pub fn from_memory<N: Into<String>, B: Into<Arc<[u8]>>>(
        metadata: &[u8],
        streams: impl IntoIterator<Item = (N, B)>,
    ) -> Result<Self, MetadataError> {
        let parsed = Metadata::parse(metadata)?;
        let mut trace = Self::from_plan(Arc::new(Plan::new(parsed.metadata)?), streams);
        trace.warnings = parsed.warnings;
        Ok(trace)
    }

    /// Creates a trace from memory with compiled metadata.
    pub fn from_plan<N: Into<String>, B: Into<Arc<[u8]>>>(
        plan: Arc<Plan>,
        streams: impl IntoIterator<Item = (N, B)>,
    ) -> Self {
        let streams = streams.into_iter();
        let streams = streams
            .map(|(name, bytes)| (name.into(), Source::Memory(bytes.into())))
            .collect();
        Self {
            plan,
            name: String::new(),
            streams,
            warnings: Vec::new(),
            by_begin: false,
        }
    }

    /// The metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        self.plan.metadata()
    }

    /// The compiled metadata, for further readers and writers.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The path of the trace below the directory that was opened; empty for that directory itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parts of the metadata that were not understood and ignored.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The names of the streams, taken from their files.
    pub fn stream_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|(name, _)| name.as_str())
    }

    /// The messages of all streams of the trace, merged by time.
    ///
    /// # Errors
    /// When a stream cannot be opened.
    pub fn messages(&self) -> Result<Messages, OpenError> {
        Messages::merge([self])
    }

    /// A reader of the stream with this index; `None` if there are fewer streams.
    ///
    /// # Errors
    /// When the stream cannot be opened.
    pub fn reader(&self, index: usize) -> Result<Option<StreamReader>, OpenError> {
        self.reader_with(index, stream::CHUNK)
    }

    /// As [`reader`](Self::reader), with the number of bytes to read at once.
    pub(super) fn reader_with(
        &self,
        index: usize,
        chunk: usize,
    ) -> Result<Option<StreamReader>, OpenError> {
        let Some((name, source)) = self.streams.get(index) else {
            return Ok(None);
        };
        let input = source.open().map_err(|error| OpenError::Io {
            path: match source {
                Source::File(path) => path.clone(),
                _ => name.into(),
            },
            source: error,
        })?;
        let reader = StreamReader::with_chunk(Arc::clone(&self.plan), input, chunk);
        Ok(Some(reader.followed_by(source.following())))
    }

    /// The names of the files of the stream with this index, in order. Errors state which of them they are in.
    pub fn files(&self, index: usize) -> impl Iterator<Item = &str> {
        let (name, parts) = match self.streams.get(index) {
            Some((_, Source::Joined(parts))) => (None, parts.as_slice()),
            Some((name, _)) => (Some(name.as_str()), [].as_slice()),
            None => (None, [].as_slice()),
        };
        name.into_iter()
            .chain(parts.iter().map(|(name, _)| name.as_str()))
    }
}

/// An entry of a directory.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    name: String,
    path: PathBuf,
    kind: Kind,
}

/// Kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A regular file, or a link to one.
    File,
    /// A directory of this directory.
    Directory,
    /// A link to a directory, which may be anywhere, even above this one.
    LinkedDirectory,
    /// A broken link.
    Broken,
}

/// Describes an entry that is neither a regular file nor a directory.
fn special(found: fs::FileType) -> Option<&'static str> {
    if found.is_file() || found.is_dir() {
        return None;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if found.is_fifo() {
            return Some("a pipe");
        }
        if found.is_socket() {
            return Some("a socket");
        }
        if found.is_block_device() || found.is_char_device() {
            return Some("a device");
        }
    }
    Some("something else")
}

/// The entries of a directory, sorted by name, without hidden ones.
fn entries(directory: &Path) -> Result<Vec<Entry>, OpenError> {
    let fail = |source| OpenError::Io {
        path: directory.to_owned(),
        source,
    };
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let path = entry.path();
        let link = entry.file_type().map_err(fail)?.is_symlink();
        let kind = match fs::metadata(&path) {
            Ok(found) if found.is_dir() && link => Kind::LinkedDirectory,
            Ok(found) if found.is_dir() => Kind::Directory,
            Ok(found) => match special(found.file_type()) {
                Some(found) => return Err(OpenError::NotAFile { path, found }),
                None => Kind::File,
            },
            Err(_) if link => Kind::Broken,
            Err(error) => return Err(fail(error)),
        };
        entries.push(Entry { name, path, kind });
    }
    entries.sort();
    Ok(entries)
}

/// The streams in a directory: the files that are not metadata.
fn streams_in(directory: &Path, metadata: &Path) -> Result<Vec<(String, Source)>, OpenError> {
    let named = metadata.canonicalize().ok();
    let is_named = |entry: &Entry| named.is_some() && entry.path.canonicalize().ok() == named;
    let streams = entries(directory)?
        .into_iter()
        .filter(|entry| entry.name != "metadata" && entry.kind == Kind::File && !is_named(entry))
        .map(|entry| (entry.name, Source::File(entry.path)));
    Ok(streams.collect())
}

fn find_traces(
    directory: &Path,
    name: String,
    levels: u32,
    traces: &mut Vec<Trace>,
) -> Result<(), OpenError> {
    let entries = entries(directory)?;
    if entries
        .iter()
        .any(|entry| entry.name == "metadata" && entry.kind == Kind::File)
    {
        traces.push(Trace::open_named(directory, name.clone())?);
    }
    if let Some(levels) = levels.checked_sub(1) {
        for entry in entries
            .iter()
            .filter(|entry| entry.name != "index" && entry.kind == Kind::Directory)
        {
            let below = if name.is_empty() {
                entry.name.clone()
            } else {
                format!("{name}/{}", entry.name)
            };
            find_traces(&entry.path, below, levels, traces)?;
        }
    }
    Ok(())
}
