//! `kymo profile`: profile table that the target itself keeps.
//!
//! A target without memory for a trace still has this table. It has the columns of `kymo report`, and over a capture
//! without loss the same values; the target reports what it could not count. The table of Zephyr's own
//! instrumentation has only totals.

mod json;
mod memory;
mod zephyr;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use kymo_analysis::calls::Callee;
use kymo_analysis::profile::{self, Profile};
use kymo_analysis::replay::{Options, Replay};
use kymo_event::{Addr, ClockVerdict, Duration, FunctionId, Identities, Wanted};
use kymo_read::profile_table::{self, FunctionProfile, OnCpu, ProfileTable};
use kymo_read::{OpenOptions, Saved, Source};
use kymo_symbols::Symbols;
use kymo_wire::link::Identity;
use kymo_wire::profile::TABLE_MAGIC;

use super::report::doubts::Missing;
use crate::args::{Format, FormatArgs, InputArgs, MemoryArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::gdb;
use crate::input::{Events, Moment, Trace, is_pipe, more, name_of, open, refused};
use crate::names::Names;
use crate::output::{Inputs, protect, write_file};
use crate::recording;
use crate::render::count::{are, counted};
use crate::render::duration::Human;
use crate::render::palette::Palette;
use crate::render::share::percent;
use crate::render::table::{Align, Table};
use crate::target::{
    Either, Live, TargetArgs, USUAL_WAIT, What, address_in, incomplete, trace_info, wait_time,
};

/// Default number of functions shown.
const FUNCTIONS: usize = 100;

/// Upper bound on the length of the identity line in a saved table.
const LINE_MAX: u64 = 4096;

/// The options of `kymo profile`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo profile --elf firmware.elf                  the board on /dev/ttyACM0
  kymo profile -n 20 --target tcp:localhost:4000   the first twenty functions
  kymo profile --reboot --elf firmware.elf         from the start of the program on
  kymo profile -o table.profile                    keep the table as the target sent it
  kymo profile table.profile --elf firmware.elf    and look at it later
  kymo profile ram.bin --elf firmware.elf          the table in a dump of its memory (a core file, plain bytes)
  kymo profile gdb::3333 --elf firmware.elf        the same by a debug server")]
pub struct Args {
    /// The target: a serial port, or tcp:HOST:PORT; --target says the same. Or a kept table, a saved
    /// trace, or with --elf a dump of the target's memory in its place.
    #[arg(value_name = "INPUT", conflicts_with_all = ["target", "serial"])]
    input: Option<PathBuf>,

    /// Show the first N functions, those with the most total time; 0 for all.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        num_args = 0..=1,
        default_value_t = FUNCTIONS,
        default_missing_value = "100"
    )]
    number: usize,

    /// Reboot the target first, and wait until its recording ends.
    #[arg(short, long)]
    reboot: bool,

    /// How long to wait for that: 60 (seconds), 300ms; a target of Zephyr's does not tell of its end, and has all
    /// of that time [default: 10; of Zephyr's: 2].
    #[arg(long, value_name = "TIME", requires = "reboot", value_parser = wait_time)]
    wait: Option<std::time::Duration>,

    /// Keep the table in this file, as the target sent it, with who sent it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    memory: MemoryArgs,
}

impl Args {
    /// The input in the form that opening a trace needs.
    fn inputs(&self, path: &Path) -> InputArgs {
        InputArgs::new(path.to_owned(), self.memory.clone())
    }
}

/// Shows the table of a target, of a saved file, or of a trace.
///
/// # Errors
/// When the target does not answer or has no table, or the input is neither a table nor a trace.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let Some(path) = &args.input else {
        return live(args, &args.target, context);
    };
    match address_in(path)? {
        Some(address) => live(args, &args.target.with_address(address), context),
        None => saved(args, path, context),
    }
}

