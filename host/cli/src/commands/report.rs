//! `kymo report`: which functions took the time.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use clap::ValueEnum;
use kymo_analysis::calls::{self, Callee, Calls, Step};
use kymo_analysis::compensation::Compensation;
use kymo_analysis::profile::{Profile, Row};
use kymo_analysis::steady::Steady;
use kymo_event::{Addr, Duration, Event, EventKind, Gap, Irq};
use kymo_symbols::{Location, Symbols};

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::averages::{self, Averages};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Selection};
use crate::input::{Events, Moment, Trace};
use crate::names::Names;
use crate::render::count::{are, counted};
use crate::render::duration::Human;
use crate::render::json::Object;
use crate::render::palette::Palette;
use crate::render::table::{Align, Table};

/// The options of `kymo report`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo report trace/ --elf firmware.elf            where the time went, most total time first
  kymo report --sort self -n 10 trace/             the ten functions that work most themselves
  kymo report --sort max trace/                    which function ever took longest
  kymo report --begin +2 --end +2.5 trace/         half a second of it
  kymo report --compensate trace/                  the times without what recording took
  kymo report --format json trace/ | jq .self_ns   one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// What to sort by; names go up, everything else goes down.
    #[arg(short, long, value_name = "KEY", default_value = "total")]
    sort: Key,

    /// Show only the first N functions.
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<usize>,

    /// Take off the times what recording took, as the target measured it on itself. A column, and in
    /// JSON a member, says how much the rest may still be wrong.
    #[arg(long)]
    compensate: bool,

    /// Only what happened in this thread: its id or name, with * and ? as wildcards. Repeatable.
    #[arg(long, value_name = "THREAD", help_heading = "Which events")]
    thread: Vec<String>,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// What a table of functions can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// Time in the function and what it called.
    Total,
    /// Time in the function itself.
    #[value(name = "self")]
    SelfTime,
    /// How often it was called.
    Count,
    /// The average of its calls, those within each other too (which total counts once).
    Avg,
    /// The shortest of its calls.
    Min,
    /// The longest of its calls.
    Max,
    /// Its name.
    Name,
}

/// One line of the table.
struct Entry {
    callee: Callee,
    name: Rc<str>,
    location: Option<Location>,
    row: Row,
    /// Of all its calls, each with its own duration.
    average: Duration,
    /// What was taken off.
    taken: Option<Taken>,
}

/// What was taken off a function's times, and how much what is left may be wrong, either way.
struct Taken {
    total: Duration,
    total_bound: Duration,
    self_time: Duration,
    self_bound: Duration,
    /// Whether more was to be taken off than there was.
    below_zero: bool,
    /// Whether that was so only of what it called.
    callees_below_zero: bool,
}

impl Entry {
    /// Takes off what recording took. `sum` is that of all its calls.
    fn compensate(&mut self, compensation: &Compensation, sum: Duration) {
        let charged = compensation.charged(self.callee);
        let row = &mut self.row;
        let left = charged.left(row, sum);
        self.taken = Some(Taken {
            total: row.total - left.total,
            total_bound: compensation.bound(&charged.total),
            self_time: charged.self_time.cost(),
            self_bound: compensation.bound(&charged.self_time),
            below_zero: charged.self_time.cost() > row.self_time
                || (left.total == Duration(0) && charged.total.cost() > row.total),
            callees_below_zero: left.callees_below_zero && left.total > Duration(0),
        });
        self.average = averages::average(left.each, row);
        (row.total, row.self_time) = (left.total, left.self_time);
        (row.min, row.max) = (charged.min, charged.max);
    }
}

/// What is in no row of the table, because it is not in the trace.
#[derive(Default)]
struct Missing {
    /// Packets that newer ones overwrote.
    overwritten: u64,
    /// Events that were lost, as far as it is known how many, ...
    events: u64,
    /// ... and places at which it is not.
    places: u64,
}

