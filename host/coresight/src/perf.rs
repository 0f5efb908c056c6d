//! CoreSight trace in a perf.data file, of Linux perf or of Android's simpleperf.
//!
//! AUXTRACE records contain the trace, each a buffer of one CPU or one thread; AUX records delimit the sessions of the
//! trace unit in it. AUXTRACE_INFO has the registers that configure each CPU's unit, and mappings give the addresses of
//! code. The index of the AUXTRACE feature is not needed: a walk through the file finds the records.
//!
//! The reader is our own and covers only the records needed here: the container crate (`linux-perf-data`) returns just
//! these as raw bytes, and sorts and copies the others.

mod assignments;
mod buffers;
mod fields;
mod files;
mod header;
mod losses;
mod metadata;
mod packed;
mod sample_id;
mod sideband;
mod time;
mod walk;

pub(crate) use files::hex;
pub use files::{Files, NotFound, Places};
pub use losses::{Loss, Losses};
pub use time::TimeConversion;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use crate::frames::TraceId;
use crate::input::Buffer;
use crate::memory::{Bytes, Image, Memory, MemorySpace, Recorded, Schedule, Session};
use assignments::Assignments;
use buffers::Writer;
use header::Header;
use sideband::Sideband;
use walk::Walk;

/// Magic number at the start of the file.
pub const MAGIC: &[u8; 8] = b"PERFILE2";

/// Mapping of a file into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Process; `None` for the kernel.
    pub process: Option<u32>,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Path of the file.
    pub path: String,
    /// Build ID, if recorded with the mapping; else empty.
    pub build_id: Vec<u8>,
}

impl Mapping {
    /// Mapped part of a file, as an image.
    pub fn image(&self, file: &Bytes) -> Image {
        Image {
            name: self.path.clone(),
            address: self.address,
            file_offset: self.offset,
            bytes: file.part(self.offset, self.length),
            space: MemorySpace::ANY,
        }
    }
}

/// Thread of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process of the thread.
    pub process: u32,
    /// Last name of the thread; empty if unknown.
    pub name: String,
}

/// CoreSight trace of a perf.data file.
#[derive(Debug)]
pub struct Recording {
    /// Trace buffers. Their sources have no code yet.
    pub buffers: Vec<Buffer>,
    /// Executable mappings, in the order of the file.
    pub mappings: Vec<Mapping>,
    /// Losses that the kernel recorded.
    pub losses: Losses,
    /// Number of AUX records whose bytes, or last bytes, are in no buffer.
    pub missing: u64,
    /// Number of buffers without trace IDs and without a record of the CPU that wrote them. They are decoded as the
    /// first CPU's.
    pub without_cpu: u64,
    /// End of the file, if it is before the end of the recording.
    pub cut_at: Option<u64>,
    /// End of the file, if it cuts the sections with build IDs and the kernel's release, which follow the records.
    pub features_cut_at: Option<u64>,
    /// Threads that were named or forked, by their numbers.
    pub threads: BTreeMap<u32, Thread>,
    /// Conversion of timestamps to nanoseconds, if they are of the counter that the file's conversion is for.
    pub conversion: Option<TimeConversion>,
    /// Whether the file has a conversion, but the metadata of the trace units do not say that their timestamps are of
    /// that counter (`TS_SOURCE`, from Linux 6.0 on).
    pub has_unnamed_clock: bool,
    /// Release of the kernel (`uname -r`), if recorded.
    pub release: Option<String>,
    sideband: Sideband,
    /// Sessions of each buffer.
    sessions: Vec<Arc<Vec<Session>>>,
}

impl Recording {
    /// Times, by perf's clock, and numbers of threads that began; earlier threads with the same number had exited by
    /// then.
    pub fn thread_begins(&self) -> Vec<(u64, u32)> {
        self.sideband.begins()
    }

    /// Bytes of trace whose threads come from the kernel's switch records, and the number of those without a thread
    /// because several may have run there. Requires a [loaded](Self::load) recording.
    pub fn scheduled_bytes(&self) -> (u64, u64) {
        let code = self.buffers.iter().flat_map(|buffer| &buffer.code);
        let bytes = code.filter_map(Memory::schedule).map(Schedule::bytes);
        bytes.fold((0, 0), |(all, unknown), (bytes, of_none)| {
            (all + bytes, unknown + of_none)
        })
    }

