//! Arm hardware trace as input of subcommands: opening, selection of a part, code and symbols.

pub mod counting;
pub mod coverage;
pub mod findings;
pub mod json;
pub mod part;
pub mod program;
pub mod tally;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kymo_coresight::Error;
use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::{FrameFormat, Stream};
use kymo_coresight::input::{self, Buffer, Given};
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::memory::Scene;
use kymo_coresight::perf::{self, Files, Missing, Thread, TimeConversion};
use kymo_coresight::remarks::{self, Remark};
use kymo_coresight::snapshot::Snapshot;

use kymo_read::OpenOptions;
use kymo_read::coresight::{GivenSymbols, debug_directories};

use crate::args::SymbolArgs;
use crate::diagnostic::Report;
use crate::input::name_of;
use crate::render::escape::escaped;

/// The input of the subcommands of hardware trace, and how to decode it.
#[derive(clap::Args, Clone, Debug)]
pub struct HardwareArgs {
    /// A snapshot directory with a snapshot.ini, a perf.data file (- for the standard input), or a raw trace buffer.
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,

    #[command(flatten)]
    pub binaries: BinaryArgs,

    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// Where the binaries of a recording of hardware trace are.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct BinaryArgs {
    /// Where the binaries of a perf.data with hardware trace are, by their paths below this directory. Without this,
    /// beside INPUT (below symfs, or itself), then on this machine.
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,

    /// The kernel of a perf.data with hardware trace: its vmlinux, or the Image that was booted (AArch64).
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,

    /// Where perf keeps binaries by build ID: vdso, kernel memory (kcore), files that are gone. Without this, ~/.debug.
    #[arg(long, value_name = "DIR")]
    pub buildid_dir: Option<PathBuf>,

    /// A source of a raw trace buffer, INPUT: its protocol (ETMv4, ETE, ETMv3, PTM, STM, ITM), id=TRACE_ID, cpu=N, core=TYPE and
    /// registers, for instance ETMv4,id=0x10,cpu=0,TRCCONFIGR=0xc1. Repeatable.
    #[arg(long, value_name = "SOURCE")]
    pub trace_source: Vec<String>,

    /// How the trace buffers of a raw buffer or a snapshot are laid out: memory (ETB, ETF, ETR), tpiu, dstream, or none: one
    /// source, no frames.
    #[arg(long, value_name = "LAYOUT", value_parser = frames)]
    pub trace_frames: Option<FrameFormat>,

    /// Memory of the cores of a raw buffer or a snapshot: FILE@ADDRESS, with ,offset=N, ,length=N and ,space=NAME behind it if
    /// need be; or a linked ELF file. Without it, of a raw buffer the program that --elf names. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub trace_image: Vec<String>,
}

fn frames(text: &str) -> Result<FrameFormat, String> {
    match text {
        "memory" => Ok(FrameFormat::Memory),
        "tpiu" => Ok(FrameFormat::Tpiu),
        "dstream" => Ok(FrameFormat::Dstream),
        "none" => Ok(FrameFormat::Unformatted),
        _ => Err("expected memory, tpiu, dstream or none".to_owned()),
    }
}

impl BinaryArgs {
    /// The user's description of the input. Without images, the program given for symbols is the memory of a raw
    /// buffer's cores.
    pub fn given(&self, programs: &[PathBuf]) -> Given {
        let mut images = self.trace_image.clone();
        if images.is_empty() && !self.trace_source.is_empty() {
            let programs = programs.iter();
            images.extend(programs.map(|path| path.display().to_string()));
        }
        Given {
            frames: self.trace_frames,
            sources: self.trace_source.clone(),
            images,
        }
    }

    /// The given options that describe the code or the layout of the trace, which every command for this input needs.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            ("--symfs", self.symfs.is_some()),
            ("--vmlinux", self.vmlinux.is_some()),
            ("--buildid-dir", self.buildid_dir.is_some()),
            ("--trace-source", !self.trace_source.is_empty()),
            ("--trace-frames", self.trace_frames.is_some()),
            ("--trace-image", !self.trace_image.is_empty()),
        ];
        let given = options.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// Refuses options that do not apply to the input. `is_perf`: it is a recording of perf; `None` if it is no
    /// hardware trace.
    ///
    /// # Errors
    /// The first such option.
    pub fn check(&self, is_perf: Option<bool>) -> Result<(), Report> {
        let of_perf = [
            ("--symfs", self.symfs.is_some()),
            ("--vmlinux", self.vmlinux.is_some()),
            ("--buildid-dir", self.buildid_dir.is_some()),
        ];
        let of_others = [
            ("--trace-source", !self.trace_source.is_empty()),
            ("--trace-frames", self.trace_frames.is_some()),
            ("--trace-image", !self.trace_image.is_empty()),
        ];
        let is_given = |(_, is_given): &&(&str, bool)| *is_given;
        let wrong =
            |options: &[(&'static str, bool)], what: &str| match options.iter().find(is_given) {
                None => Ok(()),
                Some((option, _)) => {
                    let report = Report::new(format_args!("{option} is for {what}"));
                    Err(report.help("leave it out, or give the input that it is meant for"))
                }
            };
        if is_perf != Some(true) {
            wrong(&of_perf, "recordings of perf with hardware trace")?;
        }
        if is_perf != Some(false) {
            wrong(&of_others, "snapshots and raw buffers of hardware trace")?;
        }
        Ok(())
    }

    fn places(&self, programs: &[PathBuf]) -> perf::Places {
        perf::Places {
            programs: programs.to_vec(),
            symfs: self.symfs.clone(),
            kernel: self.vmlinux.clone(),
            cache: self.buildid_dir.clone(),
        }
    }
}

