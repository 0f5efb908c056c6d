//! `cargo xtask bench import`: reading speed of foreign formats, beside their own tools.
//!
//! *Times* are for people: items or events per second of processor time, the best of several alternating rounds, and
//! the largest memory without mapped files. *Instructions* (`--count`) are for CI: those of a record, as the difference
//! between a short input and a long one, which excludes the fixed cost of a process. The gates are in
//! `xtask/import-limits.txt`.
//!
//! RTEMS's converter is not installed anywhere; a program of the bench (`host/rtems-record/examples/rtems_speed.rs`)
//! repeats its work for each item, which gives the scale in the same run: see `PEER_WHOLE`.

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Error, Result};

use crate::bench::analyze;
use crate::bench::ctf::process::{Cost, heap, instructions, measure};
use crate::bench::limits::{Found, Limit, Limits};

mod captures;

use captures::{Input, Pair};

/// Number of rounds; the fastest one counts.
const ROUNDS: usize = 3;

/// A program is run repeatedly for at least this time, in nanoseconds: its time has a resolution of 10 ms.
const LONG_ENOUGH: u64 = 500_000_000;

/// Items of the RTEMS streams: of the two whose instructions are counted, and of the timed one.
const COUNTED: [u64; 2] = [100_000, 300_000];
const TIMED: u64 = 8_000_000;

/// Parts of a trace.dat whose instructions are counted. The whole file is timed.
const PARTS: [(u64, u64); 2] = [(1, 8), (3, 8)];

/// How often the packets of the SystemView recording are repeated.
const REPEATED: [usize; 2] = [1, 4];

/// How much longer RTEMS's converter takes for an item than the arithmetic repeated here, which processes 130 million
/// items a second: the converter read 21.5 million a second of processor time on a machine of the same speed
/// (`trace-cmd report` wrote 0.72 million lines a second on both).
const PEER_WHOLE: f64 = 130.0 / 21.5;

/// The same for base64, of which it read 6 million items a second.
const PEER_BASE64: f64 = 130.0 / 6.0;

/// Greatest growth in KiB of a report's heap from an eighth of a trace to all of it, which has more functions (1,756
/// KiB). The rows of all records alone would be 9 MiB.
const GROWTH: u64 = 4 << 10;

/// The file of gates.
const LIMITS: &str = "import-limits.txt";

/// A reading program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The program of `kymo-rtems-record`, on a stream of this layout.
    Rtems(&'static str),
    /// `kymo` with these arguments before a trace.dat.
    Dat(&'static str, &'static [&'static str]),
    /// `kymo` with these arguments before a SystemView recording.
    SystemView(&'static [&'static str]),
}

/// Another program that does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// The work of RTEMS's converter for each 64-bit item.
    Arithmetic,
    TraceCmd,
    /// `uftrace report` on the same number of its own records. Only timed.
    Uftrace,
}

struct Row {
    name: &'static str,
    reader: Reader,
    peer: Option<Peer>,
}

const V6: &str = "ftrace/amd64/dat/fg-sched-v6.dat.xz";
const V7: &str = "ftrace/amd64/dat/fg-sched-v7.dat";
const TEXT: &[&str] = &["show", "--format", "trace-cmd"];

const ROWS: [Row; 7] = [
    Row {
        name: "rtems-le64",
        reader: Reader::Rtems("le64"),
        peer: Some(Peer::Arithmetic),
    },
    Row {
        name: "rtems-base64",
        reader: Reader::Rtems("base64"),
        peer: Some(Peer::Arithmetic),
    },
    Row {
        name: "text-v6",
        reader: Reader::Dat(V6, TEXT),
        peer: Some(Peer::TraceCmd),
    },
    Row {
        name: "text-v7",
        reader: Reader::Dat(V7, TEXT),
        peer: Some(Peer::TraceCmd),
    },
    Row {
        name: "report-v6",
        reader: Reader::Dat(V6, &["report"]),
        peer: Some(Peer::Uftrace),
    },
    Row {
        name: "report-v7",
        reader: Reader::Dat(V7, &["report"]),
        peer: None,
    },
    Row {
        name: "systemview",
        reader: Reader::SystemView(&["report"]),
        peer: None,
    },
];