    /// Loads the code of the buffers. `images_of` finds the images of a mapping, as [`Files::images`] does. Returns the
    /// missing files, each once.
    pub fn load(
        &mut self,
        mut images_of: impl FnMut(&Mapping) -> Result<Vec<Image>, NotFound>,
    ) -> Vec<Missing> {
        let mut missing: BTreeMap<(&str, &[u8]), Missing> = BTreeMap::new();
        let mut images = Vec::with_capacity(self.mappings.len());
        for mapping in &self.mappings {
            match images_of(mapping) {
                Ok(found) => images.push(found),
                Err(why) => {
                    images.push(Vec::new());
                    missing
                        .entry((&mapping.path, &mapping.build_id))
                        .or_insert_with(|| Missing {
                            mapping: mapping.clone(),
                            why,
                        });
                }
            }
        }
        let missing = missing.into_values().collect();
        let history = Arc::new(self.sideband.history(&self.mappings, images));
        for (buffer, sessions) in self.buffers.iter_mut().zip(&self.sessions) {
            let code = buffer.sources.iter().map(|source| {
                let recorded = Recorded {
                    protocol: source.protocol,
                    thread: buffer.thread,
                    cpu: source.cpu,
                    sessions: Arc::clone(sessions),
                    conversion: self.conversion.filter(|_| self.sideband.has_times()),
                };
                let streams = buffer.frames.streams.iter();
                let mut streams = streams.filter(|it| [source.id, TraceId::NONE].contains(&it.id));
                Memory::new(Arc::clone(&history), recorded, streams.next())
            });
            buffer.code = code.collect();
        }
        missing
    }
}

/// Mapped file that is missing or differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Mapping of the file.
    pub mapping: Mapping,
    /// Reason.
    pub why: NotFound,
}

impl std::fmt::Display for Missing {
    /// Names the file, its build and the consequence.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.mapping.path;
        let id = match self.mapping.build_id.as_slice() {
            [] => String::new(),
            id => format!(" (build ID {})", files::hex(id)),
        };
        match &self.why {
            NotFound::Nothing => write!(out, "no file for {path}{id}")?,
            NotFound::OtherBuild { path: other, found } => {
                let (other, found) = (other.display(), files::hex(found));
                write!(
                    out,
                    "{other} is another build than {path}{id}: its build ID is {found}"
                )?;
            }
            NotFound::Compressed { path: other } => {
                let other = other.display();
                write!(
                    out,
                    "{other} ({path}{id}) is compressed otherwise than with gzip or zstd: unpack it"
                )?;
            }
            NotFound::OtherMachine {
                path: other,
                machine,
            } => {
                let other = other.display();
                write!(
                    out,
                    "{other} ({path}{id}) has code of another machine: expected Arm, found {machine}"
                )?;
            }
            NotFound::NotCode { path: other } => {
                let other = other.display();
                write!(out, "{other} has no code of {path}{id} as it is in memory")?;
            }
        }
        out.write_str("; what ran there is not followed")
    }
}

/// Reads the file at `path`.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] if it is no perf.data or damaged, [`Error::OtherTrace`] if its hardware trace is of
/// another kind.
pub fn open(path: &Path) -> Result<Recording, Error> {
    read_with(&crate::file::read(&records(path))?, &of_threads(path)?)
}

/// Path of the file with the records: `path` itself, or the file in it for a directory as of `perf record --kcore`.
pub fn records(path: &Path) -> PathBuf {
    let inside = path.join("data");
    match path.is_dir() && inside.is_file() {
        true => inside,
        false => path.to_owned(),
    }
}

/// Reads the files `data.0`, `data.1`, ... beside the records, which the threads of `perf record --threads` wrote, in
/// the order of their numbers. Empty if there are none.
///
/// # Errors
/// [`Error::Io`] if one cannot be read.
pub fn of_threads(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let records = records(path);
    let Some(folder) = records.parent().filter(|_| records.ends_with("data")) else {
        return Ok(Vec::new());
    };
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("data."));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    let files = numbers
        .into_iter()
        .map(|number| folder.join(format!("data.{number}")));
    files.map(|file| crate::file::read(&file)).collect()
}

