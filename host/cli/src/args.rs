//! The command line as a whole, and the options that several subcommands share.
//!
//! The options of a single subcommand are the `Args` of its module. The help of every subcommand begins with examples
//! (`before_help`), because most readers of a help text look for a command line to copy.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use kymo_link::{Address, AddressError};

use crate::commands;
use crate::diagnostic::Report;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "kymo",
    version,
    about = "Shows what firmware, a kernel or a program really did",
    before_help = "\
EXAMPLES
  kymo status --target tcp:localhost:4000          who is there, what has it recorded?
  kymo trace --elf firmware.elf -o trace           get the trace of the board on /dev/ttyACM0
  kymo show trace --elf firmware.elf               its calls, with their durations
  kymo report trace --elf firmware.elf             which functions took the time
  kymo info trace                                  is anything missing in it?
  kymo export -o trace.pftrace trace --elf firmware.elf    for https://ui.perfetto.dev",
    max_term_width = 100,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// When to use colours.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        help_heading = "Global options",
        display_order = 100
    )]
    pub color: Color,

    /// Say on stderr what is being done.
    #[arg(
        short,
        long,
        global = true,
        help_heading = "Global options",
        display_order = 101
    )]
    pub verbose: bool,

    /// How many threads may work on a saved trace. Without this, one more than there are processors, or one where
    /// there is one processor.
    #[arg(
        long,
        global = true,
        value_name = "N",
        value_parser = threads,
        help_heading = "Global options",
        display_order = 102
    )]
    pub threads: Option<NonZeroUsize>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands. Each has a module in [`commands`], where its options are.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Who the target is, and what it has recorded
    Status(commands::status::Args),
    /// Whether the target answers
    Ping(commands::ping::Args),
    /// Why is there no trace? Each link of the chain from hooks to host is checked
    Doctor(commands::doctor::Args),
    /// Start the target again
    Reboot(commands::reboot::Args),
    /// Tell the target to record or not, to forget, or what to do when its buffer is full
    #[command(name = "command")]
    Send(commands::command::Args),
    /// Get the recording of a target: show it or save it; say when to record
    Trace(commands::trace::Args),
    /// Stream from a target into a trace directory, until stopped
    ///
    /// A target that does not record, and waits for no trigger, is turned on for as long, and off again at the end.
    Record(commands::record::Args),
    /// The table of functions that the target itself keeps
    Profile(commands::profile::Args),
    /// What an input is: format, streams, counts, times, losses, symbols
    Info(commands::info::Args),
    /// The trace as text: calls with their durations, or plain events
    Show(commands::show::Args),
    /// Which functions took the time: count, total, self, average, min, max
    Report(commands::report::Args),
    /// One row a call: where, when, how long; the slowest
    Calls(commands::calls::Args),
    /// The call tree: what called what, and how long that took; or who called it
    Graph(commands::graph::Args),
    /// What to leave out, so that the same buffer holds more time
    Advise(commands::advise::Args),
    /// Write the trace as a file for another tool
    Export(commands::export::Args),
    /// Which functions executed the most instructions, from Arm CoreSight hardware trace
    Hotspots(commands::hotspots::Args),
    /// One function of hardware trace: its source and instructions, with how often each ran
    Annotate(commands::annotate::Args),
    /// The branches that hardware trace says were taken, or every N-th instruction
    Branches(commands::branches::Args),
    /// Every instruction that hardware trace says was executed
    Disasm(commands::disasm::Args),
    /// The ranges of instructions, exceptions and times in hardware trace
    Ranges(commands::ranges::Args),
    /// The raw packets of Arm CoreSight hardware trace
    Packets(commands::packets::Args),
    /// Print a completion script for a shell
    Completions(commands::completions::Args),
    /// Write the manual pages into a directory
    Man(commands::man::Args),
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless the environment says otherwise (`NO_COLOR`, `CLICOLOR_FORCE`).
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: JSON, one object a line.
    Json,
}

