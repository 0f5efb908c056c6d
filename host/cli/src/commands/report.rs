//! `kymo report`: which functions took the time.

mod doubts;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use clap::ValueEnum;
use kymo_analysis::calls::{Callee, Step};
use kymo_analysis::compensation::Compensation;
use kymo_analysis::profile::{self, Bounds, Profile, Row};
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_event::{Addr, Batch, Duration, Identities, Irq, TraceInfo};
use kymo_export::json::Object;
use kymo_symbols::{Location, Symbols};

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Part};
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::{are, counted};
use crate::render::duration::Human;
use crate::render::palette::Palette;
use crate::render::share::percent;
use crate::render::table::{Align, Table};
use crate::span::{Span, remark_replay};
use doubts::{Doubts, Missing};

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
    place: Place,
    name: Rc<str>,
    location: Option<Location>,
    row: Row,
    /// How many calls there were at most; `None` if that is not known.
    count_max: Option<u64>,
    /// How much the times can be at most; `None` if that is not known.
    total_max: Option<Duration>,
    self_max: Option<Duration>,
    /// Of its complete calls, each with its own duration.
    average: Duration,
    /// What was taken off.
    taken: Option<Taken>,
}

/// Where a function or interrupt is on its target. What is equal otherwise is in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Function(Addr),
    /// Of a function that has no address.
    Name,
    Interrupt(Irq),
    Unknown,
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
    /// Takes off what recording took of the calls of `callee`.
    fn compensate(&mut self, compensation: &Compensation, callee: Callee) {
        let charged = compensation.charged(callee);
        let row = &mut self.row;
        let left = charged.left(row);
        let taken = Taken {
            total: row.total - left.total,
            total_bound: compensation.bound(&charged.total),
            self_time: charged.self_time.cost(),
            self_bound: compensation.bound(&charged.self_time),
            below_zero: charged.self_time.cost() > row.self_time
                || (left.total == Duration(0) && charged.total.cost() > row.total),
            callees_below_zero: left.callees_below_zero && left.total > Duration(0),
        };
        self.average = profile::average(left.each, row.complete);
        self.total_max = self.total_max.map(|most| most - taken.total);
        self.self_max = self.self_max.map(|most| most - taken.self_time);
        (row.total, row.self_time) = (left.total, left.self_time);
        (row.min, row.max) = (charged.min, charged.max);
        self.taken = Some(taken);
    }

    /// Whether a time is a lower bound: calls were open, or began before what was recorded, or more may be
    /// hidden by a loss.
    fn is_at_least(&self, time: Duration, most: Option<Duration>) -> bool {
        self.row.open > 0 || self.row.orphans > 0 || most != Some(time)
    }
}

/// The sum of times.
fn sum(times: impl Iterator<Item = Duration>) -> Duration {
    times.fold(Duration(0), |sum, time| sum + time)
}

/// What the table is made of.
#[derive(Default)]
struct Shown {
    profile: Profile,
    missing: Missing,
}

impl Observer for Shown {
    #[inline(always)]
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        if let Step::Event { event, .. } = &step {
            self.missing.add(*event);
        }
        self.profile.step(origin, step);
    }
}

/// The replays that a table takes.
struct TableReplay {
    replay: Replay,
    shown: Shown,
    /// What is in the window besides, where not all of it is shown: percentages are of the whole.
    all: Option<(Replay, Profile)>,
    /// What recording took is taken off sums, which are right, and not call by call, where it can be more
    /// than there was: so the table needs the times as they were recorded, and the charges beside them.
    charges: Option<Replay>,
}

impl TableReplay {
    fn new(
        trace: &Trace,
        symbols: &Arc<Symbols>,
        part: &Part,
        compensate: bool,
    ) -> Result<Self, Report> {
        let info = trace.info();
        let window_alone = Options {
            window: part.window(),
            ..Options::default()
        };
        if compensate {
            compensated::check(info)?;
            if part.chooses_calls() {
                return Err(Report::new(
                    "--compensate takes the cost off whole functions, and these options choose single calls",
                )
                .help("--begin and --end go with it, and `kymo show --compensate` takes the others"));
            }
        }
        let charged = Options {
            compensate: true,
            ..window_alone.clone()
        };
        Ok(Self {
            replay: Replay::new(info, symbols, part.replay()),
            shown: Shown::default(),
            all: part.chooses_calls().then(|| {
                let replay = Replay::new(info, symbols, window_alone);
                (replay, Profile::new())
            }),
            charges: compensate.then(|| Replay::new(info, symbols, charged)),
        })
    }