/// Reads a perf.data file in memory.
///
/// # Errors
/// As [`open`].
pub fn read(bytes: &[u8]) -> Result<Recording, Error> {
    read_parts(bytes, bytes, &[])
}

/// Reads a perf.data file in memory, and the files of its [threads](of_threads), which have records but no header.
///
/// # Errors
/// As [`open`].
pub fn read_with(main: &[u8], of_threads: &[Vec<u8>]) -> Result<Recording, Error> {
    if of_threads.is_empty() {
        return read(main);
    }
    let mut bytes = main.to_vec();
    let mut parts = Vec::new();
    for part in of_threads {
        let start = bytes.len();
        bytes.extend_from_slice(part);
        parts.push(start..bytes.len());
    }
    read_parts(main, &bytes, &parts)
}

/// Reads the file `main`, which is the start of `bytes`, and the `parts` with records only that follow it.
fn read_parts(main: &[u8], bytes: &[u8], parts: &[Range<usize>]) -> Result<Recording, Error> {
    let header = Header::read(main)?;
    let mut walk = Walk::default();
    walk.is_cut = header.is_cut;
    walk.layouts.clone_from(&header.layouts);
    if let Some(section) = header.feature(main, header::COMPRESSED) {
        walk.compression(section, main.len() as u64)?;
    }
    walk.records(main, header.data.clone())?;
    for part in parts {
        walk.records(bytes.get(..part.end).unwrap_or(bytes), part.clone())?;
    }
    let mut features = header::Features::read(main, &header);
    // A pipe has build IDs in records instead.
    features
        .build_ids
        .extend(std::mem::take(&mut walk.build_ids));
    features.release = features.release.or_else(|| walk.release.take());
    let ids = &features.build_ids;
    for mapping in &mut walk.mappings {
        if let Some(id) = ids
            .get(&mapping.path)
            .filter(|_| mapping.build_id.is_empty())
        {
            mapping.build_id.clone_from(id);
        }
    }
    let Some(metadata) = walk.metadata else {
        return Err(Error::Format {
            offset: bytes.len() as u64,
            expected: "an AUXTRACE_INFO record",
            found: "the end: the recording has no hardware trace".into(),
        });
    };
    walk.sideband
        .sort(walk.aux.iter().all(|aux| aux.time.is_some()));
    let ids = Assignments::new(walk.ids, walk.sideband.has_times());
    let (buffers, missing) = buffers::read(bytes, &walk.places, &walk.aux, &ids, &walk.sideband);
    let mut recording = Recording {
        buffers: Vec::new(),
        mappings: walk.mappings,
        losses: walk.losses,
        missing,
        without_cpu: 0,
        cut_at: walk.is_cut.then_some(bytes.len() as u64),
        features_cut_at: (!walk.is_cut && header.lacks_features(main)).then_some(main.len() as u64),
        threads: walk.threads,
        conversion: walk.conversion.filter(|_| metadata.has_virtual_time()),
        has_unnamed_clock: walk.conversion.is_some() && !metadata.has_virtual_time(),
        release: features.release,
        sideband: walk.sideband,
        sessions: Vec::new(),
    };
    for mut filled in buffers {
        let Some(place) = walk.places.get(filled.place) else {
            continue;
        };
        let has_trace = filled.frames.streams.iter().any(|it| !it.bytes.is_empty());
        let is_unknown = filled.writer == Writer::Unit { cpu: None };
        if is_unknown && has_trace && metadata.units.len() > 1 {
            recording.without_cpu += 1;
        }
        let (owner, number) = match (place.cpu, place.thread) {
            (Some(cpu), _) => ("cpu", cpu),
            (_, thread) => ("thread", thread.unwrap_or_default()),
        };
        let sources = ids.sources(&metadata, filled.writer);
        // Unformatted trace gets the trace ID of the unit that wrote it, from the recording.
        if let Some(source) = sources.first() {
            let streams = filled.frames.streams.iter_mut();
            let unnamed = streams.filter(|stream| stream.id == TraceId::NONE);
            unnamed.for_each(|stream| stream.id = source.id);
        }
        recording.buffers.push(Buffer {
            name: format!("{owner}{number}@{:#x}", place.offset),
            sources,
            code: Vec::new(),
            frames: filled.frames,
            thread: place.thread,
        });
        recording.sessions.push(filled.sessions);
    }
    Ok(recording)
}
