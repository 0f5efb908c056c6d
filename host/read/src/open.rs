//! Opening of inputs. Their content determines the format, never their name.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_ctf::Trace;
use kymo_event::{Choice, Date, Moment, Time, WallClock, Wanted};

use crate::ahead::read_ahead;
use crate::bytes::Bytes;
use crate::dialects::export;
use crate::formats::kymo::{self, RawFile};
use crate::formats::{self, Opened, ctf, systemview, zephyr_instrumentation};
use crate::peek::{FOREIGN_HEAD, Peek, foreign};
use crate::{Mapping, OpenError, Source, together};

/// Options for reading an input.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Amount of detail that is wanted for events. (Rare events whose fields contain more than their kind always have
    /// them.)
    pub wanted: Wanted,
    /// Names of the events whose names and fields are wanted, where [`wanted`](Self::wanted) asks for them. Sources may
    /// return other events without (a CTF trace does); those with labels of their own always have them.
    pub events: Choice,
    /// Meanings of the events of a CTF trace whose tracer does not define them. Not for Kymo's own traces.
    pub mapping: Option<Arc<Mapping>>,
    /// Metadata of an input that is a single CTF stream or a directory of streams, if it is not next to them. For a
    /// dump of Zephyr's instrumentation, the metadata of its build.
    pub metadata: Option<PathBuf>,
    /// ELF file of the program that a dump of Zephyr's instrumentation comes from, which determines the pointer width.
    /// The bytes of the dump take precedence where they are unambiguous.
    pub program: Option<PathBuf>,
    /// Files `SYSVIEW_*.txt` that name the events of a SystemView recording. Without any, those next to the input are
    /// used.
    pub descriptions: Vec<PathBuf>,
    /// Other recordings of the same run, to be aligned on one timeline. With SystemView, those of other cores. The
    /// other options do not apply to them.
    pub beside: Vec<PathBuf>,
    /// Name or text of an event that the input and all recordings [beside](Self::beside) it have. It relates their
    /// clocks if they do not do so themselves.
    pub align: Option<String>,
    /// Number of the dump in a console log, counted from 1. Defaults to the last one.
    pub console_dump: Option<usize>,
    /// Names for the events of an RTEMS recording, which replace RTEMS's names.
    pub event_names: Option<Arc<crate::rtems_record::EventNames>>,
    /// Directory below which the files are that processes of a hardware-trace recording had mapped. Without it, they
    /// are searched next to the recording (in `symfs`, then by their paths), then on this machine.
    pub symfs: Option<PathBuf>,
    /// Date at which the clock of the trace showed 0, for traces without dates.
    pub time_zero: Option<Date>,
    /// Kernel of a hardware-trace recording: its `vmlinux` or `Image`.
    pub kernel: Option<PathBuf>,
    /// Cache in which perf keeps the files of recordings by build id. Defaults to `~/.debug`.
    pub buildid_dir: Option<PathBuf>,
    /// Description of a raw buffer or snapshot of hardware trace.
    pub trace: kymo_coresight::input::Given,
    /// Files with symbols (ELF files, listings) for code at fixed addresses that the images of a hardware trace have
    /// without symbols: memory dumps of a snapshot, and raw images.
    pub symbols: Vec<PathBuf>,
    /// Directories with separate files of debug information for the files of a hardware trace, besides `/usr/lib/debug`
    /// and `~/.debug`.
    pub debug_directories: Vec<PathBuf>,
    /// Number of threads that may read the input. With two, either streams are decoded ahead or the input is read ahead
    /// on a thread of its own; with three or more, both. The result does not depend on it.
    pub threads: usize,
    /// Whether events of a pipe are returned as they arrive, before everything about them is known (dates, and
    /// differences between the clocks of processors). Otherwise a recording of Kymo is read completely first.
    pub as_it_comes: bool,
}

/// Returns the default number of reading threads: one more than the number of processors, if there are several. The
/// threads' work (decoding, meanings, calls, output) alternates, so not every thread is busy all the time.
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
            events: Choice::default(),
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
            symbols: Vec::new(),
            debug_directories: Vec::new(),
            threads: default_threads(),
            as_it_comes: false,
        }
    }
}

