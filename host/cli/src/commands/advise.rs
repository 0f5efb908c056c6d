//! `kymo advise`: what to leave out, so that the same buffer holds more time.

use std::io::{self, Write};
use std::process::ExitCode;

use kymo_analysis::advice::{Advice, Advisor, Short};
use kymo_analysis::replay::{Options, Replay};
use kymo_event::{Duration, FunctionId, TraceInfo, Wanted};
use kymo_export::json::{Object, list};

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::counted;
use crate::render::duration::Human;
use crate::render::escape::escaped;
use crate::render::share::percent;
use crate::render::table::{Align, Table};
use crate::span::Span;

/// The format of ftrace's traces, which the kernel's own filter thins out.
const FTRACE: &str = "ftrace";

/// Functions that GCC leaves out besides are counted from so many on.
const LISTED: usize = 10;

/// The options of `kymo advise`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo advise trace/ --elf firmware.elf          what to leave out, and how much longer the buffer lasts
  kymo advise tcp:localhost:4000 --elf firmware.elf    the same of what a live target has recorded
  kymo advise --format json trace/ | jq -r .gcc_option    the compiler's option alone, for a script

Short functions that are called often fill a buffer and tell little. The advice is to leave them out when the
program is compiled, or to record only calls that last (--threshold), with what either gains.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Prints advice about a recording.
///
/// # Errors
/// When the input can't be opened or is damaged; the advice from what can be read is given before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let wanted = Wanted::Meaning;
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let symbols = trace.symbols();
    let mut replay = Replay::new(trace.info(), &symbols, Options::default());
    let mut advisor = Advisor::default();
    let mut span = Span::default();
    let mut events = 0u64;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        let rows = batch.rows().iter();
        events += rows.filter(|row| row.record).count() as u64;
        Ok(more(replay.batch_to(info, batch, &mut advisor)))
    });
    replay.finish_to(trace.info(), &mut advisor);
    let info = trace.info();
    let bounds = span.bounds();
    let held = bounds.and_then(|(begin, end)| end.since(begin));
    let held = held.unwrap_or_default();
    let names = Names::new(&symbols);
    // What has no address is no function that a compiler could leave alone: a system call, say.
    let compiled = |id| {
        let function = info.identities.function(id);
        function.is_some_and(|function| function.address.is_some())
    };
    let advice = Printed {
        advice: &advisor.advise(events, held, &info.costs, compiled),
        events,
        held,
        names: &names,
        info,
    };
    match args.format.format {
        Format::Text => advice.text(context)?,
        Format::Json => advice.json(context)?,
    }
    names.remark(&info.identities, context);
    if replay.counts().losses > 0 {
        context.note(format_args!(
            "events were lost in {}: there, more may have been recorded than was counted",
            counted(replay.counts().losses, "place")
        ));
    }
    read?;
    trace.remark(context);
    trace.verdict()
}

/// The advice, with all that it takes to print it.
struct Printed<'a> {
    advice: &'a Advice,
    events: u64,
    held: Duration,
    names: &'a Names<'a>,
    info: &'a TraceInfo,
}

