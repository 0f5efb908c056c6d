//! `kymo packets`: the raw packets of Arm hardware trace, in the layout of OpenCSD's `trc_pkt_lister`.

use std::path::PathBuf;
use std::process::ExitCode;

use kymo_coresight::Source;
use kymo_coresight::frames::{self, Frames, TraceId};
use kymo_coresight::listing::{Entry, Listing};
use kymo_coresight::snapshot::{Buffer, Snapshot};

use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;

/// The options of `kymo packets`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo packets snapshot/                     every packet, with offset, trace ID, bytes and meaning
  kymo packets --id 10 snapshot/             those of one source
  kymo packets --buffer ETB_1 snapshot/      those of one buffer
  kymo packets --format json snapshot/ | jq .name    one object a line, for programs")]
pub struct Args {
    /// A snapshot directory with a snapshot.ini.
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// Only the source with this trace ID, hexadecimal as in the listing. Repeatable.
    #[arg(long, value_name = "ID", value_parser = trace_id)]
    id: Vec<TraceId>,

    /// Only this trace buffer of the snapshot. Repeatable.
    #[arg(long, value_name = "NAME")]
    buffer: Vec<String>,

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
    if !Snapshot::is_at(&args.input) {
        let path = args.input.display();
        return Err(Report::new(format!("{path} is not a CoreSight snapshot"))
            .help("give a directory with a snapshot.ini"));
    }
    let snapshot = Snapshot::open(&args.input).map_err(|error| Report::caused_by(&error))?;
    let chosen = |buffer: &&Buffer| args.buffer.is_empty() || args.buffer.contains(&buffer.name);
    let buffers: Vec<&Buffer> = snapshot.buffers.iter().filter(chosen).collect();
    if buffers.is_empty() {
        let names: Vec<_> = snapshot
            .buffers
            .iter()
            .map(|buffer| buffer.name.as_str())
            .collect();
        return Err(Report::new("the snapshot has no such trace buffer")
            .help(format!("its buffers are {}", names.join(", "))));
    }
    for buffer in &buffers {
        let bytes = snapshot
            .read_buffer(buffer)
            .map_err(|error| Report::caused_by(&error))?;
        let sources = Source::of_buffer(&snapshot, buffer);
        let frames = frames::split(&bytes, buffer.format, TraceId::NONE);
        if buffers.len() > 1 && args.format.format == Format::Text {
            writeln!(context.out().0, "Buffer {}", buffer.name)?;
        }
        list(args, &sources, &frames, context)?;
        remark(buffer, &sources, &frames, context);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(
    args: &Args,
    sources: &[Source],
    frames: &Frames<'_>,
    context: &mut Context,
) -> Result<(), Report> {
    let mut text = String::with_capacity(FLUSH_AT + 1024);
    for entry in Listing::new(sources, &frames.streams) {
        if !args.id.is_empty() && !args.id.contains(&entry.id) {
            continue;
        }
        // Writing into a String cannot fail.
        let _ = match args.format.format {
            Format::Text => entry.write_line(&mut text),
            Format::Json => write_json(&entry, &mut text),
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

fn write_json(entry: &Entry<'_>, out: &mut String) -> std::fmt::Result {
    use std::fmt::Write as _;
    let mut text = String::new();
    entry.describe(&mut text)?;
    // The text is our own: names, numbers and punctuation without quotes.
    let (name, meaning) = text.split_once(':').unwrap_or((&text, ""));
    let (name, meaning) = (name.trim(), meaning.trim());
    write!(
        out,
        "{{\"type\":\"packet\",\"offset\":{},\"trace_id\":{}",
        entry.offset, entry.id.0
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

/// Says what of the buffer is in no packet.
fn remark(buffer: &Buffer, sources: &[Source], frames: &Frames<'_>, context: &Context) {
    let name = &buffer.name;
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
}
