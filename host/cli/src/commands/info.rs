//! `kymo info`: what an input is, what is in it, and what is missing from it.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;

use kymo_event::{Addr, ClockCorrection, Date, Duration, Event, EventKind, TraceInfo};
use kymo_read::{ReadError, Source, StreamSummary, Summary};
use kymo_symbols::{DebugInfo, Symbols};

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{self, Refused, Trace, hex};
use crate::render::count::counted;
use crate::render::duration::Seconds;
use crate::render::json::{self, Object, With};
use crate::render::palette::Palette;
use crate::render::table::{Align, Table};
use crate::target::address_in;

/// The options of `kymo info`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo info trace/                                 format, streams, counts, losses
  kymo info --elf firmware.elf trace/              and: are these the right symbols?
  kymo info --format json trace/ | jq .lost        one object, for programs")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Shows what is known of an input.
///
/// # Errors
/// When the input is refused or damaged; what is known of it is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let format = args.format.format;
    let mut trace = match open(args, context) {
        Ok(trace) => trace,
        Err(error) => {
            if format == Format::Json {
                refused(context.out().0, &error)?;
            }
            return Err(error.report);
        }
    };
    let symbols = trace.symbols();
    let mut functions = Functions {
        source: trace.source(),
        addresses: HashSet::new(),
    };
    let summary = Summary::of(&mut functions);
    let functions = functions.addresses;
    let named = functions
        .iter()
        .filter(|address| symbols.function_at(**address).is_some())
        .count();
    let facts = Facts {
        info: trace.info(),
        summary: &summary,
        symbols: &symbols,
        given: args.symbols.any(),
        functions: functions.len(),
        named,
        warnings: context.warnings(),
    };
    let (out, palette) = context.out();
    match format {
        Format::Text => facts.text(out, palette)?,
        Format::Json => facts.json(out)?,
    }
    verdict(&trace, &summary)
}

/// Opens the input. Of a saved one the fields of events are not needed, whatever its format.
fn open(args: &Args, context: &Context) -> Result<Trace, Refused> {
    let path = &args.input.input;
    if address_in(path)?.is_some() {
        return Ok(Trace::open(&args.input, &args.symbols, false, context)?);
    }
    let source = input::open(&args.input, &args.symbols, false, context)?;
    Ok(Trace::new(
        input::name_of(path),
        source,
        &args.symbols,
        context,
    )?)
}

/// A failure of reading ends the summary, and is its last error.
fn verdict(trace: &Trace, summary: &Summary) -> Result<ExitCode, Report> {
    match summary.errors.get(trace.info().damage.len()) {
        Some(error) => {
            Err(Report::new(&error.message).help("what was read before is in the summary"))
        }
        None => trace.verdict(),
    }
}

/// Passes events on, and collects the functions that they name.
struct Functions<'a> {
    source: &'a mut dyn Source,
    addresses: HashSet<Addr>,
}

impl Source for Functions<'_> {
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn next(&mut self) -> Result<Option<Event>, ReadError> {
        let event = self.source.next()?;
        if let Some(Event { kind, .. }) = &event
            && let EventKind::Enter { function, .. }
            | EventKind::Exit {
                function: Some(function),
            } = kind
        {
            self.addresses.insert(*function);
        }
        Ok(event)
    }
}

/// All that there is to say.
struct Facts<'a> {
    info: &'a TraceInfo,
    summary: &'a Summary,
    symbols: &'a Symbols,
    /// Whether the user gave files of symbols.
    given: bool,
    /// Different functions in the trace, and how many of them have names.
    functions: usize,
    named: usize,
    /// What was warned of on stderr.
    warnings: Vec<String>,
}

