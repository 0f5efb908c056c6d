//! What is this input? Its content decides, never its name.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_ctf::Trace;
use kymo_event::{Date, Moment, Time, WallClock, Wanted};

use crate::ahead::read_ahead;
use crate::bytes::Bytes;
use crate::dialects::export;
use crate::formats::kymo::{self, RawFile};
use crate::formats::{self, Opened, ctf, systemview, zephyr_instrumentation};
use crate::peek::{FOREIGN_HEAD, Peek, foreign};
use crate::{Mapping, OpenError, Source, together};

/// How to read an input.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How much is to be known of events. (Rare events whose fields say more than their kind have
    /// them anyway.)
    pub wanted: Wanted,
    /// What the events of a CTF trace mean, where its tracer does not tell. Not for Kymo's own traces.
    pub mapping: Option<Arc<Mapping>>,
    /// The metadata of an input that is one stream of a CTF trace, or a directory of streams, where it does not lie
    /// beside them; or of the build that a dump of Zephyr's instrumentation comes from.
    pub metadata: Option<PathBuf>,
    /// The ELF file of the program that a dump of Zephyr's instrumentation comes from: it knows how wide
    /// pointers are. Where the bytes leave no choice, they are believed.
    pub program: Option<PathBuf>,
    /// Files `SYSVIEW_*.txt` that name the events of a recording of SystemView. Without any, those beside the input.
    pub descriptions: Vec<PathBuf>,
    /// Other recordings of the same run, to be put on one time line: of SystemView, those of other cores. What else the options
    /// say is not of these.
    pub beside: Vec<PathBuf>,
    /// What an event is called, or says, that the input and all [beside](Self::beside) it have, by which their clocks go
    /// together where they do not tell that themselves.
    pub align: Option<String>,
    /// Which dump of a console's log is meant, from 1 on. Without it the last one.
    pub console_dump: Option<usize>,
    /// Names for the events of a recording of RTEMS's, in the place of its own.
    pub event_names: Option<Arc<crate::rtems_record::EventNames>>,
    /// Below which directory the files are that processes of a recording of hardware trace had mapped. Without it they are
    /// looked for beside the recording (in `symfs`, then by their paths), then on this machine.
    pub symfs: Option<PathBuf>,
    /// When the clock of a trace showed 0 that does not tell the time of day itself.
    pub time_zero: Option<Date>,
    /// The kernel of a recording of hardware trace: its `vmlinux` or `Image`.
    pub kernel: Option<PathBuf>,
    /// The cache in which perf keeps the files of recordings by build ID. Without it, `~/.debug`.
    pub buildid_dir: Option<PathBuf>,
    /// What is said of a raw buffer or a snapshot of hardware trace beside it.
    pub trace: kymo_coresight::input::Given,
    /// How many threads may work on it: with more than one, streams are decoded ahead or the input is read ahead on
    /// threads of their own, with three both. That changes nothing of what is read.
    pub threads: usize,
    /// Whether events are wanted as they come where the input is a pipe, although not all is known then: when they were
    /// by the clock on the wall, and how the clocks of processors differ. Without it a recording of Kymo's is read whole.
    pub as_it_comes: bool,
}

/// How many threads work on a trace if nobody says: where there are several processors, one more than these. What they do
/// takes turns (decoding, what events mean, calls, output), so that there is not always something to do for each.
#[must_use]
pub fn default_threads() -> usize {
    match std::thread::available_parallelism().map_or(1, NonZero::get) {
        1 => 1,
        more => more + 1,
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            wanted: Wanted::Everything,
            mapping: None,
            metadata: None,
            program: None,
            descriptions: Vec::new(),
            beside: Vec::new(),
            align: None,
            console_dump: None,
            event_names: None,
            symfs: None,
            time_zero: None,
            kernel: None,
            buildid_dir: None,
            trace: Default::default(),
            threads: default_threads(),
            as_it_comes: false,
        }
    }
}

/// Opens a trace: a trace directory or one above it, one stream of a CTF trace, a raw Kymo file, a dump of
/// Zephyr's instrumentation subsystem (or a directory with one and the metadata of its build), or with the
/// path `-` any such file from standard input.
///
/// The metadata of a single stream is the file `metadata` beside it, if
/// [the options](OpenOptions::metadata) name no other.
///
/// Several traces below one directory are merged, as LTTng leaves them; but not if one of them is
/// a recording of Kymo's own: each of those counts time from its own start. Recordings [beside](OpenOptions::beside) the
/// input are merged with it where something tells how their clocks go together.
///
/// # Errors
/// [`OpenError`] if the input cannot be read at all, or is nothing that is known here.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
    // Recordings of SystemView beside one of SystemView are the other cores of that, which its own reader takes.
    let are_cores = options.beside.iter().all(|path| systemview::is_one(path));
    let source = match are_cores {
        true => open_source(path, options)?,
        false => open_source(
            path,
            &OpenOptions {
                beside: Vec::new(),
                ..options.clone()
            },
        )?,
    };
    let is_whole = are_cores && source.info().format == systemview::FORMAT;
    let source = match options.beside.is_empty() || is_whole {
        true => source,
        false => together::open(path, source, options)?,
    };
    Ok(match options.threads > source.threads() {
        true => Box::new(read_ahead(source)),
        false => source,
    })
}

