//! `kymo trace`: fetches the recording of a target and shows or saves it; sets trigger and stopper.
//!
//! A saved recording is accepted instead of a target, so that it can be shown or converted with the same options.

pub mod duration;
mod sets;
mod zephyr;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kymo_event::Wanted;
use kymo_export::{Format as ExportFormat, Formats, Options, Shape};
use kymo_read::kymo::{
    self, WriteError, Written, check_replaceable, clear, write_raw, write_trace,
};
use kymo_read::{OpenError, Saved};
use kymo_symbols::Symbols;

use crate::args::{Format, FormatArgs, InputArgs, MemoryArgs, SymbolArgs};
use crate::commands::export;
use crate::commands::show::{self, ViewArgs};
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::filter::CallChoice;
use crate::gdb;
use crate::input::symbols::program;
use crate::input::{Trace, open_memory, refused};
use crate::output::{Inputs, OutputDirectory, OutputFile, protect};
use crate::recording;
use crate::render::count::counted;
use crate::render::times::TimeKind;
use crate::rescue;
use crate::target::{
    Either, TargetArgs, USUAL_WAIT, address_in, incomplete, trace_info, wait_time,
};

/// The default output of `--perfetto`.
const PERFETTO_OUTPUT: &str = "perfetto.json";

/// The default output of `--export-tef`.
const TEF_OUTPUT: &str = "trace_event.json";

/// The formats that Perfetto opens.
const PERFETTO_FORMATS: [&str; 2] = ["perfetto", "trace-event"];

/// The file name extension of raw files.
const RAW_EXTENSION: &str = "kymo";

/// Placeholder for a target that is not given as the input.
const LIVE: &str = "-";

/// Maximum number of damaged places listed individually.
const DAMAGE_LISTED: usize = 5;

/// The options of `kymo trace`. What is `-e` elsewhere is `--export-tef` here, as it is in zaru.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("events", |events| events.short(None)))]
#[command(before_help = "\
EXAMPLES
  kymo trace --elf firmware.elf                       show what the board on /dev/ttyACM0 recorded
  kymo trace --target tcp:localhost:4000 -o trace     save it as a CTF trace directory
  kymo trace -o trace.pftrace                         save it for https://ui.perfetto.dev
  kymo trace --couple main --reboot --elf firmware.elf    from main's begin to its end, from reset
  kymo trace --threshold 100us --hide idle --elf firmware.elf    what takes long, for seconds in the place of milliseconds
  kymo trace --list --elf firmware.elf                when does it record?
  kymo trace -e -o trace.json --elf build/zephyr/zephyr.elf    Zephyr's own instrumentation, too
  kymo trace recording.kymo -o trace                  the same with what was saved before
  kymo trace ram.bin --elf firmware.elf -o trace      and with the memory of a board that has crashed")]
pub struct Args {
    /// The target: a serial port, or tcp:HOST:PORT; --target says the same. Or a saved recording in its
    /// place: a raw file, a trace directory, or with --elf a dump of a target's memory.
    #[arg(value_name = "INPUT", conflicts_with_all = ["target", "serial"])]
    input: Option<PathBuf>,

    /// Reboot the target and wait until its recording ends (see --wait), then get it.
    #[arg(short, long)]
    reboot: bool,

    /// List trigger and stopper, and get nothing.
    #[arg(short, long, conflicts_with_all = ["output", "perfetto", "export_tef"])]
    list: bool,

    /// Record from the entry of this function on: its name, its address (0x...), or none (0 says so
    /// too). A condition may follow: 'parse from main hit 3 times 2' (only when main calls it, from the third
    /// of these calls on, twice at most; `hit 3` alone is the third call only). It is set at once and kept over a
    /// reboot; what was recorded before is cleared. A target of Zephyr's can't clear: it is set for what follows
    /// the next reboot, and nothing is got without --reboot.
    #[arg(short, long, value_name = "FUNCTION")]
    trigger: Option<String>,

    /// Record until this function returns. A condition may follow, as for --trigger.
    #[arg(short, long, value_name = "FUNCTION")]
    stopper: Option<String>,

    /// Record from the entry of this function until it returns: trigger and stopper in one. A
    /// condition applies to the trigger.
    #[arg(short, long, value_name = "FUNCTION", conflicts_with_all = ["trigger", "stopper"])]
    couple: Option<String>,

    /// Record one round: once the stopper has returned the trigger does nothing, until events are cleared or a
    /// trigger is set. Without this a trigger records each time. Kept over a reboot.
    #[arg(long)]
    once: bool,

    /// After a reboot or a new trigger, how long to wait for the recording to end: 60 (seconds), 300ms; a
    /// target of Zephyr's does not tell of its end, and has all of that time [default: 10; of Zephyr's: 2].
    #[arg(long, value_name = "TIME", value_parser = wait_time)]
    wait: Option<Duration>,

