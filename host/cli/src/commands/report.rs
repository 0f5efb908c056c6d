//! `kymo report`: which functions took the time.

mod by;
mod columns;
mod doubts;
mod entry;
mod fdd;

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use kymo_analysis::call_tree::{CallTree, Edge, View};
use kymo_analysis::calls::{Callee, Step};
use kymo_analysis::profile::{Bounds, Profile};
use kymo_analysis::replay::{Observer, Options, Origin, Replay};
use kymo_analysis::statistics::{Measure, Statistics};
use kymo_event::{Batch, Condition, Duration, TraceInfo};
use kymo_export::json::Object;
use kymo_symbols::Symbols;

use crate::args::{Format, FormatArgs, InputArgs, SymbolArgs};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Part};
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::{are, counted};
use crate::render::palette::Palette;
use crate::render::table::Table;
use crate::span::{Span, remark_replay};
use columns::{Asked, COLUMNS, Column, Needs, USUAL, Whole};
use doubts::{Doubts, Missing};
use entry::{Child, Entry, Place, Relations, describe};

/// The options of `kymo report`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo report trace/ --elf firmware.elf            where the time went, most total time first
  kymo report --sort self -n 10 trace/             the ten functions that work most themselves
  kymo report --sort max trace/                    which function ever took longest
  kymo report --columns +p99,stddev trace/         with how durations are spread
  kymo report --columns name,total,child,child-time trace/    what they spent most time on
  kymo report --having 'avg > 1ms' trace/          only functions that take so long
  kymo report --wall --off-cpu trace/              by the wall, and how much of it did not run
  kymo report --fdd -n 15 -s l trace.dat           the table of ftrace's fdd
  kymo report --begin +2 --end +2.5 trace/         half a second of it
  kymo report --by thread trace/                   how long each thread ran, and waited to run
  kymo report --compensate trace/                  the times without what recording took
  kymo report --format json trace/ | jq .self_ns   one object a line, for programs", after_long_help = columns::help())]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// The column to sort by; names go up, everything else goes down.
    #[arg(
        short, long, value_name = "COLUMN", default_value = "total", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(COLUMNS.iter().map(|column| column.name).chain(["function"]).chain(fdd::SORTS))
    )]
    sort: String,

    /// The columns, separated by commas; behind a + those to show besides the usual ones. `kymo help report` lists them.
    #[arg(long, value_name = "LIST", value_parser = listed)]
    columns: Option<String>,

    /// Only functions of which this column compares so: 'avg > 1ms', 'count >= 10', 'name ~ luaH_*'. Repeatable: all
    /// have to hold.
    #[arg(long, value_name = "COLUMN OP VALUE", value_parser = columns::having)]
    having: Vec<Condition>,

    /// Times by the clock on the wall: with what passed while the thread did not run, and with interrupts.
    #[arg(long, conflicts_with = "compensate")]
    wall: bool,

    /// Show how much of the time by the wall did not run: the column off-cpu.
    #[arg(long)]
    off_cpu: bool,

    /// What a row is: functions, or who had the processors, threads and interrupts.
    #[arg(long, value_name = "WHAT", default_value = "function")]
    by: by::By,

    /// Show only the first N functions.
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<usize>,

    /// Take off the times what recording took, as the target measured it on itself. A column, and in
    /// JSON a member, says how much the rest may still be wrong.
    #[arg(long)]
    compensate: bool,

    #[command(flatten)]
    fdd: fdd::FddArgs,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
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

/// The same with what only some columns need.
struct Detailed<'d> {
    shown: &'d mut Shown,
    details: &'d mut Details,
    info: &'d TraceInfo,
}

impl Observer for Detailed<'_> {
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        if let Some(statistics) = &mut self.details.statistics {
            statistics.step(&step);
        }
        if let Some(tree) = &mut self.details.tree {
            tree.step(self.info, &step);
        }
        self.shown.step(origin, step);
    }
}

/// What only some columns need.
#[derive(Default)]
struct Details {
    statistics: Option<Statistics>,
    tree: Option<CallTree>,
}