    /// Takes the next events; whether more are needed.
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> bool {
        if let Some((replay, profile)) = &mut self.all {
            replay.batch_to(info, batch, profile);
        }
        if let Some(charges) = &mut self.charges {
            charges.batch(info, batch, &mut |_, _| {});
        }
        self.replay.batch_to(info, batch, &mut self.shown)
    }

    fn finish(&mut self, info: &TraceInfo) {
        if let Some((replay, profile)) = &mut self.all {
            replay.finish_to(info, profile);
        }
        if let Some(charges) = &mut self.charges {
            charges.finish(info, &mut |_, _| {});
        }
        self.replay.finish_to(info, &mut self.shown);
    }
}

/// Shows the table of a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the table of what can be read is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let wanted = args.filter.wanted();
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context)?;
    let symbols = trace.symbols();
    let mut table = TableReplay::new(&trace, &symbols, &part, args.compensate)?;
    let mut span = Span::default();
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        Ok(more(table.batch(info, batch)))
    });
    table.finish(trace.info());
    let (profile, replay) = (&table.shown.profile, &table.replay);
    let compensation = table.charges.as_ref().and_then(Replay::compensation);
    let identities = &trace.info().identities;
    let names = Names::new(&symbols);
    let whole = table.all.as_ref().map_or(profile, |(_, all)| all);
    let bounds = Bounds::of(replay.counts(), whole);
    let mut entries: Vec<Entry> = profile
        .rows()
        .map(|(callee, row)| {
            let (place, name, location) = describe(callee, &names, &symbols, identities);
            // A call that began before what was recorded took nobody knows how long.
            let whole = row.orphans == 0;
            let mut entry = Entry {
                place,
                name,
                location,
                count_max: bounds.count(&row),
                total_max: bounds.total(&row).filter(|_| whole),
                self_max: bounds.self_time(&row).filter(|_| whole),
                average: row.average(),
                row,
                taken: None,
            };
            if let Some(compensation) = compensation {
                entry.compensate(compensation, callee);
            }
            entry
        })
        .collect();
    entries.sort_by(|one, other| order(args.sort, one, other));
    // The share of each is of what all of them did in the window, also of those that are not shown.
    let whole = match &table.all {
        None => sum(entries.iter().map(|entry| entry.row.self_time)),
        Some((_, all)) => sum(all.rows().map(|(_, row)| row.self_time)),
    };
    let taken = || entries.iter().filter_map(|entry| entry.taken.as_ref());
    let below_zero = taken().filter(|taken| taken.below_zero).count() as u64;
    let callees_below_zero = taken().filter(|taken| taken.callees_below_zero).count() as u64;
    let doubts = Doubts::of(entries.iter().map(|entry| &entry.row));
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
    names.remark(identities, context);
    if let Some(compensation) = compensation {
        compensated::remark(compensation, whole, below_zero, "function", context);
    }
    if callees_below_zero > 0 {
        context.note(format_args!(
            "TOTAL is SELF for {}: what was called took less than the cost of recording it, within the \
             uncertainty of that",
            counted(callees_below_zero, "function")
        ));
    }
    let counts = *replay.counts();
    doubts.remark(context);
    table.shown.missing.remark(&bounds, context);
    if let Some(clock_repair) = replay.clock_repair()
        && clock_repair.steps > 0
    {
        context.note(format_args!(
            "the clock was ahead {} and stepped back, by {} that did not pass: taken off the times of \
             what was recorded meanwhile",
            counted(clock_repair.steps, "time"),
            clock_repair.taken.with_unit()
        ));
    }
    if counts.clock_ahead > Duration(0) {
        context.warn(format_args!(
            "TOTAL, AVG and MAX hold {} that did not pass: the clock was ahead in calls that had ended when \
             it stepped back, of which only SELF is put right",
            counts.clock_ahead.with_unit()
        ));
    }
    if counts.too_deep > 0 {
        context.warn(format_args!(
            "{} not in the table, being too deep to follow; the time is the caller's",
            are(counts.too_deep, "call")
        ));
    }
    remark_replay(replay, span, context);
    read?;
    trace.remark_empty(context);
    trace.verdict()
}

