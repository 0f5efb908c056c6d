//! `kymo info`: format and contents of an input, and the parts missing from it.

mod functions;
mod program;

use std::io::{self, Write};
use std::process::ExitCode;

use kymo_event::{
    ClockCheck, ClockCorrection, Date, Duration, FunctionId, InterruptKind, Space, SpaceKind,
    StreamInfo, TimeUnit, TraceCounts, TraceInfo, Wanted,
};
use kymo_export::json::{Object, list};
use kymo_read::{StreamSummary, Summary};
use kymo_symbols::{DebugInfo, Symbols};

use self::functions::Functions;
use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{self, Refused, Trace, hex};
use crate::names::carries_names;
use crate::render::clock::{Checks, checked};
use crate::render::count::counted;
use crate::render::duration::Seconds;
use crate::render::escape::escaped;
use crate::render::palette::Palette;
use crate::render::table::{Align, Table};
use crate::render::unit;
use crate::target::address_in;

/// The options of `kymo info`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo info trace/                                 format, streams, counts, losses
  kymo info --elf firmware.elf trace/              and: are these the right symbols?
  kymo info --format json trace/ | jq .lost        one object, for programs
  kymo info prog                                   would this program record anything?")]
pub struct Args {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Shows a summary of an input.
///
/// # Errors
/// When the input is refused or damaged; everything known is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let format = args.format.format;
    if program::run(args.input.path(), format, context)? {
        return Ok(ExitCode::SUCCESS);
    }
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
    let mut functions = Functions::of(trace.source());
    let summary = Summary::of(&mut functions);
    let met = functions.met();
    trace.remark_beyond(context);
    let identities = &trace.info().identities;
    let functions = (0..).zip(&met).filter(|(_, met)| **met);
    let functions = functions.filter_map(|(id, _)| identities.function(FunctionId(id)));
    let (count, named) = functions.fold((0, 0), |(count, named), function| {
        let name = symbols.name_of(function);
        (count + 1, named + u64::from(name.is_some()))
    });
    let facts = Facts {
        info: trace.info(),
        summary: &summary,
        symbols: &symbols,
        given: args.symbols.any(),
        functions: count,
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

/// Opens the input. The fields of events are not needed for a saved one of any format.
fn open(args: &Args, context: &Context) -> Result<Trace, Refused> {
    let path = args.input.path();
    if address_in(path)?.is_some() {
        return Ok(Trace::open(
            &args.input,
            &args.symbols,
            Wanted::Meaning,
            context,
        )?);
    }
    let source = input::open(&args.input, &args.symbols, Wanted::Meaning, context)?;
    Ok(Trace::new(
        input::name_of(path),
        source,
        &args.symbols,
        context,
    )?)
}

/// Ends the summary with the error of a failed read, if any.
fn verdict(trace: &Trace, summary: &Summary) -> Result<ExitCode, Report> {
    match summary.errors.get(trace.info().damage.len()) {
        Some(error) => {
            Err(Report::new(&error.message).help("what was read before is in the summary"))
        }
        None => trace.verdict(),
    }
}

/// The contents of the summary.
struct Facts<'a> {
    info: &'a TraceInfo,
    summary: &'a Summary,
    symbols: &'a Symbols,
    /// Whether the user gave files of symbols.
    given: bool,
    /// Number of different functions in the trace; `named` is the number of those with names.
    functions: u64,
    named: u64,
    /// The warnings on stderr.
    warnings: Vec<String>,
}

impl Facts<'_> {
    fn text(&self, out: &mut dyn Write, palette: &Palette) -> io::Result<()> {
        let Self { info, summary, .. } = self;
        let mut line = |what: &str, value: &dyn std::fmt::Display| {
            let heading = palette.heading;
            let value = value.to_string();
            let value = escaped(&value);
            writeln!(out, "{heading}{what:<10}{heading:#} {value}")
        };
        line("format", &summary.format)?;
        for (what, value) in &info.about {
            line(what, value)?;
        }
        if let Some(build_id) = &info.build_id {
            line("build id", &hex(build_id))?;
        }
        if let Some(hz) = info.clock_hz {
            let checks = info.clock_checks.as_deref();
            let checked = checks.map_or(String::new(), |checks| format!(", {}", checked(checks)));
            line("clock", &format_args!("{hz} ticks a second{checked}"))?;
        }
        if let Some(counts) = self.counts() {
            line("packets", &counts.packets)?;
            line("elements", &counts.elements)?;
            line("ranges", &counts.ranges)?;
        }
        line("events", &summary.events)?;
        if info.added_events > 0 {
            let added = info.added_events;
            line(
                "added",
                &format_args!(
                    "{added} of these events: no records of the exported trace, but gaps, or concluded"
                ),
            )?;
        }
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
            let unit = match info.unit {
                TimeUnit::Nanoseconds => "s",
                unit => unit.suffix(),
            };
            line(
                "start",
                &format_args!("{} {unit}", seconds(start).trim_start()),
            )?;
            line("end", &format_args!("{} {unit}", seconds(end).trim_start()))?;
            if let Some(span) = end.since(start) {
                match info.unit {
                    TimeUnit::Nanoseconds => line("span", &span.with_unit())?,
                    _ => line("span", &format_args!("{} {unit}", span.0))?,
                }
            }
        }
        if let (steps @ 1.., by) = summary.steps_back {
            let steps = counted(steps, "step");
            let by = by.with_unit();
            line(
                "clock back",
                &format_args!("{steps}, by {by} that did not pass: tables and exports take it off"),
            )?;
        }
        if info.wall_times {
            line("durations", &input::WALL_TIMES)?;
        }
        for thread in info.identities.threads() {
            if let Some(name) = &thread.name {
                match info.numbered_threads {
                    true => line("thread", &format_args!("{} {name}", thread.tid.0))?,
                    false => line("thread", &format_args!("{} {name}", thread.tid))?,
                }
            }
        }
        for interrupt in info.identities.interrupts() {
            if let Some(name) = &interrupt.name {
                line("interrupt", &format_args!("{} {name}", interrupt.irq))?;
            }
        }
        line(
            "functions",
            &format_args!("{}, {} of them with names", self.functions, self.named),
        )?;
        line("symbols", &self.symbols_found())?;
        let spaces = info.identities.spaces();
        let ours = spaces.iter().filter(|_| info.format == input::FORMAT);
        for mapping in ours.flat_map(|space| &space.mappings) {
            let id = mapping.build_id.as_deref().map(hex);
            let id = id.map_or(String::new(), |id| format!(", build id {id}"));
            line("file", &format_args!("{}{id}", escaped(&mapping.path)))?;
        }
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
                    .map_or("-".to_owned(), |id| info.identities.tid(id).to_string()),
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
                escaped(&damage.stream),
                damage.offset,
                escaped(&damage.message)
            )?;
        }
        if info.more_damage > 0 {
            let more = counted(info.more_damage, "more damaged place");
            writeln!(out, "\n{error}damaged{error:#}    {more}")?;
        }
        Ok(())
    }

    /// The sums over all streams of a hardware trace.
    fn counts(&self) -> Option<TraceCounts> {
        let streams = &self.info.streams;
        let mut counts = streams.iter().filter_map(|stream| stream.counts);
        let first = counts.next()?;
        Some(counts.fold(first, |mut sum, counts| {
            sum.add(&counts);
            sum
        }))
    }

    /// Describes the symbols in one line.
    fn symbols_found(&self) -> String {
        let carried = carries_names(&self.info.identities);
        if self.symbols.is_empty() && !carried {
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
            DebugInfo::Present => "with files and lines".to_owned(),
            DebugInfo::Compressed => {
                "without files and lines: they are compressed in an unknown way".to_owned()
            }
            DebugInfo::Damaged(why) => format!("without files and lines: {why}"),
            _ => "without files and lines".to_owned(),
        };
        format!("{build}, {lines}")
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { info, summary, .. } = self;
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        let counts = self.counts();
        object
            .member("format", &summary.format)
            .member("events", summary.events)
            .member("lost", summary.lost)
            .member("gaps", summary.gaps);
        if info.added_events > 0 {
            object.member("added_events", info.added_events);
        }
        if let Some(counts) = &counts {
            counts_json(&mut object, counts);
        }
        object
            .member("overwritten_packets", summary.overwritten)
            .member("start_ns", summary.start)
            .member("end_ns", summary.end)
            .member("clock_steps_back", summary.steps_back.0)
            .member("clock_steps_back_ns", summary.steps_back.1.0)
            .with("streams", |out| {
                let all = summary.streams.iter().zip(&info.streams);
                list(out, all, |out, (found, known)| {
                    stream(out, found, known, info)
                })
            })
            .with("errors", |out| {
                list(out, &summary.errors, |out, damage| {
                    let mut object = Object::begin(out);
                    object.member("stream", &damage.stream);
                    object.member("offset", damage.offset);
                    object.member("message", &damage.message);
                    object.end();
                })
            })
            .member("wall_times", info.wall_times)
            .member("clock_hz", info.clock_hz);
        if let Some(checks) = &info.clock_checks {
            object
                .member("clock_verdict", ClockCheck::overall(checks).name())
                .member("clock_checks", Checks(checks));
        }
        if !info.about.is_empty() {
            object.with("about", |out| {
                let mut about = Object::begin(out);
                for (what, value) in &info.about {
                    about.member(what, value);
                }
                about.end();
            });
        }
        if info.more_damage > 0 {
            object.member("errors_omitted", info.more_damage);
        }
        let date = info.wall_clock.as_ref().zip(summary.start);
        let date = date.map(|(wall, start)| Date(wall.unix_ns(start)).to_string());
        object
            .member("date", date)
            .with("clock_corrections", |out| {
                list(out, &info.clock_corrections, correction)
            })
            .member("build_id", info.build_id.as_deref().map(hex))
            .with("threads", |out| {
                let threads = info.identities.threads().iter();
                let named =
                    threads.filter_map(|thread| Some((thread.tid, thread.name.as_deref()?)));
                list(out, named, |out, (thread, name)| {
                    let mut object = Object::begin(out);
                    object.member("thread", thread).member("name", name);
                    object.end();
                })
            })
            .with("interrupts", |out| {
                let interrupts = info.identities.interrupts().iter();
                let named = interrupts
                    .filter_map(|interrupt| Some((interrupt, interrupt.name.as_deref()?)));
                list(out, named, |out, (interrupt, name)| {
                    let mut object = Object::begin(out);
                    object.member("irq", interrupt.irq);
                    object.member("kind", kind_name(interrupt.kind));
                    object.member("name", name);
                    object.end();
                })
            })
            .with("spaces", |out| list(out, info.identities.spaces(), space))
            .member("functions", self.functions)
            .member("functions_named", self.named)
            .object("symbols", |object| self.symbols_json(object))
            .member("warnings", self.warnings.as_slice());
        object.end();
        unit::name_members(&mut line);
        line.push(b'\n');
        out.write_all(&line)
    }

    /// Writes the properties of the symbols.
    fn symbols_json(&self, object: &mut Object<'_>) {
        let build = match (self.symbols.build_id(), &self.info.build_id) {
            (Some(symbols), Some(traced)) => Some(symbols == traced),
            _ => None,
        };
        object.member("given", !self.symbols.is_empty());
        object.member("in_trace", carries_names(&self.info.identities));
        object.member("build_id", self.symbols.build_id().map(hex));
        object.member("same_build", build);
        let lines = matches!(self.symbols.debug_info(), DebugInfo::Present);
        object.member("files_and_lines", lines);
    }
}

