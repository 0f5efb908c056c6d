//! `kymo hotspots`: the functions, threads or lines that executed the most instructions, from Arm hardware trace.

mod children;
mod covered;

use std::collections::HashMap;
use std::process::ExitCode;
use std::rc::Rc;

use clap::ValueEnum;
use kymo_coresight::memory::View;
use kymo_export::json::Object;

use crate::args::{Format, FormatArgs, SymbolArgs, rows};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::hardware::counting::{self, Counted, steps_of};
use crate::hardware::part::{CodeArgs, PartArgs};
use crate::hardware::program::Programs;
use crate::hardware::{self, HardwareArgs, Opened};
use crate::render::table::{Align, Table};

/// The options of `kymo hotspots`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo hotspots snapshot/                    functions by the instructions that they executed
  kymo hotspots --symfs root/ perf.data      with the binaries below root/
  kymo hotspots -n 10 perf.data              the ten hottest
  kymo hotspots --coverage perf.data         how much of each function ran
  kymo hotspots --children perf.data         functions with what they called
  kymo hotspots --sort command,file perf.data    commands and their files
  kymo hotspots --sort line --function main perf.data    lines of one function
  kymo hotspots --format json perf.data | jq .function   one object a line, for programs")]
pub struct Args {
    #[command(flatten)]
    hardware: HardwareArgs,

    /// What a row is of. Without this, command, file and function, or file and function of a trace without threads.
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    sort: Vec<Key>,

    /// Show how much of each function ran: instructions, lines and ways of conditional branches. What ran in part comes
    /// first. `kymo export --to lcov` writes it line by line.
    #[arg(long, conflicts_with_all = ["sort"])]
    coverage: bool,

    /// Show functions by what ran in them and in all that they called.
    #[arg(long, conflicts_with_all = [
        "sort", "coverage", "id", "buffer", "cpu", "process", "thread", "begin", "end", "address", "function",
        "split_not_taken", "check_opcodes", "check_branches",
    ])]
    children: bool,

    /// Only the N hottest rows; 0 for all.
    #[arg(short = 'n', long, value_name = "N", value_parser = rows)]
    number: Option<usize>,

    #[command(flatten)]
    part: PartArgs,

    #[command(flatten)]
    code: CodeArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    format: FormatArgs,
}

/// Property by which instructions are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    /// The command that ran.
    #[value(alias = "comm")]
    Command,
    /// The thread.
    #[value(alias = "tid")]
    Thread,
    /// The processor.
    Cpu,
    /// The file of the code.
    #[value(alias = "dso")]
    File,
    /// The function; the address of an instruction that is in none.
    #[value(aliases = ["sym", "symbol"])]
    Function,
    /// The line of the source.
    #[value(alias = "srcline")]
    Line,
}

impl Key {
    /// The heading of its column.
    fn heading(self) -> &'static str {
        match self {
            Key::Command => "COMMAND",
            Key::Thread => "THREAD",
            Key::Cpu => "CPU",
            Key::File => "FILE",
            Key::Function => "FUNCTION",
            Key::Line => "LINE",
        }
    }

    /// The name of its member.
    fn member(self) -> &'static str {
        match self {
            Key::Command => "command",
            Key::Thread => "thread",
            Key::Cpu => "cpu",
            Key::File => "file",
            Key::Function => "function",
            Key::Line => "line",
        }
    }
}

/// Counts of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    instructions: u64,
    /// Number of executions of a function's first instruction.
    entries: u64,
}

/// Rows, keyed by the texts of their properties.
type Rows = HashMap<Vec<Rc<str>>, Heat>;

/// Counts the instructions of each function.
///
/// # Errors
/// When the input can't be read, or has no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    if args.children {
        return children::run(args, context);
    }
    let HardwareArgs {
        input,
        binaries,
        decode,
    } = &args.hardware;
    let mut opened = hardware::open(input, binaries, &args.symbols, true)?;
    args.part.sources.choose(&mut opened.buffers)?;
    let mut programs = Programs::new(&mut opened);
    let keys = match args.sort.as_slice() {
        [] if opened.threads.is_empty() => vec![Key::File, Key::Function],
        [] => vec![Key::Command, Key::File, Key::Function],
        keys => keys.to_vec(),
    };
    let addresses = args.code.addresses(&opened, &mut programs)?;
    let (counted, findings) = counting::count(&opened, &args.part, *decode, context)?;
    let number = args.number.unwrap_or(usize::MAX);
    if args.coverage {
        let chosen = (&args.code, &addresses);
        covered::print(
            &counted,
            &mut programs,
            chosen,
            args.format.format,
            number,
            context,
        )?;
        return findings.verdict();
    }
    let mut rows = Rows::new();
    for counted in &counted {
        let mut adder = Adder {
            opened: &opened,
            programs: &mut programs,
            keys: &keys,
            counted,
            known: HashMap::new(),
        };
        for run in &counted.counts.runs {
            for address in steps_of(counted.code, run) {
                if addresses.has(counted.code.seen(run.view), address) {
                    let (texts, is_entry) = adder.keys(run.thread, run.view, address);
                    let heat = rows.entry(texts).or_default();
                    heat.instructions += run.executions;
                    heat.entries += if is_entry { run.executions } else { 0 };
                }
            }
        }
    }
    let total = rows.values().map(|heat| heat.instructions).sum();
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(a_texts, a), (b_texts, b)| {
        let by_heat = b.instructions.cmp(&a.instructions);
        by_heat.then_with(|| a_texts.cmp(b_texts))
    });
    rows.truncate(number);
    match args.format.format {
        Format::Text => table(&keys, &rows, total, context)?,
        Format::Json => json(&keys, &rows, total, context)?,
    }
    findings.verdict()
}

