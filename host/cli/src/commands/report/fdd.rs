//! `kymo report --fdd`: the table of fdd (function duration dump) for ftrace's function_duration, with the same columns
//! and options.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use kymo_analysis::calls::{Callee, End, How, Step, TrackId};
use kymo_analysis::fdd::{self, FddCall, FddRow};
use kymo_analysis::replay::{Observer, Origin, Replay};
use kymo_event::{Cpu, Duration, Event, EventKind, Identities, Time, Value, Wanted};

use super::by::By;
use super::doubts::Missing;
use super::{Args, TableFormat};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::counted;
use crate::render::escape::escaped;

/// fdd's options, with its letters.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "The table of fdd")]
pub struct FddArgs {
    /// Print the table of fdd (Tim Bird's function duration dump), with its meaning: times by the wall, recursion counted as
    /// often as it occurs. The options below are fdd's; -n and -s mean what they mean there.
    #[arg(long, conflicts_with_all = ["columns", "having", "wall", "off_cpu", "compensate"])]
    pub fdd: bool,

    /// With --fdd: only functions with at least so much total time, in nanoseconds.
    #[arg(short = 't', long, value_name = "NANOSECONDS", requires = "fdd")]
    pub fdd_total: Option<u64>,

    /// With --fdd: only calls on one processor, or of one thread: cpu==N or pid==N.
    #[arg(short = 'e', long, value_name = "EXPRESSION", requires = "fdd", value_parser = expression)]
    pub fdd_expression: Option<Expression>,

    /// With --fdd: the columns, one letter each: f function, c count, t time, a average, r range, s sub-time, l local,
    /// m max-sub, n its count, u all subs.
    #[arg(short = 'f', long, value_name = "LETTERS", requires = "fdd", value_parser = letters)]
    pub fdd_format: Option<String>,

    /// With --fdd: the same as -f fctalrsmn.
    #[arg(short = 'l', long, requires = "fdd", conflicts_with = "fdd_format")]
    pub fdd_long: bool,

    /// With --fdd: list the calls in the order of the time they began, in the place of the table.
    #[arg(short = 'd', long, requires = "fdd")]
    pub fdd_calls: bool,
}

/// Filter of calls: `cpu==N` or `pid==N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expression {
    Cpu(u32),
    Pid(u64),
}

impl Expression {
    fn holds(self, call: &FddCall<Callee>, pid: Option<u64>) -> bool {
        match self {
            Self::Cpu(cpu) => call.cpu == Cpu(cpu),
            Self::Pid(wanted) => pid == Some(wanted),
        }
    }
}

fn expression(text: &str) -> Result<Expression, String> {
    let expected = || format!("expected cpu==N or pid==N, found {text:?}");
    let (what, number) = text.split_once("==").ok_or_else(expected)?;
    let number = number.trim();
    match what.trim() {
        "cpu" => number.parse().map(Expression::Cpu),
        "pid" => return number.parse().map(Expression::Pid).map_err(|_| expected()),
        _ => return Err(expected()),
    }
    .map_err(|_| expected())
}

/// Columns: letter, heading, width.
const COLUMNS: [(char, &str, usize); 10] = [
    ('f', "Function", 30),
    ('c', "Count", 5),
    ('t', "Time", 8),
    ('a', "Average", 8),
    ('r', "Range", 18),
    ('s', "Sub-time", 8),
    ('l', "Local", 8),
    ('m', "Max-sub", 30),
    ('n', "Ms cnt", 6),
    ('u', "Sub list", 20),
];

/// Letters of the columns by which fdd sorts.
pub const SORTS: [&str; 6] = ["f", "c", "t", "a", "s", "l"];

fn letters(text: &str) -> Result<String, String> {
    let known = |letter| COLUMNS.iter().any(|(known, ..)| *known == letter);
    match text.chars().find(|letter| !known(*letter)) {
        None => Ok(text.to_owned()),
        Some(letter) => Err(format!(
            "expected letters of fctarslmnu, found {letter:?} in {text:?}"
        )),
    }
}

