//! `kymo disasm`: disassembly of every executed instruction in Arm hardware trace, with function and source line.
//!
//! The lines of a block are formatted once and copied for each of its executions.

mod block;

use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use kymo_coresight::Source;
use kymo_coresight::doubts::Doubts;
use kymo_coresight::element::{Element, Range};
use kymo_coresight::flow::Sink;
use kymo_coresight::frames::{Offsets, Stream};
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::memory::{Memory, View};
use kymo_coresight::selection::{Selection, Tracker};

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::counting::steps;
use crate::hardware::findings::Findings;
use crate::hardware::json::{self, Named, Place, Prefix};
use crate::hardware::part::{CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs, Opened};
use crate::render::escape::escaped;
use block::{Block, Writer};

/// The options of `kymo disasm`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo disasm --symfs root/ perf.data        every instruction, with the binaries below root/
  kymo disasm --thread fib --function main perf.data    what a thread ran of one function
  kymo disasm --address 0x1000..0x1040 snapshot/        what ran at these addresses
  kymo disasm --no-source perf.data          without files and lines
  kymo disasm --format json perf.data | jq .text    one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    hardware: HardwareArgs,

    /// Leave out files and lines of the source.
    #[arg(long)]
    no_source: bool,

    /// Only instructions with these numbers: START..END, as `kymo calls` counts them in a trace without times, from 0 on and
    /// source after source.
    #[arg(long, value_name = "NUMBERS", value_parser = numbers, help_heading = "Which part of the trace")]
    instructions: Option<std::ops::Range<u64>>,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    code: CodeArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// Parses a range of numbers, `START..END`.
fn numbers(text: &str) -> Result<std::ops::Range<u64>, String> {
    let ends = text.split_once("..");
    let ends = ends.and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
    match ends {
        Some((start, end)) if start < end => Ok(start..end),
        _ => Err("expected START..END, two numbers, the first one smaller".to_owned()),
    }
}

/// Bytes of text collected before they are written.
const FLUSH_AT: usize = 1 << 16;

/// Bytes of cached text above which the cache of blocks is cleared.
const CACHE: usize = 256 << 20;

/// Lists the instructions of all buffers of an input, source by source.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input: path,
        binaries,
        ..
    } = &args.hardware;
    let mut opened = hardware::open(path, binaries, &args.symbols, true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&mut opened);
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut writer = Writer::new(programs, addresses, args.format.format, !args.no_source);
    let mut findings = Findings::of(&opened, context);
    let mut seen = 0;
    // Grouped as for events: the streams of one source in several buffers form one trace.
    for part in input::traces(&opened.buffers).into_iter().flatten() {
        let (number, source) = (part.buffer, part.source);
        let (Some(buffer), Some(selection)) = (opened.buffers.get(number), selections.get(number))
        else {
            continue;
        };
        let stream = buffer.frames.streams.get(part.stream);
        let stream = stream.filter(|_| args.part.sources.has(buffer, source));
        let Some(stream) = stream else {
            continue;
        };
        let (doubts, now) = list(
            args,
            &opened,
            (buffer, source, stream),
            (selection, seen),
            &mut writer,
            context,
        )?;
        seen = now;
        findings.add(&doubts, &opened, (number, source), context);
    }
    if !context.has_output() {
        args.part
            .remark_nothing(&opened, Some(&args.code), context)?;
    }
    findings.verdict()
}