/// `--format`, of every subcommand that prints a table or a listing.
#[derive(Args, Clone, Copy, Debug)]
pub struct FormatArgs {
    /// How to print the result.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

/// Where names come from: of every subcommand that shows functions.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Symbols")]
pub struct SymbolArgs {
    /// The program's ELF file: names, files and lines. Repeatable: shared libraries are matched by their build ids.
    /// The files of a recording of Linux are found by themselves where they were.
    #[arg(long, value_name = "FILE")]
    pub elf: Vec<PathBuf>,

    /// A list of symbols where there is no ELF file: output of nm, linker map, System.map or
    /// kallsyms. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub symbols: Vec<PathBuf>,

    /// Where a Zephyr application was built: its zephyr/zephyr.elf is taken.
    #[arg(long, value_name = "DIR")]
    pub build_dir: Option<PathBuf>,

    /// Where separate debug information lies: DIR/.build-id/xx/yyyy.debug, or by the debug link of a file at its path below
    /// DIR; besides /usr/lib/debug, ~/.debug, and .debug beside the file. Repeatable.
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
}

/// The input of the subcommands that read a trace.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    /// A trace directory, one stream beside its metadata, or a raw file or dump of a Kymo target;
    /// recognised by its content. With --elf also a dump of the target's memory, from a debugger.
    /// `-` reads from stdin, as it comes or, where a format needs the whole, up to 4 GiB; tcp:HOST:PORT, rtt:HOST:PORT or
    /// a serial port fetches what a live target has recorded.
    #[arg(
        value_name = "INPUT",
        required_unless_present_any = ["input_core", "input_target", "input_serial"],
        conflicts_with_all = ["input_core", "input_target", "input_serial"]
    )]
    input: Option<PathBuf>,

    /// A core file or an image of a target's memory in the place of INPUT, which needs --elf.
    #[arg(id = "input_core", long = "core", value_name = "FILE", conflicts_with_all = ["input_target", "input_serial"])]
    core: Option<PathBuf>,

    /// A live target in the place of INPUT: a serial port, tcp:HOST:PORT, or rtt:HOST:PORT.
    #[arg(id = "input_target", long = "target", value_name = "TARGET", value_parser = target_path, conflicts_with = "input_serial")]
    target: Option<PathBuf>,

    /// The serial port of a live target in the place of INPUT.
    #[arg(id = "input_serial", long = "serial", value_name = "PORT", value_parser = target_path)]
    serial: Option<PathBuf>,

    /// The speed of a live target's serial port in bits a second.
    #[arg(long, value_name = "BAUD", default_value_t = kymo_link::DEFAULT_BAUD)]
    pub baud: u32,

    #[command(flatten)]
    pub memory: MemoryArgs,

    #[command(flatten)]
    pub ctf: CtfArgs,

    /// Whether events of a pipe are shown as they come.
    #[arg(skip)]
    pub as_it_comes: bool,

    /// Names of the events that are shown with their fields.
    #[arg(skip)]
    pub events: kymo_event::Choice,
}

impl InputArgs {
    /// An input given only by its path.
    pub fn new(input: PathBuf, memory: MemoryArgs) -> Self {
        Self {
            input: Some(input),
            core: None,
            target: None,
            serial: None,
            baud: kymo_link::DEFAULT_BAUD,
            memory,
            ctf: CtfArgs::default(),
            as_it_comes: false,
            events: kymo_event::Choice::default(),
        }
    }
}

impl CtfArgs {
    /// Refuses additional recordings beside an input without an end.
    ///
    /// # Errors
    /// If there are any.
    pub fn refuse_with(&self, input: &str) -> Result<(), Report> {
        if self.with.is_empty() {
            return Ok(());
        }
        let report = Report::new(format_args!(
            "--with puts whole recordings on one time line, which {input} does not allow"
        ));
        Err(report.help(
            "record first (`kymo record TARGET -o DIR`), then `kymo show DIR --with FILE` shows both",
        ))
    }
}

