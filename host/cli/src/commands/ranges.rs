//! `kymo ranges`: the decoded elements of Arm hardware trace (instruction ranges, exceptions, contexts, timestamps), in
//! the layout of OpenCSD's `trc_pkt_lister`.

use std::fmt::Write as _;
use std::process::ExitCode;

use kymo_coresight::Source;
use kymo_coresight::doubts::Doubts;
use kymo_coresight::input::Buffer;
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::selection::{Selection, Tracker};

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::json::{self, Named, Place};
use crate::hardware::part::{Addresses, CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs, Opened};

/// The options of `kymo ranges`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo ranges snapshot/                       ranges of instructions, exceptions, contexts and times
  kymo ranges --symfs root/ perf.data         with the binaries below root/
  kymo ranges --cpu 1 --function main perf.data    those of one processor that are in main
  kymo ranges --format json perf.data | jq .start  one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    hardware: HardwareArgs,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    code: CodeArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// Bytes of text collected before they are written.
const FLUSH_AT: usize = 1 << 16;

/// Lists the elements of all buffers of an input.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input, binaries, ..
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &SymbolArgs::default(), true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&mut opened);
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut findings = Findings::of(&opened, context);
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        if opened.buffers.len() > 1 && args.format.format == Format::Text {
            context.heading(format_args!("Buffer {}", buffer.name))?;
        }
        let doubts = list(
            args,
            (&opened, buffer),
            (selection, &addresses),
            &mut programs,
            context,
        )?;
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
}

/// Lists a buffer; returns the doubts of each of its sources.
fn list(
    args: &Args,
    (opened, buffer): (&Opened, &Buffer),
    chosen: (&Selection, &Addresses),
    programs: &mut Programs,
    context: &mut Context,
) -> Result<Vec<Doubts>, Report> {
    let (selection, addresses) = chosen;
    let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
    let options = args.hardware.decode.options();
    let mut cursors: Vec<Cursor<'_>> = sources
        .iter()
        .enumerate()
        .map(|(index, source)| Cursor {
            source,
            tracker: Tracker::new(&source.protocol, buffer, selection, index),
            doubts: Doubts::default(),
        })
        .collect();
    let mut text = Vec::with_capacity(FLUSH_AT + 1024);
    let mut line = String::new();
    let mut listing = Listing::decoding(sources, streams, &buffer.code, options);
    while let Some(entry) = listing.next() {
        let unknown = listing.unknown_targets();
        if unknown > 0
            && let Some(cursor) = cursors
                .iter_mut()
                .find(|cursor| std::ptr::eq(cursor.source, entry.source()))
            && args.part.sources.has_source(cursor.source)
            && cursor.tracker.is_selected()
        {
            cursor.doubts.address_unknown += unknown;
        }
        let Line::Element {
            source,
            offset,
            at,
            element,
            view,
        } = entry
        else {
            continue;
        };
        let Some((cursor, code)) = cursors
            .iter_mut()
            .zip(&buffer.code)
            .find(|(cursor, _)| std::ptr::eq(cursor.source, source))
        else {
            continue;
        };
        cursor.doubts.view = view;
        cursor.tracker.take(at, &element);
        if !args.part.sources.has_source(source) || !cursor.tracker.is_selected() {
            continue;
        }
        // Elements of a listing already have offsets in the buffer, so none is translated.
        if source.protocol.traces_instructions() {
            cursor.doubts.any(offset as usize, &element);
        }
        if !addresses.has_element(code.seen(view), &element) {
            continue;
        }
        addresses.each_part(code.seen(view), &element, |element| {
            match args.format.format {
                Format::Text => {
                    line.clear();
                    let entry = Line::Element {
                        source,
                        offset,
                        at,
                        element: *element,
                        view,
                    };
                    // Writing into a String cannot fail.
                    let _ = entry.write(&mut line);
                    let _ = writeln!(line);
                    text.extend_from_slice(line.as_bytes());
                }
                Format::Json => {
                    let named = Named::of(programs, code.seen(view), element);
                    let place = Place {
                        buffer: &buffer.name,
                        source,
                        offset,
                    };
                    json::element(
                        place,
                        opened,
                        &cursor.tracker,
                        named.as_ref(),
                        element,
                        &mut text,
                    );
                    text.push(b'\n');
                }
            }
        });
        if text.len() >= FLUSH_AT {
            context.out().0.write_all(&text)?;
            text.clear();
        }
    }
    context.out().0.write_all(&text)?;
    let mut doubts: Vec<_> = cursors.into_iter().map(|cursor| cursor.doubts).collect();
    for (source, stream) in buffer.streams() {
        if args.part.sources.has(buffer, source)
            && let Some(doubts) = doubts.get_mut(source)
        {
            doubts.messages(&sources[source].protocol, stream);
        }
    }
    Ok(doubts)
}