impl Facts<'_> {
    fn text(&self, out: &mut dyn Write, palette: &Palette) -> io::Result<()> {
        let Self { info, summary, .. } = self;
        let mut line = |what: &str, value: &dyn std::fmt::Display| {
            let heading = palette.heading;
            writeln!(out, "{heading}{what:<10}{heading:#} {value}")
        };
        line("format", &summary.format)?;
        if let Some(build_id) = &info.build_id {
            line("build id", &hex(build_id))?;
        }
        if let Some(hz) = info.clock_hz {
            line("clock", &format_args!("{hz} ticks a second"))?;
        }
        line("events", &summary.events)?;
        line("lost", &lost(summary.lost))?;
        line("gaps", &summary.gaps)?;
        if summary.overwritten > 0 {
            let packets = counted(summary.overwritten, "packet");
            line(
                "before",
                &format_args!("{packets}, overwritten by newer ones"),
            )?;
        }
        if let (Some(wall), Some(start)) = (&info.wall_clock, summary.start) {
            line("date", &Date(wall.unix_ns(start)))?;
        }
        for correction in &info.clock_corrections {
            line("corrected", &corrected(correction))?;
        }
        if let (Some(start), Some(end)) = (summary.start, summary.end) {
            let zero = kymo_event::Time(0);
            let seconds = |time| Seconds { time, origin: zero }.to_string();
            line("start", &format_args!("{} s", seconds(start).trim_start()))?;
            line("end", &format_args!("{} s", seconds(end).trim_start()))?;
            if let Some(span) = end.since(start) {
                line("span", &span.with_unit())?;
            }
        }
        for (thread, name) in &info.threads {
            line("thread", &format_args!("{thread} {name}"))?;
        }
        for (irq, name) in &info.interrupts {
            line("interrupt", &format_args!("{irq} {name}"))?;
        }
        line(
            "functions",
            &format_args!("{}, {} of them with names", self.functions, self.named),
        )?;
        line("symbols", &self.symbols_found())?;
        writeln!(out)?;
        let mut table = Table::new([
            ("STREAM", Align::Left),
            ("CPU", Align::Right),
            ("THREAD", Align::Right),
            ("EVENTS", Align::Right),
            ("LOST", Align::Right),
            ("GAPS", Align::Right),
        ]);
        for stream in &summary.streams {
            table.row([
                stream.name.clone(),
                stream.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
                stream
                    .thread
                    .map_or("-".to_owned(), |thread| thread.to_string()),
                stream.events.to_string(),
                lost(stream.lost),
                stream.gaps.to_string(),
            ]);
        }
        table.write(out, palette)?;
        let error = palette.error;
        for damage in &summary.errors {
            writeln!(
                out,
                "\n{error}damaged{error:#}    {} at offset {}: {}",
                damage.stream, damage.offset, damage.message
            )?;
        }
        Ok(())
    }

    /// What can be said of the symbols in a line.
    fn symbols_found(&self) -> String {
        if self.symbols.is_empty() {
            return "none; give the program's ELF file with --elf".to_owned();
        }
        if !self.given && self.symbols.build_id().is_none() {
            return "names that the trace carries; --elf adds files and lines".to_owned();
        }
        let build = match (self.symbols.build_id(), &self.info.build_id) {
            (Some(symbols), Some(traced)) if symbols == traced => "of the same build",
            (Some(_), Some(_)) => "of another build",
            _ => "of an unknown build",
        };
        let lines = match self.symbols.debug_info() {
            DebugInfo::Present => "with files and lines",
            _ => "without files and lines",
        };
        format!("{build}, {lines}")
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { info, summary, .. } = self;
        let streams = With(|out: &mut dyn Write| json::list(out, &summary.streams, stream));
        let errors = With(|out: &mut dyn Write| {
            json::list(out, &summary.errors, |out, damage| {
                let mut object = Object::begin(out)?;
                object.member("stream", &damage.stream)?;
                object.member("offset", damage.offset)?;
                object.member("message", &damage.message)?;
                object.end()
            })
        });
        let threads = With(|out: &mut dyn Write| {
            json::list(out, &info.threads, |out, (thread, name)| {
                let mut object = Object::begin(out)?;
                object.member("thread", thread.0)?.member("name", name)?;
                object.end()
            })
        });
        let corrections =
            With(|out: &mut dyn Write| json::list(out, &info.clock_corrections, correction));
        let mut object = Object::begin(out)?;
        object.member("format", &summary.format)?;
        object.member("events", summary.events)?;
        object.member("lost", summary.lost)?;
        object.member("gaps", summary.gaps)?;
        object.member("overwritten_packets", summary.overwritten)?;
        object.member("start_ns", summary.start.map(|time| time.0))?;
        object.member("end_ns", summary.end.map(|time| time.0))?;
        object.member("streams", streams)?;
        object.member("errors", errors)?;
        object.member("clock_hz", info.clock_hz)?;
        let date = info.wall_clock.as_ref().zip(summary.start);
        let date = date.map(|(wall, start)| Date(wall.unix_ns(start)).to_string());
        object.member("date", date)?;
        object.member("clock_corrections", corrections)?;
        object.member("build_id", info.build_id.as_deref().map(hex))?;
        object.member("threads", threads)?;
        object.member("functions", self.functions as u64)?;
        object.member("functions_named", self.named as u64)?;
        object.member("warnings", self.warnings.as_slice())?;
        object.end()?;
        out.write_all(b"\n")
    }
}

