//! `kymo branches`: the taken branches in Arm hardware trace, or every N-th instruction.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::rc::Rc;

use kymo_coresight::doubts::Doubts;
use kymo_coresight::element::{Element, Last, Range};
use kymo_coresight::exception::{ExceptionKind, Exceptions};
use kymo_coresight::flow::Sink;
use kymo_coresight::frames::Stream;
use kymo_coresight::input::Buffer;
use kymo_coresight::instruction::{self, Class, Purpose, Waypoints};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::{Memory, MemorySpace, Scene, View};
use kymo_coresight::selection::{Selection, Tracker};
use kymo_export::json::Object;

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::findings::Findings;
use crate::hardware::part::{Addresses, CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs, Opened};
use crate::render::escape::escape_from;

/// The options of `kymo branches`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo branches --symfs root/ perf.data          branches that were taken, with the binaries below root/
  kymo branches --function main perf.data        those from or to one function
  kymo branches --every 1000 perf.data           one instruction in a thousand, as a sampling profiler has them
  kymo branches --format json perf.data | jq .to    one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    hardware: HardwareArgs,

    /// List every N-th instruction in the place of branches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    code: CodeArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// The width of kinds: that of the longest, `trace end conditional`.
const KIND_WIDTH: usize = 21;

/// Size at which collected text is written.
const FLUSH_AT: usize = 1 << 16;

/// Maximum number of addresses cached as text.
const KNOWN: usize = 1 << 20;

/// Lists the branches of all buffers of an input, source by source.
///
/// # Errors
/// When the input can't be read, or has no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let HardwareArgs {
        input, binaries, ..
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &args.symbols, true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let selections = args.part.selection(&opened, args.hardware.decode)?;
    let mut programs = Programs::new(&mut opened);
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let mut findings = Findings::of(&opened, context);
    for (number, (buffer, selection)) in opened.buffers.iter().zip(&selections).enumerate() {
        for stream in &buffer.frames.streams {
            let source = buffer.source_of(stream);
            let Some(source) = source.filter(|source| args.part.sources.has(buffer, *source))
            else {
                continue;
            };
            let chosen = (selection, &addresses);
            let doubts = list(
                args,
                &opened,
                (buffer, source, stream),
                chosen,
                &mut programs,
                context,
            )?;
            findings.add(&doubts, &opened, (number, source), context);
        }
    }
    if !context.has_output() {
        args.part
            .remark_nothing(&opened, Some(&args.code), context)?;
    }
    findings.verdict()
}

fn list(
    args: &Args,
    opened: &Opened,
    (buffer, source, stream): (&Buffer, usize, &Stream<'_>),
    (selection, addresses): (&Selection, &Addresses),
    programs: &mut Programs,
    context: &mut Context,
) -> Result<Doubts, Report> {
    let (Some(traced), Some(code)) = (buffer.sources.get(source), buffer.code.get(source)) else {
        return Ok(Doubts::default());
    };
    let mut printer = Printer {
        every: args.every,
        until_next: args.every.unwrap_or_default(),
        opened,
        code,
        view: View::default(),
        cpu: traced.cpu,
        exceptions: Exceptions::of(&traced.protocol),
        tracker: Tracker::new(&traced.protocol, buffer, selection, source),
        addresses,
        programs,
        known: HashMap::new(),
        branch: Branch::Begin,
        last: None,
        is_json: args.format.format == Format::Json,
        prefix: String::new(),
        text: Vec::with_capacity(FLUSH_AT + 4096),
        doubts: Doubts::default(),
        out: context,
        failure: None,
    };
    printer.other_thread();
    let options = args.hardware.decode.options();
    hardware::follow(buffer, source, stream, options, &mut printer, |printer| {
        printer.failure.is_some()
    });
    printer.flush();
    let (mut doubts, failure) = (printer.doubts, printer.failure);
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    doubts.locate(stream);
    doubts.messages(&traced.protocol, stream);
    Ok(doubts)
}

/// How execution reaches the next range.
#[derive(Clone, Copy, Debug)]
enum Branch {
    /// Tracing starts there.
    Begin,
    /// Without a branch.
    None,
    /// By a branch at this address.
    Taken(u64, Last),
    /// By an exception at or after this address, if that is known.
    Exception(Option<u64>, ExceptionKind),
}

/// Prints branches as they execute.
struct Printer<'a> {
    every: Option<u64>,
    /// Number of instructions before the next one to list.
    until_next: u64,
    opened: &'a Opened,
    code: &'a Memory,
    view: View,
    cpu: Option<u32>,
    exceptions: Option<Exceptions>,
    tracker: Tracker<'a>,
    addresses: &'a Addresses,
    programs: &'a mut Programs,
    /// Cached texts of addresses.
    known: HashMap<(View, u64), Rc<str>>,
    branch: Branch,
    /// Address of the last instruction.
    last: Option<u64>,
    is_json: bool,
    /// The common begin of the thread's lines, for text.
    prefix: String,
    text: Vec<u8>,
    doubts: Doubts,
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
            if self.tracker.execute(range.count) {
                self.doubts.range(at, range);
                self.range(range);
            } else {
                self.branch = Branch::Begin;
                self.last = None;
            }
            return;
        }
        if self.tracker.take(at, &element) {
            self.other_thread();
        }
        if !self.tracker.is_selected() {
            self.branch = Branch::Begin;
            self.last = None;
            return;
        }
        self.doubts.element(at, &element);
        match element {
            Element::TraceOn { .. } | Element::NoSync(_) => self.end(),
            Element::NotAccessible { address, .. }
            | Element::RangeWithoutPath { start: address, .. } => {
                if !matches!(self.branch, Branch::Begin) {
                    self.arrive(Some(address));
                }
                self.branch = Branch::Begin;
                self.last = None;
            }
            Element::Exception {
                number,
                return_address,
                is_branch_target,
                ..
            } => {
                // No instruction ran after a taken branch, so the exception occurred at its target.
                let is_target = matches!(self.branch, Branch::Taken(..));
                let is_reset = return_address == Some(0);
                if is_branch_target || is_target && return_address.is_some() && !is_reset {
                    self.arrive(return_address);
                }
                let kind = self.exceptions.map(|it| it.kind(number));
                let kind = kind.unwrap_or(ExceptionKind::Interrupt);
                self.branch = Branch::Exception(self.last.or(return_address), kind);
            }
            _ => {}
        }
    }

    fn memory(&mut self, view: View) {
        let is_other = view.program() != self.view.program();
        self.view = view;
        self.doubts.view = view;
        if is_other {
            self.other_thread();
        }
    }
}