/// The programs.
struct Programs {
    kymo: PathBuf,
    rtems: PathBuf,
    has_trace_cmd: bool,
}

impl Programs {
    fn build() -> Result<Self> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--profile", "shipping"]);
        cargo.args(["-p", "kymo-rtems-record", "--example", "rtems_speed"]);
        run::run(cargo.current_dir(run::root()))?;
        let has_trace_cmd = run::succeeds(Command::new("trace-cmd").arg("options"));
        if !has_trace_cmd {
            println!("SKIPPED: no trace-cmd to compare with");
        }
        Ok(Self {
            kymo: kymo::build(Profile::Shipping)?,
            rtems: run::target_dir().join("shipping/examples/rtems_speed"),
            has_trace_cmd,
        })
    }

    /// The command of a row on an input.
    fn ours(&self, reader: Reader, input: &Path) -> Command {
        let (program, words): (_, &[&str]) = match reader {
            Reader::Rtems(_) => (&self.rtems, &["read"]),
            Reader::Dat(_, words) | Reader::SystemView(words) => (&self.kymo, words),
        };
        let mut command = Command::new(program);
        command.args(words).arg(input);
        command
    }

    /// The peer's command; `None` if it is not installed.
    fn theirs(&self, peer: Option<Peer>, input: &Path) -> Option<Command> {
        match peer? {
            Peer::Arithmetic => {
                let mut command = Command::new(&self.rtems);
                command.arg("peer").arg(input);
                Some(command)
            }
            Peer::TraceCmd if self.has_trace_cmd => {
                let mut command = Command::new("trace-cmd");
                command.arg("report").arg(input);
                Some(command)
            }
            Peer::TraceCmd | Peer::Uftrace => None,
        }
    }
}

/// The selected rows.
fn chosen(only: Option<&str>) -> Result<Vec<&'static Row>> {
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| only.is_none_or(|only| row.name == only))
        .collect();
    if rows.is_empty() {
        let names = ROWS.map(|row| row.name).join(", ");
        return Err(Error::new(format!("expected one of {names}")));
    }
    Ok(rows)
}

/// Reports that a capture is missing.
fn skipped(row: &Row) {
    println!("{:14} SKIPPED: no capture at KYMO_DATA", row.name);
}