/// Fetches and shows the table of a live target.
fn live(args: &Args, target: &TargetArgs, context: &mut Context) -> Result<ExitCode, Report> {
    if let Some(output) = &args.output {
        protect(&Inputs::of_symbols(&args.symbols), output)?;
    }
    let mut live = match target.recognise(context)? {
        Either::Kymo(live) => live,
        Either::Zephyr(live) => return zephyr::live(args, *live, context),
    };
    if !live.identity.capabilities.profile {
        return Err(Report::new("this target keeps no profile table").help(
            "give kymo_config slots and frames to keep it in, or use `kymo trace` and `kymo report`",
        ));
    }
    let symbols = args.symbols.load(&trace_info(&live.identity), context)?;
    if args.reboot {
        live.reboot(context)?;
        live.wait_for_capture(args.wait.unwrap_or(USUAL_WAIT), context)?;
    }
    let bytes = table_of(&mut live, context)?;
    if let Some(path) = &args.output {
        keep(path, &live.identity, &bytes)?;
        kept_note(path, &bytes, context);
    }
    let table = decode(&bytes, &live.name())?;
    let is_empty = table.functions.is_empty() && live.identity.capabilities.duration;
    if is_empty && super::trace::duration::is_on(&mut live)? {
        context.note(
            "the table is empty: duration mode keeps none; `kymo trace -o FILE` and `kymo report FILE` have one",
        );
        return Ok(ExitCode::SUCCESS);
    }
    show_table(args, &table, &symbols, context)?;
    Ok(ExitCode::SUCCESS)
}

/// Fetches the table and checks the target's clock. Fails if only a part of the table arrives: it would be useless.
fn table_of(live: &mut Live, context: &Context) -> Result<Vec<u8>, Report> {
    // The clock is read only to check its rate; targets without that command have a table as well.
    let reading = live.target.read_clock().ok();
    let dump = live.fetch(What::Profile, context)?;
    for check in reading.map_or_else(Vec::new, |reading| recording::compare(live, &reading)) {
        if check.verdict() == ClockVerdict::Differs {
            let hz = live.identity.clock_hz;
            context.warn(format_args!(
                "times may be wrong: the target's clock ({hz} Hz as it is configured) {check}"
            ));
        }
    }
    match incomplete(&dump) {
        None => Ok(dump.bytes),
        Some(report) => Err(Report::new(report.message())
            .help("a part of a table says nothing: nothing was kept; try again")),
    }
}

/// Shows the table in a file, or computes that of a saved trace.
fn saved(args: &Args, path: &Path, context: &mut Context) -> Result<ExitCode, Report> {
    if args.reboot {
        let name = name_of(path);
        let report = Report::new(format_args!(
            "{name} is a saved table or trace, not a target"
        ));
        return Err(report.help("--reboot is for a live target"));
    }
    if gdb::is_address(path) {
        let fetched = gdb::fetch(path, args.memory.stay_halted, &args.symbols, context)?;
        return of_memory(args, &fetched.path, context);
    }
    if !is_pipe(path) && memory::is_dump(args, path, &context.open_options(Wanted::Meaning)) {
        return of_memory(args, path, context);
    }
    not_kept(args)?;
    if is_pipe(path) {
        return piped(args, path, context);
    }
    if let Some(table) = zephyr::kept(path) {
        return zephyr::show(args, &table, context);
    }
    if let Some((identity, bytes)) = kept_table(path) {
        return show_kept(args, path, &identity, &bytes, context);
    }
    let source = open(&args.inputs(path), &args.symbols, Wanted::Meaning, context)?;
    of_trace(args, path, source, context)
}

/// Refuses `--output` for an input that is a file already.
fn not_kept(args: &Args) -> Result<(), Report> {
    match args.output {
        None => Ok(()),
        Some(_) => Err(Report::new(
            "--output keeps the table of a live target, or of a dump of its memory",
        )
        .help("copy the file, or convert a trace with `kymo export`")),
    }
}