/// Calls of a trace, each with its pid.
#[derive(Default)]
struct Gathered {
    /// Calls as recorded by ftrace, with their depth in the kernel.
    recorded: Vec<(FddCall<Callee>, Option<u64>)>,
    /// Calls rebuilt from entries and exits; used only if the trace has no recorded ones.
    rebuilt: Vec<(FddCall<Callee>, Option<u64>)>,
    /// CPU, pid and number of each track, for rebuilt calls.
    tracks: HashMap<TrackId, (Option<Cpu>, Option<u64>, u64)>,
    /// Number of rebuilt calls whose entry or exit is missing. fdd has no such calls, so they are in no row.
    not_whole: u64,
    missing: Missing,
}

/// Observer of a replay that collects rebuilt calls.
struct Rebuilding<'g> {
    gathered: &'g mut Gathered,
    identities: &'g Identities,
}

impl Observer for Rebuilding<'_> {
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        match step {
            Step::Track { track, info } => {
                let pid = info.thread().map(|id| self.identities.tid(id).0);
                let known = self.gathered.tracks.entry(track).or_default();
                *known = (known.0.or(info.cpu), pid.or(known.1), u64::from(track.0));
            }
            Step::State { track, cpu, .. } => {
                let known = self.gathered.tracks.entry(track).or_default();
                known.0 = cpu.or(known.0);
            }
            Step::Begin(begin) => {
                let known = self.gathered.tracks.entry(begin.track).or_default();
                known.0 = begin.cpu.or(known.0);
            }
            Step::End(end) => self.gathered.end(&end),
            _ => {}
        }
    }
}

impl Gathered {
    fn end(&mut self, end: &End) {
        let whole = matches!(end.how, How::Returned | How::Jumped) && !end.clipped;
        let (true, Some(begin), Some(duration)) = (whole, end.begin, end.wall) else {
            self.not_whole += 1;
            return;
        };
        let (cpu, pid, thread) = self.tracks.get(&end.track).copied().unwrap_or_default();
        let call = FddCall {
            cpu: cpu.unwrap_or_default(),
            thread,
            begin,
            duration,
            depth: end.depth + 1,
            function: end.callee,
        };
        self.rebuilt.push((call, pid));
    }

    /// Adds a call that ftrace recorded as one record (trace.dat) or one line (text).
    fn record(&mut self, identities: &Identities, event: &Event) {
        let (function, is_line) = match event.kind {
            EventKind::Exit { function } if event.name == "funcgraph_exit" => (function, false),
            // Text has one line for a call without callees; the line of any other entry has no duration.
            EventKind::Enter { function, .. } if event.name == "funcgraph_entry" => {
                (Some(function), true)
            }
            _ => return,
        };
        let number = |name: &str| match event.fields.iter().find(|it| it.name == name)?.value {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        };
        // trace.dat has the times of entry and exit, text has the duration.
        let times = number("calltime").zip(number("rettime"));
        let duration = number("duration").or(times.and_then(|(begin, end)| end.checked_sub(begin)));
        let (Some(function), Some(depth), Some(duration)) = (function, number("depth"), duration)
        else {
            return;
        };
        let pid = event.thread.map(|id| identities.tid(id).0);
        let call = FddCall {
            cpu: event.cpu.unwrap_or_default(),
            thread: pid.unwrap_or_default(),
            begin: match is_line {
                true => event.time,
                false => begin(event, times, duration),
            },
            duration: Duration(duration),
            depth: u32::try_from(depth).unwrap_or(u32::MAX).saturating_add(1),
            function: Callee::Function(function),
        };
        self.recorded.push((call, pid));
    }
}

