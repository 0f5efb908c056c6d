//! `cargo xtask bench analyze`: cost per record of `kymo`'s subcommands, beside uftrace and babeltrace2 on the same
//! calls.
//!
//! Figures are instructions, counted by Valgrind's callgrind: they are the same on any machine and under any load.
//! Each is the difference between two recordings of the same program, divided by the difference in records, which
//! excludes the fixed cost of a process (symbols, debug information, start and end). The gates are in
//! `xtask/analyze-limits.txt`. Memory (module `memory`) and the speedup by threads (module `threads`) are measured as
//! well.

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Error, Result};

use crate::bench::ctf::process::instructions;
use crate::bench::limits::{Found, Limit, Limits};

mod memory;
mod recordings;
mod threads;

use recordings::{Lttng, Pair, Recordings, Trace};

/// Input of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// Kymo's own trace of a program for x86-64.
    Kymo,
    /// The CTF export of the same trace.
    Ctf,
    /// A trace of LTTng's user-space tracer with calls.
    Lttng,
}

/// One figure.
struct Row {
    /// Its name in the file of limits.
    name: &'static str,
    input: Input,
    /// Arguments of `kymo` before the trace.
    arguments: &'static [&'static str],
    peer: Option<Peer>,
    /// Required speedup with two processors over one, if there is such a gate.
    shared: Option<f64>,
}

/// Another program that does the same with the same calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// `uftrace`, with these arguments before the recording.
    Uftrace(&'static [&'static str]),
    /// babeltrace2 counting the events of the same trace.
    Babeltrace,
}

impl Peer {
    fn name(self) -> String {
        match self {
            Self::Uftrace(words) => format!("uftrace {}", words.join(" ")),
            Self::Babeltrace => "babeltrace2 counter".to_owned(),
        }
    }
}

const ROWS: [Row; 9] = [
    Row {
        name: "report-kymo",
        shared: Some(threads::TABLE),
        input: Input::Kymo,
        arguments: &["report"],
        peer: Some(Peer::Uftrace(&["report"])),
    },
    Row {
        name: "report-ctf",
        shared: Some(threads::TABLE),
        input: Input::Ctf,
        arguments: &["report"],
        peer: Some(Peer::Babeltrace),
    },
    Row {
        name: "report-lttng",
        shared: Some(threads::TABLE),
        input: Input::Lttng,
        arguments: &["report"],
        peer: Some(Peer::Babeltrace),
    },
    Row {
        name: "show",
        shared: None,
        input: Input::Kymo,
        arguments: &["show"],
        peer: Some(Peer::Uftrace(&["replay"])),
    },
    Row {
        name: "perfetto",
        shared: Some(threads::CONVERSION),
        input: Input::Kymo,
        arguments: &["export", "--to", "perfetto"],
        peer: Some(Peer::Uftrace(&["dump", "--chrome"])),
    },
    Row {
        name: "folded",
        shared: None,
        input: Input::Kymo,
        arguments: &["export", "--to", "folded"],
        peer: None,
    },
    Row {
        name: "flamegraph",
        shared: None,
        input: Input::Kymo,
        arguments: &["export", "--to", "flamegraph"],
        peer: None,
    },
    Row {
        name: "info-kymo",
        shared: None,
        input: Input::Kymo,
        arguments: &["info"],
        peer: None,
    },
    Row {
        name: "info-ctf",
        shared: None,
        input: Input::Ctf,
        arguments: &["info"],
        peer: None,
    },
];

/// The file of gates.
const LIMITS: &str = "analyze-limits.txt";

/// Options of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Prints exceeded gates without an error.
    pub print_only: bool,
    /// Without the peers, which take most of the time, and so without the gates that are ratios.
    pub quick: bool,
    /// Measures memory with 100 million events instead of 10 million.
    pub long: bool,
    /// The row, if only one is requested.
    pub only: Option<String>,
}