impl Details {
    fn needed(columns: &[&Column], measure: Measure) -> Self {
        let needs = |needs| columns.iter().any(|column| column.needs == needs);
        let statistics = needs(Needs::Statistics) || measure == Measure::Wall;
        Self {
            statistics: statistics.then(|| Statistics::new(measure)),
            tree: needs(Needs::Relations).then(|| CallTree::new(false)),
        }
    }

    const fn any(&self) -> bool {
        self.statistics.is_some() || self.tree.is_some()
    }
}

/// The replays that a table takes.
struct TableReplay {
    replay: Replay,
    shown: Shown,
    details: Details,
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
        details: Details,
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
            details,
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
        if self.details.any() {
            let (shown, details) = (&mut self.shown, &mut self.details);
            let mut detailed = Detailed {
                shown,
                details,
                info,
            };
            return self.replay.batch_to(info, batch, &mut detailed);
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
        let (shown, details) = (&mut self.shown, &mut self.details);
        let mut detailed = Detailed {
            shown,
            details,
            info,
        };
        self.replay.finish_to(info, &mut detailed);
    }
}

/// The columns of a table, and by what its rows are chosen and sorted.
struct Choice<'a> {
    columns: Vec<&'static Column>,
    sort: &'static Column,
    having: &'a [Condition],
    measure: Measure,
}

impl<'a> Choice<'a> {
    fn of(args: &'a Args) -> Result<Self, Report> {
        let mut columns = columns::chosen(args.columns.as_deref()).map_err(Report::new)?;
        let add = |columns: &mut Vec<&Column>, name, behind| {
            let place = columns.iter().position(|column| column.name == behind);
            let place = place.map_or(columns.len(), |place| place + 1);
            if columns.iter().all(|column| column.name != name) {
                columns.extend(Column::named(name));
                columns[place..].rotate_right(1);
            }
        };
        if args.off_cpu {
            add(&mut columns, "off-cpu", "self%");
        }
        if args.compensate {
            add(&mut columns, "bound", "self");
        }
        Ok(Self {
            columns,
            sort: Column::named(&args.sort).unwrap_or(&COLUMNS[0]),
            having: &args.having,
            measure: match args.wall {
                true => Measure::Wall,
                false => Measure::OnCpu,
            },
        })
    }

    /// What has to be known for all of it.
    fn details(&self) -> Details {
        let mut needed = self.columns.clone();
        needed.push(self.sort);
        needed.extend(
            self.having
                .iter()
                .filter_map(|it| Column::named(it.field())),
        );
        Details::needed(&needed, self.measure)
    }
}

/// Looks at a list of columns.
fn listed(text: &str) -> Result<String, String> {
    match columns::chosen(Some(text)) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; {}", columns::names())),
    }
}

/// Fills in who calls whom.
fn relate(entries: &mut [Entry], edges: &[Edge], name: impl Fn(Callee) -> std::rc::Rc<str>) {
    let mut relations: HashMap<Callee, Relations> = HashMap::new();
    for edge in edges {
        relations.entry(edge.callee).or_default().callers += 1;
        let caller = relations.entry(edge.caller).or_default();
        caller.callees += 1;
        if caller
            .child
            .as_ref()
            .is_none_or(|child| child.time < edge.total)
        {
            caller.child = Some(Child {
                name: name(edge.callee),
                time: edge.total,
                count: edge.count,
            });
        }
    }
    for entry in entries {
        entry.relations = relations.remove(&entry.callee).unwrap_or_default();
    }
}

