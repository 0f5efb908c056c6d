//! Opening of inputs with hardware trace: collects the parts to decode, by source.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_coresight::clock::{self, Measure};
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::input::{self, Buffer, open_raw, open_snapshot};
use kymo_coresight::perf;
use kymo_coresight::remarks::{self, Remark};
use kymo_coresight::selection::{concurrent, has_threads, threads};
use kymo_coresight::{Error, Protocol};
use kymo_symbols::DebugDirectories;

use super::given::GivenSymbols;
use super::program::Binaries;
use super::software::is_software;
use super::unit::{Part, ProcessOf, Work};
use crate::{OpenError, OpenOptions};

/// Opened input.
pub(super) struct Input {
    pub units: Vec<Unit>,
    pub measure: Measure,
    /// Offset that is subtracted from timestamps beyond the range of event times.
    pub origin: u64,
    /// First timestamp, if times are timestamps.
    pub first: Option<u64>,
    pub conversion: Option<perf::TimeConversion>,
    /// Build ids by file path, as far as they are recorded.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Threads by number.
    pub threads: BTreeMap<u32, perf::Thread>,
    /// Times from which on a thread's number is that of a new thread, if events have perf's times.
    pub thread_begins: Vec<(u64, u32)>,
    /// All names of processes with several names.
    pub names: HashMap<u32, Vec<String>>,
    /// Threads that ran on several CPUs without a known order.
    pub unordered: BTreeSet<u32>,
    /// Context IDs that several CPUs executed at once, so that each has a thread of its own.
    pub concurrent: BTreeSet<u32>,
    /// Returns the process of a thread, if the trace is of processes and a kernel, not of one machine.
    pub process_of: Option<Arc<ProcessOf>>,
    /// Remarks on missing or damaged parts of the input and its buffers.
    pub remarks: Vec<Remark>,
    /// Symbol files that are applied, or refused.
    pub settled_symbols: Vec<PathBuf>,
}

/// Trace source.
pub(super) struct Unit {
    pub name: String,
    pub cpu: Option<u32>,
    pub protocol: Protocol,
    pub id: u8,
    pub work: Work,
}

/// Rejects options for perf recordings with other inputs.
fn only_of_perf(path: &Path, options: &OpenOptions) -> Result<(), OpenError> {
    let given = [
        ("--symfs", &options.symfs),
        ("--vmlinux", &options.kernel),
        ("--buildid-dir", &options.buildid_dir),
    ];
    match given.iter().find(|(_, given)| given.is_some()) {
        None => Ok(()),
        Some((option, _)) => Err(OpenError::HardwareTrace {
            path: path.to_owned(),
            message: format!("{option} is for recordings of perf with hardware trace"),
        }),
    }
}

/// Returns the directories with separate files of debug information for an input: the given ones, those below the
/// directory of the recorded files, perf's cache, and the system's.
pub fn debug_directories(
    path: &Path,
    given: &[PathBuf],
    symfs: Option<&Path>,
    cache: Option<&Path>,
) -> DebugDirectories {
    const SYSTEM: &str = "usr/lib/debug";
    let mut all = given.to_vec();
    let beside = path.parent().unwrap_or(Path::new("."));
    match symfs {
        Some(symfs) => all.extend([symfs.join(SYSTEM), symfs.join(".debug")]),
        None => all.push(beside.join("symfs").join(SYSTEM)),
    }
    all.push(beside.join(".debug"));
    all.extend(cache.map(Path::to_owned));
    DebugDirectories::new(all)
}

/// Reads the symbol files that the user gave.
fn symbols(
    path: &Path,
    options: &OpenOptions,
    buffers: &[Buffer],
    missing: Option<&[perf::Missing]>,
) -> Result<(GivenSymbols, Vec<Remark>), OpenError> {
    let debug = debug_directories(
        path,
        &options.debug_directories,
        options.symfs.as_deref(),
        options.buildid_dir.as_deref(),
    );
    GivenSymbols::open(&options.symbols, buffers, missing, &debug).map_err(|error| {
        OpenError::HardwareTrace {
            path: error.path().to_owned(),
            message: error.to_string(),
        }
    })
}