/// Shows the table in a dump of a target's memory; if the program keeps none, computes it from the trace in the dump.
fn of_memory(args: &Args, path: &Path, context: &mut Context) -> Result<ExitCode, Report> {
    if let Some(shown) = memory::show(args, path, context)? {
        return Ok(shown);
    }
    not_kept(args)?;
    let source = open(&args.inputs(path), &args.symbols, Wanted::Meaning, context)?;
    of_trace(args, path, source, context)
}

/// Like [`saved`], for a pipe, which can be read only once.
fn piped(args: &Args, path: &Path, context: &mut Context) -> Result<ExitCode, Report> {
    let options = OpenOptions {
        wanted: Wanted::Meaning,
        program: args.symbols.elf.first().cloned(),
        ..OpenOptions::default()
    };
    let source = match kymo_read::saved(path) {
        Ok(Saved::Zephyr(bytes)) => {
            let name = name_of(path);
            if let Some(table) = zephyr::table_in(&name, &bytes) {
                return zephyr::show(args, &table, context);
            }
            kymo_read::zephyr_instrumentation::open_bytes(&name, bytes, &options)
        }
        Ok(Saved::Raw(file)) => {
            let dump = file.dump();
            if is_table(dump.bytes) {
                return show_kept(args, path, dump.identity, dump.bytes, context);
            }
            file.into_source(&options)
        }
        Err(error) => Err(error),
    };
    let source = source.map_err(|error| refused(&error))?;
    of_trace(args, path, source, context)
}

/// Shows a saved table.
fn show_kept(
    args: &Args,
    path: &Path,
    identity: &Identity,
    bytes: &[u8],
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let table = decode(bytes, &name_of(path))?;
    let symbols = args.symbols.load(&trace_info(identity), context)?;
    show_table(args, &table, &symbols, context)?;
    Ok(ExitCode::SUCCESS)
}

/// Computes from a trace the table that a target would have kept, and shows it.
fn of_trace(
    args: &Args,
    path: &Path,
    source: Box<dyn Source>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    context.note(
        "worked out from the events of a trace; the table that a target keeps itself comes from a live target, or \
         from its memory",
    );
    let mut trace = Trace::new(name_of(path), source, &args.symbols, context)?;
    // A target computes its own table with its clock unrepaired.
    let options = Options {
        repair_clock: false,
        ..Options::default()
    };
    let mut replay = Replay::new(trace.info(), &trace.symbols(), options);
    let mut profile = Profile::new();
    let mut missing = Missing::default();
    let read = trace.walk(&mut |moment| {
        if let Moment::Batch(info, batch) = moment {
            batch.iter().for_each(|event| missing.add(event));
            replay.batch_to(info, batch, &mut profile);
        }
        Ok(more(true))
    });
    replay.finish(trace.info(), &mut |_, step| profile.add(&step));
    let identities = &trace.info().identities;
    let mut rows: Vec<Row> = profile
        .rows()
        .filter_map(|(callee, row)| match callee {
            Callee::Function(id) if row.ends() > row.orphans => Some(Row {
                function: Some(id),
                address: identities
                    .function(id)
                    .and_then(|function| function.address),
                count: row.count,
                total: row.total,
                self_time: row.self_time,
                is_timeless: row.ends() == row.without_time(),
                average: (row.complete > 0).then(|| row.average()),
                min: (row.complete > 0).then_some(row.min),
                max: (row.complete > 0).then_some(row.max),
                cpus: Vec::new(),
            }),
            _ => None,
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total), row.address));
    show_rows(args, &rows, &trace.symbols(), identities, context)?;
    if rows.is_empty() && trace.info().format == kymo_read::zephyr_instrumentation::FORMAT {
        context.note("a dump without calls is what a target sends that was dumped before");
    }
    missing.remark_overwritten(context);
    if let Some(lost) = missing.what() {
        context.note(format_args!(
            "lost, and in no row: {lost}; counts and times are at least these"
        ));
    }
    let counts = replay.counts();
    let unsure = counts.unwound + counts.lost + counts.doubtful + counts.orphans + counts.open;
    if unsure > 0 {
        context.note(format_args!(
            "the begin or end of {} is not certain; `kymo report` shows whose",
            counted(unsure, "call")
        ));
    }
    read?;
    trace.verdict()
}

