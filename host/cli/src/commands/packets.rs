//! `kymo packets`: the raw packets of Arm hardware trace, in the layout of OpenCSD's `trc_pkt_lister`.

use std::process::ExitCode;

use kymo_coresight::doubts::Doubts;
use kymo_coresight::input::Buffer;
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::memory::Memory;

use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::part::SourceArgs;
use crate::hardware::{self, HardwareArgs};

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
    #[command(flatten)]
    hardware: HardwareArgs,

    #[command(flatten)]
    sources: SourceArgs,

    /// Follow the instructions too: list the elements that each packet gives, behind it.
    #[arg(long)]
    decode: bool,

    #[command(flatten)]
    format: FormatArgs,
}

/// Lists the packets of all buffers of an input.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input, binaries, ..
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, args.decode)?;
    args.sources.choose(&mut opened.buffers)?;
    let mut findings = Findings::of(&opened, context);
    for (number, buffer) in opened.buffers.iter().enumerate() {
        if opened.buffers.len() > 1 && args.format.format == Format::Text {
            writeln!(context.out().0, "Buffer {}", buffer.name)?;
        }
        let doubts = list(args, buffer, context)?;
        for (source, doubts) in doubts.iter().enumerate() {
            findings.add(doubts, &opened, (number, source), context);
        }
    }
    findings.verdict()
}

/// Lists a buffer. With the doubts of each of its sources.
fn list(args: &Args, buffer: &Buffer, context: &mut Context) -> Result<Vec<Doubts>, Report> {
    let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
    let nothing = Memory::default();
    let mut doubts = vec![Doubts::default(); sources.len()];
    let listing = if args.decode {
        Listing::decoding(
            sources,
            streams,
            &buffer.code,
            args.hardware.decode.options(),
        )
    } else {
        Listing::checking(sources, streams, &nothing)
    };
    let mut text = String::with_capacity(FLUSH_AT + 1024);
    for line in listing {
        let source = match line {
            Line::Packet(entry) => entry.source,
            Line::Element { source, .. } => source,
        };
        if !args.sources.has_source(source) {
            continue;
        }
        if let Line::Element {
            offset,
            element,
            view,
            ..
        } = &line
        {
            let mut all = sources.iter().zip(&mut doubts);
            if let Some((_, doubts)) = all.find(|(known, _)| std::ptr::eq(*known, source)) {
                doubts.view = *view;
                doubts.any(*offset as usize, element);
            }
            if !args.decode {
                continue;
            }
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
    for (source, stream) in buffer.streams() {
        if args.sources.has(buffer, source)
            && let Some(doubts) = doubts.get_mut(source)
        {
            doubts.messages(&sources[source].protocol, stream);
        }
    }
    Ok(match args.decode {
        true => doubts,
        false => doubts.into_iter().map(Doubts::without_code).collect(),
    })
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
            ..
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
