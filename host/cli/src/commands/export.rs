//! `kymo export`: the trace as a file for another tool.

mod before;
mod convert;
mod hardware;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::{PossibleValue, PossibleValuesParser};
use kymo_analysis::replay;
use kymo_event::{Bound, Time, Wanted};
use kymo_export::{Destination, Export, ExportError, Format, Formats, Options, Shape, Takes};

use crate::args::{InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::filter::{FilterArgs, Part, check_bounds, refuse_untimed};
use crate::input::{Events, Moment, Trace, more, open};
use crate::output::{Inputs, OutputDirectory, OutputFile, protect};
use crate::render::escape::TerminalWriter;
use crate::rescue::check_output;
use crate::span::{Span, remark_nothing_chosen};
use crate::target::address_in;

use before::Before;

/// The options of `kymo export`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo export -o trace.pftrace trace/ --elf firmware.elf    for https://ui.perfetto.dev
  kymo export -o flame.svg trace/ --elf firmware.elf        a flame graph, for a browser
  kymo export --to folded trace/ | less                     stacks with their self time
  kymo export --to ctf recording.kymo                       recording.ctf/, for babeltrace2
  kymo export --to ctf2 --begin +1s --end +2s lttng/        a second of a CTF trace, as CTF 2
  kymo export --to lcov -o run.info perf.data               coverage by hardware trace, for genhtml
  kymo export --to ctf --repair -o whole/ cut/              what can be read of a damaged one
  kymo export -o trace.json tcp:localhost:4000              straight from a target")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// The format; without it, the ending of the output's name decides.
    #[arg(short, long, value_name = "FORMAT", value_parser = formats())]
    to: Option<String>,

    /// Where to write, a file or a directory as the format has it. Without this, a file goes to
    /// stdout (`-` says so too), and a directory is INPUT.FORMAT here: trace.ctf of trace/.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// What to call the program in the result; without this, the name of the first ELF file.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,

    /// Add up the stacks of all threads, in formats that add up stacks.
    #[arg(long)]
    merge_threads: bool,

    /// Only this binary, in formats that are made of counts (lcov, autofdo): its path in the trace or the name of its
    /// file, with * and ? as wildcards. Repeatable.
    #[arg(long, value_name = "BINARY")]
    binary: Vec<String>,

    /// Go on behind damage in a CTF trace that becomes one (--to ctf or ctf2), and say what is left
    /// out. Without this, a stream ends where it is damaged.
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// The names of all formats, with descriptions.
fn formats() -> PossibleValuesParser {
    let all = Formats::built_in();
    let values = all
        .iter()
        .map(|format| PossibleValue::new(format.name).help(format.about));
    let of_counts = hardware::FORMATS
        .iter()
        .map(|(name, _, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values.chain(of_counts).collect::<Vec<_>>())
}

/// Writes a saved trace in another format.
///
/// # Errors
/// When the input can't be opened or is damaged, or the result can't be written; all readable parts are written
/// before.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let output = args
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    let of_counts = hardware::FORMATS
        .iter()
        .find(|(name, ..)| args.to.as_deref() == Some(name));
    if let Some((name, kind, _)) = of_counts {
        let given = [
            (args.program.is_some(), "--program"),
            (args.merge_threads, "--merge-threads"),
            (args.repair, "--repair"),
        ];
        if let Some((_, option)) = given.into_iter().find(|(given, _)| *given) {
            let report = Report::new(format_args!("{option} is of no use with {name}"));
            return Err(report.help("leave it out, or choose another format with --to"));
        }
        if let Some(output) = output {
            protect(&Inputs::of(&args.input, &args.symbols), output)?;
        }
        return hardware::run(*kind, args, output, context);
    }
    let format = choose(args.to.as_deref(), output)?;
    let program = args.program.clone().or_else(|| {
        let elf = args.symbols.elf.first()?;
        Some(elf.file_stem()?.to_string_lossy().into_owned())
    });
    for (given, honoured, option) in [
        (
            args.program.is_some(),
            format.names_program,
            "--program names the program",
        ),
        (
            args.merge_threads,
            format.merges_threads,
            "--merge-threads adds up the stacks of threads",
        ),
        (
            !args.binary.is_empty(),
            false,
            "--binary chooses counts of one",
        ),
    ] {
        if given && !honoured {
            let name = format.name;
            let report = Report::new(format_args!("{option}, and {name} has no place for that"));
            return Err(report.help("leave it out, or choose another format with --to"));
        }
    }
    let mut options = Options {
        thread_roots: !args.merge_threads,
        program: program.unwrap_or_else(|| Options::default().program),
        replay: replay::Options::default(),
    };
    let beside = (format.shape == Shape::Directory && args.output.is_none())
        .then(|| beside(args.input.path(), format));
    let output = output.or(beside.as_deref());
    if let Some(output) = output {
        protect(&Inputs::of(&args.input, &args.symbols), output)?;
    }
    if let Some(version) = convert::version(format)
        && let Some(traces) = convert::traces(&args.input)?
        && let Some(output) = output
    {
        args.filter.refuse_call_options("a conversion of CTF")?;
        args.filter.refuse_hardware_options("CTF")?;
        let mut filter = args.filter.filter();
        let symbols = Arc::default();
        let bounds = args
            .filter
            .look_ahead(&args.input, &args.symbols, &symbols, context)?;
        if let Some((begin, end)) = bounds {
            (filter.begin, filter.end) = (Some(Bound::At(begin)), Some(Bound::At(end)));
        }
        check_bounds(&filter)?;
        let filter = convert::from_start(filter, &traces)?;
        // If a window begins within the trace, the records of calls open at that time are needed too.
        let before = match filter.span().0 {
            Time(i64::MIN) => Before::default(),
            begin => {
                let wanted = Wanted::Meaning;
                let mut source = open(&args.input, &args.symbols, wanted, context)?;
                Before::find(&mut *source, begin)
            }
        };
        let part = (filter, before);
        return convert::run(&traces, version, part, args.repair, output, context);
    }
    if args.repair {
        let report = Report::new("only a CTF trace of another tracer that becomes CTF is repaired");
        return Err(report.help("other formats take all that can be read without being asked"));
    }
    if let Some(output) = output {
        check(format, output)?;
    }
    let wanted = format.wanted.max(args.filter.wanted());
    let mut trace = Trace::open(&args.input, &args.symbols, wanted, context)?;
    if let Some(output) = output {
        let symfs = args.input.ctf.binaries.symfs.as_deref();
        let inputs = Inputs::of(&args.input, &args.symbols);
        protect(&inputs.with_programs(trace.info(), symfs), output)?;
    }
    let part = args
        .filter
        .part(&args.input, &args.symbols, &mut trace, context);
    let part = part.map_err(|report| trace.kept(report))?;
    if matches!(format.takes, Takes::Events { in_order: true }) {
        let name = format.name;
        refuse_untimed(
            &mut trace,
            &format!("{name} has the streams of all threads on one time line"),
        )?;
    }
    options.replay = part.replay();
    if format.takes == Takes::Calls {
        trace = trace.replay_ahead(&mut options.replay, context);
    }
    let written = write(&mut trace, &part, format, output, &options, context);
    written.map_err(|report| trace.kept(report))?;
    let unit = trace.info().unit;
    if !unit.is_time() {
        context.note(format_args!(
            "times are {}, not nanoseconds, whatever a viewer calls them",
            unit.suffix()
        ));
    }
    trace.remark(context);
    trace.verdict()
}

/// The default output of a format with several files: a directory in the current one, named after the input and the
/// format.
fn beside(input: &Path, format: &Format) -> PathBuf {
    let live = address_in(input).is_ok_and(|address| address.is_some());
    // A directory's name has no extension of a format.
    let name = if input.is_dir() {
        input.file_name()
    } else {
        input
            .file_stem()
            .filter(|_| !live && input != Path::new("-"))
    };
    let mut name = name.unwrap_or("trace".as_ref()).to_owned();
    name.push(".");
    name.push(format.name);
    name.into()
}

fn choose(name: Option<&str>, output: Option<&Path>) -> Result<&'static Format, Report> {
    let all = "`kymo export --help` lists the formats; choose one with --to";
    match (name, output) {
        (Some(name), _) => Formats::built_in()
            .by_name(name)
            .ok_or_else(|| Report::new(format_args!("there is no format {name}")).help(all)),
        (None, Some(path)) => Formats::built_in().by_path(path).ok_or_else(|| {
            let path = path.display();
            Report::new(format_args!("the name {path} does not tell the format")).help(all)
        }),
        (None, None) => Err(Report::new("neither a format nor an output is given").help(all)),
    }
}