impl Missing {
    fn add(&mut self, kind: &EventKind) {
        let EventKind::Gap(gap) = kind else { return };
        match (gap, gap.lost_events()) {
            (Gap::Overwritten { packets }, _) => {
                self.overwritten = self.overwritten.saturating_add(*packets);
            }
            (_, Some(events)) => self.events = self.events.saturating_add(events),
            (_, None) => self.places += 1,
        }
    }

    fn remark(&self, context: &Context) {
        if self.overwritten > 0 {
            context.note(format_args!(
                "the table is of the newest that was recorded: {} before it, overwritten; a larger buffer \
                 keeps more",
                counted(self.overwritten, "packet")
            ));
        }
        if self.events > 0 {
            context.note(format_args!(
                "what was lost is in no row: {}",
                counted(self.events, "event")
            ));
        }
        if self.places > 0 {
            context.note(format_args!(
                "what was lost is in no row, and it is not known how much that was: {}",
                counted(self.places, "gap")
            ));
        }
    }
}

/// Shows the table of a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the table of what can be read is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let fields = args.filter.needs_fields();
    let mut trace = Trace::open(&args.input, &args.symbols, fields, context)?;
    let mut selection = Selection::new(args.filter.filter(&args.thread));
    let mut profile = Profile::new();
    let mut calls = Calls::new(trace.info(), calls::Options::default());
    let mut averages = Averages::default();
    let mut interrupts: HashMap<Irq, Rc<str>> = HashMap::new();
    for (irq, name) in &trace.info().interrupts {
        interrupts.insert(*irq, name.as_str().into());
    }
    let mut compensation = match args.compensate {
        true => Some(compensated::compensation(trace.info())?),
        false => None,
    };
    let mut add = |mut step: Step<'_>, event: Option<&Event>, taking: &mut Option<Compensation>| {
        profile.add(&step);
        averages.add(&step);
        if let Some(taking) = taking {
            taking.step(event.map(|event| event.stream), &mut step);
        }
    };
    let mut missing = Missing::default();
    let mut take = |event: &Event| {
        missing.add(&event.kind);
        if let EventKind::IsrName { irq, name } = &event.kind {
            interrupts.insert(*irq, name.as_str().into());
        }
        if let Some(compensation) = &mut compensation {
            compensation.event(event);
        }
        calls.push(event, &mut |step| add(step, Some(event), &mut compensation));
    };
    let mut steady = trace.info().steps_back.then(Steady::default);
    let read = selection.of(&mut trace).walk(&mut |moment| {
        match (moment, &mut steady) {
            (Moment::Event(event), None) => take(event),
            (Moment::Event(event), Some(steady)) => {
                steady.push(event.clone(), &mut |event| take(&event));
            }
            _ => {}
        }
        Ok(())
    });
    if let Some(steady) = &mut steady {
        steady.finish(&mut |event| take(&event));
    }
    calls.finish(&mut |step| add(step, None, &mut compensation));

    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    let mut entries: Vec<Entry> = profile
        .rows()
        .map(|(callee, row)| {
            let (name, location) = describe(callee, &names, &symbols, &interrupts);
            let sum = averages.sum(callee);
            let mut entry = Entry {
                callee,
                name,
                location,
                row: *row,
                average: averages::average(sum, row),
                taken: None,
            };
            if let Some(compensation) = &compensation {
                entry.compensate(compensation, sum);
            }
            entry
        })
        .collect();
    entries.sort_by(|one, other| order(args.sort, one, other));
    // The share of each is of what all of them did, also of those that are not shown.
    let whole: u64 = entries
        .iter()
        .map(|entry| entry.row.self_time.0)
        .fold(0, u64::saturating_add);
    let taken = || entries.iter().filter_map(|entry| entry.taken.as_ref());
    let below_zero = taken().filter(|taken| taken.below_zero).count() as u64;
    let callees_below_zero = taken().filter(|taken| taken.callees_below_zero).count() as u64;
    let within_open = profile
        .rows()
        .filter(|(_, row)| row.self_time > row.total && row.open > 0);
    let within_open = within_open.count() as u64;
    entries.truncate(args.number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match args.format.format {
        Format::Text => text(out, palette, &entries, whole)?,
        Format::Json => {
            for entry in &entries {
                json(out, entry)?;
            }
        }
    }
    names.remark(context);
    if let Some(compensation) = &compensation {
        compensated::remark(
            compensation,
            Duration(whole),
            below_zero,
            "function",
            context,
        );
    }
    if callees_below_zero > 0 {
        context.note(format_args!(
            "TOTAL is SELF for {}: what was called took less than the cost of recording it, within the \
             uncertainty of that",
            counted(callees_below_zero, "function")
        ));
    }
    let counts = *calls.counts();
    let doubts = [
        (counts.unwound, "unwound by a jump or an exception"),
        (counts.lost, "whose return is lost"),
        (
            counts.doubtful - counts.doubtful_time,
            "in doubt after a loss",
        ),
        (
            counts.doubtful_time,
            "whose time is in doubt because the clock stepped back or was uncertain, or an interrupt's beginning is missing",
        ),
        (counts.orphans, "that began before what was recorded"),
        (counts.recording_off, "still open when recording went off"),
        (counts.open, "still open at the end"),
    ];
    let doubts = doubts.iter().filter(|(calls, _)| *calls > 0);
    let doubts: Vec<String> = doubts
        .map(|(calls, what)| format!("{calls} {what}"))
        .collect();
    if !doubts.is_empty() {
        let doubts = doubts.join(", ");
        context.note(format_args!(
            "a count is uncertain (±) by such calls: {doubts}"
        ));
    }
    missing.remark(context);
    if within_open > 0 {
        context.note(format_args!(
            "SELF is more than TOTAL for {}: a call of it was still open, and what ended within that one by \
             recursion is not in TOTAL, which counts recursion once",
            counted(within_open, "function")
        ));
    }
    if let Some(steady) = steady.map(|steady| *steady.counts())
        && steady.steps > 0
    {
        context.note(format_args!(
            "the clock was ahead {} and stepped back, by {} that did not pass: taken off the times of \
             what was recorded meanwhile",
            counted(steady.steps, "time"),
            steady.taken.with_unit()
        ));
    }
    if counts.clock_ahead > Duration(0) {
        context.warn(format_args!(
            "TOTAL, AVG and MAX hold {} that did not pass: the clock was ahead in calls that had ended when \
             it stepped back, of which only SELF is put right",
            counts.clock_ahead.with_unit()
        ));
    }
    if counts.jumped > 0 {
        context.note(format_args!(
            "left by longjmp: {}; each ends at the jump, which is known exactly",
            counted(counts.jumped, "call")
        ));
    }
    if counts.too_deep > 0 {
        context.warn(format_args!(
            "{} not in the table, being too deep to follow; the time is the caller's",
            are(counts.too_deep, "call")
        ));
    }
    selection.remark(context);
    read?;
    trace.remark_empty(context);
    trace.verdict()
}

