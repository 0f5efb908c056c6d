//! `kymo ranges`: what Arm hardware trace says that each processor did, in the layout of OpenCSD's `trc_pkt_lister`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::rc::Rc;

use kymo_coresight::Source;
use kymo_coresight::doubts::Doubts;
use kymo_coresight::element::{ConditionalResult, Element, ItmMessage, Software, Transaction};
use kymo_coresight::input::Buffer;
use kymo_coresight::instruction::{Class, Purpose};
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::selection::{Selection, Tracker};
use kymo_export::json::Object;

use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::part::{Addresses, CodeArgs, PartArgs};
use crate::hardware::program::{Program, Programs};
use crate::hardware::{self, HardwareArgs};

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

/// How much text is collected before it is written.
const FLUSH_AT: usize = 1 << 16;

/// Lists the elements of all buffers of an input.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input, binaries, ..
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &[], true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&opened, Default::default());
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut findings = Findings::of(&opened, context);
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        if opened.buffers.len() > 1 && args.format.format == Format::Text {
            writeln!(context.out().0, "Buffer {}", buffer.name)?;
        }
        let doubts = list(
            args,
            buffer,
            (selection, &addresses),
            &mut programs,
            context,
        )?;
        for (source, doubts) in doubts.iter().enumerate() {
            findings.add(doubts, &opened, (number, source), context);
        }
    }
    if !context.has_output() {
        args.part.warn_if_nothing(Some(&args.code), context);
    }
    findings.verdict()
}

/// A source of the buffer, as it is followed.
struct Cursor<'a> {
    source: &'a Source,
    tracker: Tracker<'a>,
    doubts: Doubts,
}

