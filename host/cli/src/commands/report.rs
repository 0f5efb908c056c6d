//! `kymo report`: table of functions by time.

mod by;
mod columns;
mod csv;
pub(super) mod doubts;
pub(super) mod entry;
mod fdd;
mod initcalls;
mod output;
pub(super) mod replays;
mod rows;
mod samples;

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use kymo_analysis::profile::Bounds;
use kymo_analysis::replay::Replay;
use kymo_analysis::schedule::Schedule;
use kymo_analysis::statistics::Measure;
use kymo_event::{Condition, Duration, Wanted};

use crate::args::{Format, InputArgs, SymbolArgs, rows};
use crate::commands::compensated;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{FilterArgs, Part};
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::{are, counted};
use crate::render::unit;
use crate::span::{Span, remark_replay};
use by::{By, Keys};
use columns::{COLUMNS, Column, Needs, OF_CPUS, OF_INTERRUPTS, OF_THREADS, Requested, USUAL};
use doubts::Doubts;
use replays::{Details, Grouping, TableReplay};
use rows::Rows;

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
  kymo report --by thread,function trace/          the functions of each thread apart
  kymo report --by file trace/                     which source file took the time; also line, cpu, space, call-site
  kymo report --initcalls -n 20 boot.dat           what took a Linux kernel longest to boot
  kymo report --samples --elf fw.elf swo.toml      where the samples of a DWT lie
  kymo report --compensate trace/                  the times without what recording took
  kymo report --format json trace/ | jq .self_ns   one object a line, for programs
  kymo report --format csv trace/ > table.csv      the columns that are shown, for spreadsheets", after_long_help = columns::help())]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// The column to sort by [default: total; of threads, interrupts and processors run]; names go up, everything else
    /// goes down.
    #[arg(
        short, long, value_name = "COLUMN", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(COLUMNS.iter().map(|column| column.name).chain(fdd::SORTS))
    )]
    sort: Option<String>,

    /// The columns, separated by commas; behind a + those to show besides the usual ones. `kymo help report` lists them.
    #[arg(long, value_name = "LIST", value_parser = listed)]
    columns: Option<String>,

    /// Only functions of which this column compares so: 'avg > 1ms', 'count >= 10', 'name ~ luaH_*'. Repeatable: all
    /// have to hold.
    #[arg(long, value_name = "COLUMN OP VALUE", value_parser = columns::having)]
    having: Vec<columns::Having>,

    /// Times by the clock on the wall: with what passed while the thread did not run, and with interrupts.
    #[arg(long, conflicts_with = "compensate")]
    wall: bool,

    /// Show how much of the time by the wall did not run: the column off-cpu.
    #[arg(long)]
    off_cpu: bool,

    /// What a row is of. Several, separated by commas, have a row for each that occur together: thread,function.
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "function",
        hide_possible_values = false
    )]
    by: Vec<By>,

    /// Show only the first N rows; 0 for all.
    #[arg(short = 'n', long, value_name = "N", value_parser = rows)]
    number: Option<usize>,

    /// Take off the times what recording took, as the target measured it on itself. A column, and in
    /// JSON a member, says how much the rest may still be wrong.
    #[arg(long)]
    compensate: bool,

    /// Show what a Linux kernel did while it booted: its initcalls, with level, time and result.
    #[arg(long, conflicts_with_all = ["by", "sort", "columns", "having", "wall", "off_cpu", "compensate", "fdd"])]
    initcalls: bool,

    /// Show in which functions the hardware's samples of the program counter lie (DWT of a Cortex-M), in the place of calls.
    #[arg(long, conflicts_with_all = [
        "by", "sort", "columns", "having", "wall", "off_cpu", "compensate", "fdd", "initcalls",
    ])]
    samples: bool,

    #[command(flatten)]
    fdd: fdd::FddArgs,

    #[command(flatten)]
    filter: FilterArgs,

    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: TableFormat,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// How to print the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TableFormat {
    /// For people.
    Text,
    /// For programs: JSON, one object a line.
    Json,
    /// For spreadsheets: the columns that are shown, as comma-separated values.
    Csv,
}

