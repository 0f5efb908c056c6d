//! `kymo packets`: the raw packets of Arm hardware trace, in the layout of OpenCSD's `trc_pkt_lister`.

use std::process::ExitCode;

use kymo_coresight::Source;
use kymo_coresight::doubts::Doubts;
use kymo_coresight::input::Buffer;
use kymo_coresight::listing::{Line, Listing, Value};
use kymo_coresight::memory::Memory;
use kymo_coresight::selection::{Selection, Tracker};

use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::part::{Addresses, CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs};

/// The options of `kymo packets`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo packets snapshot/                     every packet, with offset, trace ID, bytes and meaning
  kymo packets --id 10 snapshot/             those of one source
  kymo packets --decode snapshot/            with the instruction ranges, exceptions and times in them
  kymo packets --buffer ETB_1 snapshot/      those of one buffer
  kymo packets --function main snapshot/     those that lead to instructions of a function
  kymo packets --thread fib --begin 1000 perf.data    those of a thread, from a timestamp on
  kymo packets --format json snapshot/ | jq .name    one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    hardware: HardwareArgs,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    code: CodeArgs,

    /// Follow the instructions too: list the elements that each packet gives, behind it.
    #[arg(long)]
    decode: bool,

    #[command(flatten)]
    format: FormatArgs,
}

impl Args {
    /// Whether instructions are followed.
    fn follows(&self) -> bool {
        self.decode || self.code.any() || self.part.has_times()
    }
}

/// Lists the packets of all buffers of an input.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input, binaries, ..
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &[], args.follows())?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&opened, Default::default());
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut findings = Findings::of(&opened, context);
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        if opened.buffers.len() > 1 && args.format.format == Format::Text {
            writeln!(context.out().0, "Buffer {}", buffer.name)?;
        }
        let doubts = list(args, buffer, selection, &addresses, context)?;
        for (source, doubts) in doubts.iter().enumerate() {
            findings.add(doubts, &opened, (number, source), context);
        }
    }
    if !context.has_output() {
        args.part.warn_if_nothing(Some(&args.code), context);
    }
    findings.verdict()
}

/// A source of a buffer, as its packets are listed.
struct Cursor<'a> {
    source: &'a Source,
    tracker: Tracker<'a>,
    doubts: Doubts,
    /// The last packet and its elements, until these say whether it is of a thread, time and code that are chosen.
    packet: String,
    /// Whether one of its elements is at addresses that are chosen.
    is_there: bool,
}

impl Cursor<'_> {
    /// Lists the packet that waits.
    fn flush(&mut self, text: &mut String) {
        if self.tracker.is_selected() && self.is_there {
            text.push_str(&self.packet);
        }
        self.packet.clear();
    }
}

/// Lists a buffer. With the doubts of each of its sources.
fn list(
    args: &Args,
    buffer: &Buffer,
    selection: &Selection,
    addresses: &Addresses,
    context: &mut Context,
) -> Result<Vec<Doubts>, Report> {
    let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
    let nothing = Memory::default();
    let mut cursors: Vec<Cursor<'_>> = sources
        .iter()
        .enumerate()
        .map(|(index, source)| Cursor {
            source,
            tracker: Tracker::new(&source.protocol, buffer.thread, selection, index),
            doubts: Doubts::default(),
            packet: String::new(),
            is_there: addresses.is_all(),
        })
        .collect();
    let listing = if args.follows() {
        let options = args.hardware.decode.options();
        Listing::decoding(sources, streams, &buffer.code, options)
    } else {
        Listing::checking(sources, streams, &nothing)
    };
    // With all threads, times and code, no packet has to wait, and those of several sources stay in their order.
    let waits = *selection != Selection::default() || !addresses.is_all();
    let name = json_text(&buffer.name);
    let mut text = String::with_capacity(FLUSH_AT + 1024);
    for line in listing {
        let source = match line {
            Line::Packet(entry) => entry.source,
            Line::Element { source, .. } => source,
        };
        let mut all = cursors.iter_mut().zip(&buffer.code);
        let found = all.find(|(cursor, _)| std::ptr::eq(cursor.source, source));
        let Some((cursor, code)) = found.filter(|_| args.part.sources.has_source(source)) else {
            continue;
        };
        if let Line::Element {
            offset,
            element,
            view,
            ..
        } = &line
        {
            cursor.tracker.take(element);
            if source.protocol.traces_instructions() {
                cursor.doubts.view = *view;
                cursor.doubts.any(*offset as usize, element);
            }
            let is_there = addresses.has_element(code.seen(*view), element);
            cursor.is_there |= is_there;
            if !args.decode || !is_there {
                continue;
            }
        }
        let is_packet = matches!(line, Line::Packet(_));
        if is_packet || addresses.is_all() {
            cursor.flush(&mut text);
        }
        if is_packet {
            cursor.is_there = addresses.is_all();
        }
        let out = match waits && (is_packet || !addresses.is_all()) {
            true => &mut cursor.packet,
            false => &mut text,
        };
        if is_packet || cursor.tracker.is_selected() {
            // Writing into a String cannot fail.
            let _ = match args.format.format {
                Format::Text => line.write(out),
                Format::Json => write_json(&line, &name, out),
            };
            out.push('\n');
        }
        if text.len() >= FLUSH_AT {
            context.out().0.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    cursors
        .iter_mut()
        .for_each(|cursor| cursor.flush(&mut text));
    context.out().0.write_all(text.as_bytes())?;
    let mut doubts: Vec<_> = cursors.into_iter().map(|cursor| cursor.doubts).collect();
    for (source, stream) in buffer.streams() {
        if args.part.sources.has(buffer, source)
            && let Some(doubts) = doubts.get_mut(source)
        {
            doubts.messages(&sources[source].protocol, stream);
        }
    }
    Ok(match args.follows() {
        true => doubts,
        false => doubts.into_iter().map(Doubts::without_code).collect(),
    })
}

/// How much text is collected before it is written.
const FLUSH_AT: usize = 1 << 16;

/// A text as JSON, with its quotes.
fn json_text(text: &str) -> String {
    let mut out = Vec::new();
    kymo_export::json::Json::write(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn write_json(line: &Line<'_>, buffer: &str, out: &mut String) -> std::fmt::Result {
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
                "{{\"type\":\"packet\",\"buffer\":{buffer},\"offset\":{offset},\"trace_id\":{id}"
            )?;
            write!(
                out,
                ",\"name\":\"{name}\",\"text\":\"{meaning}\",\"bytes\":\""
            )?;
            for byte in entry.bytes {
                write!(out, "{byte:02x}")?;
            }
            out.write_str("\",\"fields\":{")?;
            for (number, (name, value)) in entry.packet.values().iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                write!(out, "{comma}\"{name}\":")?;
                match value {
                    Value::Number(value) => write!(out, "{value}")?,
                    Value::Bits(value) => write!(out, "\"{value:#x}\"")?,
                    Value::Flag(value) => write!(out, "{value}")?,
                    Value::Atoms(atoms) => write!(out, "\"{atoms}\"")?,
                }
            }
            out.write_str("}}")
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
                "{{\"type\":\"element\",\"buffer\":{buffer},\"offset\":{offset},\"trace_id\":{}",
                source.id.0
            )?;
            write!(out, ",\"name\":\"{name}\",\"text\":\"{meaning}\"}}")
        }
    }
}