/// Reads a saved table and the identity of its target; `None` for any other file. Raw files of traces begin with
/// the same identity line.
fn kept_table(path: &Path) -> Option<(Identity, Vec<u8>)> {
    let mut file = BufReader::new(File::open(path).ok()?);
    let mut line = Vec::new();
    file.by_ref()
        .take(LINE_MAX)
        .read_until(b'\n', &mut line)
        .ok()?;
    let identity = Identity::parse(std::str::from_utf8(&line).ok()?)?;
    let mut bytes = vec![0; 4];
    file.read_exact(&mut bytes).ok()?;
    if !is_table(&bytes) {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    Some((identity, bytes))
}

/// Whether these bytes begin with a table's magic number, in either byte order.
fn is_table(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|magic| {
        [u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)].contains(&TABLE_MAGIC)
    })
}

/// Whether a file is a saved table. Always false for a pipe.
pub fn is_kept_table(path: &Path) -> bool {
    // Reading a pipe here would consume its bytes.
    path.is_file() && kept_table(path).is_some()
}

/// Saves a table behind the identity line of its target.
fn keep(path: &Path, identity: &Identity, table: &[u8]) -> Result<(), Report> {
    let mut kept = format!("{identity}\n").into_bytes();
    kept.extend_from_slice(table);
    write_file(path, &kept)
}

/// Reports the file and size of a saved table.
fn kept_note(path: &Path, table: &[u8], context: &Context) {
    let size = counted(table.len() as u64, "byte");
    context.note(format_args!("{}: {size}", path.display()));
}

fn decode(bytes: &[u8], name: &str) -> Result<ProfileTable, Report> {
    profile_table::decode(bytes).map_err(|error| {
        Report::caused(name, &error)
            .help("the firmware and the command `kymo` may be of different releases")
    })
}

/// One row of the table.
struct Row {
    /// Id of the function in the trace; `None` in a table that a target keeps.
    function: Option<FunctionId>,
    address: Option<Addr>,
    count: u64,
    total: Duration,
    self_time: Duration,
    /// Whether the duration of each of its calls is unknown.
    is_timeless: bool,
    /// Average, shortest and longest duration of its calls; `None` if unknown.
    average: Option<Duration>,
    min: Option<Duration>,
    max: Option<Duration>,
    /// Its parts, where several CPUs keep a table each.
    cpus: Vec<OnCpu>,
}

fn show_table(
    args: &Args,
    table: &ProfileTable,
    symbols: &Symbols,
    context: &mut Context,
) -> Result<(), Report> {
    let rows: Vec<Row> = table
        .functions
        .iter()
        .map(|function| Row {
            function: None,
            address: Some(function.address),
            count: function.count,
            total: function.total,
            self_time: function.self_time,
            is_timeless: false,
            average: average(function),
            min: Some(function.min),
            max: Some(function.max),
            cpus: function.cpus.clone(),
        })
        .collect();
    show_rows(args, &rows, symbols, &Identities::default(), context)?;
    if rows.iter().any(|row| row.average.is_none()) {
        context.note(
            "AVG is - where a function calls itself: the target counts such time once in TOTAL, so \
             the average of all its calls is not known (`kymo report` of a trace has it)",
        );
    }
    if let Some((first, more)) = table.missing.split_first() {
        let more = match more.len() {
            0 => String::new(),
            more => format!(" (and those of {more} more)"),
        };
        context.warn(format_args!(
            "the table of CPU {first} is missing{more}: it did not leave the recorder when the tables were read, and \
             its calls are in no row"
        ));
    }
    if table.replaced > 0 {
        let (functions, total) = (
            counted(table.replaced, "function"),
            table.replaced_total.with_unit(),
        );
        context.warn(format_args!(
            "the table was full: {functions} gave way to others, the lowest TOTAL first; any row may lack some of \
             their calls and of their {total}"
        ));
    }
    let no_slot = match table.cpus {
        1 => "no slot was free, give kymo_config more",
        _ => {
            "no slot was free (give kymo_config more), or they ended while a host read the recorder"
        }
    };
    for (calls, why) in [
        (table.no_slot, no_slot),
        (
            table.too_deep,
            "nested too deeply, or without a shadow stack; give kymo_config more frames (threads that were deleted within \
             calls keep theirs unless kymo_thread_ended() is called)",
        ),
    ] {
        if calls > 0 {
            let calls = are(calls, "call");
            context.warn(format_args!("{calls} not in the table: {why}"));
        }
    }
    if table.unmatched > 0 {
        context.note(format_args!(
            "the begin or end of {} was not seen: what longjmp left is counted all the same, that in \
             which recording began or ended is not",
            counted(table.unmatched, "call")
        ));
    }
    let (taken, slots, time) = (table.taken, table.slots, table.recorded.with_unit());
    match table.cpus {
        1 => context.detail(format_args!(
            "{taken} of {slots} slots are taken; recorded for {time}"
        )),
        cpus => context.detail(format_args!(
            "the sum of the tables of {cpus} CPUs: in the fullest, {taken} of {slots} slots are taken; recorded for {time}"
        )),
    }
    Ok(())
}