impl<'a> Printer<'a> {
    /// The current state of memory.
    fn scene(&self) -> Scene<'a> {
        self.code.seen(self.view)
    }

    fn range(&mut self, range: &Range) {
        match self.every {
            None => self.arrive(Some(range.start)),
            Some(every) => self.sample(every, range),
        }
        let last = range.end.wrapping_sub(u64::from(range.last.size));
        self.last = Some(last);
        let is_branch = matches!(range.last.class, Class::Branch | Class::Indirect);
        self.branch = match range.is_taken && is_branch {
            true => Branch::Taken(last, range.last),
            false => Branch::None,
        };
    }

    /// Lists every `every`-th instruction of a range.
    fn sample(&mut self, every: u64, range: &Range) {
        let count = u64::from(range.count);
        let mut index = self.until_next;
        let mut at = Walk {
            address: range.start,
            index: 1,
        };
        while index <= count {
            at.go(self.scene(), range.isa, index);
            if self.addresses.has(self.scene(), at.address) {
                self.instruction(at.address);
            }
            index += every;
        }
        self.until_next = index - count;
    }

    /// Handles the continuation of execution at an address, or its end.
    fn arrive(&mut self, to: Option<u64>) {
        let (from, kind) = match self.branch {
            Branch::None => return,
            Branch::Begin => (None, "trace begin"),
            Branch::Taken(from, last) => (Some(from), kind(last)),
            Branch::Exception(from, kind) => (from, of_exception(kind)),
        };
        self.branch = Branch::None;
        if self.every.is_some() {
            return;
        }
        let is_chosen =
            |address: Option<u64>| address.is_some_and(|at| self.addresses.has(self.scene(), at));
        if !self.addresses.is_all() && !is_chosen(from) && !is_chosen(to) {
            return;
        }
        self.line((kind, ""), from, to);
    }

    /// Handles the end of tracing after the last instruction.
    fn end(&mut self) {
        let (from, by) = match self.branch {
            Branch::Begin => (None, ""),
            Branch::Taken(from, last) => (Some(from), kind(last)),
            Branch::Exception(_, kind) => (self.last, of_exception(kind)),
            Branch::None => (self.last, ""),
        };
        if let Some(from) =
            from.filter(|from| self.every.is_none() && self.addresses.has(self.scene(), *from))
        {
            self.line(("trace end", by), Some(from), None);
        }
        self.branch = Branch::Begin;
        self.last = None;
    }

    /// Lists a branch. At the end of tracing, the second part of `kind` is that of the branch out of the traced part.
    fn line(&mut self, kind: (&str, &str), from: Option<u64>, to: Option<u64>) {
        if self.is_json {
            self.json("branch", kind, from, to);
        } else {
            self.text.extend_from_slice(self.prefix.as_bytes());
            let (kind, by) = kind;
            let space = if by.is_empty() { "" } else { " " };
            let width = KIND_WIDTH.saturating_sub(kind.len() + space.len());
            let kind = format_args!("{kind}{space}{by:<width$} ");
            // Writing into a Vec cannot fail.
            let _ = std::io::Write::write_fmt(&mut self.text, kind);
            self.address(from);
            self.text.extend_from_slice(b" => ");
            self.address(to);
            self.text.push(b'\n');
        }
        self.flush_if_full();
    }

    fn instruction(&mut self, address: u64) {
        if self.is_json {
            self.json("instruction", ("", ""), Some(address), None);
        } else {
            self.text.extend_from_slice(self.prefix.as_bytes());
            self.address(Some(address));
            self.text.push(b'\n');
        }
        self.flush_if_full();
    }

    /// An address with its function and file.
    fn address(&mut self, address: Option<u64>) {
        let Some(address) = address else {
            self.text.extend_from_slice(b"               0");
            return;
        };
        let known = match self.known.get(&(self.view, address)) {
            Some(known) => Rc::clone(known),
            None => {
                let known: Rc<str> = self.describe(address).into();
                if self.known.len() >= KNOWN {
                    self.known.clear();
                }
                self.known.insert((self.view, address), Rc::clone(&known));
                known
            }
        };
        self.text.extend_from_slice(known.as_bytes());
    }

    fn describe(&mut self, address: u64) -> String {
        let place = self.programs.place(self.code.seen(self.view), address);
        let within = self.programs.function(place.as_ref(), address);
        let mut text = format!("{address:16x}");
        let start = text.len();
        // Writing into a String cannot fail.
        if let Some(within) = within {
            let _ = write!(text, " {}+{:#x}", within.function, within.offset);
        }
        if let Some(place) = place {
            let _ = write!(text, " ({})", place.program.path);
        }
        escape_from(&mut text, start);
        text
    }

    fn json(&mut self, name: &str, (kind, by): (&str, &str), from: Option<u64>, to: Option<u64>) {
        let thread = self.tracker.thread();
        let known = thread.and_then(|thread| self.opened.threads.get(&thread));
        let command = self.opened.name_at(thread, self.code.seen(self.view));
        let mut object = Object::begin(&mut self.text);
        object
            .member("type", name)
            .member("cpu", self.cpu)
            .member("process", known.map(|known| known.process))
            .member("thread", thread)
            .member("command", command)
            .member("timestamp", self.tracker.time());
        if name == "branch" {
            object
                .member("kind", kind)
                .member("by", (!by.is_empty()).then_some(by));
        }
        let sides = match name {
            "branch" => &[("from", from), ("to", to)][..],
            _ => &[("address", from)],
        };
        for (side, address) in sides {
            let place =
                address.and_then(|address| self.programs.place(self.code.seen(self.view), address));
            let within =
                address.and_then(|address| self.programs.function(place.as_ref(), address));
            object
                .member(side, *address)
                .member(
                    &format!("{side}_hex"),
                    address.map(|address| format!("{address:#x}")).as_deref(),
                )
                .member(
                    &format!("{side}_function"),
                    within.as_ref().map(|within| &*within.function),
                )
                .member(
                    &format!("{side}_file"),
                    place.as_ref().map(|place| place.program.path.as_str()),
                );
        }
        object.end();
        self.text.push(b'\n');
    }

    /// Updates the begin of lines after a switch of threads.
    fn other_thread(&mut self) {
        let thread = self.tracker.thread();
        let command = self.opened.command(thread, self.scene());
        let number = thread.map_or("-".to_owned(), |thread| thread.to_string());
        let cpu = self.cpu.map_or("---".to_owned(), |cpu| format!("{cpu:03}"));
        self.prefix = format!("{command:>16} {number:>6} [{cpu}] ");
        escape_from(&mut self.prefix, 0);
    }

    fn flush_if_full(&mut self) {
        if self.text.len() >= FLUSH_AT {
            self.flush();
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

/// Position among the instructions of a range.
struct Walk {
    address: u64,
    /// Number of the instruction, from 1.
    index: u64,
}

impl Walk {
    /// Advances to a later instruction.
    fn go(&mut self, code: Scene<'_>, isa: Isa, index: u64) {
        if isa != Isa::T32 {
            self.address = self.address.wrapping_add(4 * (index - self.index));
            self.index = index;
            return;
        }
        while self.index < index {
            let bytes = code.at(MemorySpace::ANY, self.address).unwrap_or_default();
            let found = instruction::decode(isa, self.address, bytes, Waypoints::default());
            let size = found.map_or(2, |instruction| instruction.size);
            self.address = self.address.wrapping_add(u64::from(size));
            self.index += 1;
        }
    }
}

/// Name of a branch's kind, for people.
fn kind(last: Last) -> &'static str {
    match (last.purpose, last.is_conditional) {
        (Purpose::Call, _) => "call",
        (Purpose::Return | Purpose::ImpliedReturn, _) => "return",
        (Purpose::ExceptionReturn, _) => "eret",
        (Purpose::None, true) | (Purpose::Compare, _) => "conditional",
        (Purpose::None, false) => "jump",
    }
}

/// Name of an exception's kind, for people.
const fn of_exception(kind: ExceptionKind) -> &'static str {
    match kind {
        ExceptionKind::Interrupt => "interrupt",
        ExceptionKind::Call => "syscall",
        ExceptionKind::Fault => "fault",
        ExceptionKind::Reset => "reset",
    }
}