    /// Save as trace-event JSON, which Perfetto opens too: perfetto.json, or what --output says.
    #[arg(short, long)]
    perfetto: bool,

    /// Save as trace-event JSON: trace_event.json, or what --output says.
    #[arg(short, long, conflicts_with = "perfetto")]
    export_tef: bool,

    /// Show the names of C++ as in the source. Kymo always does; scripts that were written for zaru say
    /// so.
    #[arg(short, long)]
    demangle: bool,

    /// Save instead of showing. NAME.pftrace is for Perfetto, NAME.json trace-event JSON, NAME.svg
    /// a flame graph (and so on, as for kymo export), NAME.kymo a raw file, anything else a CTF
    /// trace directory.
    #[arg(short, long, value_name = "NAME")]
    output: Option<PathBuf>,

    #[command(flatten)]
    duration: duration::DurationArgs,

    #[command(flatten)]
    view: ViewArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    memory: MemoryArgs,
}

/// The destination of the recording.
enum Output<'a> {
    /// The terminal.
    Show,
    /// A CTF trace directory.
    Directory(&'a Path),
    /// A raw file: the unchanged packets, with the identity of the target.
    Raw(&'a Path),
    /// A file for another tool.
    Export(&'static ExportFormat, &'a Path),
}

impl Output<'_> {
    /// The path of the output, unless the recording is shown.
    const fn path(&self) -> Option<&Path> {
        match self {
            Self::Show => None,
            Self::Directory(path) | Self::Raw(path) | Self::Export(_, path) => Some(path),
        }
    }
}

/// Fetches a recording, and shows or saves it.
///
/// # Errors
/// When the target does not answer, the recording is incomplete, or it can't be written; everything that arrived is
/// shown or saved before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let output = if args.export_tef {
        trace_event(args.output.as_deref())?
    } else {
        choose(args.output.as_deref(), args.perfetto)?
    };
    // With a duration threshold, the target selects the calls.
    let mut on_target = args.clone();
    let calls = match args.duration.threshold() {
        Some(_) => on_target.view.filter.take_calls(),
        None => CallChoice::default(),
    };
    let args = &on_target;
    check(args, &output)?;
    let Some(path) = &args.input else {
        return live(args, &calls, &args.target, &output, context);
    };
    match address_in(path)? {
        Some(address) => {
            let target = args.target.with_address(address);
            live(args, &calls, &target, &output, context)
        }
        None => saved(args, path, &output, context),
    }
}

/// Refuses options that can't be honoured: a recording is saved whole, and a file for another tool has that tool's
/// format.
fn check(args: &Args, output: &Output<'_>) -> Result<(), Report> {
    let view = &args.view;
    // A target may be able to send its recording only once, so this is checked before.
    let saved = args.input.as_deref().map(address_in).transpose()?;
    if !matches!(saved, Some(None)) {
        let what = "a target's recording";
        view.filter.refuse_to_look_ahead(what)?;
    }
    let look = [
        (view.events, "--events"),
        (view.wall, "--wall"),
        (view.compensate, "--compensate"),
        (view.time != TimeKind::Absolute, "--time"),
        (args.format.format == Format::Json, "--format"),
    ];
    match output {
        Output::Show => return view.check(args.format.format),
        Output::Directory(_) | Output::Raw(_) if view.filter.any() => {
            let report = Report::new("a recording is saved whole, without a part being chosen");
            return Err(report.help("`kymo export` of what was saved writes a part"));
        }
        _ => {}
    }
    match look.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(Report::new(format_args!(
            "{option} says how to show a recording, and with an output it is saved"
        ))
        .help("leave one of them out")),
    }
}

/// The output of `--export-tef`: trace-event JSON, whatever the name, unless that belongs to another format.
fn trace_event(output: Option<&Path>) -> Result<Output<'_>, Report> {
    let path = output.unwrap_or(Path::new(TEF_OUTPUT));
    let tef = Formats::built_in().by_path(Path::new(TEF_OUTPUT));
    let other = Formats::built_in()
        .by_path(path)
        .filter(|format| tef.is_none_or(|tef| format.name != tef.name));
    match (tef, other) {
        (Some(tef), None) if !is_raw(path) => Ok(Output::Export(tef, path)),
        _ => Err(Report::new(format_args!(
            "--export-tef contradicts the name {}, which is that of another format",
            path.display()
        ))
        .help("leave --export-tef out, or give --output a name that ends with .json")),
    }
}

/// Whether a file name is that of a raw file.
fn is_raw(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == RAW_EXTENSION)
}