/// [`open`], to be read on the thread that asks for events.
pub(crate) fn open_source(
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let folder = folder_of_metadata(path).filter(|_| options.metadata.is_none());
    let peek = Peek::open(folder.unwrap_or(path))?;
    match formats::open(peek, options)? {
        Opened::Source(mut source) => {
            date(&mut *source, options);
            Ok(source)
        }
        Opened::Other(peek) => Err(refusal(peek)),
    }
}

/// Tells a trace that knows no dates when its clock showed 0, if that is known.
pub(crate) fn date(source: &mut dyn Source, options: &OpenOptions) {
    let zero = options.time_zero.map(|zero| Moment {
        time: Time(0),
        unix_ns: zero.0,
    });
    let info = source.info_mut();
    if info.wall_clock.is_none() {
        info.wall_clock = WallClock::new(zero);
    }
}

/// Why an input that is of no format is none.
fn refusal(mut peek: Peek) -> OpenError {
    let path = peek.path().to_owned();
    let head = match peek.first(FOREIGN_HEAD) {
        Ok([]) => return OpenError::Empty { path },
        Ok(head) => head,
        Err(error) => return error,
    };
    if let Some(found) = foreign(head) {
        return unknown(&path, found.to_owned());
    }
    let head = head.to_vec();
    unknown_bytes(&path, peek.file().map_or(&head, |file| file))
}

/// What a target sent, as it was kept.
#[derive(Debug)]
pub enum Saved {
    /// A raw file of Kymo's: the identity line, then packets, or a profile table.
    Raw(RawFile),
    /// Dumps of Zephyr's instrumentation, with whatever came around them.
    Zephyr(Vec<u8>),
}

/// Reads what a target sent, for callers that want the bytes and not (or not only) the events.
///
/// Unlike [`open`] and a look of one's own, it reads its input once, so that may be a pipe: with the path
/// `-` standard input.
///
/// # Errors
/// [`OpenError`] if the input cannot be read, or is no such thing (a directory never is).
pub fn saved(path: &Path) -> Result<Saved, OpenError> {
    let mut peek = Peek::open(path)?;
    if kymo::is_raw(peek.first(kymo::PREFIX_BYTES)?) {
        return RawFile::new(path, peek.into_bytes()?).map(Saved::Raw);
    }
    let is_dump = match peek.file() {
        Some(bytes) => foreign(bytes).is_none() && zephyr_instrumentation::is_dump(bytes),
        None => formats::is_dump(&mut peek)?,
    };
    if !is_dump {
        return Err(refusal(peek));
    }
    let bytes = peek.into_bytes()?;
    match zephyr_instrumentation::is_dump(&bytes) {
        true => Ok(Saved::Zephyr(bytes.to_vec())),
        false => Err(unknown_bytes(path, &bytes)),
    }
}

/// A CTF trace whose records stand for themselves.
#[derive(Debug)]
pub struct CtfTrace {
    /// Its metadata and streams.
    pub trace: Trace,
    /// The moment that is time 0 in its [events](crate::Source), in nanoseconds by its clock.
    pub origin: i64,
}

impl CtfTrace {
    /// Whether a stream holds only what is to be known once, as [`StreamInfo::timeless`](kymo_event::StreamInfo::timeless).
    pub fn is_timeless(&self, stream: &str) -> bool {
        export::is_timeless(self.trace.metadata(), stream)
    }
}

/// The folder of a trace, for who names the file `metadata` in it.
#[must_use]
pub fn folder_of_metadata(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    let here = folder.as_os_str().is_empty();
    let is_metadata = path.file_name()? == "metadata" && path.is_file();
    is_metadata.then_some(if here { Path::new(".") } else { folder })
}