/// Writes an address space as JSON.
fn space(out: &mut Vec<u8>, space: &Space) {
    let mut object = Object::begin(out);
    object
        .member("name", &space.name)
        .member(
            "kind",
            match space.kind {
                SpaceKind::Firmware => "firmware",
                SpaceKind::Kernel => "kernel",
                SpaceKind::Process => "process",
            },
        )
        .member("pid", space.pid)
        .member("build_id", space.build_id.as_deref().map(hex))
        .member("text_base", space.text_base)
        .with("mappings", |out| {
            list(out, &space.mappings, |out, mapping| {
                let mut object = Object::begin(out);
                object.member("start", mapping.start);
                object.member("bytes", mapping.bytes);
                object.member("offset", mapping.offset);
                object.member("path", &mapping.path);
                object.member("build_id", mapping.build_id.as_deref().map(hex));
                object.end();
            })
        });
    object.end();
}

/// The name of a kind of interrupt.
const fn kind_name(kind: InterruptKind) -> &'static str {
    match kind {
        InterruptKind::Soft => "soft",
        InterruptKind::Vector => "vector",
        _ => "hard",
    }
}

/// Describes the correction of a processor's clock for people.
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
        "CPU {cpu} to the clock of CPU {reference}, {by} (each recorded the time of day, {moments} \
         {times}; ± {uncertainty})"
    )
}