/// The kind of output for a file name.
///
/// # Errors
/// When the name belongs to a format that is not for Perfetto, but `--perfetto` is given.
fn choose(output: Option<&Path>, perfetto: bool) -> Result<Output<'_>, Report> {
    let trace_event = || Formats::built_in().by_path(Path::new(PERFETTO_OUTPUT));
    let Some(path) = output else {
        return Ok(match trace_event().filter(|_| perfetto) {
            Some(format) => Output::Export(format, Path::new(PERFETTO_OUTPUT)),
            None => Output::Show,
        });
    };
    let raw = is_raw(path);
    let format = Formats::built_in()
        .by_path(path)
        .filter(|format| format.shape == Shape::File);
    let other = format.is_some_and(|format| !PERFETTO_FORMATS.contains(&format.name));
    if perfetto && (raw || other) {
        return Err(Report::new(format_args!(
            "--perfetto contradicts the name {}, which is not for Perfetto",
            path.display()
        ))
        .help("leave --perfetto out, or give --output a name that ends with .json or .pftrace"));
    }
    if raw {
        return Ok(Output::Raw(path));
    }
    Ok(
        match format.or_else(|| trace_event().filter(|_| perfetto)) {
            Some(format) => Output::Export(format, path),
            None => Output::Directory(path),
        },
    )
}

/// Processes the recording of a live target.
fn live(
    args: &Args,
    calls: &CallChoice,
    target: &TargetArgs,
    output: &Output<'_>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    if let Some(to) = output.path() {
        protect(&Inputs::of_symbols(&args.symbols), to)?;
    }
    let mut live = match target.recognise(context)? {
        Either::Kymo(live) => live,
        Either::Zephyr(live) => return zephyr::live(args, *live, output, context),
    };
    recording::check(&live)?;
    let symbols = Arc::new(args.symbols.load(&trace_info(&live.identity), context)?);
    let changed = sets::set(args, calls, &mut live, &symbols, context)?;
    if args.reboot {
        live.reboot(context)?;
    }
    if args.list {
        return sets::list(&mut live, &symbols, context);
    }
    if args.reboot || changed {
        live.wait_for_capture(args.wait.unwrap_or(USUAL_WAIT), context)?;
    }
    let captured = recording::fetch(&mut live, context)?;
    let name = live.name();
    if let Output::Show | Output::Export(..) = output {
        let wanted = wanted(args, output);
        let mut trace = Trace::of_dump(name, captured, (symbols, &args.symbols), wanted, context)?;
        return show_or_export(args, output, &mut trace, context);
    }
    let dump = captured.into_kept();
    let recording = kymo::Dump {
        identity: &dump.identity,
        bytes: &dump.bytes,
        missing: &dump.missing,
        target: &name,
    };
    let result = save(&recording, output, &symbols, context)
        .map_err(|report| rescue::keep_dump(&recording, report))
        .and_then(|written| saved_as(output, &written, context));
    match incomplete(&dump) {
        // The reason why pieces are missing is more useful than the damage itself.
        Some(report) => Err(report),
        None => result,
    }
}

/// Processes a saved recording.
fn saved(
    args: &Args,
    path: &Path,
    output: &Output<'_>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let settings = [&args.trigger, &args.stopper, &args.couple];
    let settings = settings.into_iter().any(Option::is_some) || args.duration.threshold().is_some();
    if args.reboot || args.list || args.once || settings {
        return Err(Report::new(format_args!(
            "{} is a saved recording, not a target",
            path.display()
        ))
        .help(
            "--reboot, --list, --trigger, --stopper, --couple, --once and --threshold are for a live target",
        ));
    }
    if let Some(to) = output.path() {
        protect(&Inputs::at(path, &args.memory, &args.symbols), to)?;
    }
    if let Output::Directory(_) | Output::Raw(_) = output {
        if gdb::is_address(path) {
            let fetched = gdb::fetch(path, args.memory.stay_halted, &args.symbols, context)?;
            let memory = open_memory(&fetched.path, &args.memory, &args.symbols, context)?;
            return keep(&memory.dump(), output, args, context);
        }
        return match kymo_read::saved(path) {
            Ok(Saved::Zephyr(bytes)) => zephyr::saved(args, path, bytes, output, context),
            Ok(Saved::Raw(file)) => keep(&file.dump(), output, args, context),
            Err(OpenError::Unknown { .. }) if path.is_file() && !args.symbols.elf.is_empty() => {
                let memory = open_memory(path, &args.memory, &args.symbols, context)?;
                keep(&memory.dump(), output, args, context)
            }
            Err(_) if path.is_dir() => Err(Report::new(format_args!(
                "{} is a trace directory already",
                path.display()
            ))
            .help("copy it, or give --output the name of another format")),
            Err(error) => Err(refused(&error)),
        };
    }
    let input = InputArgs::new(path.to_owned(), args.memory.clone());
    let mut trace = Trace::open(&input, &args.symbols, wanted(args, output), context)?;
    show_or_export(args, output, &mut trace, context)
}

