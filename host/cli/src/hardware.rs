//! Arm hardware trace, as its subcommands open it: the input, which part of it, its code and symbols.

pub mod counting;
pub mod coverage;
pub mod part;
pub mod program;
pub mod remarks;
pub mod tally;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::Stream;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::memory;
use kymo_coresight::perf::{self, Mapping, Thread};
use kymo_coresight::snapshot::Snapshot;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::escape::escaped;

/// The input of the subcommands of hardware trace, and how to decode it.
#[derive(clap::Args, Clone, Debug)]
pub struct HardwareArgs {
    /// A snapshot directory with a snapshot.ini, or a perf.data file.
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,

    /// Where the binaries of a perf.data are, by their paths below this directory. Without this, they are looked for
    /// beside INPUT (below symfs, or itself), then on this machine.
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,

    #[command(flatten)]
    pub decode: DecodeArgs,
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
    /// Its trace buffers.
    pub buffers: Vec<Buffer>,
    /// Below these directories are the files of the images.
    pub roots: Vec<PathBuf>,
    /// Threads, by their numbers.
    pub threads: BTreeMap<u32, Thread>,
    /// Mappings of which there is no file.
    pub missing: Vec<Mapping>,
}

/// Opens an input of hardware trace: a snapshot, or a perf.data with binaries below `symfs`, or else
/// beside it or on this machine. Says what is missing of the
/// code, if that is wanted.
///
/// # Errors
/// When it is none of these, or cannot be read.
pub fn open(
    path: &Path,
    symfs: Option<&Path>,
    wants_code: bool,
    context: &Context,
) -> Result<Opened, Report> {
    if Snapshot::is_at(path) {
        let (buffers, missing) =
            input::open_snapshot(path).map_err(|error| Report::caused_by(&error))?;
        for error in missing.iter().filter(|_| wants_code) {
            context.warn(format_args!("{error}"));
        }
        let directory = if path.is_dir() {
            Some(path)
        } else {
            path.parent()
        };
        return Ok(Opened {
            buffers,
            roots: vec![directory.unwrap_or(path).to_owned()],
            threads: BTreeMap::new(),
            missing: Vec::new(),
        });
    }
    let mut recording = perf::open(path).map_err(|error| {
        Report::caused(path.display(), &error)
            .help("kymo reads snapshot directories (snapshot.ini) and perf.data files of CoreSight")
    })?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let roots = symfs.map_or_else(
        || vec![beside.join("symfs"), beside.to_owned(), PathBuf::from("/")],
        |symfs| vec![symfs.to_owned()],
    );
    let mut others = Vec::new();
    let absent = recording.load(|mapping| {
        files(&roots, &mapping.path).find_map(|file| match memory::build_id(&file) {
            Some(id) if is_other(&mapping.build_id, &id) => {
                others.push((mapping.path.clone(), hex(&id)));
                None
            }
            _ => Some(file),
        })
    });
    for mapping in absent.iter().filter(|_| wants_code) {
        let path = escaped(&mapping.path);
        let build_id = build_id(mapping);
        match others.iter().find(|(path, _)| *path == mapping.path) {
            Some((_, found)) => context.warn(format_args!(
                "{path} is another build than the traced one{build_id}: its build ID is {found}; what ran there is not followed"
            )),
            None => context.warn(format_args!(
                "no file for {path}{build_id}: what ran there is not followed"
            )),
        }
    }
    if recording.truncated > 0 {
        context.warn(format_args!(
            "trace was lost {} times (truncated AUX)",
            recording.truncated
        ));
    }
    if let Some(offset) = recording.cut_at {
        context.warn(format_args!(
            "the file ends at offset {offset}, before the recording does: trace is missing"
        ));
    }
    if recording.missing > 0 {
        context.warn(format_args!(
            "{} AUX records left out: no buffer has their bytes",
            recording.missing
        ));
    }
    let is_absent = |mapping: &Mapping| absent.iter().any(|other| other.path == mapping.path);
    Ok(Opened {
        buffers: recording.buffers,
        roots,
        threads: recording.threads,
        missing: recording.mappings.into_iter().filter(is_absent).collect(),
    })
}

/// The files that a path of the trace can be, below each of the directories. None for one that leads out of them.
pub fn files(roots: &[PathBuf], path: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut below = PathBuf::new();
    let mut leads_out = false;
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => below.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => leads_out = true,
        }
    }
    let roots = if leads_out { &[] } else { roots };
    let paths = roots.iter().map(move |root| root.join(&below));
    paths.filter_map(|path| kymo_symbols::read_file(&path, kymo_symbols::LARGEST_FILE).ok())
}

/// Follows the instructions of a stream of a buffer's source, by its place, until `sink` has enough.
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
    let mut start = 0;
    let ends = stream.resets.iter().copied().chain([stream.bytes.len()]);
    for end in ends {
        if start > 0 {
            flow.reset();
        }
        let bytes = stream.bytes.get(..end).unwrap_or_default();
        for packet in PacketDecoder::new(&source.protocol, bytes, start) {
            flow.packet(&packet, sink);
            if has_enough(sink) {
                return;
            }
        }
        start = end;
    }
    flow.finish(sink);
}

/// Whether two build IDs are of different files. Recorders fill short ones up with zeros.
fn is_other(recorded: &[u8], found: &[u8]) -> bool {
    let length = recorded.len().min(found.len());
    length > 0 && recorded.get(..length) != found.get(..length)
}

/// A mapping's build ID for a message; empty if none is known.
fn build_id(mapping: &Mapping) -> String {
    match mapping.build_id.as_slice() {
        [] => String::new(),
        id => format!(" (build ID {})", hex(id)),
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Opened {
    /// A thread for people: its name, process and number; its number alone where nothing more is known.
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

    /// The command of a thread; its number where none is known, `-` where that isn't.
    pub fn command(&self, thread: Option<u32>) -> String {
        let Some(number) = thread else {
            return "-".to_owned();
        };
        match self.threads.get(&number) {
            Some(thread) if !thread.name.is_empty() => thread.name.clone(),
            _ => format!(":{number}"),
        }
    }
}