/// Shows the table of a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the table of what can be read is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    if args.fdd.fdd {
        return fdd::run(args, context);
    }
    if fdd::SORTS.contains(&args.sort.as_str()) {
        return Err(Report::new(format_args!("{} is no column", args.sort))
            .help("letters are those of fdd, and go with --fdd"));
    }
    let wanted = args.filter.wanted();
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context)?;
    if args.by != by::By::Function {
        args.filter.refuse_call_options("--by")?;
        let how = (args.number, args.format.format);
        return by::run(args.by, &mut trace, &part, how, context);
    }
    let symbols = trace.symbols();
    let choice = Choice::of(args)?;
    let details = choice.details();
    let mut table = TableReplay::new(&trace, &symbols, &part, args.compensate, details)?;
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
                callee,
                place,
                name,
                location,
                count_max: bounds.count(&row),
                total_max: bounds.total(&row).filter(|_| whole),
                self_max: bounds.self_time(&row).filter(|_| whole),
                average: row.average(),
                row,
                taken: None,
                statistic: None,
                off_cpu: Duration(0),
                relations: Relations::default(),
            };
            if let Some(statistics) = &table.details.statistics
                && let Some(statistic) = statistics.of(callee)
            {
                entry.measure(statistic, choice.measure);
            }
            if let Some(compensation) = compensation {
                entry.compensate(compensation, callee);
            }
            entry
        })
        .collect();
    if let Some(tree) = &table.details.tree {
        let name = |callee| describe(callee, &names, &symbols, identities).1;
        relate(&mut entries, &View::new(tree).edges(), name);
    }
    // The share of each is of what all of them did in the window, also of those that are not shown.
    let whole = match &table.all {
        None => sum(entries.iter().map(|entry| entry.row.self_time)),
        Some((_, all)) => sum(all.rows().map(|(_, row)| row.self_time)),
    };
    // Equal ones are in the order of their places: functions by address, then interrupts.
    entries.sort_by(|one, other| {
        let order = choice.sort.order(one, other, whole);
        order.then(one.place.cmp(&other.place))
    });
    let taken = || entries.iter().filter_map(|entry| entry.taken.as_ref());
    let below_zero = taken().filter(|taken| taken.below_zero).count() as u64;
    let callees_below_zero = taken().filter(|taken| taken.callees_below_zero).count() as u64;
    let doubts = Doubts::of(entries.iter().map(|entry| &entry.row));
    entries.retain(|entry| {
        let asked = Asked(entry, whole);
        choice
            .having
            .iter()
            .all(|condition| condition.holds(&asked))
    });
    entries.truncate(args.number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match args.format.format {
        Format::Text => text(out, palette, &choice.columns, &entries, whole)?,
        Format::Json => {
            for entry in &entries {
                json(out, &choice.columns, entry, whole)?;
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

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    columns: &[&Column],
    entries: &[Entry],
    whole: Whole,
) -> std::io::Result<()> {
    let headings = columns
        .iter()
        .map(|column| (column.heading, column.align()));
    let mut table = Table::new(headings);
    let mut named: HashMap<&str, u32> = HashMap::new();
    for entry in entries {
        *named.entry(&entry.name).or_default() += 1;
    }
    for entry in entries {
        table.row(columns.iter().map(|column| match column.name {
            "name" => distinct(entry, named.get(&*entry.name) > Some(&1)),
            _ => column.cell(entry, whole),
        }));
    }
    table.write(out, palette)
}

/// The name of a row, with what tells it from others of the same name, if there are such.
fn distinct(entry: &Entry, shared: bool) -> String {
    let mut name = entry.name.to_string();
    match (entry.place, &entry.location) {
        // Static functions share their names; what tells them apart is where they are.
        (Place::Function(_), Some(location)) if shared => {
            name.push_str(&format!("  ({location})"));
        }
        (Place::Function(address), None) if shared => {
            name.push_str(&format!("  ({:#x})", address.0));
        }
        (Place::Interrupt(irq), _) if name != format!("irq {irq}") => {
            name.push_str(&format!("  (irq {irq})"));
        }
        _ => {}
    }
    name
}

/// One object a line: what is usual, and what other columns show.
fn json(
    out: &mut dyn Write,
    columns: &[&Column],
    entry: &Entry,
    whole: Whole,
) -> std::io::Result<()> {
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
    let others = columns.iter();
    let told =
        |column: &Column| USUAL.contains(&column.name) || ["bound", "file"].contains(&column.name);
    for column in others.filter(|column| !told(column)) {
        column.member(entry, whole, &mut object);
    }
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
