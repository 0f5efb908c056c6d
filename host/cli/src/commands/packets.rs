//! `kymo packets`: the raw packets of Arm hardware trace, in the layout of OpenCSD's `trc_pkt_lister`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::TraceId;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::perf;
use kymo_coresight::snapshot::Snapshot;

use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::count::counted;
use crate::render::escape::escaped;

/// The options of `kymo packets`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo packets snapshot/                     every packet, with offset, trace ID, bytes and meaning
  kymo packets --id 10 snapshot/             those of one source
  kymo packets --decode snapshot/            with the instruction ranges, exceptions and times in them
  kymo packets --buffer ETB_1 snapshot/      those of one buffer
  kymo packets --format json snapshot/ | jq .name    one object a line, for programs")]
pub struct Args {
    /// A snapshot directory with a snapshot.ini, or a perf.data file.
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// Only the source with this trace ID, hexadecimal as in the listing. Repeatable.
    #[arg(long, value_name = "ID", value_parser = trace_id)]
    id: Vec<TraceId>,

    /// Where the binaries of a perf.data are, by their paths below this directory.
    #[arg(long, value_name = "DIR", default_value = "/")]
    symfs: PathBuf,

    /// Only this trace buffer of the input. Repeatable.
    #[arg(long, value_name = "NAME")]
    buffer: Vec<String>,

    /// Follow the instructions too: list the elements that each packet gives, behind it.
    #[arg(long)]
    decode: bool,

    #[command(flatten)]
    format: FormatArgs,
}

fn trace_id(text: &str) -> Result<TraceId, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match u8::from_str_radix(digits, 16) {
        Ok(id) if id < 0x70 => Ok(TraceId(id)),
        _ => Err("expected a trace ID from 0 to 6f".to_owned()),
    }
}

/// Lists the packets of all buffers of an input.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let mut buffers = open(&args.input, &args.symfs, args.decode, context)?.buffers;
    let names: Vec<_> = buffers.iter().map(|buffer| buffer.name.clone()).collect();
    if !args.buffer.is_empty() {
        buffers.retain(|buffer| args.buffer.contains(&buffer.name));
    }
    if buffers.is_empty() {
        return Err(Report::new("the input has no such trace buffer")
            .help(format!("its buffers are {}", names.join(", "))));
    }
    let mut is_whole = true;
    for buffer in &buffers {
        if buffers.len() > 1 && args.format.format == Format::Text {
            writeln!(context.out().0, "Buffer {}", buffer.name)?;
        }
        list(args, buffer, context)?;
        is_whole &= remark(buffer, context);
    }
    match is_whole {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(2)),
    }
}

/// An opened input.
pub(super) struct Opened {
    pub buffers: Vec<Buffer>,
    /// Below this directory are the files of the images.
    pub root: PathBuf,
}

/// Opens an input of hardware trace: a snapshot, or a perf.data with binaries below `symfs`. Says what is missing of the
/// code, if that is wanted.
pub(super) fn open(
    path: &Path,
    symfs: &Path,
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
            root: directory.unwrap_or(path).to_owned(),
        });
    }
    let mut recording = perf::open(path).map_err(|error| {
        Report::caused(path.display(), &error)
            .help("kymo reads snapshot directories (snapshot.ini) and perf.data files of CoreSight")
    })?;
    let missing = recording.load(|mapping| {
        let below = mapping.path.trim_start_matches('/');
        std::fs::read(symfs.join(below)).ok()
    });
    for mapping in missing.iter().filter(|_| wants_code) {
        let build_id: String = mapping
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let build_id = if build_id.is_empty() {
            build_id
        } else {
            format!(" (build ID {build_id})")
        };
        let path = escaped(&mapping.path);
        context.warn(format_args!(
            "no file for {path}{build_id}: what ran there is not followed"
        ));
    }
    if recording.truncated > 0 {
        context.warn(format_args!(
            "trace was lost {} times (truncated AUX)",
            recording.truncated
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
        root: symfs.to_owned(),
    })
}