/// The sum of times.
fn sum(times: impl Iterator<Item = Duration>) -> Duration {
    times.fold(Duration(0), |sum, time| sum + time)
}

/// The columns of a table, and the criteria to filter and sort its rows.
struct Choice {
    columns: Vec<&'static Column>,
    sort: &'static Column,
    having: Vec<Condition>,
    measure: Measure,
}

impl Choice {
    /// Evaluates the options; `usual` are the table's default columns.
    fn of(args: &Args, usual: &[&str], usual_sort: &str) -> Result<Self, Report> {
        // The last of several properties is the name of a row.
        let above = args.by.split_last().map_or(&[][..], |(_, above)| above);
        let above = above.iter().map(|by| match by {
            By::Function => "function",
            by => by.column(),
        });
        let mut usual = usual.to_vec();
        usual.retain(|name| above.clone().all(|by| by != *name));
        let place = usual.len().saturating_sub(1);
        usual.splice(place..place, above);
        let mut columns = columns::chosen(args.columns.as_deref(), &usual).map_err(Report::new)?;
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
            sort: Column::named(args.sort.as_deref().unwrap_or(usual_sort)).unwrap_or(&COLUMNS[0]),
            having: args
                .having
                .iter()
                .map(columns::Having::condition)
                .collect::<Result<_, _>>()?,
            measure: match args.wall {
                true => Measure::Wall,
                false => Measure::OnCpu,
            },
        })
    }

    /// Adds a column with the address space of a row.
    fn show_spaces(&mut self) {
        let place = self.columns.iter().position(|column| column.name == "name");
        if let (Some(place), Some(spaces)) = (place, Column::named("space"))
            && self.columns.iter().all(|column| column.name != "space")
        {
            self.columns.insert(place, spaces);
        }
    }

    /// The details that all columns need.
    fn details(&self) -> Details {
        Details::needed(&self.needed(), self.measure)
    }

    /// The column, if any, that needs run times of threads and interrupts.
    fn asks_for_runs(&self) -> Option<&'static str> {
        let needed = self.needed();
        let of_runs = needed.iter().find(|it| it.needs == Needs::Schedule);
        of_runs.map(|column| column.name)
    }

    /// Whether any column is about calls.
    fn shows_calls(&self) -> bool {
        let of_calls = |column: &&Column| column.needs != Needs::Schedule && column.name != "name";
        self.columns.iter().any(of_calls)
    }

    /// All columns that are needed.
    fn needed(&self) -> Vec<&'static Column> {
        let mut needed = self.columns.clone();
        needed.push(self.sort);
        needed.extend(
            self.having
                .iter()
                .filter_map(|it| Column::named(it.field())),
        );
        needed
    }
}

/// The analysis of run times, for tables of threads, interrupts and processors.
fn schedule(by: &[By], part: &Part, context: &Context) -> Option<Schedule> {
    if !matches!(by, [By::Thread | By::Irq | By::Cpu]) {
        return None;
    }
    // A table of threads does not show which threads run on a processor, and no table shows which thread an interrupt
    // preempted.
    let of_threads = *by != [By::Thread] && part.filter.chooses_threads();
    if of_threads || !part.chooses_places_alone() {
        context.note(
            "run times are of all that happened: where calls, events or streams are chosen, the table is of their calls",
        );
        return None;
    }
    Some(Schedule::new(part.window()).of_cpus(part.filter.cpus.clone()))
}

/// Refuses combinations of options that exclude each other.
fn check(args: &Args) -> Result<(), Report> {
    if let Some(sort) = args.sort.as_deref()
        && fdd::SORTS.contains(&sort)
    {
        return Err(Report::new(format_args!("{sort} is no column"))
            .help("letters are those of fdd, and go with --fdd"));
    }
    let twice = (1..args.by.len()).find(|at| args.by[..*at].contains(&args.by[*at]));
    if let Some(twice) = twice {
        return Err(Report::new(format_args!(
            "--by has {} twice",
            args.by[twice].member()
        )));
    }
    if args.compensate && args.by != [By::Function] {
        return Err(Report::new(
            "--compensate takes the cost off functions, and these rows are of something else",
        )
        .help("leave out --by"));
    }
    Ok(())
}