fn show_rows(
    args: &Args,
    rows: &[Row],
    symbols: &Symbols,
    identities: &Identities,
    context: &mut Context,
) -> Result<(), Report> {
    let names = Names::new(symbols);
    let name = |row: &Row| match (row.function, row.address) {
        (Some(function), _) => names.function(identities, function),
        (None, address) => names.at(address.unwrap_or_default()),
    };
    // Shares are of the self time of all functions, including those not shown.
    let whole = rows
        .iter()
        .fold(Duration(0), |sum, row| sum + row.self_time);
    let shown = first(rows, args.number);
    let (out, palette) = context.out();
    match args.format.format {
        Format::Text => text(out, palette, shown, whole, &name)?,
        Format::Json => {
            for row in shown {
                json::json(out, row, &name(row), symbols)?;
            }
        }
    }
    if shown.len() < rows.len() {
        let more = counted((rows.len() - shown.len()) as u64, "more function");
        context.note(format_args!("{more}: -n shows more"));
    }
    if rows.is_empty() {
        context.note("the table is empty: nothing was recorded yet (`kymo status` tells more)");
    }
    names.remark(identities, context);
    Ok(())
}

/// Returns the first `number` rows, or all for 0.
fn first<T>(rows: &[T], number: usize) -> &[T] {
    rows.get(..number).filter(|_| number > 0).unwrap_or(rows)
}

fn text(
    out: &mut dyn Write,
    palette: &Palette,
    rows: &[Row],
    whole: Duration,
    name: &dyn Fn(&Row) -> Rc<str>,
) -> io::Result<()> {
    let mut table = Table::new([
        ("COUNT", Align::Right),
        ("TOTAL", Align::Right),
        ("SELF", Align::Right),
        ("SELF %", Align::Right),
        ("AVG", Align::Right),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("FUNCTION", Align::Left),
    ]);
    let known =
        |time: Option<Duration>| time.map_or("-".to_owned(), |time| Human(time).to_string());
    for row in rows {
        table.row([
            row.count.to_string(),
            known((!row.is_timeless).then_some(row.total)),
            known((!row.is_timeless).then_some(row.self_time)),
            match row.is_timeless {
                true => "-".to_owned(),
                false => percent(row.self_time, whole),
            },
            known(row.average),
            known(row.min),
            known(row.max),
            name(row).to_string(),
        ]);
    }
    table.write(out, palette)
}

/// Computes the average duration of a function's calls from a target's table; `None` if the function was recursive.
///
/// The target adds only the outermost call of a recursion to the total, so the average would be too low. It marks such
/// functions; an average below the shortest call shows recursion as well.
fn average(function: &FunctionProfile) -> Option<Duration> {
    let average = profile::average(function.total, function.count);
    (!function.recursive && average >= function.min).then_some(average)
}