/// Lists a stream. `seen` is the number of instructions before it; returns the doubts and the number after it.
fn list(
    args: &Args,
    opened: &Opened,
    (buffer, source, stream): (&Buffer, usize, &Stream<'_>),
    (selection, seen): (&Selection, u64),
    writer: &mut Writer,
    context: &mut Context,
) -> Result<(Doubts, u64), Report> {
    let (Some(traced), Some(code)) = (buffer.sources.get(source), buffer.code.get(source)) else {
        return Ok((Doubts::default(), seen));
    };
    let mut printer = Printer {
        opened,
        buffer,
        code,
        view: View::default(),
        source: traced,
        tracker: Tracker::new(&traced.protocol, buffer, selection, source),
        offsets: stream.offsets(),
        writer,
        blocks: Vec::new(),
        kept: 0,
        is_json: args.format.format == Format::Json,
        heading: None,
        prefix: Prefix::default(),
        text: Vec::with_capacity(FLUSH_AT + 4096),
        doubts: Doubts::default(),
        seen,
        chosen: args.instructions.clone(),
        out: context,
        failure: None,
    };
    printer.other_thread();
    let options = args.hardware.decode.options();
    hardware::follow(buffer, source, stream, options, &mut printer, |printer| {
        printer.failure.is_some()
    });
    printer.flush();
    let (mut doubts, failure, seen) = (printer.doubts, printer.failure, printer.seen);
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    doubts.locate(stream);
    doubts.messages(&traced.protocol, stream);
    Ok((doubts, seen))
}

/// Prints the instructions of one stream in the order of their execution.
struct Printer<'a> {
    opened: &'a Opened,
    buffer: &'a Buffer,
    code: &'a Memory,
    view: View,
    source: &'a Source,
    tracker: Tracker<'a>,
    offsets: Offsets<'a>,
    writer: &'a mut Writer,
    /// Cached blocks, indexed by block number.
    blocks: Vec<Option<Rc<Block>>>,
    /// Bytes of their text.
    kept: usize,
    is_json: bool,
    /// The file of the last heading; `None` before the first of a thread.
    heading: Option<Rc<str>>,
    /// Members at the begin of each line of JSON.
    prefix: Prefix,
    text: Vec<u8>,
    doubts: Doubts,
    /// Number of instructions so far, from 0 at the first source.
    seen: u64,
    /// Numbers of the instructions to list; `None` lists all.
    chosen: Option<std::ops::Range<u64>>,
    out: &'a mut Context,
    failure: Option<std::io::Error>,
}

impl Sink for Printer<'_> {
    fn unknown_target(&mut self, at: usize) {
        self.element(at, Element::AddressUnknown);
    }

    #[inline]
    fn element(&mut self, at: usize, element: Element) {
        if let Element::Range(range) = &element {
            let first = self.seen;
            self.seen += u64::from(range.count);
            if self.tracker.execute(range.count) {
                self.doubts.range(at, range);
                let mut part = self.tracker.part_of(range.count);
                if let Some(chosen) = &self.chosen {
                    part.start = part.start.max(chosen.start.saturating_sub(first));
                    part.end = part.end.min(chosen.end.saturating_sub(first));
                }
                self.some_of(at, range, &part);
            }
            return;
        }
        if let Element::RangeWithoutPath { count, .. } = &element {
            self.seen += u64::from(*count);
        }
        let is_time = self.is_json && matches!(element, Element::Timestamp { .. });
        if self.tracker.take(at, &element) {
            self.other_thread();
        } else if is_time {
            self.begin_lines();
        }
        if self.tracker.is_selected() {
            self.doubts.element(at, &element);
            if self
                .chosen
                .as_ref()
                .is_none_or(|it| it.contains(&self.seen))
            {
                self.gap(at, &element);
            }
        }
    }

    fn memory(&mut self, view: View) {
        self.view = view;
        self.doubts.view = view;
    }
}