/// What a row is of: its name, and where it is.
fn describe(
    callee: Callee,
    names: &Names<'_>,
    symbols: &Symbols,
    interrupts: &HashMap<Irq, Rc<str>>,
) -> (Rc<str>, Option<Location>) {
    match callee {
        Callee::Function(address) => (names.function(address), symbols.location(address)),
        Callee::Interrupt(irq) => match interrupts.get(&irq) {
            Some(name) => (Rc::clone(name), None),
            None => (format!("irq {irq}").into(), None),
        },
        Callee::Unknown => ("(unknown)".into(), None),
    }
}

/// What comes first. Equal ones are in the order of the table: functions by address, then
/// interrupts.
fn order(key: Key, one: &Entry, other: &Entry) -> Ordering {
    let (a, b) = (&one.row, &other.row);
    match key {
        Key::Total => b.total.cmp(&a.total),
        Key::SelfTime => b.self_time.cmp(&a.self_time),
        Key::Count => b.count.cmp(&a.count),
        Key::Avg => other.average.cmp(&one.average),
        Key::Min => b.min.cmp(&a.min),
        Key::Max => b.max.cmp(&a.max),
        Key::Name => one.name.cmp(&other.name),
    }
}

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    entries: &[Entry],
    whole: u64,
) -> std::io::Result<()> {
    let compensated = entries.iter().any(|entry| entry.taken.is_some());
    let bound = compensated.then_some(("±", Align::Right));
    let before = [
        ("COUNT", Align::Right),
        ("", Align::Left),
        ("TOTAL", Align::Right),
        ("SELF", Align::Right),
    ];
    let behind = [
        ("SELF %", Align::Right),
        ("AVG", Align::Right),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("FUNCTION", Align::Left),
    ];
    let mut table = Table::new(before.into_iter().chain(bound).chain(behind));
    let mut named: HashMap<&str, u32> = HashMap::new();
    for entry in entries {
        *named.entry(&entry.name).or_default() += 1;
    }
    for entry in entries {
        let row = &entry.row;
        let uncertain = match row.uncertain() {
            0 => String::new(),
            calls => format!("± {calls}"),
        };
        let mut name = entry.name.to_string();
        match (entry.callee, &entry.location) {
            // Static functions share their names; what tells them apart is where they are.
            (Callee::Function(_), Some(location)) if named.get(&*entry.name) > Some(&1) => {
                name.push_str(&format!("  ({location})"));
            }
            (Callee::Function(Addr(address)), None) if named.get(&*entry.name) > Some(&1) => {
                name.push_str(&format!("  ({address:#x})"));
            }
            (Callee::Interrupt(irq), _) if name != format!("irq {irq}") => {
                name.push_str(&format!("  (irq {irq})"));
            }
            _ => {}
        }
        let duration = |duration| match row.count {
            // There is no duration of a call that nobody saw from begin to end.
            0 => "-".to_owned(),
            _ => Human(duration).to_string(),
        };
        let bound = entry.taken.as_ref().map(|taken| duration(taken.self_bound));
        let before = [
            row.count.to_string(),
            uncertain,
            duration(row.total),
            duration(row.self_time),
        ];
        let behind = [
            percent(row.self_time.0, whole),
            duration(entry.average),
            duration(row.min),
            duration(row.max),
            name,
        ];
        table.row(before.into_iter().chain(bound).chain(behind));
    }
    table.write(out, palette)
}