/// The options of a reader of events, with the description of the hardware trace and the programs given for symbols.
pub fn open_options(
    binaries: &BinaryArgs,
    programs: &[PathBuf],
    options: OpenOptions,
) -> OpenOptions {
    OpenOptions {
        symfs: binaries.symfs.clone(),
        kernel: binaries.vmlinux.clone(),
        buildid_dir: binaries.buildid_dir.clone(),
        trace: binaries.given(programs),
        ..options
    }
}

/// How instructions are followed.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Decoding")]
pub struct DecodeArgs {
    /// End ranges at branches that were not taken, also where an ETE gives source addresses only.
    #[arg(long)]
    split_not_taken: bool,

    /// Give up until the next synchronization at an instruction that A64 does not have.
    #[arg(long)]
    check_opcodes: bool,

    /// Give up until the next synchronization where an unconditional branch was not taken.
    #[arg(long)]
    check_branches: bool,
}

impl DecodeArgs {
    /// The options of the decoder.
    pub fn options(self) -> EtmV4Options {
        EtmV4Options {
            split_source_ranges: self.split_not_taken,
            checks_opcodes: self.check_opcodes,
            checks_branches: self.check_branches,
        }
    }
}

/// An opened input.
#[derive(Debug)]
pub struct Opened {
    /// Its name in messages.
    pub name: String,
    /// Its trace buffers.
    pub buffers: Vec<Buffer>,
    /// The kernel's own list of its symbols.
    pub kernel_symbols: Option<Vec<u8>>,
    /// Threads by their numbers.
    pub threads: BTreeMap<u32, Thread>,
    /// The conversion of timestamps to nanoseconds, if there is one.
    pub conversion: Option<TimeConversion>,
    /// Mappings without a file.
    pub missing: Vec<Missing>,
    /// Whether it is a recording of processes, not of a machine.
    pub is_of_processes: bool,
    /// Remarks about the input as a whole.
    pub remarks: Vec<Remark>,
    /// The symbol files that the user gave.
    pub given: GivenSymbols,
}

/// Opens an input of hardware trace: a snapshot, a raw buffer of cores that run the program of `symbols`, or a perf.data
/// with its binaries.
///
/// # Errors
/// When it is none of these, or cannot be read, or a file of symbols cannot.
pub fn open(
    path: &Path,
    binaries: &BinaryArgs,
    symbols: &SymbolArgs,
    wants_code: bool,
) -> Result<Opened, Report> {
    let mut opened = open_without_symbols(path, binaries, &symbols.elf, wants_code)?;
    let files = symbols.files();
    let debug = debug_directories(
        path,
        &symbols.debug_dir,
        binaries.symfs.as_deref(),
        binaries.buildid_dir.as_deref(),
    );
    let missing = opened.is_of_processes.then_some(&*opened.missing);
    let given = GivenSymbols::open(&files, &opened.buffers, missing, &debug);
    let (given, unfit) = given.map_err(|error| crate::input::symbols::unreadable(&error))?;
    opened.given = given;
    opened.remarks.extend(unfit);
    Ok(opened)
}