/// Computes the begin of a call from the record of its exit.
///
/// The record's own begin is used if it is by the clock of the trace, that is, within 1 s of the exit minus the
/// duration. Otherwise the exit minus the duration is the begin.
fn begin(event: &Event, times: Option<(u64, u64)>, duration: u64) -> Time {
    let by_end = event.time.0.saturating_sub_unsigned(duration);
    let own = times.and_then(|(begin, _)| i64::try_from(begin).ok());
    let is_near = |own: &i64| own.abs_diff(by_end) < 1_000_000_000;
    Time(own.filter(is_near).unwrap_or(by_end))
}

/// Shows the table.
///
/// # Errors
/// When the input can't be opened or is damaged; the table of what can be read is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let options = &args.fdd;
    if args.by != [By::Function] {
        return Err(Report::new("--fdd has a row for each function")
            .help("leave out --by; `kymo report --wall --by ...` has times by the wall, too"));
    }
    if args.format != TableFormat::Text {
        return Err(Report::new("--fdd is a layout of its own")
            .help("`kymo report --wall --format json` has the same times"));
    }
    let mut trace = Trace::open(&args.input, &args.symbols, Wanted::Everything, context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context)?;
    if part.chooses_calls() {
        return Err(
            Report::new("--fdd takes -e and -t, and no other choice of calls")
                .help("--begin, --end, --last and --around go with it"),
        );
    }
    let window = part.window();
    let symbols = trace.symbols();
    let mut replay = Replay::new(trace.info(), &symbols, part.replay());
    let mut gathered = Gathered::default();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        let identities = &info.identities;
        for event in batch.iter() {
            gathered.missing.add(event);
            let within = (window.begin..=window.end).contains(&event.row.time);
            if let Some(event) = event.event.filter(|_| within) {
                gathered.record(identities, event);
            }
        }
        if !gathered.recorded.is_empty() {
            gathered.rebuilt.clear();
            gathered.not_whole = 0;
            return Ok(more(batch.iter().all(|it| it.row.time <= window.end)));
        }
        let mut rebuilding = Rebuilding {
            gathered: &mut gathered,
            identities,
        };
        Ok(more(replay.batch_to(info, batch, &mut rebuilding)))
    });
    if gathered.recorded.is_empty() {
        let info = trace.info();
        let identities = &info.identities;
        let mut rebuilding = Rebuilding {
            gathered: &mut gathered,
            identities,
        };
        replay.finish_to(info, &mut rebuilding);
    }
    let (missing, not_whole) = (gathered.missing.what(), gathered.not_whole);
    let calls = match gathered.recorded.is_empty() {
        true => gathered.rebuilt,
        false => gathered.recorded,
    };
    let chosen = |(call, pid): &(FddCall<Callee>, Option<u64>)| {
        let expression = options.fdd_expression;
        expression.is_none_or(|expression| expression.holds(call, *pid))
    };
    let calls = calls.into_iter().filter(chosen);
    let mut calls: Vec<_> = calls.map(|(call, _)| call).collect();
    let names = Names::new(&symbols);
    let identities = &trace.info().identities;
    let name = |callee| names.callee(identities, callee);
    let mut read_by_fdd: Vec<_> = calls.iter().map(|call| call.as_fdd_reads_it()).collect();
    let table = fdd::table(&mut read_by_fdd);
    fdd::sort(&mut calls);
    let (out, _) = context.out();
    match options.fdd_calls {
        true => list(out, &calls, &name)?,
        false => print(out, args, table.rows, &name)?,
    }
    if table.missing_callers > 0 {
        context.note(format_args!(
            "the callers of {} calls were not found, so local times may be too long: they are on other processors, were \
             not recorded, or left out ({} while another call was open)",
            table.missing_callers, table.not_a_caller
        ));
    }
    if not_whole > 0 {
        context.note(format_args!(
            "in no row, as in fdd: {} not seen from entry to exit; `kymo report --wall` has them",
            counted(not_whole, "call")
        ));
    }
    if let Some(missing) = missing {
        context.note(format_args!(
            "lost, and in no row: {missing}: counts and times are at least these"
        ));
    }
    names.remark(identities, context);
    read?;
    trace.remark(context);
    trace.verdict()
}