fn list(args: &Args, buffer: &Buffer, context: &mut Context) -> Result<(), Report> {
    let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
    let listing = if args.decode {
        Listing::decoding(sources, streams, &buffer.code, EtmV4Options::default())
    } else {
        Listing::new(sources, streams)
    };
    let mut text = String::with_capacity(FLUSH_AT + 1024);
    for line in listing {
        let id = match line {
            Line::Packet(entry) => entry.id,
            Line::Element { source, .. } => source.id,
        };
        if !args.id.is_empty() && !args.id.contains(&id) {
            continue;
        }
        // Writing into a String cannot fail.
        let _ = match args.format.format {
            Format::Text => line.write(&mut text),
            Format::Json => write_json(&line, &mut text),
        };
        text.push('\n');
        if text.len() >= FLUSH_AT {
            context.out().0.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    context.out().0.write_all(text.as_bytes())?;
    Ok(())
}

/// How much text is collected before it is written.
const FLUSH_AT: usize = 1 << 16;

fn write_json(line: &Line<'_>, out: &mut String) -> std::fmt::Result {
    use std::fmt::Write as _;
    let mut text = String::new();
    // The texts are our own: names, numbers and punctuation without quotes.
    match line {
        Line::Packet(entry) => {
            entry.describe(&mut text)?;
            let (name, meaning) = text.split_once(':').unwrap_or((&text, ""));
            let (name, meaning) = (name.trim(), meaning.trim());
            let (offset, id) = (entry.offset, entry.id.0);
            write!(
                out,
                "{{\"type\":\"packet\",\"offset\":{offset},\"trace_id\":{id}"
            )?;
            write!(
                out,
                ",\"name\":\"{name}\",\"text\":\"{meaning}\",\"bytes\":\""
            )?;
            for byte in entry.bytes {
                write!(out, "{byte:02x}")?;
            }
            out.write_str("\"}")
        }
        Line::Element {
            source,
            offset,
            element,
        } => {
            element.describe(&mut text)?;
            let text = text.strip_prefix("OCSD_GEN_TRC_ELEM_").unwrap_or(&text);
            let (name, meaning) = text.split_once('(').unwrap_or((text, ""));
            let meaning = meaning.strip_suffix(')').unwrap_or(meaning).trim();
            write!(
                out,
                "{{\"type\":\"element\",\"offset\":{offset},\"trace_id\":{}",
                source.id.0
            )?;
            write!(out, ",\"name\":\"{name}\",\"text\":\"{meaning}\"}}")
        }
    }
}

/// Says what of the buffer is in no packet. `false` if the buffer is cut or empty.
fn remark(buffer: &Buffer, context: &Context) -> bool {
    let Buffer {
        name,
        sources,
        frames,
        ..
    } = buffer;
    for stream in &frames.streams {
        let is_known = match stream.id {
            TraceId::NONE => !sources.is_empty(),
            id => sources.iter().any(|source| source.id == id),
        };
        if !is_known {
            let (id, bytes) = (stream.id.0, stream.bytes.len());
            context.warn(format_args!(
                "{name}: {bytes} bytes of trace ID {id:x} left out: the snapshot describes no source with this ID"
            ));
        }
    }
    if frames.skipped_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} bytes skipped before the first synchronization and between cut frames",
            frames.skipped_bytes
        ));
    }
    if frames.reserved_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} bytes under reserved trace IDs left out",
            frames.reserved_bytes
        ));
    }
    if frames.rest_bytes > 0 {
        context.warn(format_args!(
            "{name}: {} left out: the buffer ends within a frame",
            counted(frames.rest_bytes, "byte")
        ));
    }
    let is_empty =
        frames.frames == 0 && frames.streams.iter().all(|stream| stream.bytes.is_empty());
    if is_empty {
        context.warn(format_args!("{name}: the buffer has no trace"));
    }
    frames.rest_bytes == 0 && !is_empty
}