/// Counts instructions per record, and checks the gates.
///
/// # Errors
/// When something can't be built or run, or a gate is exceeded.
pub fn count(only: Option<&str>) -> Result<()> {
    let limits = Limits::load(LIMITS)?;
    let programs = Programs::build()?;
    println!(
        "\n{:14} {:>12} {:>6}  {:>8} {:>6} {:>6}  beside",
        "row", "instructions", "gate", "peer", "times", "gate"
    );
    let mut exceeded = Vec::new();
    for row in chosen(only)? {
        let Some(pair) = pair(row, &programs)? else {
            skipped(row);
            continue;
        };
        let found = count_row(row, &pair, &programs)?;
        let limit = limits.get(row.name)?;
        println!("{}", line(row, found, limit));
        exceeded.extend(limit.exceeded(row.name, found));
        if row.name == "report-v6" {
            exceeded.extend(growth(row, &programs)?);
        }
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    Err(Error::new(exceeded.join("\n")))
}

/// The inputs of a row whose instructions are counted; `None` if the capture is missing.
fn pair(row: &Row, programs: &Programs) -> Result<Option<Pair>> {
    let [few, many] = match row.reader {
        Reader::Rtems(layout) => {
            COUNTED.map(|items| captures::rtems(&programs.rtems, layout, items))
        }
        Reader::Dat(capture, _) => match captures::data(capture) {
            Some(capture) => PARTS.map(|part| captures::part(&capture, part)),
            None => return Ok(None),
        },
        Reader::SystemView(_) => match captures::data("systemview/app-cpu1.SVDat") {
            Some(capture) => {
                REPEATED.map(|times| captures::systemview(&programs.kymo, &capture, times))
            }
            None => return Ok(None),
        },
    };
    Ok(Some(Pair([few?, many?])))
}

fn count_row(row: &Row, pair: &Pair, programs: &Programs) -> Result<Found> {
    let peer = || -> Result<Option<f64>> {
        let input = match row.reader {
            // The peer's arithmetic works on the stream itself.
            Reader::Rtems(_) => {
                let [few, many] =
                    COUNTED.map(|items| captures::rtems(&programs.rtems, "le64", items));
                Pair([few?, many?])
            }
            _ => pair.clone(),
        };
        let each = input.each(|path| match programs.theirs(row.peer, path) {
            Some(command) => instructions(&command),
            None => Ok(0),
        })?;
        Ok((each > 0.0).then_some(each))
    };
    // Counting takes long. Both run in parallel, which does not change the counts.
    let (ours, peer) = std::thread::scope(|scope| {
        let peer = scope.spawn(peer);
        let ours = pair.each(|path| instructions(&programs.ours(row.reader, path)));
        let failed = |_| Err(Error::new("the thread that counts the peer failed"));
        (ours, peer.join().unwrap_or_else(failed))
    });
    Ok(Found {
        instructions: ours?,
        peer: peer?,
        bytes: None,
    })
}

/// Factor by which the peer is slower with this input than the program that stands in for it.
fn slower(row: &Row) -> f64 {
    match row.reader {
        Reader::Rtems("base64") => PEER_BASE64,
        Reader::Rtems(_) => PEER_WHOLE,
        _ => 1.0,
    }
}

/// Checks that the heap of a report does not grow with the trace.
fn growth(row: &Row, programs: &Programs) -> Result<Option<String>> {
    let Reader::Dat(capture, _) = row.reader else {
        return Ok(None);
    };
    let Some(capture) = captures::data(capture) else {
        return Ok(None);
    };
    let peak = |part| -> Result<u64> {
        let input = captures::part(&capture, part)?;
        let mut report = programs.ours(row.reader, &input.path);
        // With more threads, the amount of buffered data depends on the load of the machine.
        Ok(heap(report.args(["--threads", "1"]))? >> 10)
    };
    let (few, many) = (peak((1, 8))?, peak((1, 1))?);
    println!("{:14} {few} KiB of an eighth, {many} KiB of all", "  heap");
    Ok((many > few + GROWTH).then(|| {
        format!(
            "{}: {many} KiB of heap, {few} KiB for an eighth of the trace: at most {GROWTH} KiB more are allowed",
            row.name
        )
    }))
}

/// A line of the table.
fn line(row: &Row, found: Found, limit: &Limit) -> String {
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    format!(
        "{:14} {:>12} {:>6}  {:>8} {:>6} {:>6}  {}",
        row.name,
        number(Some(found.instructions), 1),
        number(limit.instructions, 0),
        number(found.peer, 0),
        number(found.ratio(), 2),
        number(limit.ratio, 0),
        beside(row)
    )
}

/// Name of the peer.
const fn beside(row: &Row) -> &'static str {
    match row.peer {
        Some(Peer::Arithmetic) => "RTEMS's converter, its arithmetic",
        Some(Peer::TraceCmd) => "trace-cmd report",
        Some(Peer::Uftrace) => "uftrace report (timed only)",
        None => "-",
    }
}