/// What a row is of: where it is on the target, its name, and where it stands in the source.
fn describe(
    callee: Callee,
    names: &Names<'_>,
    symbols: &Symbols,
    identities: &Identities,
) -> (Place, Rc<str>, Option<Location>) {
    match callee {
        Callee::Function(id) => {
            let function = identities.function(id);
            let address = function.and_then(|function| function.address);
            let location = address.and_then(|address| symbols.location(address));
            let place = address.map_or(Place::Name, Place::Function);
            (place, names.function(identities, id), location)
        }
        Callee::Interrupt(id) => {
            let irq = identities.irq(id);
            let name = identities.interrupt_name(id);
            let name = name.map_or_else(|| format!("irq {irq}").into(), Rc::from);
            (Place::Interrupt(irq), name, None)
        }
        Callee::Unknown => (Place::Unknown, "(unknown)".into(), None),
    }
}

/// What comes first. Equal ones are in the order of their places: functions by address, then interrupts.
fn order(key: Key, one: &Entry, other: &Entry) -> Ordering {
    let (a, b) = (&one.row, &other.row);
    let order = match key {
        Key::Total => b.total.cmp(&a.total),
        Key::SelfTime => b.self_time.cmp(&a.self_time),
        Key::Count => b.count.cmp(&a.count),
        Key::Avg => other.average.cmp(&one.average),
        Key::Min => b.min.cmp(&a.min),
        Key::Max => b.max.cmp(&a.max),
        Key::Name => one.name.cmp(&other.name),
    };
    order.then(one.place.cmp(&other.place))
}

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    entries: &[Entry],
    whole: Duration,
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
        let missing = match entry.count_max {
            None => "(+?)".to_owned(),
            Some(most) if most > row.count => format!("(+{})", most - row.count),
            Some(_) => String::new(),
        };
        let mut name = entry.name.to_string();
        match (entry.place, &entry.location) {
            // Static functions share their names; what tells them apart is where they are.
            (Place::Function(_), Some(location)) if named.get(&*entry.name) > Some(&1) => {
                name.push_str(&format!("  ({location})"));
            }
            (Place::Function(Addr(address)), None) if named.get(&*entry.name) > Some(&1) => {
                name.push_str(&format!("  ({address:#x})"));
            }
            (Place::Interrupt(irq), _) if name != format!("irq {irq}") => {
                name.push_str(&format!("  (irq {irq})"));
            }
            _ => {}
        }
        let seen = row.count > row.orphans;
        let at_least = |time: Duration, most| match (seen, entry.is_at_least(time, most)) {
            // There is no duration of a call that nobody saw begin.
            (false, _) => "-".to_owned(),
            (true, true) => format!("≥{}", Human(time)),
            (true, false) => Human(time).to_string(),
        };
        let of_complete = |time: Duration| match (row.complete, row.clock) {
            (0, _) => "-".to_owned(),
            (_, 0) => Human(time).to_string(),
            _ => format!("{}?", Human(time)),
        };
        let bound = entry.taken.as_ref();
        let bound = bound.map(|taken| Human(taken.self_bound).to_string());
        let before = [
            row.count.to_string(),
            missing,
            at_least(row.total, entry.total_max),
            at_least(row.self_time, entry.self_max),
        ];
        let behind = [
            percent(row.self_time, whole),
            of_complete(entry.average),
            of_complete(row.min),
            of_complete(row.max),
            name,
        ];
        table.row(before.into_iter().chain(bound).chain(behind));
    }
    table.write(out, palette)
}

fn json(out: &mut dyn Write, entry: &Entry) -> std::io::Result<()> {
    let row = &entry.row;
    let complete = |duration: Duration| (row.complete > 0).then_some(duration);
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    object
        .member("function", &*entry.name)
        .member("count", row.count)
        .member("count_max", entry.count_max)
        .member("total_ns", row.total)
        .member("total_max_ns", entry.total_max)
        .member("self_ns", row.self_time)
        .member("self_max_ns", entry.self_max)
        .member("min_ns", complete(row.min))
        .member("max_ns", complete(row.max))
        .member("avg_ns", complete(entry.average));
    if let Some(taken) = &entry.taken {
        object
            .member("total_cost_ns", taken.total)
            .member("total_bound_ns", taken.total_bound)
            .member("self_cost_ns", taken.self_time)
            .member("self_bound_ns", taken.self_bound);
    }
    object
        .member("complete", row.complete)
        .member("left_by_longjmp", row.jumped)
        .member("unwound", row.unwound)
        .member("lost", row.lost)
        .member("doubtful", row.doubtful)
        .member("orphans", row.orphans)
        .member("open", row.open)
        .member("clipped", row.clipped);
    match entry.place {
        Place::Function(address) => object.member("address", address),
        Place::Interrupt(irq) => object.member("irq", irq),
        Place::Name | Place::Unknown => &mut object,
    };
    if let Some(location) = &entry.location {
        object
            .member("file", &location.file)
            .member("line", location.line);
    }
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