/// Opens a trace: a trace directory or one above it, one stream of a CTF trace, a raw Kymo file, a dump of Zephyr's
/// instrumentation subsystem (or a directory with one and the metadata of its build). The path `-` stands for any such
/// file from standard input.
///
/// The metadata of a single stream is the file `metadata` next to it, unless [the options](OpenOptions::metadata) name
/// another.
///
/// Several traces below one directory are merged, as LTTng creates them, unless one of them is a recording of Kymo's
/// own, whose time begins at its own start. Recordings [beside](OpenOptions::beside) the input are merged with it if
/// their clocks can be related.
///
/// # Errors
/// [`OpenError`] if the input cannot be read at all, or has no known format.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
    // SystemView recordings next to one of SystemView are its other cores, which its own reader handles.
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

/// Like [`open`], but reads on the thread that calls [`fill`](Source::fill).
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

/// Sets the date at which the clock showed 0, if it is known and the trace itself has no dates.
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

/// Returns the error for an input of unknown format.
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

/// Data of a target that was saved.
#[derive(Debug)]
pub enum Saved {
    /// A raw file of Kymo: the identity line, then packets, or a profile table.
    Raw(RawFile),
    /// Dumps of Zephyr's instrumentation, with any bytes around them.
    Zephyr(Vec<u8>),
}

/// Reads the saved data of a target, for callers that need the bytes instead of, or besides, the events.
///
/// Unlike [`open`], it reads its input exactly once, so the input may be a pipe: the path `-` stands for standard
/// input.
///
/// # Errors
/// [`OpenError`] if the input cannot be read or is not saved data. (A directory never is.)
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

/// First bytes of a packet of CTF 1.8 (section 5.1).
const CTF_MAGIC: u32 = 0xc1fc_1fc1;

/// CTF trace whose records are used directly.
#[derive(Debug)]
pub struct CtfTrace {
    /// Metadata and streams.
    pub trace: Trace,
    /// Time 0 of its [events](crate::Source), in nanoseconds of its clock.
    pub origin: i64,
}

impl CtfTrace {
    /// Returns whether a stream holds only one-time facts, as
    /// [`StreamInfo::timeless`](kymo_event::StreamInfo::timeless).
    pub fn is_timeless(&self, stream: &str) -> bool {
        export::is_timeless(self.trace.metadata(), stream)
    }
}

/// Returns the folder of a trace, if the path is that of the file `metadata` in it.
#[must_use]
pub fn folder_of_metadata(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    let here = folder.as_os_str().is_empty();
    let is_metadata = path.file_name()? == "metadata" && path.is_file();
    is_metadata.then_some(if here { Path::new(".") } else { folder })
}

/// Opens an input as CTF traces, for direct access to their records. Returns `None` for other inputs, and for Kymo's
/// own recordings, whose records are hardly usable without the processing in [`open`].
///
/// # Errors
/// [`OpenError`] if the metadata of a trace is invalid.
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

/// Returns the bytes of a file, a pipe, or with `-` of standard input; at least one.
pub(crate) fn file_bytes(path: &Path) -> Result<Bytes, OpenError> {
    Peek::open(path)?.into_bytes()
}

/// Returns the error for a file whose first bytes are not recognized.
pub(crate) fn unknown_bytes(path: &Path, bytes: &[u8]) -> OpenError {
    if let Some(found) = zephyr_instrumentation::begun(bytes) {
        return unknown(path, found);
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let found = "text in UTF-16, as PowerShell's > writes it (convert it to UTF-8)";
        return unknown(path, found.to_owned());
    }
    if bytes.starts_with(&CTF_MAGIC.to_le_bytes()) || bytes.starts_with(&CTF_MAGIC.to_be_bytes()) {
        let found = "a CTF stream without metadata beside it (--metadata FILE names it)";
        return unknown(path, found.to_owned());
    }
    let start = bytes.get(..8).unwrap_or(bytes);
    unknown(path, format!("bytes that begin with {start:02x?}"))
}

/// Opens the traces in a directory and below it: one of Kymo's own, or several of other tracers.
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
        // A directory around a recording, such as `cargo xtask demo` and unpacked archives create.
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

/// Opens the dump of Zephyr's instrumentation in a directory with the metadata of its build; `None` if the directory is
/// something else.
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
            // The file is empty or not a dump.
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

/// Returns the error for an input of unknown format.
pub(crate) fn unknown(path: &Path, found: String) -> OpenError {
    OpenError::Unknown {
        path: path.to_owned(),
        expected: formats::expected(),
        found,
    }
}