impl Printed<'_> {
    fn name(&self, function: FunctionId) -> String {
        let name = self.names.function(&self.info.identities, function);
        // What the compiler made of one function has a suffix that its source has not.
        name.split('.').next().unwrap_or_default().to_owned()
    }

    /// The names of the short functions, each once.
    fn short(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for short in &self.advice.short {
            let name = self.name(short.function);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The functions in whose names GCC finds one of `short`, too: its list holds parts of names.
    fn excluded_besides(&self, short: &[String]) -> Vec<String> {
        let functions = 0..self.info.identities.functions().len() as u32;
        let names = functions.map(|id| self.name(FunctionId(id)));
        let besides = names.filter(|name| {
            !short.contains(name) && short.iter().any(|part| name.contains(part.as_str()))
        });
        let mut besides: Vec<String> = besides.collect();
        besides.sort_unstable();
        besides.dedup();
        besides
    }

    fn text(&self, context: &mut Context) -> Result<(), Report> {
        let (out, palette) = context.out();
        let held = in_text(self.held);
        writeln!(out, "{} in {}", counted(self.events, "event"), held)?;
        let short = self.short();
        if let Some(without) = &self.advice.without {
            writeln!(out, "\nshort functions that are called often:")?;
            self.functions().write(out, palette)?;
            writeln!(
                out,
                "\nthey are {} % of the events and {} % of the time; without them the buffer that held {} holds {}",
                percent(Duration(without.events), Duration(self.events)),
                percent(without.self_time, self.advice.self_time),
                held,
                in_text(without.holds)
            )?;
            if without.saved.is_none() {
                writeln!(
                    out,
                    "(at least: what recording takes is not known here, and the program runs faster without it)"
                )?;
            }
            self.how_to_leave_out(out, &short)?;
        } else if let [alone] = &short[..] {
            writeln!(
                out,
                "\nall events are those of {}: without them nothing is left",
                escaped(alone)
            )?;
        } else {
            writeln!(out, "\nno function is short and called often")?;
        }
        if !self.advice.thresholds.is_empty() {
            writeln!(out, "\nrecording only calls that last:")?;
            self.thresholds().write(out, palette)?;
        }
        Ok(())
    }

    /// How to record without these functions.
    fn how_to_leave_out(&self, out: &mut dyn Write, short: &[String]) -> io::Result<()> {
        if self.info.format == FTRACE {
            let names = short.join(" -n ");
            return writeln!(out, "\nwith trace-cmd record: -n {}", escaped(&names));
        }
        if short.iter().any(|name| name.starts_with("0x")) {
            return writeln!(
                out,
                "\ngive the program's ELF file with --elf: compilers leave functions out by name"
            );
        }
        writeln!(
            out,
            "\nwith GCC: {}\nin the source: __attribute__((no_instrument_function)) before each of them",
            escaped(&gcc_option(short))
        )?;
        let besides = self.excluded_besides(short);
        if besides.is_empty() {
            return Ok(());
        }
        let (first, rest) = besides.split_at(LISTED.min(besides.len()));
        let more = match rest.len() {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        writeln!(
            out,
            "(GCC takes the names for parts of names: it also leaves out {}{more})",
            escaped(&first.join(", "))
        )
    }

    fn functions(&self) -> Table {
        let right = |name| (name, Align::Right);
        let mut table = Table::new([
            right("EVENTS %"),
            right("SELF %"),
            right("CALLS"),
            right("TYPICAL SELF"),
            ("FUNCTION", Align::Left),
        ]);
        for short in &self.advice.short {
            table.row([
                percent(Duration(short.events), Duration(self.events)),
                percent(short.self_time, self.advice.self_time),
                short.calls.to_string(),
                Human(short.typical).to_string(),
                self.name(short.function),
            ]);
        }
        table
    }

    fn thresholds(&self) -> Table {
        let names = ["THRESHOLD", "CALLS", "OF THE EVENTS %"];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for it in &self.advice.thresholds {
            table.row([
                Human(it.threshold).to_string(),
                it.calls.to_string(),
                percent(Duration(it.calls), Duration(self.events)),
            ]);
        }
        table
    }

    fn json(&self, context: &mut Context) -> io::Result<()> {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        let short = self.short();
        let without = self.advice.without.as_ref();
        object
            .member("events", self.events)
            .member("held_ns", self.held)
            .member("self_ns", self.advice.self_time)
            .member("excluded_events", without.map(|it| it.events))
            .member("excluded_self_ns", without.map(|it| it.self_time))
            .member("holds_ns", without.map(|it| it.holds))
            .member("saved_ns", without.and_then(|it| it.saved))
            .member("gcc_option", without.map(|_| gcc_option(&short)).as_deref());
        let function = |short: &Short, object: &mut Object<'_>| {
            let name = self.name(short.function);
            object
                .member("function", name.as_str())
                .member("events", short.events)
                .member("calls", short.calls)
                .member("self_ns", short.self_time)
                .member("typical_self_ns", short.typical);
        };
        object.with("functions", |out| {
            list(out, &self.advice.short, |out, short| {
                let mut object = Object::begin(out);
                function(short, &mut object);
                object.end();
            });
        });
        object.with("thresholds", |out| {
            list(out, &self.advice.thresholds, |out, it| {
                let mut object = Object::begin(out);
                object
                    .member("threshold_ns", it.threshold)
                    .member("calls", it.calls);
                object.end();
            });
        });
        object.end();
        line.push(b'\n');
        context.out().0.write_all(&line)
    }
}

/// A duration within a sentence.
fn in_text(duration: Duration) -> String {
    let padded = Human(duration).to_string();
    let words: Vec<&str> = padded.split_whitespace().collect();
    words.join(" ")
}

/// GCC's option that leaves functions out of instrumentation; commas in names are escaped as it wants them.
fn gcc_option(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.replace(',', "\\,")).collect();
    format!(
        "-finstrument-functions-exclude-function-list={}",
        names.join(",")
    )
}