fn list(
    out: &mut dyn Write,
    calls: &[FddCall<Callee>],
    name: &impl Fn(Callee) -> Rc<str>,
) -> std::io::Result<()> {
    writeln!(out, "#   CALLTIME    DURATION          FUNCTION CALLS")?;
    writeln!(out, "#      |          |   |             |   |   |   |")?;
    for call in calls {
        let ns = call.begin.0;
        let time = format!(
            "{}.{:09}",
            ns.div_euclid(1_000_000_000),
            ns.rem_euclid(1_000_000_000)
        );
        let duration = format!("{}.{:03}", call.duration.0 / 1_000, call.duration.0 % 1_000);
        writeln!(
            out,
            "{}) {time:>15} | {duration:>9} |  {:indent$}{}",
            call.cpu.0,
            "",
            escaped(&name(call.function)),
            indent = 2 * (call.depth as usize - 1)
        )?;
    }
    Ok(())
}

fn print(
    out: &mut dyn Write,
    args: &Args,
    mut rows: Vec<FddRow<Callee>>,
    name: &impl Fn(Callee) -> Rc<str>,
) -> std::io::Result<()> {
    let options = &args.fdd;
    rows.retain(|row| row.total.0 >= options.fdd_total.unwrap_or(0));
    match args.sort.as_deref().unwrap_or_default() {
        "f" | "name" | "function" => rows.sort_by_key(|row| Reverse(name(row.function))),
        "c" | "count" => rows.sort_by_key(|row| Reverse(row.count)),
        "a" | "avg" => rows.sort_by_key(|row| Reverse(row.average())),
        "s" => rows.sort_by_key(|row| Reverse(row.sub)),
        "l" | "self" => rows.sort_by_key(|row| Reverse(row.local())),
        _ => rows.sort_by_key(|row| Reverse(row.total)),
    }
    rows.truncate(args.number.unwrap_or(usize::MAX));
    let letters = match (&options.fdd_format, options.fdd_long) {
        (Some(letters), _) => letters.as_str(),
        (None, true) => "fctalrsmn",
        (None, false) => "fctal",
    };
    let columns = letters.chars();
    let columns = columns.filter_map(|letter| COLUMNS.iter().find(|(known, ..)| *known == letter));
    let columns: Vec<_> = columns.collect();
    let line = |cells: Vec<String>| cells.join(" ");
    let headings = columns
        .iter()
        .map(|(_, heading, width)| format!("{heading:width$}"));
    writeln!(out, "{}", line(headings.collect()))?;
    let rules = columns.iter().map(|(_, _, width)| "-".repeat(*width));
    writeln!(out, "{}", line(rules.collect()))?;
    let us = |duration: Duration| duration.0 / 1_000;
    for row in &rows {
        let cell = |letter, width: usize| {
            let text = match letter {
                'f' => {
                    let name = name(row.function);
                    return format!("{:width$}", escaped(&name));
                }
                'c' => row.count.to_string(),
                't' => us(row.total).to_string(),
                'a' => us(row.average()).to_string(),
                'r' => format!("({}-{})", us(row.min), us(row.max)),
                's' => us(row.sub).to_string(),
                'l' => us(row.local()).to_string(),
                'm' => match row.longest_sub {
                    Some((callee, _)) => escaped(&name(callee)).into_owned(),
                    None => String::new(),
                },
                'n' => row.longest_sub.map_or(0, |(_, count)| count).to_string(),
                _ => {
                    let subs = row.subs.iter();
                    let subs: Vec<_> = subs
                        .map(|(callee, count)| format!("{}({count})", escaped(&name(*callee))))
                        .collect();
                    return subs.join(", ");
                }
            };
            format!("{text:>width$}")
        };
        let cells = columns
            .iter()
            .map(|(letter, _, width)| cell(*letter, *width));
        writeln!(out, "{}", line(cells.collect()).trim_end())?;
    }
    Ok(())
}