fn open_without_symbols(
    path: &Path,
    binaries: &BinaryArgs,
    programs: &[PathBuf],
    wants_code: bool,
) -> Result<Opened, Report> {
    let (name, given) = (name_of(path), binaries.given(programs));
    if given.is_raw() {
        binaries.check(Some(false))?;
        let buffers = input::open_raw(path, &given).map_err(|error| match error {
            Error::Program { .. } => Report::caused(path.display(), &error),
            error => Report::caused_by(&error),
        })?;
        return Ok(Opened {
            name,
            remarks: of_images(&buffers, wants_code),
            buffers,
            kernel_symbols: None,
            threads: BTreeMap::new(),
            conversion: None,
            missing: Vec::new(),
            is_of_processes: false,
            given: GivenSymbols::default(),
        });
    }
    if Snapshot::is_at(path) {
        binaries.check(Some(false))?;
        let (buffers, missing) =
            input::open_snapshot(path, &given).map_err(|error| Report::caused_by(&error))?;
        let mut remarks = remarks::of_snapshot(missing.iter().filter(|_| wants_code));
        remarks.extend(of_images(&buffers, wants_code));
        return Ok(Opened {
            name,
            remarks,
            buffers,
            kernel_symbols: None,
            threads: BTreeMap::new(),
            conversion: None,
            missing: Vec::new(),
            is_of_processes: false,
            given: GivenSymbols::default(),
        });
    }
    let records = perf::records(path);
    if records.is_dir() {
        let name = path.display();
        let report = Report::new(format_args!(
            "{name}: expected a recording of hardware trace, found a directory without snapshot.ini or perf's data"
        ));
        return Err(report.help(format_args!("`kymo info {name}` says what it is")));
    }
    let bytes = kymo_read::Bytes::of_input(&records).map_err(|source| Error::Io {
        path: records,
        source,
    });
    let recording = bytes.and_then(|bytes| perf::read_with(&bytes, &perf::of_threads(path)?));
    let mut recording = recording.map_err(|error| {
        let report = Report::caused(path.display(), &error);
        match error {
            Error::Program { .. } => report,
            _ => report.help(
                "kymo reads snapshot directories (snapshot.ini), perf.data files of CoreSight, and raw buffers with \
                 --trace-source",
            ),
        }
    })?;
    binaries.check(Some(true))?;
    let places = binaries.places(programs);
    places.check().map_err(|error| Report::caused_by(&error))?;
    let mut files = Files::of_recording(path, &recording, &places);
    let missing = recording.load(|mapping| files.images(mapping));
    let wanted = missing.get(..if wants_code { missing.len() } else { 0 });
    let mut remarks = remarks::of_recording(&recording, wanted.unwrap_or_default());
    if wants_code {
        remarks.extend(files.remarks());
    }
    remarks.extend(of_images(&recording.buffers, wants_code));
    Ok(Opened {
        name,
        remarks,
        buffers: recording.buffers,
        kernel_symbols: files.kernel_symbols(),
        threads: recording.threads,
        conversion: recording.conversion,
        missing,
        is_of_processes: true,
        given: GivenSymbols::default(),
    })
}

/// Remarks about memory, if code is needed.
fn of_images(buffers: &[Buffer], wants_code: bool) -> Vec<Remark> {
    match wants_code {
        true => remarks::of_images(buffers),
        false => Vec::new(),
    }
}

/// Decodes the instructions of one source of a buffer, given by its index, until `sink` stops.
pub fn follow<S: Sink>(
    buffer: &Buffer,
    source: usize,
    stream: &Stream<'_>,
    options: EtmV4Options,
    sink: &mut S,
    has_enough: impl Fn(&S) -> bool,
) {
    let (Some(source), Some(code)) = (buffer.sources.get(source), buffer.code.get(source)) else {
        return;
    };
    let mut flow = Flow::new(&source.protocol, options, code);
    for segment in stream.segments() {
        flow.begin(&segment, sink);
        let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
        for packet in PacketDecoder::new(&source.protocol, bytes, segment.start) {
            flow.packet(&packet, sink);
            if has_enough(sink) {
                return;
            }
        }
    }
    flow.finish_stream(stream, sink);
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Opened {
    /// The display name of a thread: name, process and number; the number alone if nothing more is known.
    pub fn thread_label(&self, thread: Option<u32>) -> String {
        let Some(number) = thread else {
            return "unknown thread".to_owned();
        };
        match self.threads.get(&number) {
            Some(Thread { process, name }) if !name.is_empty() => {
                format!("{} {process}/{number}", escaped(name))
            }
            Some(Thread { process, .. }) => format!("thread {process}/{number}"),
            None => format!("context {number:#x}"),
        }
    }

    /// The name of a thread at the time of this state of memory; `None` if unknown.
    pub fn name_at<'a>(&'a self, thread: Option<u32>, code: Scene<'a>) -> Option<&'a str> {
        let number = thread?;
        let known = self.threads.get(&number);
        // A thread that is not its process's first one ends with an exec.
        let is_first = known.is_none_or(|known| known.process == number);
        let name = code.process_name().filter(|_| is_first);
        let last = known.map(|known| known.name.as_str());
        name.or(last).filter(|name| !name.is_empty())
    }

    /// The command of a thread at the time of this state of memory; its number if unknown, `-` without a number.
    pub fn command(&self, thread: Option<u32>, code: Scene<'_>) -> String {
        match (self.name_at(thread, code), thread) {
            (Some(name), _) => name.to_owned(),
            (None, Some(number)) => format!(":{number}"),
            (None, None) => "-".to_owned(),
        }
    }
}