/// Saves a saved recording in another form.
fn keep(
    dump: &kymo::Dump<'_>,
    output: &Output<'_>,
    args: &Args,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let symbols = args.symbols.load(&trace_info(dump.identity), context)?;
    let written = save(dump, output, &symbols, context)?;
    saved_as(output, &written, context)
}

/// Saves packets in the requested form.
fn save(
    recording: &kymo::Dump<'_>,
    output: &Output<'_>,
    symbols: &Symbols,
    context: &Context,
) -> Result<Written, Report> {
    match output {
        Output::Raw(to) => raw(to, recording),
        Output::Directory(to) => directory(to, recording, symbols, context),
        Output::Show | Output::Export(..) => Ok(Written::default()),
    }
}

/// How much of each event must be decoded for the output.
fn wanted(args: &Args, output: &Output<'_>) -> Wanted {
    match output {
        Output::Export(format, _) => format.wanted.max(args.view.filter.wanted()),
        _ => args.view.wanted(args.format.format),
    }
}

/// Shows a trace, or exports it for another tool.
fn show_or_export(
    args: &Args,
    output: &Output<'_>,
    trace: &mut Trace,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let input = InputArgs::new(
        args.input.clone().unwrap_or_else(|| LIVE.into()),
        args.memory.clone(),
    );
    let part = args
        .view
        .filter
        .part(&input, &args.symbols, trace, context)
        .map_err(|report| trace.kept(report))?;
    if let Output::Export(format, path) = output {
        let elf = args.symbols.elf.first().and_then(|elf| elf.file_stem());
        let mut options = Options {
            replay: part.replay(),
            ..Options::default()
        };
        if let Some(program) = elf {
            options.program = program.to_string_lossy().into_owned();
        }
        export::write(trace, &part, format, Some(path), &options, context)
            .map_err(|report| trace.kept(report))?;
    } else {
        let shown = show::show(trace, &args.view, part, args.format.format, context);
        let shown = shown.and_then(|()| Ok(context.flush()?));
        shown.map_err(|report| trace.kept(report))?;
    }
    trace.remark(context);
    trace.verdict()
}

/// Saves packets as a CTF trace directory.
fn directory(
    path: &Path,
    recording: &kymo::Dump<'_>,
    symbols: &Symbols,
    context: &Context,
) -> Result<Written, Report> {
    let replaced = path.join("metadata").exists();
    let failed = |error: WriteError| {
        let report = Report::caused_by(&error);
        match error {
            WriteError::Occupied { .. } => report.help("give --output a new directory"),
            _ => report.help("give --output a place that you may write to, with room"),
        }
    };
    check_replaceable(path).map_err(failed)?;
    let whole = OutputDirectory::create(path)?;
    let string_at = |address| symbols.string_at(address);
    let program = program(symbols, &string_at);
    let written = write_trace(whole.temporary(), recording, &program).map_err(failed)?;
    whole.finish(|| clear(path).map_err(io::Error::other))?;
    if replaced {
        context.note(format_args!(
            "{}: the trace that was there is replaced",
            path.display()
        ));
    }
    Ok(written)
}

/// Saves packets as a raw file.
fn raw(path: &Path, recording: &kymo::Dump<'_>) -> Result<Written, Report> {
    let mut file = OutputFile::create(path)?;
    let written = write_raw(&mut file, recording).map_err(|error| unwritable(path, &error))?;
    file.finish()?;
    Ok(written)
}

/// Reports the saved packets, streams and bytes, and the damaged places.
fn saved_as(to: &Output<'_>, written: &Written, context: &Context) -> Result<ExitCode, Report> {
    let Some(path) = to.path() else {
        return Ok(ExitCode::SUCCESS);
    };
    let packets: u64 = written.streams.iter().map(|stream| stream.packets).sum();
    let bytes: u64 = written.streams.iter().map(|stream| stream.bytes).sum();
    context.note(format_args!(
        "{}: {} of {}, {}",
        path.display(),
        counted(packets, "packet"),
        counted(written.streams.len() as u64, "stream"),
        counted(bytes, "byte")
    ));
    if written.damage.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for damage in written.damage.iter().take(DAMAGE_LISTED) {
        context.warn(format_args!(
            "at offset {} of the dump: {}",
            damage.offset, damage.message
        ));
    }
    let places = match written.damage.len() {
        1 => "1 place of the recording is".to_owned(),
        many => format!("{many} places of the recording are"),
    };
    Err(Report::new(format_args!(
        "{places} damaged and could not be saved whole"
    ))
    .help("the rest was saved; `kymo info` of it lists what is missing"))
}