/// What was done to the times of a processor, for people.
fn corrected(correction: &ClockCorrection) -> String {
    let ClockCorrection {
        cpu,
        reference,
        moments,
        first_ns,
        last_ns,
        uncertainty_ns,
    } = correction;
    let signed = |ns: &i64| {
        let sign = if *ns < 0 { '-' } else { '+' };
        format!("{sign}{}", Duration(ns.unsigned_abs()).with_unit())
    };
    let by = if first_ns == last_ns {
        format!("by {}", signed(first_ns))
    } else {
        format!(
            "by {} at first, {} at last",
            signed(first_ns),
            signed(last_ns)
        )
    };
    let times = if *moments == 1 { "time" } else { "times" };
    let uncertainty = Duration(*uncertainty_ns).with_unit();
    format!(
        "CPU {cpu} to the clock of CPU {reference}, {by} (each told the time of day, {moments} \
         {times}; ± {uncertainty})"
    )
}

fn correction(out: &mut dyn Write, correction: &ClockCorrection) -> io::Result<()> {
    let mut object = Object::begin(out)?;
    object.member("cpu", correction.cpu.0)?;
    object.member("reference", correction.reference.0)?;
    object.member("moments", correction.moments)?;
    object.member("first_ns", correction.first_ns)?;
    object.member("last_ns", correction.last_ns)?;
    object.member("uncertainty_ns", correction.uncertainty_ns)?;
    object.end()
}

/// A number of lost events, for people.
fn lost(lost: Option<u64>) -> String {
    lost.map_or("unknown".to_owned(), |lost| lost.to_string())
}

fn stream(out: &mut dyn Write, stream: &StreamSummary) -> io::Result<()> {
    let mut object = Object::begin(out)?;
    object.member("name", &stream.name)?;
    object.member("cpu", stream.cpu.map(|cpu| cpu.0))?;
    object.member("thread", stream.thread.map(|thread| thread.0))?;
    object.member("events", stream.events)?;
    object.member("lost", stream.lost)?;
    object.member("gaps", stream.gaps)?;
    object.member("start_ns", stream.start.map(|time| time.0))?;
    object.member("end_ns", stream.end.map(|time| time.0))?;
    object.end()
}

/// The object of an input that can't be opened: the same members, and the reason as its error.
fn refused(out: &mut dyn Write, error: &Refused) -> io::Result<()> {
    let errors = With(|out: &mut dyn Write| {
        json::list(out, [error.offset], |out, offset| {
            let mut object = Object::begin(out)?;
            object.member("offset", offset)?;
            object.member("message", error.report.message())?;
            object.end()
        })
    });
    let mut object = Object::begin(out)?;
    object.member("format", None::<&str>)?;
    object.member("events", 0_u64)?;
    object.member("lost", None::<u64>)?;
    object.member("gaps", 0_u64)?;
    object.member("overwritten_packets", 0_u64)?;
    object.member("start_ns", None::<i64>)?;
    object.member("end_ns", None::<i64>)?;
    object.member("streams", With(|out: &mut dyn Write| out.write_all(b"[]")))?;
    object.member("errors", errors)?;
    object.member("warnings", With(|out: &mut dyn Write| out.write_all(b"[]")))?;
    object.end()?;
    out.write_all(b"\n")
}