/// Opens a raw buffer.
pub(super) fn raw(path: &Path, options: &OpenOptions) -> Result<Input, OpenError> {
    only_of_perf(path, options)?;
    let buffers = open_raw(path, &options.trace).map_err(|error| refused(path, error))?;
    let given = symbols(path, options, &buffers, None)?;
    Ok(Input::of(buffers, (None, given), None, Vec::new()))
}

/// Opens a snapshot directory.
pub(super) fn snapshot(path: &Path, options: &OpenOptions) -> Result<Input, OpenError> {
    only_of_perf(path, options)?;
    let found = open_snapshot(path, &options.trace).map_err(|error| refused(path, error));
    let (buffers, missing) = found?;
    let given = symbols(path, options, &buffers, None)?;
    let mut input = Input::of(buffers, (None, given), None, Vec::new());
    input
        .remarks
        .splice(0..0, remarks::of_snapshot(missing.iter()));
    Ok(input)
}

/// Opens a perf.data file. `bytes` is the contents of `path`.
pub(super) fn perf(path: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Input, OpenError> {
    let of_threads = perf::of_threads(path);
    let recording = of_threads.and_then(|of_threads| perf::read_with(bytes, &of_threads));
    let mut recording = recording.map_err(|error| refused(path, error))?;
    if options.trace.any() {
        return Err(OpenError::HardwareTrace {
            path: path.to_owned(),
            message: "--trace-frames and --trace-image are for snapshots and raw buffers"
                .to_owned(),
        });
    }
    let places = perf::Places {
        symfs: options.symfs.clone(),
        kernel: options.kernel.clone(),
        cache: options.buildid_dir.clone(),
        programs: options.symbols.clone(),
    };
    places.check().map_err(|error| refused(path, error))?;
    let mut files = perf::Files::of_recording(path, &recording, &places);
    let missing = recording.load(|mapping| files.images(mapping));
    let given = symbols(path, options, &recording.buffers, Some(&missing))?;
    let symbols = (files.kernel_symbols(), given);
    let threads = std::mem::take(&mut recording.threads);
    let processes: HashMap<u32, u32> = threads
        .iter()
        .map(|(thread, known)| (*thread, known.process))
        .collect();
    let process = move |thread: u32| processes.get(&thread).copied().unwrap_or(thread);
    let buffers = std::mem::take(&mut recording.buffers);
    let names = names(&buffers, &threads);
    let reports_threads = buffers.iter().any(|buffer| {
        let mut sources = 0..buffer.sources.len();
        sources.any(|source| has_threads(buffer, source))
    });
    let mut of_recording = remarks::of_recording(&recording, &missing);
    of_recording.extend(files.remarks());
    let mut input = Input::of(buffers, symbols, Some(Arc::new(process)), missing);
    input.remarks.splice(0..0, of_recording);
    input.build_ids = recording
        .mappings
        .iter()
        .filter(|mapping| !mapping.build_id.is_empty())
        .map(|mapping| (mapping.path.clone(), mapping.build_id.clone()))
        .collect();
    // Idle tasks are one for each CPU anyway, and the threads that the kernel names are threads.
    input
        .concurrent
        .retain(|id| *id != 0 && !threads.contains_key(id));
    (input.threads, input.names) = (threads, names);
    if recording.conversion.is_some() {
        input.thread_begins = recording.thread_begins();
    }
    input.conversion = recording.conversion;
    if input.measure != Measure::Timestamps {
        input.unordered = unordered(&input.units);
    }
    for unit in &mut input.units {
        unit.work.conversion = recording.conversion;
        unit.work.reports_threads = reports_threads;
    }
    Ok(input)
}

/// Returns all names of these threads' processes that have several names.
fn names(buffers: &[Buffer], threads: &BTreeMap<u32, perf::Thread>) -> HashMap<u32, Vec<String>> {
    // All sources share the data about processes.
    let Some(code) = buffers.iter().flat_map(|buffer| &buffer.code).next() else {
        return HashMap::new();
    };
    let processes = threads.values().map(|thread| thread.process);
    let names = processes.map(|process| {
        let names: BTreeSet<&str> = code.names_of(process).collect();
        (process, names.into_iter().map(str::to_owned).collect())
    });
    names
        .filter(|(_, names): &(_, Vec<_>)| names.len() > 1)
        .collect()
}

/// Returns the threads that ran on several of these CPUs. All CPUs have the same thread numbers.
fn unordered(units: &[Unit]) -> BTreeSet<u32> {
    let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
    if units.len() < 2 {
        return several;
    }
    for unit in units {
        let parts = unit.work.parts.iter();
        let threads = parts.map(|part| threads(&part.buffer, part.source));
        let threads: BTreeSet<u32> = threads.flatten().filter(|thread| *thread > 0).collect();
        several.extend(threads.intersection(&seen));
        seen.extend(threads);
    }
    several
}

fn refused(path: &Path, error: Error) -> OpenError {
    match error {
        Error::Io { path, source } => OpenError::Io { path, source },
        error => {
            // Errors in TOML files begin with the path.
            let text = error.to_string();
            let place = format!("{}: ", path.display());
            let message = text.strip_prefix(&place).unwrap_or(&text);
            OpenError::HardwareTrace {
                path: path.to_owned(),
                message: message.to_owned(),
            }
        }
    }
}

impl Input {
    /// Time of the first timestamp; 0 without timestamps.
    pub fn first_time(&self) -> i64 {
        let first = self.first.unwrap_or_default();
        match self.conversion {
            Some(conversion) => conversion.nanoseconds(first).cast_signed(),
            None => first.saturating_sub(self.origin).cast_signed(),
        }
    }

    /// Collects the sources of consecutive buffers, with the kernel's symbols and those that were given. `absent` are files
    /// that the input lacks.
    fn of(
        buffers: Vec<Buffer>,
        (kernel, (given, unfit)): (Option<Vec<u8>>, (GivenSymbols, Vec<Remark>)),
        process_of: Option<Arc<ProcessOf>>,
        absent: Vec<perf::Missing>,
    ) -> Self {
        let mut of_all = remarks::of_buffers(&buffers);
        of_all.extend(remarks::of_images(&buffers));
        of_all.extend(unfit);
        let settled_symbols = given.settled().map(Path::to_owned).collect();
        let binaries = Arc::new(Binaries::new(kernel, given));
        let absent = Arc::new(absent);
        let traces = input::traces(&buffers);
        let (measure, origin) = clock::measure(&buffers, &traces);
        let first = match measure {
            Measure::Timestamps => clock::first_timestamp(&buffers, &traces),
            _ => None,
        };
        let concurrent = match measure {
            Measure::Timestamps => concurrent(&buffers, &traces),
            _ => BTreeSet::new(),
        };
        let buffers: Vec<_> = buffers.into_iter().map(Arc::new).collect();
        let unit = |parts: &Vec<input::Part>| {
            let first = parts.first()?;
            let buffer = buffers.get(first.buffer)?;
            let source = buffer.sources.get(first.source)?;
            let parts = parts.iter().filter_map(|part| {
                Some(Part {
                    buffer: Arc::clone(buffers.get(part.buffer)?),
                    number: part.buffer,
                    stream: part.stream,
                    source: part.source,
                })
            });
            Some(Unit {
                name: format!("{}/{}", buffer.owner(), source.name),
                cpu: source.cpu,
                protocol: source.protocol,
                id: source.id.0,
                work: Work {
                    parts: parts.collect(),
                    measure: match is_software(&source.protocol) {
                        true => Measure::Timestamps,
                        false => measure,
                    },
                    origin,
                    conversion: None,
                    binaries: Arc::clone(&binaries),
                    thread: buffer.thread,
                    reports_threads: true,
                    process_of: process_of.clone(),
                    absent: Arc::clone(&absent),
                    options: EtmV4Options::default(),
                },
            })
        };
        let units = traces.iter().filter_map(unit).collect();
        Input {
            units,
            measure,
            origin,
            first,
            conversion: None,
            build_ids: HashMap::new(),
            threads: BTreeMap::new(),
            thread_begins: Vec::new(),
            names: HashMap::new(),
            unordered: BTreeSet::new(),
            concurrent,
            process_of,
            remarks: of_all,
            settled_symbols,
        }
    }
}
