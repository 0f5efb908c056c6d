//! `cargo xtask bench coresight`: decoding speed of `kymo-coresight`, beside Debian's libopencsd in the same run.
//!
//! Both start with the bytes of a trace buffer in memory, split its frames, and count: packets, or ranges and
//! instructions through the code. *Times* are for people: processor time of one thread, the minimum of several rounds;
//! and elapsed time of one thread against two. *Instructions* are for CI: those of one pass, as the difference between
//! runs of one pass and of four, which excludes opening the files.

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Context, Error, Result};

use super::ctf::process::{instructions, measure};

/// A measured snapshot.
struct Row {
    snapshot: &'static str,
    /// Gates of `--count`; without gates, as for the longest one, it is only timed.
    gates: Option<Gates>,
}

/// Greatest number of our instructions, and minimum ratio of the library's instructions to ours. A pass begins without
/// decoded code. In traces as short as these, finding the basic blocks takes a considerable part of it.
struct Gates {
    packet: (u64, f64),
    range: (u64, f64),
}

const ROWS: [Row; 6] = [
    Row {
        snapshot: "bugfix-exact-match-head",
        gates: None,
    },
    Row {
        snapshot: "ricsec-fib-1",
        gates: Some(Gates {
            packet: (57, 5.4),
            range: (335, 7.0),
        }),
    },
    Row {
        snapshot: "001-ack_test",
        gates: Some(Gates {
            packet: (49, 3.7),
            range: (243, 9.3),
        }),
    },
    Row {
        snapshot: "texit-poe2",
        gates: Some(Gates {
            packet: (70, 2.9),
            // Most ranges need an address packet.
            range: (570, 5.6),
        }),
    },
    Row {
        snapshot: "tc2-ptm-rstk-t32",
        gates: Some(Gates {
            packet: (88, 3.6),
            // Two of these instructions search for runs without an end.
            range: (219, 17.7),
        }),
    },
    Row {
        snapshot: "r5f-freertos",
        gates: Some(Gates {
            packet: (84, 3.8),
            // Counting the trace that is skipped after a loss is included, some tenths of an instruction.
            range: (68, 10.3),
        }),
    },
];

/// The built programs, and the folder of the captures.
struct Bench {
    ours: PathBuf,
    /// `None` where the library's headers are not installed.
    theirs: Option<PathBuf>,
    folder: PathBuf,
}

impl Bench {
    /// `None`, with a message, if there are no captures.
    fn build() -> Result<Option<Self>> {
        let named = std::env::var_os("KYMO_DATA").map(PathBuf::from);
        let data = named.unwrap_or_else(|| run::root().join("../shared/data"));
        let folder = data.join("coresight/snapshots");
        if !folder.is_dir() {
            println!("SKIPPED: no captures at {}", folder.display());
            return Ok(None);
        }
        // The C package has the same example, without test dependencies.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--release", "-p", "kymo-coresight-c"]);
        cargo.args(["--example", "coresight-speed"]);
        run::run(cargo.current_dir(run::root()))?;
        let theirs = run::target_dir().join("coresight-peer");
        let has_library = Path::new("/usr/include/opencsd/c_api/opencsd_c_api.h").is_file();
        if has_library {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&theirs);
            cc.arg(run::root().join("xtask/src/bench/coresight/peer.c"));
            run::run(cc.arg("-lopencsd_c_api"))?;
        } else {
            println!("SKIPPED: no libopencsd-dev to compare with");
        }
        Ok(Some(Bench {
            ours: run::target_dir().join("release/examples/coresight-speed"),
            theirs: has_library.then_some(theirs),
            folder,
        }))
    }

    fn ours(&self, words: &[&str], snapshot: &str) -> Command {
        let mut command = Command::new(&self.ours);
        command.args(words).arg(self.folder.join(snapshot));
        command
    }

    /// The command that runs libopencsd.
    fn theirs(&self, what: &str, rounds: u32, snapshot: &str) -> Result<Option<Command>> {
        let Some(theirs) = &self.theirs else {
            return Ok(None);
        };
        let plan = run::target_dir().join(format!("coresight-{snapshot}.plan"));
        let text = run::output(&mut self.ours(&["--plan"], snapshot))?;
        std::fs::write(&plan, text).context(plan.display())?;
        let mut command = Command::new(theirs);
        command.args([what, &rounds.to_string()]).arg(plan);
        Ok(Some(command))
    }
}

