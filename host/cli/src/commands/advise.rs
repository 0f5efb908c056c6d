//! `kymo advise`: functions to exclude, so that the same buffer holds more time.

use std::io::{self, Write};
use std::process::ExitCode;

use kymo_analysis::advice::{Advice, Advisor, Filled, Records, Short};
use kymo_analysis::replay::{Options, Replay};
use kymo_event::{Addr, Duration, FunctionId, RowKind, Time, TraceInfo, Wanted};
use kymo_export::json::{Object, list, string};
use kymo_link::LinkError;
use kymo_wire::link::{Action, Command, Duration as KymoDuration};

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::commands::trace::duration;
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
use crate::target::{TargetArgs, address_in, explain};

/// The format of ftrace's traces, for which the kernel's own filter is used.
const FTRACE: &str = "ftrace";

/// The format of Kymo's own recordings.
const OWN: &str = "kymo";

/// Usual size of a whole call's record on a small target.
const CALL_BYTES: u64 = 18;

/// Maximum number listed of further functions that GCC excludes as well; more are only counted.
const LISTED: usize = 10;

/// The options of `kymo advise`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo advise trace/ --elf firmware.elf          what to leave out, and how much longer the buffer lasts
  kymo advise tcp:localhost:4000 --elf firmware.elf    the same of what a live target has recorded
  kymo advise tcp:localhost:4000 --elf firmware.elf --apply    and have the target leave it out from now on
  kymo advise --format json trace/ | jq -r .gcc_option    the compiler's option alone, for a script

Short functions that are called often fill a buffer and tell little. The advice is to leave them out when the
program is compiled, or to record only calls that last (--threshold), with what either gains.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// Have the live target skip these functions from now on, by its filter in duration mode (see `kymo trace --threshold`), and record
    /// anew. Kept over a reboot.
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Prints advice about a recording.
///
/// # Errors
/// When the input can't be opened or is damaged; the advice from all readable parts is given before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let wanted = Wanted::Meaning;
    let target = match (args.apply, address_in(args.input.path())?) {
        (true, None) => {
            return Err(
                Report::new("only a live target can be told what to leave out")
                    .help("give its address in the place of a recording, or leave --apply out"),
            );
        }
        (true, address) => address,
        (false, _) => None,
    };
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let symbols = trace.symbols();
    let mut replay = Replay::new(trace.info(), &symbols, Options::default());
    let mut advisor = Advisor::default();
    let mut span = Span::default();
    let mut events = 0u64;
    // Entries with records of their own, and inferred ones.
    let (mut entries, mut inferred) = (0u64, 0u64);
    // The number of ended calls, with the times of the first and the last end; and the number of timestamps.
    let (mut calls, mut times) = (0u64, 0u64);
    let mut ends: Option<(Time, Time)> = None;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        for row in batch.rows() {
            events += u64::from(row.record);
            times += u64::from(row.record && row.kind == RowKind::Time);
            if row.record && row.kind == RowKind::Exit {
                calls += 1;
                let (first, last) = ends.unwrap_or((row.time, row.time));
                ends = Some((first.min(row.time), last.max(row.time)));
            } else if row.kind == RowKind::Enter {
                match row.record {
                    true => entries += 1,
                    false => inferred += 1,
                }
            }
        }
        Ok(more(replay.batch_to(info, batch, &mut advisor)))
    });
    replay.finish_to(trace.info(), &mut advisor);
    let info = trace.info();
    advisor.whole_calls = inferred > entries;
    // Open calls began long before the period that the buffer holds.
    let bounds = match advisor.whole_calls {
        true => ends,
        false => span.bounds(),
    };
    let held = bounds.and_then(|(begin, end)| end.since(begin));
    let held = held.unwrap_or_default();
    let names = Names::new(&symbols);
    // A function without an address can't be excluded by a compiler, such as a system call.
    let compiled = |id| {
        let function = info.identities.function(id);
        function.is_some_and(|function| function.address.is_some())
    };
    // Kymo's records: usual sizes of entries and exits on a small target. Records of other formats are assumed to
    // have equal sizes.
    let is_own = info.format == OWN;
    let sized = |count: u64, size: u64| Records {
        count,
        size: if is_own { size } else { 1 },
    };
    let enters = if advisor.whole_calls { 0 } else { entries };
    let filled = Filled {
        enters: sized(enters, 3),
        exits: sized(calls, if advisor.whole_calls { CALL_BYTES } else { 1 }),
        times: sized(times, 8),
        others: sized(events.saturating_sub(enters + calls + times), 7),
        call_size: if is_own { CALL_BYTES } else { 1 },
    };
    let found = advisor.advise(&filled, held, &info.costs, compiled);
    let skipped = found.short.iter().filter_map(|short| {
        let function = info.identities.function(short.function)?;
        function.address
    });
    let skipped: Vec<Addr> = skipped.collect();
    let advice = Printed {
        advice: &found,
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
    if let Some(address) = target {
        let target = TargetArgs::at(address, args.input.baud);
        apply(&target, &skipped, context)?;
    }
    trace.remark(context);
    trace.verdict()
}