/// Exports the selected part of a trace from any source; `output` is `None` for stdout.
///
/// # Errors
/// When the trace can't be read to its end, or the result can't be written.
pub fn write(
    trace: &mut Trace,
    part: &Part,
    format: &Format,
    output: Option<&Path>,
    options: &Options,
    context: &mut Context,
) -> Result<(), Report> {
    // Becomes the output when it is complete.
    let mut file: Option<OutputFile> = None;
    let mut directory: Option<OutputDirectory> = None;
    let destination = match (format.shape, output) {
        (Shape::File, None) if format.binary && context.shows_output() => {
            let name = format.name;
            return Err(
                Report::new(format_args!("{name} is no text, and this is a terminal"))
                    .help("give a file with -o, or a program with | to read it"),
            );
        }
        (Shape::File, None) if context.shows_output() => {
            Destination::Writer(Box::new(TerminalWriter::new(context.out().0)))
        }
        (Shape::File, None) => Destination::Writer(Box::new(context.out().0)),
        (Shape::File, Some(path)) => {
            Destination::Writer(Box::new(file.insert(OutputFile::create(path)?)))
        }
        (Shape::Directory, Some(path)) => {
            check_empty(path)?;
            Destination::Directory(directory.insert(OutputDirectory::create(path)?).temporary())
        }
        (Shape::Directory, None) => {
            let name = format.name;
            return Err(
                Report::new(format_args!("{name} is a directory of several files"))
                    .help("give the directory with -o"),
            );
        }
    };
    let symbols = trace.symbols();
    let mut span = Span::default();
    let export = Export::new(format, trace.info(), &symbols, destination, options);
    let mut export = export.map_err(|error| failed(output, error))?;
    let mut failure = None;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        span.meet(info, batch);
        match export.batch(info, batch) {
            Ok(goes_on) => Ok(more(goes_on)),
            Err(error) => {
                failure = Some(error);
                Ok(more(false))
            }
        }
    });
    if let Some(error) = failure {
        return Err(failed(output, error));
    }
    // Everything read before a failure is written as a complete file.
    let summary = export.finish(trace.info());
    let summary = summary.map_err(|error| failed(output, error))?;
    if let Some(file) = file {
        file.finish()?;
    }
    if let Some(directory) = directory {
        directory.finish(|| Ok(()))?;
    }
    let written = output.map_or(String::new(), |path| format!("{}: ", path.display()));
    context.note(format_args!("{written}{summary}"));
    if summary.events == 0 && span.bounds().is_some() && !part.is_everything() {
        remark_nothing_chosen(part.window(), 0, span, context);
    }
    read
}

/// Checks that an output can be written, before any work is done.
///
/// # Errors
/// When it can't.
pub fn check(format: &Format, output: &Path) -> Result<(), Report> {
    match format.shape {
        Shape::File => check_output(output),
        Shape::Directory => check_empty(output),
    }
}

/// Refuses a directory with files, because those of an earlier export would become part of the new one.
pub fn check_empty(path: &Path) -> Result<(), Report> {
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(path, &error)),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    let path = path.display();
    Err(Report::new(format_args!("{path} is not empty"))
        .help("files that are there already would become part of the result: give a new directory"))
}

fn failed(output: Option<&Path>, error: ExportError) -> Report {
    match (error, output) {
        (ExportError::Write(error), Some(path)) => unwritable(path, &error),
        (ExportError::Write(error), None) => error.into(),
        (error @ ExportError::Selection { .. }, _) => Report::caused_by(&error)
            .help("leave the option out, or choose a format that shows calls"),
        (error, _) => Report::caused_by(&error),
    }
}