fn numbers(text: &str) -> Result<Vec<f64>> {
    let numbers = text.split_whitespace().map(str::parse);
    let numbers: std::result::Result<_, _> = numbers.collect();
    numbers.map_err(|_| Error::new(format!("expected numbers, found {text:?}")))
}

/// Times all rows, and prints the table.
///
/// # Errors
/// When something cannot be built or run.
pub fn time() -> Result<()> {
    let Some(bench) = Bench::build()? else {
        return Ok(());
    };
    println!(
        "\n{:24} {:>8} {:>7} {:>8} {:>7} {:>9} {:>9} {:>8} {:>7} {:>9}",
        "snapshot",
        "packets",
        "M/s",
        "library",
        "times",
        "decode",
        "library",
        "M rng/s",
        "times",
        "2 threads"
    );
    for row in &ROWS {
        let name = row.snapshot;
        let ours = numbers(&run::output(&mut bench.ours(&[], name))?)?;
        let [
            bytes,
            packets,
            ranges,
            instructions,
            packet_time,
            decode_time,
            one,
            two,
        ] = ours[..]
        else {
            return Err(Error::new(format!(
                "{name}: expected eight numbers of speed"
            )));
        };
        let theirs = |what: &str| -> Result<Option<f64>> {
            let Some(mut peer) = bench.theirs(what, 20, name)? else {
                return Ok(None);
            };
            Ok(numbers(&run::output(&mut peer)?)?.last().copied())
        };
        let beside = |time: Option<f64>, ours: f64| match time {
            Some(time) => (
                format!("{:.1}", bytes / 1e6 / time),
                format!("{:.1}", time / ours),
            ),
            None => ("-".into(), "-".into()),
        };
        let (their_packets, packet_ratio) = beside(theirs("packets")?, packet_time);
        let (their_decode, decode_ratio) = beside(theirs("decode")?, decode_time);
        println!(
            "{name:24} {:>8.0} {:>7.1} {their_packets:>8} {packet_ratio:>7} {:>9.1} {their_decode:>9} {:>8.1} \
             {decode_ratio:>7} {:>8.2}x   {:.0} M instructions/s",
            bytes / 1e6 / packet_time,
            packets / 1e6 / packet_time,
            bytes / 1e6 / decode_time,
            ranges / 1e6 / decode_time,
            one / two,
            instructions / 1e6 / decode_time,
        );
    }
    println!("\nMB of trace a second; processor time of one thread, the least of several rounds.");
    let (mut listed, lines) = disasm(&bench)?;
    let seconds = measure(&mut listed)?.processor as f64 / 1e9;
    println!(
        "\nkymo disasm {LISTED}: {:.1} million instructions a second, from opening on",
        lines / 1e6 / seconds.max(1e-9)
    );
    text(&bench)
}

/// Times the listing as text, with whole programs.
fn text(bench: &Bench) -> Result<()> {
    let snapshot = bench.folder.join(ROWS[0].snapshot);
    let kymo = kymo::build(Profile::Shipping)?;
    let mut ours = Command::new(&kymo);
    let ours = measure(ours.args(["packets", "--decode"]).arg(&snapshot))?;
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    println!("\nkymo packets --decode: {:.2} s", seconds(ours.processor));
    let mut peer = Command::new("trc_pkt_lister");
    // It writes a log file into the folder where it runs.
    peer.args(["-decode", "-logstdout", "-ss_dir"])
        .arg(std::path::absolute(&snapshot).unwrap_or(snapshot))
        .current_dir(std::env::temp_dir());
    match measure(&mut peer) {
        Ok(theirs) => println!(
            "trc_pkt_lister -decode: {:.2} s, {:.1} times",
            seconds(theirs.processor),
            theirs.processor as f64 / ours.processor.max(1) as f64
        ),
        Err(_) => println!("SKIPPED: no trc_pkt_lister (package libopencsd-bin) to compare with"),
    }
    Ok(())
}