/// Checks a list of columns.
fn listed(text: &str) -> Result<String, String> {
    match columns::chosen(Some(text), &USUAL) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; {}", columns::names())),
    }
}

/// Shows the table of a saved trace.
///
/// # Errors
/// When the input can't be opened or is damaged; the table of all readable parts is shown before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    if args.fdd.fdd {
        return fdd::run(args, context);
    }
    check(args)?;
    let mut wanted = args.filter.wanted();
    if args.initcalls {
        wanted = wanted.max(Wanted::Details);
    }
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context)?;
    if args.initcalls || args.samples {
        let option = match args.initcalls {
            true => "--initcalls",
            false => "--samples",
        };
        args.filter.refuse_call_options(option)?;
        let format = match args.format {
            TableFormat::Text => Format::Text,
            TableFormat::Json => Format::Json,
            TableFormat::Csv => {
                return Err(Report::new(format_args!("{option} gives text or JSON"))
                    .help(format_args!("`kymo report {option} --format json`")));
            }
        };
        let shown = (args.number, format);
        return match args.initcalls {
            true => initcalls::run(&mut trace, &part, shown, context),
            false => samples::run(&mut trace, part, shown, context),
        };
    }
    let symbols = trace.symbols();
    let mut choice = Choice::of(args, columns::usual(trace.info(), &args.by), "total")?;
    let of_functions = args.by == [By::Function];
    let grouping = (!of_functions).then(|| Grouping {
        groups: Default::default(),
        keys: Keys::new(args.by.clone(), &symbols),
    });
    let details = choice.details();
    let mut table = TableReplay::new(&trace, &symbols, &part, args.compensate, details, grouping)?;
    table.schedule = schedule(&args.by, &part, context);
    if let (None, Some(column)) = (&table.schedule, choice.asks_for_runs()) {
        return Err(Report::new(format_args!(
            "the column {column} is of threads, interrupts or processors as a whole"
        ))
        .help("it goes with --by thread, irq or cpu, and with no choice of calls or events"));
    }
    let mut span = Span::default();
    let mut sampled = 0;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        sampled += samples::count(info, batch);
        Ok(more(table.batch(info, batch)))
    });
    table.finish(trace.info());
    let (profile, replay) = (&table.shown.profile, &table.replay);
    let compensation = table.charges.as_ref().and_then(Replay::compensation);
    let identities = &trace.info().identities;
    let names = Names::new(&symbols);
    let whole = table.all.as_ref().map_or(profile, |(_, all)| all);
    let bounds = Bounds::of(replay.counts(), whole);
    let rows = Rows {
        by: &args.by,
        names: &names,
        symbols: &symbols,
        info: trace.info(),
    };
    let mut entries = rows.of_calls(&table, &bounds, choice.measure);
    // Without switches, threads have no times, and processors only those of interrupts.
    let reports = |schedule: &&Schedule| match args.by[..] {
        [By::Thread] => schedule.has_switches(),
        [By::Irq] => schedule.has_interrupts(),
        _ => schedule.has_switches() || schedule.has_interrupts(),
    };
    let schedule = table.schedule.as_ref().filter(reports);
    if let Some(schedule) = schedule {
        rows.add_runs(&mut entries, schedule, &part.filter);
        let usual = match args.by.first() {
            Some(By::Irq) => &OF_INTERRUPTS[..],
            Some(By::Cpu) => &OF_CPUS,
            _ => &OF_THREADS,
        };
        choice = Choice::of(args, usual, "run")?;
    }
    let chooses_columns = args
        .columns
        .as_deref()
        .is_some_and(|text| !text.starts_with('+'));
    if of_functions && !chooses_columns && columns::has_namesakes(&entries) {
        choice.show_spaces();
    }
    // Shares are relative to all rows in the window, including those that are not shown.
    let whole = match &table.all {
        None => sum(entries.iter().map(|entry| entry.row.self_time)),
        Some((_, all)) => sum(all.rows().map(|(_, row)| row.self_time)),
    };
    // Equal rows are sorted by their places: functions by address, then interrupts.
    entries.sort_by(|one, other| {
        let order = choice.sort.order(one, other, whole);
        let by_count = || other.row.count.cmp(&one.row.count);
        let order = match one.is_without_ends() && other.is_without_ends() {
            true => order.then_with(by_count),
            false => order,
        };
        let order = order.then(one.place.cmp(&other.place));
        order.then_with(|| one.name().cmp(other.name()))
    });
    let taken = || entries.iter().filter_map(|entry| entry.taken.as_ref());
    let below_zero = taken().filter(|taken| taken.below_zero).count() as u64;
    let callees_below_zero = taken().filter(|taken| taken.callees_below_zero).count() as u64;
    let doubts = Doubts::of(entries.iter().map(|entry| &entry.row));
    let has_rows = !entries.is_empty();
    entries.retain(|entry| {
        let requested = Requested(entry, whole);
        choice
            .having
            .iter()
            .all(|condition| condition.holds(&requested))
    });
    entries.truncate(args.number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match args.format {
        TableFormat::Text => {
            output::text(out, palette, &args.by, &choice.columns, &entries, whole)?;
            if let (Some(schedule), [By::Thread]) = (schedule, &args.by[..]) {
                output::idle(out, schedule)?;
            }
        }
        TableFormat::Csv => csv::write(out, &choice.columns, &entries, whole)?,
        TableFormat::Json => {
            let is_wall = args.wall || trace.info().wall_times;
            for entry in &entries {
                output::json(out, &args.by, &choice.columns, entry, whole, is_wall)?;
            }
        }
    }
    if !has_rows && table.schedule.is_none() && sampled == 0 {
        part.remark_no_calls(context);
    }
    if sampled > 0 {
        context.note(format_args!(
            "{} of the program counter: --samples shows in which functions",
            counted(sampled, "sample")
        ));
    }
    if has_rows && entries.is_empty() && !choice.having.is_empty() {
        context.note("no row of the table meets --having");
    }
    if let Some(all) = &table.schedule
        && (schedule.is_none() || (!all.has_switches() && args.by == [By::Cpu]))
    {
        let missing = match (&args.by[..], all.has_interrupts()) {
            ([By::Irq], _) => "interrupts",
            (_, true) => "thread switches",
            _ => "thread switches and interrupts",
        };
        let times = match schedule {
            None => "times are those of calls",
            Some(_) => "RUN is what interrupts took",
        };
        context.note(format_args!("the trace tells of no {missing}: {times}"));
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
    if choice.shows_calls() {
        doubts.remark(args.wall, context);
    }
    if let Some(gaps) = schedule.map(Schedule::gaps).filter(|gaps| *gaps > 0) {
        context.warn(format_args!(
            "{}: RUNS are at least these, and the times of threads and interrupts uncertain",
            counted(gaps, "gap")
        ));
    }
    table.shown.missing.remark(&bounds, context);
    if let Some(clock_repair) = replay.clock_repair()
        && clock_repair.steps > 0
    {
        context.note(format_args!(
            "the clock was ahead {} and stepped back, by {} that did not pass: taken off the times of \
             what was recorded meanwhile",
            counted(clock_repair.steps, "time"),
            unit::in_words(clock_repair.taken)
        ));
    }
    if counts.clock_ahead > Duration(0) {
        context.warn(format_args!(
            "MIN and MAX may hold {} that did not pass: the clock was ahead in calls that had ended when it \
             stepped back; the other times are without it",
            unit::in_words(counts.clock_ahead)
        ));
    }
    if counts.too_deep > 0 {
        context.warn(format_args!(
            "{} not in the table, being too deep to follow (+); the time is the caller's",
            are(counts.too_deep, "call")
        ));
    }
    read.and(remark_replay(replay, span, context))?;
    trace.remark(context);
    trace.verdict()
}