/// Finds the keys for the instructions of one source.
struct Adder<'a> {
    opened: &'a Opened,
    programs: &'a mut Programs,
    keys: &'a [Key],
    counted: &'a Counted<'a>,
    /// Cached results, keyed by the state of memory and the address.
    known: HashMap<(View, u64), Found>,
}

/// Properties of an instruction.
#[derive(Clone)]
struct Found {
    file: Rc<str>,
    /// Its function; its address if it is in none.
    function: Rc<str>,
    line: Rc<str>,
    /// Whether it is the first one of its function.
    is_entry: bool,
}

impl Adder<'_> {
    fn keys(&mut self, thread: Option<u32>, view: View, address: u64) -> (Vec<Rc<str>>, bool) {
        let found = match self.known.get(&(view, address)) {
            Some(known) => known.clone(),
            None => {
                let found = self.look_up(view, address);
                self.known.insert((view, address), found.clone());
                found
            }
        };
        let text = |key: &Key| -> Rc<str> {
            match key {
                Key::Command => {
                    let code = self.counted.code.seen(view);
                    self.opened.command(thread, code).into()
                }
                Key::Thread => self.opened.thread_label(thread).into(),
                Key::Cpu => match self.counted.cpu {
                    Some(cpu) => cpu.to_string().into(),
                    None => "-".into(),
                },
                Key::File => Rc::clone(&found.file),
                Key::Function => Rc::clone(&found.function),
                Key::Line => Rc::clone(&found.line),
            }
        };
        (self.keys.iter().map(text).collect(), found.is_entry)
    }

    fn look_up(&mut self, view: View, address: u64) -> Found {
        let place = self.programs.place(self.counted.code.seen(view), address);
        let place = place.as_ref();
        let within = self.programs.function(place, address);
        let file: Rc<str> = place.map_or("-".into(), |place| place.program.name.as_str().into());
        let is_entry = within.as_ref().is_some_and(|within| within.offset == 0);
        let function = match within {
            Some(within) => within.function,
            None => format!("{:#x}", place.map_or(address, |place| place.address)).into(),
        };
        let line: Rc<str> = match self.keys.contains(&Key::Line) {
            true => match self.programs.location(place, address) {
                Some(location) => location.to_string().into(),
                None => "-".into(),
            },
            false => "-".into(),
        };
        Found {
            file,
            function,
            line,
            is_entry,
        }
    }
}

fn table(
    keys: &[Key],
    rows: &[(Vec<Rc<str>>, Heat)],
    total: u64,
    context: &mut Context,
) -> Result<(), Report> {
    let numbers = ["SHARE", "INSTRUCTIONS", "ENTRIES"].map(|name| (name, Align::Right));
    let texts = keys.iter().map(|key| (key.heading(), Align::Left));
    let mut table = Table::new(numbers.into_iter().chain(texts));
    for (texts, heat) in rows {
        let share = 100.0 * heat.instructions as f64 / total.max(1) as f64;
        let numbers = [
            format!("{share:.2} %"),
            heat.instructions.to_string(),
            heat.entries.to_string(),
        ];
        let texts = texts.iter().map(|text| text.to_string());
        table.row(numbers.into_iter().chain(texts));
    }
    let (out, palette) = context.out();
    table.write(out, palette)?;
    Ok(())
}

fn json(
    keys: &[Key],
    rows: &[(Vec<Rc<str>>, Heat)],
    total: u64,
    context: &mut Context,
) -> Result<(), Report> {
    let mut line = Vec::new();
    for (texts, heat) in rows {
        line.clear();
        let mut object = Object::begin(&mut line);
        for (key, text) in keys.iter().zip(texts) {
            object.member(key.member(), &**text);
        }
        object
            .member("instructions", heat.instructions)
            .member("entries", heat.entries)
            .member("share", heat.instructions as f64 / total.max(1) as f64);
        object.end();
        line.push(b'\n');
        context.out().0.write_all(&line)?;
    }
    Ok(())
}