/// A share in percent with two decimals, rounded down.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn json(out: &mut dyn Write, entry: &Entry) -> std::io::Result<()> {
    let row = &entry.row;
    let seen = |duration: u64| (row.count > 0).then_some(duration);
    let mut object = Object::begin(out)?;
    object.member("function", &*entry.name)?;
    object.member("count", row.count)?;
    object.member("total_ns", row.total.0)?;
    object.member("self_ns", row.self_time.0)?;
    object.member("min_ns", seen(row.min.0))?;
    object.member("max_ns", seen(row.max.0))?;
    object.member("avg_ns", seen(entry.average.0))?;
    if let Some(taken) = &entry.taken {
        object.member("total_cost_ns", taken.total.0)?;
        object.member("total_bound_ns", taken.total_bound.0)?;
        object.member("self_cost_ns", taken.self_time.0)?;
        object.member("self_bound_ns", taken.self_bound.0)?;
    }
    object.member("uncertain", row.uncertain())?;
    object.member("left_by_longjmp", row.jumped)?;
    object.member("unwound", row.unwound)?;
    object.member("lost", row.lost)?;
    object.member("doubtful", row.doubtful)?;
    object.member("orphans", row.orphans)?;
    object.member("open", row.open)?;
    match entry.callee {
        Callee::Function(address) => object.member("address", address.0)?,
        Callee::Interrupt(irq) => object.member("irq", irq.0)?,
        Callee::Unknown => &mut object,
    };
    if let Some(location) = &entry.location {
        object.member("file", &location.file)?;
        object.member("line", location.line)?;
    }
    object.end()?;
    out.write_all(b"\n")
}