/// Snapshot for the instructions per line of the listing as text: code with symbols and lines.
const LISTED: &str = "r5f-freertos";

/// Greatest number of this machine's instructions per line of `kymo disasm`, including opening and symbols: at five per
/// nanosecond, 2.5 million lines a second are 2,000. The shipped version takes 434; perf's script takes some 45
/// microseconds a line.
const DISASM_LINE: u64 = 480;

/// `kymo disasm`, with functions, and files and lines of the source.
fn disasm(bench: &Bench) -> Result<(Command, f64)> {
    let kymo = kymo::build(Profile::Shipping)?;
    let mut command = Command::new(kymo);
    command.arg("disasm").arg(bench.folder.join(LISTED));
    let lines = run::output(&mut command)?.lines().count();
    Ok((command, lines as f64))
}

/// Instructions of a pass, without opening the files.
fn pass(command: impl Fn(u32) -> Result<Option<Command>>) -> Result<Option<f64>> {
    let (Some(one), Some(four)) = (command(1)?, command(4)?) else {
        return Ok(None);
    };
    let (one, four) = (instructions(&one)?, instructions(&four)?);
    Ok(Some(four.saturating_sub(one) as f64 / 3.0))
}

/// Counts the instructions of all rows with gates, and checks them.
///
/// # Errors
/// When something cannot be built or run, or exceeds its gate.
pub fn count() -> Result<()> {
    let Some(bench) = Bench::build()? else {
        return Ok(());
    };
    println!(
        "\n{:20} {:8} {:>12} {:>7} {:>8} {:>6} {:>6}",
        "snapshot", "of each", "instructions", "at most", "library", "times", "least"
    );
    let mut excesses = Vec::new();
    for row in &ROWS {
        let (name, Some(gates)) = (row.snapshot, &row.gates) else {
            continue;
        };
        let figures = numbers(&run::output(&mut bench.ours(&["--sizes"], name))?)?;
        let [packets, ranges] = figures[..] else {
            return Err(Error::new(format!("{name}: expected two numbers of speed")));
        };
        for (what, unit, units, gate) in [
            ("packets", "packet", packets, &gates.packet),
            ("decode", "range", ranges, &gates.range),
        ] {
            let rounds = |rounds: u32| {
                Ok(Some(
                    bench.ours(&["--rounds", &rounds.to_string(), what], name),
                ))
            };
            let ours = pass(rounds)?.unwrap_or_default() / units;
            let theirs = pass(|rounds| bench.theirs(what, rounds, name))?;
            let ratio = theirs.map(|theirs| theirs / units / ours);
            let (most, least) = *gate;
            println!(
                "{name:20} {unit:8} {ours:>12.1} {most:>7} {:>8} {:>6} {least:>6.1}",
                theirs.map_or("-".into(), |theirs| format!("{:.0}", theirs / units)),
                ratio.map_or("-".into(), |ratio| format!("{ratio:.1}")),
            );
            if ours > most as f64 {
                excesses.push(format!(
                    "{name}: {ours:.1} instructions a {unit}, at most {most} are allowed"
                ));
            }
            if ratio.is_some_and(|ratio| ratio < least) {
                excesses.push(format!(
                    "{name}: the library takes {:.1} times as many instructions a {unit}, at least {least} are demanded",
                    ratio.unwrap_or_default()
                ));
            }
        }
    }
    let (listed, lines) = disasm(&bench)?;
    let line = instructions(&listed)? as f64 / lines;
    println!("{LISTED:20} {:8} {line:>12.1} {DISASM_LINE:>7}", "line");
    if line > DISASM_LINE as f64 {
        excesses.push(format!(
            "{LISTED}: {line:.1} instructions a line of kymo disasm, at most {DISASM_LINE} are allowed"
        ));
    }
    if excesses.is_empty() {
        Ok(())
    } else {
        Err(Error::new(excesses.join("\n")))
    }
}