/// Measures all rows, or the one of this name, and prints them beside their gates.
///
/// # Errors
/// If something can't be built or run, or, without `print_only`, a gate is exceeded.
pub fn analyze(options: &Options) -> Result<()> {
    let limits = Limits::load(LIMITS)?;
    let requested = |name: &str| options.only.as_ref().is_none_or(|only| name == only);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| requested(row.name)).collect();
    if rows.is_empty() && !requested(memory::ROW) && !requested(threads::ROW) {
        let names = ROWS.map(|row| row.name).join(", ");
        let (memory, threads) = (memory::ROW, threads::ROW);
        return Err(Error::new(format!(
            "expected one of {names}, {memory}, {threads}"
        )));
    }
    let kymo = kymo::build(Profile::Shipping)?;
    let recordings = Recordings::make(&kymo, !options.quick)?;
    let lttng = Lttng::find(&kymo)?;
    println!(
        "\n{:12} {:>12} {:>6}  {:>8} {:>6} {:>8}  {:>6} {:>6}  beside",
        "row", "instructions", "gate", "peer", "times", "gate", "bytes", "gate"
    );
    let mut exceeded = Vec::new();
    let input = |row: &Row| match row.input {
        Input::Kymo => Some(&recordings.kymo),
        Input::Ctf => Some(&recordings.ctf),
        Input::Lttng => lttng.as_ref().map(Lttng::pair),
    };
    for row in rows {
        let Some(pair) = input(row) else {
            println!(
                "{:12} SKIPPED: no recording of LTTng at KYMO_DATA",
                row.name
            );
            continue;
        };
        let found = measure(&kymo, row, pair, recordings.uftrace.as_ref())?;
        let limit = limits.get(row.name)?;
        println!("{}", line(row, found, limit));
        exceeded.extend(limit.exceeded(row.name, found));
    }
    let [few, many] = &recordings.kymo.0;
    println!(
        "\nInstructions a record, by callgrind: the difference between {} and {} records (rounds of Lua in one\n\
         thread, x86-64), divided by the records that the longer one has more, on one thread; kymo built with the profile\n\
         `shipping` (fat LTO). The peers read as many calls of the same program, or the same CTF trace. LTTng's\n\
         recording (liblttng-ust-cyg-profile) has few events: its packets are repeated. bytes: an event, of the output.",
        few.records, many.records
    );
    if requested(threads::ROW) {
        println!(
            "\ntwo processors against one at best, by the instructions (millions) of each thread:"
        );
        for row in ROWS.iter().filter(|row| row.shared.is_some()) {
            let Some(Pair(both)) = input(row) else {
                continue;
            };
            let [few, many] = both.each_ref().map(|trace| command(&kymo, row, trace).0);
            let (gain, threads) = threads::gain([&few, &many])?;
            let threads: Vec<_> = threads.iter().map(|count| format!("{count:.1}")).collect();
            println!("{:12} {gain:.2}  ({})", row.name, threads.join(", "));
            if let Some(least) = row.shared.filter(|least| gain < *least) {
                exceeded.push(format!("{}: {gain:.2} times, {least} wanted", row.name));
            }
        }
    }
    if requested(memory::ROW) {
        exceeded.extend(memory::measure(&kymo, &recordings.program, options.long)?);
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    println!("\nBEYOND THE GATE:\n  {}", exceeded.join("\n  "));
    match options.print_only {
        true => Ok(()),
        false => Err(Error::new(format!("{} gates are exceeded", exceeded.len()))),
    }
}

/// Makes a recording of uftrace; returns its path and the number of records.
///
/// # Errors
/// When it can't be made.
pub fn uftrace(kymo: &Path) -> Result<(std::path::PathBuf, u64)> {
    let recordings = Recordings::make(kymo, true)?.uftrace;
    let recordings = recordings.ok_or_else(|| Error::new("uftrace has recorded nothing"))?;
    let Pair([_, many]) = recordings;
    Ok((many.path, many.records))
}

/// The command of a row, and its output file.
fn command(kymo: &Path, row: &Row, trace: &Trace) -> (Command, PathBuf) {
    let mut command = Command::new(kymo);
    command.args(row.arguments);
    if let Some(elf) = &trace.elf {
        command.arg("--elf").arg(elf);
    }
    let output = trace.path.with_extension(row.name);
    if row.arguments[0] == "export" {
        command.arg("--output").arg(&output);
    }
    command.arg(&trace.path);
    (command, output)
}

/// Measures one row.
fn measure(kymo: &Path, row: &Row, pair: &Pair, uftrace: Option<&Pair>) -> Result<Found> {
    // With one thread: the overhead of sharing the work is measured separately.
    let command = |trace: &Trace| {
        let (mut command, output) = command(kymo, row, trace);
        command.args(["--threads", "1"]);
        (command, output)
    };
    let peer = || match row.peer.zip(uftrace) {
        None => Ok(None),
        Some((Peer::Uftrace(words), uftrace)) => uftrace
            .each(|trace| {
                let mut uftrace = Command::new("uftrace");
                uftrace.args(words).args(["--no-pager", "-d"]);
                instructions(uftrace.arg(&trace.path))
            })
            .map(Some),
        Some((Peer::Babeltrace, _)) => pair
            .each(|trace| {
                let mut babeltrace = Command::new("babeltrace2");
                babeltrace.arg(&trace.path);
                instructions(babeltrace.args(["-c", "sink.utils.counter"]))
            })
            .map(Some),
    };
    // Counting takes long. Both run in parallel, which does not change the counts.
    let (found, peer) = std::thread::scope(|scope| {
        let peer = scope.spawn(peer);
        let found = pair.each(|trace| instructions(&command(trace).0));
        let failed = |_| Err(Error::new("the thread that counts the peer failed"));
        (found, peer.join().unwrap_or_else(failed))
    });
    let (found, peer) = (found?, peer?);
    let bytes = match row.arguments[0] {
        "export" => Some(pair.each(|trace| run::size(&command(trace).1))?),
        _ => None,
    };
    Ok(Found {
        instructions: found,
        peer,
        bytes,
    })
}

/// A line of the table.
fn line(row: &Row, found: Found, limit: &Limit) -> String {
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    format!(
        "{:12} {:>12} {:>6}  {:>8} {:>6} {:>8}  {:>6} {:>6}  {}",
        row.name,
        number(Some(found.instructions), 0),
        number(limit.instructions, 0),
        number(found.peer, 0),
        number(found.ratio(), 2),
        number(limit.ratio, 0),
        number(found.bytes, 1),
        number(limit.bytes, 0),
        row.peer.map_or_else(|| "-".to_owned(), Peer::name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_limits_and_every_limit_a_row() {
        let limits = Limits::load(LIMITS).unwrap();
        for row in &ROWS {
            limits.get(row.name).unwrap();
        }
        assert_eq!(limits.count(), ROWS.len());
    }
}