fn correction(out: &mut Vec<u8>, correction: &ClockCorrection) {
    let mut object = Object::begin(out);
    object.member("cpu", correction.cpu);
    object.member("reference", correction.reference);
    object.member("moments", correction.moments);
    object.member("first_ns", correction.first_ns);
    object.member("last_ns", correction.last_ns);
    object.member("uncertainty_ns", correction.uncertainty_ns);
    object.end();
}

/// A number of lost events for people.
fn lost(lost: Option<u64>) -> String {
    lost.map_or("unknown".to_owned(), |lost| lost.to_string())
}

/// Writes the counts of a hardware trace as JSON.
fn counts_json(object: &mut Object<'_>, counts: &TraceCounts) {
    object
        .member("packets", counts.packets)
        .member("elements", counts.elements)
        .member("ranges", counts.ranges)
        .member("instructions", counts.instructions);
}

fn stream(out: &mut Vec<u8>, stream: &StreamSummary, known: &StreamInfo, info: &TraceInfo) {
    let mut object = Object::begin(out);
    object.member("name", &stream.name);
    object.member("cpu", stream.cpu);
    if let Some(id) = known.trace_id {
        object.member("trace_id", u64::from(id));
    }
    let thread = stream.thread.map(|id| info.identities.tid(id));
    object.member("thread", thread);
    object.member("events", stream.events);
    if let Some(counts) = &known.counts {
        counts_json(&mut object, counts);
    }
    object.member("lost", stream.lost);
    object.member("gaps", stream.gaps);
    object.member("start_ns", stream.start);
    object.member("end_ns", stream.end);
    object.end();
}

/// Writes the object for an input that can't be opened: the same members, and the reason as its error.
fn refused(out: &mut dyn Write, error: &Refused) -> io::Result<()> {
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    let nothing: [&str; 0] = [];
    object
        .member("format", None::<&str>)
        .member("events", 0_u64)
        .member("lost", None::<u64>)
        .member("gaps", 0_u64)
        .member("overwritten_packets", 0_u64)
        .member("start_ns", None::<i64>)
        .member("end_ns", None::<i64>)
        .member("streams", nothing.as_slice())
        .with("errors", |out| {
            list(out, [error.offset], |out, offset| {
                let mut object = Object::begin(out);
                object.member("offset", offset);
                object.member("message", error.report.message());
                object.end();
            })
        })
        .member("warnings", nothing.as_slice());
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