/// The CTF traces that an input is, for who wants their records as they stand. `None` if it is something else, among them
/// recordings of Kymo's own, whose records say little without what [`open`] makes of them.
///
/// # Errors
/// [`OpenError`] if the metadata of a trace cannot be used.
pub fn ctf_traces(path: &Path, options: &OpenOptions) -> Result<Option<Vec<CtfTrace>>, OpenError> {
    let folder = folder_of_metadata(path).filter(|_| options.metadata.is_none());
    let traces = if path.is_dir() || folder.is_some() {
        let path = folder.unwrap_or(path);
        if open_dump_in(path, options)?.is_some() {
            return Ok(None);
        }
        match ctf::find(path, options) {
            Ok(traces) => traces,
            Err(OpenError::Unknown { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    } else {
        let beside = path.parent().map(|folder| folder.join("metadata"));
        let named = options.metadata.is_some();
        let metadata = options.metadata.clone().or(beside);
        let Some(metadata) = metadata.filter(|it| path.is_file() && it.is_file()) else {
            return Ok(None);
        };
        if !named && kymo::is_raw(&file_bytes(path)?)
            || zephyr_instrumentation::open_described(path, &metadata, options)?.is_some()
        {
            return Ok(None);
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        let stream = (name.to_string_lossy().into_owned(), path.to_owned());
        let trace = Trace::open_streams(&metadata, [stream]);
        vec![trace.map_err(|error| ctf::refusal(path, error))?]
    };
    if traces.iter().any(|it| kymo::is_native(it.metadata())) {
        return Ok(None);
    }
    let traces = traces.into_iter().map(|trace| CtfTrace {
        origin: export::origin(trace.metadata()).unwrap_or(0),
        trace,
    });
    Ok(Some(traces.collect()))
}

/// The bytes of a file, a pipe, or with `-` of standard input; at least one.
pub(crate) fn file_bytes(path: &Path) -> Result<Bytes, OpenError> {
    Peek::open(path)?.into_bytes()
}

/// The error for a file that begins like nothing that is known.
pub(crate) fn unknown_bytes(path: &Path, bytes: &[u8]) -> OpenError {
    if let Some(found) = zephyr_instrumentation::begun(bytes) {
        return unknown(path, found);
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let found = "text in UTF-16, as PowerShell's > writes it (convert it to UTF-8)";
        return unknown(path, found.to_owned());
    }
    let start = bytes.get(..8).unwrap_or(bytes);
    unknown(path, format!("bytes that begin with {start:02x?}"))
}

/// Opens the traces in a directory and below it: one of our own, or those of others.
pub(crate) fn open_traces_in(
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    if options.metadata.is_some()
        && let Some(dump) = open_dump_in(path, options)?
    {
        return Ok(dump);
    }
    let traces = ctf::find(path, options)?;
    match traces.as_slice() {
        // A directory around a recording, as `cargo xtask demo` and an unpacked archive leave it.
        [trace] if kymo::is_native(trace.metadata()) => {
            let folder = path.join(trace.name());
            kymo::open_directory(
                &folder,
                trace.metadata().clone(),
                kymo::Chosen::All,
                options,
            )
        }
        all if all.iter().any(|trace| kymo::is_native(trace.metadata())) => {
            let place = |trace: &Trace| path.join(trace.name()).display().to_string();
            Err(OpenError::Several {
                path: path.to_owned(),
                traces: all.iter().map(place).collect(),
            })
        }
        all => ctf::open_traces(path, all, None, options),
    }
}

/// Opens the dump of Zephyr's instrumentation that lies in a directory beside the metadata of its build;
/// `None` if the directory is something else.
pub(crate) fn open_dump_in(
    path: &Path,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Source>>, OpenError> {
    let metadata = match &options.metadata {
        Some(named) => Some(named.clone()),
        None => formats::metadata_in(path)?,
    };
    let Some(metadata) = metadata.filter(|it| zephyr_instrumentation::is_metadata(it)) else {
        return Ok(None);
    };
    let io = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        if file.is_file() && file != metadata {
            files.push(file);
        }
    }
    files.sort();
    let mut dumps = Vec::new();
    for file in files {
        match zephyr_instrumentation::open_described(&file, &metadata, options) {
            Ok(Some(source)) => dumps.push((file, source)),
            // There is nothing in it.
            Ok(None) | Err(OpenError::Empty { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if dumps.len() > 1 {
        return Err(OpenError::Several {
            path: path.to_owned(),
            traces: dumps
                .iter()
                .map(|(file, _)| file.display().to_string())
                .collect(),
        });
    }
    Ok(dumps.pop().map(|(_, source)| source))
}

/// The error for what is none of the formats.
pub(crate) fn unknown(path: &Path, found: String) -> OpenError {
    OpenError::Unknown {
        path: path.to_owned(),
        expected: formats::expected(),
        found,
    }
}