/// Lists a buffer. With the doubts of each of its sources.
fn list(
    args: &Args,
    buffer: &Buffer,
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
            tracker: Tracker::new(&source.protocol, buffer.thread, selection, index),
            doubts: Doubts::default(),
        })
        .collect();
    let mut text = Vec::with_capacity(FLUSH_AT + 1024);
    let mut line = String::new();
    for entry in Listing::decoding(sources, streams, &buffer.code, options) {
        let Line::Element {
            source,
            offset,
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
        cursor.tracker.take(&element);
        if !args.part.sources.has_source(source) || !cursor.tracker.is_selected() {
            continue;
        }
        // Elements of a listing are at offsets of the buffer already.
        if source.protocol.traces_instructions() {
            cursor.doubts.any(offset as usize, &element);
        }
        if !addresses.has_element(code.seen(view), &element) {
            continue;
        }
        match args.format.format {
            Format::Text => {
                line.clear();
                // Writing into a String cannot fail.
                let _ = entry.write(&mut line);
                let _ = writeln!(line);
                text.extend_from_slice(line.as_bytes());
            }
            Format::Json => {
                let place = address_of(&element)
                    .and_then(|address| Some((address, programs.place(code.seen(view), address)?)));
                let place = place.map(|(address, place)| Named {
                    function: programs
                        .function(Some(&place), address)
                        .map(|within| within.function),
                    file: Rc::clone(&place.program),
                });
                write_json(
                    cursor,
                    &buffer.name,
                    place.as_ref(),
                    (offset, &element),
                    &mut text,
                );
                text.push(b'\n');
            }
        }
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

/// Where an element is.
struct Named {
    function: Option<Rc<str>>,
    file: Rc<Program>,
}

/// Where an element begins.
fn address_of(element: &Element) -> Option<u64> {
    match *element {
        Element::Range(range) => Some(range.start),
        Element::RangeWithoutPath { start, .. } => Some(start),
        Element::Exception { return_address, .. } => return_address,
        _ => None,
    }
}

fn write_json(
    cursor: &Cursor<'_>,
    buffer: &str,
    place: Option<&Named>,
    (offset, element): (u64, &Element),
    out: &mut Vec<u8>,
) {
    let hex = |address: u64| format!("{address:#x}");
    let mut object = Object::begin(out);
    object
        .member("type", name(element))
        .member("buffer", buffer)
        .member("offset", offset)
        .member("trace_id", u64::from(cursor.source.id.0))
        .member("cpu", cursor.source.cpu.map(u64::from))
        .member("thread", cursor.tracker.thread().map(u64::from))
        .member("timestamp", cursor.tracker.time());
    match *element {
        Element::NoSync(why) | Element::End(why) => {
            object.member("why", why.name());
        }
        Element::TraceOn { cycles, .. } => {
            object.member("cycles", cycles.map(u64::from));
        }
        Element::Context(context) => {
            object
                .member("isa", context.isa.short_name())
                .member("exception_level", context.level.map(u64::from))
                .member("security", format!("{:?}", context.security).as_str())
                .member("vmid", context.vmid.map(u64::from))
                .member("context_id", context.context_id.map(u64::from))
                .member("cycles", context.cycles.map(u64::from));
        }
        Element::Range(range) => {
            object
                .member("start", range.start)
                .member("start_hex", hex(range.start).as_str())
                .member("end", range.end)
                .member("end_hex", hex(range.end).as_str())
                .member("instructions", u64::from(range.count))
                .member("isa", range.isa.short_name())
                .member("last", class(range.last.class))
                .member("last_size", u64::from(range.last.size))
                .member("purpose", purpose(range.last.purpose))
                .member("conditional", range.last.is_conditional)
                .member("taken", range.is_taken)
                .member("cycles", range.cycles.map(u64::from));
        }
        Element::RangeWithoutPath { start, next, count } => {
            object
                .member("start", start)
                .member("start_hex", hex(start).as_str())
                .member("next", next)
                .member("next_hex", hex(next).as_str())
                .member("instructions", u64::from(count));
        }
        Element::NotAccessible { address, space } => {
            object
                .member("address", address)
                .member("address_hex", hex(address).as_str())
                .member("space", space.name());
        }
        Element::Exception {
            number,
            return_address,
            ..
        } => {
            object
                .member("number", u64::from(number))
                .member("return_address", return_address)
                .member("return_address_hex", return_address.map(hex).as_deref());
        }
        Element::Timestamp { value, cycles } => {
            object
                .member("value", value)
                .member("cycles", cycles.map(u64::from));
        }
        Element::Cycles(cycles) => {
            object.member("cycles", u64::from(cycles));
        }
        Element::Event(number) => {
            object.member("number", number.map(u64::from));
        }
        Element::Transaction(turn) => {
            let turn = match turn {
                Transaction::Init => "init",
                Transaction::Start => "start",
                Transaction::Commit => "commit",
                Transaction::Fail => "fail",
            };
            object.member("turn", turn);
        }
        Element::Instrumentation { level, value } => {
            object
                .member("exception_level", u64::from(level))
                .member("value", value);
        }
        Element::Conditional { key } => {
            object.member("key", u64::from(key));
        }
        Element::ConditionalResult { key, result } => {
            object.member("key", u64::from(key));
            match result {
                ConditionalResult::Failed => object.member("passed", false),
                ConditionalResult::Passed => object.member("passed", true),
                ConditionalResult::Unknown => &mut object,
                ConditionalResult::Flags(flags) => object.member("nzcv", u64::from(flags)),
            };
        }
        Element::Data { address, value } => {
            object
                .member("address", address.map(u64::from))
                .member("value", value.map(u64::from));
        }
        Element::Software(software) => message(&software, &mut object),
        Element::AddressUnknown
        | Element::ExceptionReturn
        | Element::TimestampMarker
        | Element::ConditionalFlush
        | Element::StoreFailed
        | Element::DataSuppressed => {}
    }
    if let Some(place) = place {
        object
            .member("file", place.file.path.as_str())
            .member("function", place.function.as_deref());
    }
    object.end();
}

/// The members of a message of an STM or ITM.
fn message(software: &Software, object: &mut Object<'_>) {
    match *software {
        Software::Stm(message) => {
            object
                .member(
                    "kind",
                    format!("{:?}", message.kind).to_lowercase().as_str(),
                )
                .member("master", message.place.map(|(master, _)| u64::from(master)))
                .member(
                    "channel",
                    message.place.map(|(_, channel)| u64::from(channel)),
                )
                .member("value", (message.bits > 0).then_some(message.value))
                .member("bits", u64::from(message.bits))
                .member("marker", message.is_marker)
                .member("message_timestamp", message.timestamp);
        }
        Software::Itm {
            message,
            overflowed,
        } => {
            object.member("overflowed", overflowed);
            match message {
                ItmMessage::Software { port, value, bytes } => object
                    .member("kind", "software")
                    .member("port", u64::from(port))
                    .member("value", u64::from(value))
                    .member("bits", 8 * u64::from(bytes)),
                ItmMessage::Hardware {
                    discriminator,
                    value,
                    bytes,
                } => object
                    .member("kind", "hardware")
                    .member("discriminator", u64::from(discriminator))
                    .member("value", u64::from(value))
                    .member("bits", 8 * u64::from(bytes)),
                ItmMessage::LocalTimestamp {
                    ticks,
                    delay,
                    total,
                } => object
                    .member("kind", "local_timestamp")
                    .member("ticks", u64::from(ticks))
                    .member("delay", u64::from(delay))
                    .member("message_timestamp", total),
                ItmMessage::GlobalTimestamp(value) => object
                    .member("kind", "global_timestamp")
                    .member("message_timestamp", value),
            };
        }
    }
}

fn name(element: &Element) -> &'static str {
    match element {
        Element::NoSync(_) => "no_sync",
        Element::End(_) => "end",
        Element::TraceOn { .. } => "trace_on",
        Element::Context(_) => "context",
        Element::Range(_) => "range",
        Element::RangeWithoutPath { .. } => "range_without_path",
        Element::NotAccessible { .. } => "not_accessible",
        Element::AddressUnknown => "address_unknown",
        Element::Exception { .. } => "exception",
        Element::ExceptionReturn => "exception_return",
        Element::Timestamp { .. } => "timestamp",
        Element::Cycles(_) => "cycles",
        Element::Event(_) => "event",
        Element::TimestampMarker => "timestamp_marker",
        Element::Transaction(_) => "transaction",
        Element::Instrumentation { .. } => "instrumentation",
        Element::Conditional { .. } => "conditional",
        Element::ConditionalResult { .. } => "conditional_result",
        Element::ConditionalFlush => "conditional_flush",
        Element::Data { .. } => "data",
        Element::StoreFailed => "store_failed",
        Element::DataSuppressed => "data_suppressed",
        Element::Software(Software::Stm(_)) => "stm",
        Element::Software(Software::Itm { .. }) => "itm",
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Other => "other",
        Class::Branch => "branch",
        Class::Indirect => "indirect_branch",
        Class::Isb => "isb",
        Class::Barrier => "barrier",
        Class::Wait => "wait",
        Class::TransactionStart => "transaction_start",
    }
}

fn purpose(purpose: Purpose) -> Option<&'static str> {
    match purpose {
        Purpose::None | Purpose::Compare => None,
        Purpose::Call => Some("call"),
        Purpose::Return | Purpose::ImpliedReturn => Some("return"),
        Purpose::ExceptionReturn => Some("exception_return"),
    }
}