/// Makes a target skip these functions, and records again.
fn apply(target: &TargetArgs, skipped: &[Addr], context: &Context) -> Result<(), Report> {
    let mut live = target.connect(context)?;
    duration::check(&live.identity)?;
    if !duration::has_filter(&mut live)? {
        // A program on Linux creates its filter at the first request.
        let all = Command::Duration(KymoDuration::Filter(None, Action::Record));
        match live.target.command(all) {
            Ok(_) => {}
            Err(LinkError::Refused { reason, .. }) => {
                return Err(Report::new(format_args!(
                    "this target has no filter of functions: {reason}"
                ))
                .help(
                    "on a board, give KYMO_DURATION a `filter` of KYMO_DURATION_FILTER(bytes of text) bytes; \
                     on Linux, start the program with KYMO_THRESHOLD=0 in its environment",
                ));
            }
            Err(error) => return Err(explain(error)),
        }
    }
    let was_on = duration::is_on(&mut live)?;
    let mut requested = vec![KymoDuration::Filter(None, Action::Record)];
    let actions = skipped
        .iter()
        .map(|Addr(address)| KymoDuration::Filter(Some(*address), Action::Skip));
    requested.extend(actions);
    if !was_on {
        requested.extend([KymoDuration::Threshold(0), KymoDuration::On(true)]);
    }
    let mut send = |command: Command| {
        context.detail(format_args!("sending {command}"));
        live.target.command(command).map(drop).map_err(explain)
    };
    let changed = [Command::Disable, Command::Off]
        .into_iter()
        .chain(requested.into_iter().map(Command::Duration))
        .chain([Command::Clear, Command::On])
        .try_for_each(&mut send);
    // Sent even after errors, because a target that stays disabled would look dead.
    send(Command::Enable)?;
    changed?;
    context.note(format_args!(
        "the target skips {} from now on (`kymo command 'duration filter all record'` takes that back)",
        counted(skipped.len() as u64, "function")
    ));
    if !was_on {
        context.note(
            "it records calls as one record each now, so that its buffer holds another time than this says",
        );
    }
    Ok(())
}

/// The advice with everything needed to print it.
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
        // Variants of a function that the compiler made have a suffix that the source has not.
        name.split('.').next().unwrap_or_default().to_owned()
    }

    /// The names of the short functions, without duplicates.
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

    /// Further functions that GCC excludes, because its list matches parts of names.
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

    /// The commands that make a target's filter skip the short functions, with the functions' names.
    fn filter_commands(&self) -> Vec<(Command, String)> {
        let command = |short: &Short| {
            let function = self.info.identities.function(short.function)?;
            let Addr(address) = function.address?;
            let skip = KymoDuration::Filter(Some(address), Action::Skip);
            Some((Command::Duration(skip), self.name(short.function)))
        };
        let own = self.info.format == OWN;
        let all = self.advice.short.iter().filter(|_| own);
        all.filter_map(command).collect()
    }

    /// Prints how to record without these functions.
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
        let commands = self.filter_commands();
        if !commands.is_empty() {
            writeln!(
                out,
                "on a target that runs in duration mode (`kymo advise TARGET --apply` sends all of these):"
            )?;
            for (command, name) in commands {
                writeln!(
                    out,
                    "    kymo command '{command}' TARGET    {}",
                    escaped(&name)
                )?;
            }
        }
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
        let names = ["THRESHOLD", "CALLS", "OF THE EVENTS %", "HOLDS AT LEAST"];
        let mut table = Table::new(names.map(|name| (name, Align::Right)));
        for it in &self.advice.thresholds {
            table.row([
                Human(it.threshold).to_string(),
                it.calls.to_string(),
                percent(Duration(it.calls), Duration(self.events)),
                Human(it.holds).to_string(),
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
        object.with("filter_commands", |out| {
            list(out, &self.filter_commands(), |out, (command, _)| {
                string(out, &command.to_string());
            });
        });
        object.with("thresholds", |out| {
            list(out, &self.advice.thresholds, |out, it| {
                let mut object = Object::begin(out);
                object
                    .member("threshold_ns", it.threshold)
                    .member("calls", it.calls)
                    .member("holds_ns", it.holds);
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

/// GCC's option that excludes functions from instrumentation, with commas in names escaped.
fn gcc_option(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| name.replace(',', "\\,")).collect();
    format!(
        "-finstrument-functions-exclude-function-list={}",
        names.join(",")
    )
}