impl InputArgs {
    /// Refuses options for inputs of other tracers, where the input is hardware trace.
    ///
    /// # Errors
    /// If such an option was given.
    pub fn refuse_for_hardware(&self) -> Result<(), Report> {
        let ctf = &self.ctf;
        let given = [
            ("--mapping", ctf.mapping.is_some()),
            ("--metadata", ctf.metadata.is_some()),
            ("--description", !ctf.description.is_empty()),
            ("--event-names", ctf.rtems.event_names.is_some()),
            ("--dump", ctf.dump.is_some()),
            ("--baud", self.baud != kymo_link::DEFAULT_BAUD),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => {
                let report = Report::new(format_args!("{option} is not for hardware trace"));
                Err(report.help("leave it out, or give the input that it is meant for"))
            }
        }
    }

    /// The same options for another input.
    pub fn elsewhere(&self, input: PathBuf) -> Self {
        Self {
            input: Some(input),
            core: None,
            target: None,
            serial: None,
            ..self.clone()
        }
    }

    /// The input: a path, or the address of a target however it was named.
    pub fn path(&self) -> &Path {
        let named = [&self.input, &self.core, &self.target, &self.serial];
        let named = named.into_iter().flatten().next();
        named.map_or(Path::new("-"), PathBuf::as_path)
    }
}

/// Parses the address of a target into a path.
fn target_path(text: &str) -> Result<PathBuf, AddressError> {
    Ok(match text.parse()? {
        // Addresses with a prefix of another module are no ports.
        Address::Serial { path, .. }
            if crate::gdb::is_address(&path) || crate::rtems::is_address(&path) =>
        {
            path
        }
        Address::Serial { path, .. } => {
            let mut name = OsString::from("serial:");
            name.push(path);
            name.into()
        }
        other @ (Address::Tcp { .. }
        | Address::Rtt { .. }
        | Address::Memory { .. }
        | Address::Unix { .. }) => other.to_string().into(),
    })
}

/// How to read the traces of other tracers.
#[derive(Args, Clone, Debug, Default)]
pub struct CtfArgs {
    /// What the events of another tracer's CTF trace mean: a file that says which are calls, switches,
    /// interrupts and marks.
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,

    /// Which dump is meant, from 1 on, where INPUT is the log of a console in which a target died several times. Without this
    /// the last one of a Kymo target, and all of one with RTEMS's records, each as a machine of its own.
    #[arg(long, value_name = "N")]
    pub dump: Option<usize>,

    #[command(flatten)]
    pub rtems: crate::rtems::RtemsArgs,

    /// The date in UTC (2026-11-21T17:20:00.5Z) at which the trace's clock showed 0, where INPUT does not tell
    /// dates: of RTEMS, when the target started.
    #[arg(long, value_name = "DATE")]
    pub time_zero: Option<kymo_event::Date>,

    /// The metadata, where INPUT is one stream of a CTF trace and they do not lie side by side.
    #[arg(long, value_name = "FILE")]
    pub metadata: Option<PathBuf>,

    /// A file SYSVIEW_*.txt that names the system calls in a recording of SystemView. Without this,
    /// those of its operating system beside INPUT. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub description: Vec<PathBuf>,

    /// Another recording of the same run, shown on one time line with INPUT: a software trace beside a hardware trace, or
    /// SystemView's file of another core. Other options say what INPUT is. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,

    /// By which events the clocks of recordings --with each other go together, where they tell neither dates nor a common
    /// clock: events or markers of this name, text or value, which each of them has equally often.
    #[arg(long, value_name = "EVENT", requires = "with")]
    pub align: Option<String>,

    #[command(flatten)]
    pub binaries: crate::hardware::BinaryArgs,
}

/// How to read a dump of a target's memory.
#[derive(Args, Clone, Debug)]
pub struct MemoryArgs {
    /// Where the bytes of a memory dump were on the target. Without it the packets in them tell, and
    /// core files say it themselves.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub memory_address: Option<u64>,

    /// More of the target's memory, where what the recorder has is not in one piece. Repeatable.
    #[arg(long, value_name = "FILE@ADDRESS", value_parser = placed)]
    pub memory: Vec<(PathBuf, u64)>,

    /// Leave a target halted whose memory was read from gdb:HOST:PORT.
    #[arg(long)]
    pub stay_halted: bool,
}

