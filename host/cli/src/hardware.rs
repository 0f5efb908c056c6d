//! Arm hardware trace, as its subcommands open it: the input, which part of it, its code and symbols.

pub mod counting;
pub mod coverage;
pub mod part;
pub mod program;
pub mod remarks;
pub mod tally;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::Stream;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::perf::{self, Files, Mapping, Missing, Thread};
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
}

impl BinaryArgs {
    fn places(&self) -> perf::Places {
        perf::Places {
            symfs: self.symfs.clone(),
            kernel: self.vmlinux.clone(),
            cache: self.buildid_dir.clone(),
        }
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
    /// Its trace buffers.
    pub buffers: Vec<Buffer>,
    /// The symbols of the kernel, as it lists them itself.
    pub kernel_symbols: Option<Vec<u8>>,
    /// Threads, by their numbers.
    pub threads: BTreeMap<u32, Thread>,
    /// Mappings of which there is no file.
    pub missing: Vec<Missing>,
}

/// Opens an input of hardware trace: a snapshot, or a perf.data with its binaries. Says what is missing of the code, if that
/// is wanted.
///
/// # Errors
/// When it is none of these, or cannot be read.
pub fn open(
    path: &Path,
    binaries: &BinaryArgs,
    wants_code: bool,
    context: &Context,
) -> Result<Opened, Report> {
    if Snapshot::is_at(path) {
        let (buffers, missing) =
            input::open_snapshot(path).map_err(|error| Report::caused_by(&error))?;
        for error in missing.iter().filter(|_| wants_code) {
            context.warn(format_args!("{error}"));
        }
        return Ok(Opened {
            buffers,
            kernel_symbols: None,
            threads: BTreeMap::new(),
            missing: Vec::new(),
        });
    }
    let mut recording = perf::open(path).map_err(|error| {
        Report::caused(path.display(), &error)
            .help("kymo reads snapshot directories (snapshot.ini) and perf.data files of CoreSight")
    })?;
    let mut files = Files::of_recording(path, &recording, &binaries.places());
    let missing = recording.load(|mapping| files.images(mapping));
    for missing in missing.iter().filter(|_| wants_code) {
        context.warn(escaped(&missing.to_string()));
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
    Ok(Opened {
        buffers: recording.buffers,
        kernel_symbols: files.kernel_symbols(),
        threads: recording.threads,
        missing,
    })
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