/// Times all rows, or the one of this name, and prints the table.
///
/// # Errors
/// When something can't be built or run.
pub fn time(only: Option<&str>) -> Result<()> {
    let programs = Programs::build()?;
    println!(
        "\n{:14} {:>9} {:>9} {:>8} {:>9}  {:>9} {:>9} {:>7}  beside",
        "row", "records", "M/s", "MB/s", "anon KiB", "M/s", "anon KiB", "times"
    );
    for row in chosen(only)? {
        let input = match row.reader {
            Reader::Rtems(layout) => captures::rtems(&programs.rtems, layout, TIMED)?,
            Reader::Dat(capture, _) => match captures::data(capture) {
                Some(capture) => captures::part(&capture, (1, 1))?,
                None => {
                    skipped(row);
                    continue;
                }
            },
            Reader::SystemView(_) => match captures::data("systemview/app-cpu1.SVDat") {
                Some(capture) => captures::systemview(&programs.kymo, &capture, 40)?,
                None => {
                    skipped(row);
                    continue;
                }
            },
        };
        time_row(row, &input, &programs)?;
    }
    println!(
        "\nM/s: million records a second of processor time, the best of {ROUNDS} rounds; anon KiB: the largest memory \
         without\nmapped files. RTEMS's converter is worked out from its arithmetic, which is measured here: it takes \
         {PEER_WHOLE:.1} times\nas long as a whole, and {PEER_BASE64:.1} times with base64."
    );
    Ok(())
}

fn time_row(row: &Row, input: &Input, programs: &Programs) -> Result<()> {
    let stream = match row.reader {
        Reader::Rtems(_) => captures::rtems(&programs.rtems, "le64", TIMED)?,
        _ => input.clone(),
    };
    let uftrace = match row.peer {
        Some(Peer::Uftrace) => Some(analyze::uftrace(&programs.kymo)?),
        _ => None,
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut peer_records = stream.records;
    for _ in 0..ROUNDS {
        ours.push(long_enough(&mut programs.ours(row.reader, &input.path))?);
        let peer = match &uftrace {
            Some((path, records)) => {
                peer_records = *records;
                let mut command = Command::new("uftrace");
                command.args(["report", "--no-pager", "-d"]).arg(path);
                Some(command)
            }
            None => programs.theirs(row.peer, &stream.path),
        };
        if let Some(mut peer) = peer {
            theirs.push(long_enough(&mut peer)?);
        }
    }
    let best = |costs: &[Cost], records: u64, slower: f64| {
        let least = costs.iter().map(|cost| cost.processor).min()?;
        let memory = costs.iter().map(|cost| cost.anonymous).max()?;
        Some((records as f64 * 1e3 / least.max(1) as f64 / slower, memory))
    };
    let our = best(&ours, input.records, 1.0).unwrap_or_default();
    let their = best(&theirs, peer_records, slower(row));
    let size = run::size(&input.path)?;
    let (speed, memory, times) = match their {
        Some((speed, memory)) => (
            format!("{speed:.2}"),
            memory.to_string(),
            format!("{:.1}", our.0 / speed),
        ),
        None => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
    };
    println!(
        "{:14} {:>9} {:>9.2} {:>8.0} {:>9}  {speed:>9} {memory:>9} {times:>7}  {}",
        row.name,
        input.records,
        our.0,
        our.0 * size as f64 / input.records as f64,
        our.1,
        beside(row)
    );
    Ok(())
}

/// The cost of a run, averaged over enough runs for an exact time.
fn long_enough(command: &mut Command) -> Result<Cost> {
    let (mut runs, mut all) = (0, Cost::default());
    while all.processor < LONG_ENOUGH {
        let cost = measure(command)?;
        runs += 1;
        all.processor += cost.processor;
        all.peak = all.peak.max(cost.peak);
        all.anonymous = all.anonymous.max(cost.anonymous);
    }
    Ok(Cost {
        processor: all.processor / runs,
        ..all
    })
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

    #[test]
    fn parts_of_a_trace_have_its_first_records() {
        for capture in [V6, V7] {
            let Some(capture) = captures::data(capture) else {
                println!("SKIPPED: no capture at KYMO_DATA");
                return;
            };
            let [part, whole] = [(1, 4), (1, 1)].map(|part| captures::part(&capture, part));
            let share = part.unwrap().records as f64 / whole.unwrap().records as f64;
            assert!((0.2..0.3).contains(&share), "{share}");
        }
    }
}