fn threads(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse()
        .map_err(|_| "expected a number of threads, 1 or more")
}

/// Parses an address: hexadecimal with `0x`, else decimal.
fn address(text: &str) -> Result<u64, &'static str> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected an address of at most 64 bits: hexadecimal behind 0x, or decimal")
}

/// Parses a file with the address of its content in memory.
fn placed(text: &str) -> Result<(PathBuf, u64), String> {
    let (file, at) = text
        .rsplit_once('@')
        .ok_or("expected FILE@ADDRESS, found no @")?;
    let at = address(at)?;
    Ok((file.into(), at))
}

/// Parses a number of rows; 0 means all.
///
/// # Errors
/// If it is not a number.
pub fn rows(text: &str) -> Result<usize, std::num::ParseIntError> {
    text.parse()
        .map(|number| if number == 0 { usize::MAX } else { number })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Short options of `kymo trace` with the same meaning as in zaru.
    const OF_ZARU: [char; 9] = ['r', 'l', 't', 's', 'c', 'p', 'e', 'd', 'a'];

    /// Short options of `kymo report` with the same meaning as in fdd.
    const OF_FDD: [char; 5] = ['t', 'e', 'f', 'l', 'd'];

    #[test]
    fn a_short_option_means_one_thing_in_every_subcommand() {
        let mut command = Cli::command();
        command.build();
        let mut meanings: std::collections::BTreeMap<char, (String, String)> = Default::default();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            for argument in subcommand.get_arguments() {
                let (Some(short), Some(long)) = (argument.get_short(), argument.get_long()) else {
                    continue;
                };
                let elsewhere = match name {
                    "trace" => OF_ZARU.contains(&short),
                    "report" => OF_FDD.contains(&short),
                    _ => false,
                };
                if elsewhere {
                    continue;
                }
                let (meaning, first) = meanings
                    .entry(short)
                    .or_insert_with(|| (long.to_owned(), name.to_owned()));
                assert_eq!(meaning, long, "-{short} of {name} and of {first}");
            }
        }
        assert!(meanings.len() > 5, "{meanings:?}");
    }

    #[test]
    fn every_subcommand_takes_its_target_by_position_and_by_option() {
        for name in [
            "status", "ping", "reboot", "command", "trace", "record", "profile", "info", "show",
            "report", "export", "calls", "graph",
        ] {
            let extra: &[&str] = match name {
                "command" => &["on"],
                "record" | "export" => &["-o", "out.json"],
                _ => &[],
            };
            for target in [
                &["tcp:localhost:4000"][..],
                &["--target", "tcp:localhost:4000"],
                &["--serial", "/dev/ttyUSB0"],
            ] {
                let line = [&["kymo", name], extra, target].concat();
                assert!(Cli::try_parse_from(&line).is_ok(), "{line:?}");
            }
            let twice = ["--target", "tcp:a:1", "--serial", "/dev/ttyUSB0"];
            let line = [&["kymo", name], extra, &twice].concat();
            assert!(Cli::try_parse_from(&line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_target_as_input_is_an_address() {
        let input = |option: &str| {
            let line = ["kymo", "info", "--target", option];
            let cli = Cli::try_parse_from(line).expect("a target");
            let Command::Info(args) = cli.command else {
                panic!("another subcommand")
            };
            crate::target::address_in(args.input.path()).expect("an address")
        };
        assert_eq!(input("tcp:a:1"), "tcp:a:1".parse().ok());
        assert_eq!(input("/dev/no-such"), "/dev/no-such".parse().ok());
    }

    #[test]
    fn every_help_begins_with_examples() {
        let mut command = Cli::command();
        assert!(command.render_help().to_string().starts_with("EXAMPLES\n"));
        let subcommands = command.get_subcommands_mut();
        for subcommand in subcommands.filter(|subcommand| subcommand.get_name() != "help") {
            let help = subcommand.render_help().to_string();
            assert!(
                help.starts_with("EXAMPLES\n"),
                "{}: {help}",
                subcommand.get_name()
            );
        }
    }
}
