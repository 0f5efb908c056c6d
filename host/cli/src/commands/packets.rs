//! `kymo packets`: the raw packets of Arm hardware trace, in the layout of OpenCSD's `trc_pkt_lister`.

use std::process::ExitCode;

use kymo_coresight::Source;
use kymo_coresight::doubts::Doubts;
use kymo_coresight::input::Buffer;
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::memory::Memory;
use kymo_coresight::selection::{Selection, Tracker};

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::json::{self, Named, Place};
use crate::hardware::part::{Addresses, CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs, Opened};

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
    /// Whether the options need the decoded instruction flow.
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
    let mut opened = hardware::open(input, binaries, &SymbolArgs::default(), args.follows())?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&mut opened);
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut findings = Findings::of(&opened, context);
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        if opened.buffers.len() > 1 && args.format.format == Format::Text {
            context.heading(format_args!("Buffer {}", buffer.name))?;
        }
        let chosen = (selection, &addresses);
        let doubts = list(args, (&opened, buffer), chosen, &mut programs, context)?;
        for (source, doubts) in doubts.iter().enumerate() {
            findings.add(doubts, &opened, (number, source), context);
        }
    }
    if !context.has_output() {
        args.part
            .remark_nothing(&opened, Some(&args.code), context)?;
    }
    findings.verdict()
}

/// State of the listing for one source of a buffer.
struct Cursor<'a> {
    source: &'a Source,
    tracker: Tracker<'a>,
    doubts: Doubts,
    /// Text of the last packet and its elements, kept until the elements show whether its thread, time and code are
    /// selected.
    packet: Vec<u8>,
    /// Whether one of its elements is at selected addresses.
    is_there: bool,
}

impl Cursor<'_> {
    /// Lists the pending packet if it is selected, and clears it.
    fn flush(&mut self, text: &mut Vec<u8>) {
        if self.tracker.is_selected() && self.is_there {
            text.extend_from_slice(&self.packet);
        }
        self.packet.clear();
    }
}

/// Lists a buffer; returns the doubts of each of its sources.
fn list(
    args: &Args,
    (opened, buffer): (&Opened, &Buffer),
    (selection, addresses): (&Selection, &Addresses),
    programs: &mut Programs,
    context: &mut Context,
) -> Result<Vec<Doubts>, Report> {
    let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
    let nothing = Memory::default();
    let mut cursors: Vec<Cursor<'_>> = sources
        .iter()
        .enumerate()
        .map(|(index, source)| Cursor {
            source,
            tracker: Tracker::new(&source.protocol, buffer, selection, index),
            doubts: Doubts::default(),
            packet: Vec::new(),
            is_there: addresses.is_all(),
        })
        .collect();
    let mut listing = if args.follows() {
        let options = args.hardware.decode.options();
        Listing::decoding(sources, streams, &buffer.code, options)
    } else {
        Listing::checking(sources, streams, &nothing)
    };
    // Packets are delayed only if threads, times or code are selected. Otherwise the packets of several sources keep
    // their order.
    let waits = *selection != Selection::default() || !addresses.is_all();
    let mut text = Vec::with_capacity(FLUSH_AT + 1024);
    let mut scratch = String::new();
    while let Some(line) = listing.next() {
        let unknown = listing.unknown_targets();
        let source = line.source();
        let offset = match &line {
            Line::Packet(entry) => entry.offset,
            Line::Element { offset, .. } => *offset,
        };
        let mut all = cursors.iter_mut().zip(&buffer.code);
        let found = all.find(|(cursor, _)| std::ptr::eq(cursor.source, source));
        let Some((cursor, code)) = found.filter(|_| args.part.sources.has_source(source)) else {
            continue;
        };
        if cursor.tracker.is_selected() {
            cursor.doubts.address_unknown += unknown;
        }
        if let Line::Element {
            at, element, view, ..
        } = &line
        {
            cursor.tracker.take(*at, element);
            if source.protocol.traces_instructions() {
                cursor.doubts.view = *view;
                cursor.doubts.any(offset as usize, element);
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
            let place = Place {
                buffer: &buffer.name,
                source,
                offset,
            };
            let mut write = |line: &Line<'_>| {
                match (args.format.format, line) {
                    (Format::Text, _) => {
                        scratch.clear();
                        // Writing into a String cannot fail.
                        let _ = line.write(&mut scratch);
                        out.extend_from_slice(scratch.as_bytes());
                    }
                    (Format::Json, Line::Packet(entry)) => {
                        json::packet(place, entry, &mut scratch, out);
                    }
                    (Format::Json, Line::Element { element, view, .. }) => {
                        let named = Named::of(programs, code.seen(*view), element);
                        let named = named.as_ref();
                        json::element(place, opened, &cursor.tracker, named, element, out);
                    }
                }
                out.push(b'\n');
            };
            match line {
                Line::Packet(_) => write(&line),
                Line::Element {
                    at, element, view, ..
                } => {
                    addresses.each_part(code.seen(view), &element, |element| {
                        write(&Line::Element {
                            source,
                            offset,
                            at,
                            element: *element,
                            view,
                        });
                    });
                }
            }
        }
        if text.len() >= FLUSH_AT {
            context.out().0.write_all(&text)?;
            text.clear();
        }
    }
    cursors
        .iter_mut()
        .for_each(|cursor| cursor.flush(&mut text));
    context.out().0.write_all(&text)?;
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

/// Bytes of text collected before they are written.
const FLUSH_AT: usize = 1 << 16;