impl Printer<'_> {
    /// Prints the instructions of a range whose index in it is within `chosen`.
    fn some_of(&mut self, at: usize, range: &Range, chosen: &std::ops::Range<u64>) {
        if *chosen == (0..u64::from(range.count)) {
            return self.range(at, range);
        }
        if chosen.is_empty() {
            return;
        }
        let code = self.code.seen(self.view);
        let steps = steps(code, range.isa, range.start, range.end);
        let numbered: Vec<_> = (0..).zip(steps).collect();
        let inside = numbered
            .iter()
            .filter(|(number, _)| chosen.contains(number));
        let Some((_, start)) = inside.clone().next() else {
            return;
        };
        let behind = numbered.iter().find(|(number, _)| *number >= chosen.end);
        let part = Range {
            start: *start,
            end: behind.map_or(range.end, |(_, address)| *address),
            block: None,
            ..*range
        };
        self.range(at, &part);
    }

    fn range(&mut self, at: usize, range: &Range) {
        let Some(id) = range.block else {
            let block = self.writer.block(self.code.seen(self.view), range);
            self.print(at, &block);
            return;
        };
        let id = id as usize;
        if id >= self.blocks.len() {
            self.blocks.resize(id + 1, None);
        }
        let block = match &self.blocks[id] {
            Some(block) => Rc::clone(block),
            None => {
                let block = Rc::new(self.writer.block(self.code.seen(self.view), range));
                if self.kept > CACHE {
                    self.blocks.iter_mut().for_each(|block| *block = None);
                    self.kept = 0;
                }
                self.kept += block.text.len();
                self.blocks[id] = Some(Rc::clone(&block));
                block
            }
        };
        self.print(at, &block);
    }

    #[inline]
    fn print(&mut self, at: usize, block: &Block) {
        if block.text.is_empty() {
            return;
        }
        if self.is_json {
            let prefix = self.prefix.at(self.offsets.of(at));
            for line in block.text.split_inclusive(|byte| *byte == b'\n') {
                self.text.extend_from_slice(prefix);
                self.text.extend_from_slice(line);
            }
        } else {
            let is_same = |heading: &Rc<str>| Rc::ptr_eq(heading, &block.file);
            if !self.heading.as_ref().is_some_and(is_same) {
                self.head(&block.file);
            }
            self.text.extend_from_slice(&block.text);
        }
        if self.text.len() >= FLUSH_AT {
            self.flush();
        }
    }

    /// Starts a new heading after a switch of threads.
    fn other_thread(&mut self) {
        self.heading = None;
        self.begin_lines();
    }

    /// Updates the members at the begin of each line of JSON.
    fn begin_lines(&mut self) {
        if self.is_json {
            let place = Place {
                buffer: &self.buffer.name,
                source: self.source,
                offset: 0,
            };
            self.prefix.set(place, self.opened, &self.tracker);
        }
    }

    /// Writes a heading with the file, CPU and thread of the lines below it.
    fn head(&mut self, file: &Rc<str>) {
        let thread = self.opened.thread_label(self.tracker.thread());
        let cpu = match self.source.cpu {
            Some(cpu) => format!("cpu {cpu}"),
            None => escaped(&self.source.name).into_owned(),
        };
        let short = Path::new(&**file).file_name();
        let name = if short.is_some() {
            escaped(file)
        } else {
            "no file".into()
        };
        let line = format!("{name}  {cpu}  {thread}:\n");
        self.text.extend_from_slice(line.as_bytes());
        self.heading = Some(Rc::clone(file));
    }

    /// Writes an element that interrupts the flow of instructions, such as an exception or a loss of synchronization.
    fn gap(&mut self, at: usize, element: &Element) {
        let (address, what) = match element {
            Element::NoSync(why) => (None, format!("not synchronized: {}", why.name())),
            Element::TraceOn { .. } => (None, "tracing begins".to_owned()),
            Element::NotAccessible { address, .. } => {
                (Some(*address), "no image has the code".to_owned())
            }
            Element::AddressUnknown => (None, "the address is not known".to_owned()),
            Element::RangeWithoutPath { start, count, .. } => (
                Some(*start),
                format!("{count} instructions on an unknown path"),
            ),
            Element::Exception {
                number,
                return_address,
                ..
            } => (*return_address, format!("exception {number:#x}")),
            Element::ExceptionReturn => (None, "return from exception".to_owned()),
            _ => return,
        };
        if !self.writer.is_everything() {
            return;
        }
        let offset = self.offsets.of(at);
        if self.is_json {
            let place = Place {
                buffer: &self.buffer.name,
                source: self.source,
                offset,
            };
            let code = self.code.seen(self.view);
            let named = Named::of(self.writer.programs(), code, element);
            let (opened, tracker) = (self.opened, &self.tracker);
            json::element(
                place,
                opened,
                tracker,
                named.as_ref(),
                element,
                &mut self.text,
            );
            self.text.push(b'\n');
        } else {
            let address = address.map_or(String::new(), |address| format!(" at {address:#x}"));
            let buffer = escaped(&self.buffer.name);
            let line = format!("    -- {what}{address} ({buffer}, offset {offset})\n");
            self.text.extend_from_slice(line.as_bytes());
        }
    }

    fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.out.out().0.write_all(&self.text)
        {
            self.failure = Some(error);
        }
        self.text.clear();
    }
}
