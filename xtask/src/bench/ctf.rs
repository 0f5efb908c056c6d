//! `cargo xtask bench ctf`: reading speed of `kymo-ctf`, beside babeltrace2 in the same run.
//!
//! There are two kinds of figures. *Times* are for people: processor time of whole processes, the minimum of several
//! rounds in which the programs alternate, so that other load affects both. *Instructions* are for CI: they are the
//! same on any machine and under any load, so that a budget that is met once is always met, and the ratio to
//! babeltrace2 is one of counts.

pub mod process;
pub mod traces;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::process::{Cost, instructions, measure};
use self::traces::Kind;
use kymo_targets::run::{self, Context, Error, Result};

/// Default number of events in a timed trace.
pub const EVENTS: u64 = 4_000_000;
/// Number of rounds; the fastest one counts.
const ROUNDS: usize = 3;
/// Events of the two traces whose instructions are counted: the difference excludes the fixed cost of a process.
const COUNTED: [u64; 2] = [4_000, 12_000];

/// A way of reading a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Reads and sums the bytes only.
    Bytes,
    /// Reads time and class of every event.
    Count,
    /// Reads every field of every event.
    Visit,
    /// Reads one field of every event: a projection.
    Field,
    /// Formats every event as a line of text.
    Text,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Bytes,
        Self::Count,
        Self::Visit,
        Self::Field,
        Self::Text,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Visit => "visit",
            Self::Field => "field",
            Self::Text => "text",
        }
    }

    /// Arguments for babeltrace2 to do the same, or as little more as possible.
    const fn babeltrace(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Bytes => None,
            Self::Count | Self::Visit | Self::Field => Some(&["-o", "dummy"]),
            Self::Text => Some(&["--clock-seconds", "--no-delta", "--fields=all"]),
        }
    }

    /// Greatest number of instructions per event.
    const fn budget(self, kind: Kind) -> Option<u64> {
        Some(match (self, kind) {
            (Self::Count, Kind::Mixed) => 255,
            (Self::Count, Kind::Ticks) => 118,
            (Self::Count, Kind::Packed) => 195,
            (Self::Count, Kind::Calls) => 146,
            (Self::Visit, Kind::Mixed) => 760,
            (Self::Visit, Kind::Ticks) => 260,
            (Self::Visit, Kind::Packed) => 440,
            (Self::Visit, Kind::Calls) => 295,
            (Self::Field, Kind::Mixed) => 400,
            (Self::Field, Kind::Ticks | Kind::Calls) => 260,
            (Self::Field, Kind::Packed) => 335,
            (Self::Text, Kind::Mixed) => 2_000,
            (Self::Text, Kind::Ticks | Kind::Calls) => 1_150,
            (Self::Text, Kind::Packed) => 1_430,
            (Self::Bytes, _) => return None,
        })
    }

    /// Minimum ratio of babeltrace2's instructions per event to ours, over a mixed trace.
    const fn least_ratio(self) -> Option<f64> {
        match self {
            Self::Count => Some(36.0),
            Self::Visit => Some(12.5),
            Self::Field => Some(24.0),
            Self::Text => Some(11.0),
            Self::Bytes => None,
        }
    }
}

/// Times everything on traces with this number of events, and prints the table.
///
/// # Errors
/// When something cannot be built or run.
pub fn time(events: u64) -> Result<()> {
    let program = build()?;
    println!("traces of {events} events; processor time, the least of {ROUNDS} rounds\n");
    println!(
        "{:8} {:6} {:>9} {:>9} {:>9} {:>9} {:>14} {:>12} {:>10}",
        "trace",
        "way",
        "ns/event",
        "Mevents/s",
        "MB/s",
        "peak KiB",
        "babeltrace2 ns",
        "times faster",
        "bandwidth"
    );
    for kind in Kind::ALL {
        let trace = trace(kind, events)?;
        let size = size(&trace)?;
        let mut bandwidth = 0.0;
        for way in Way::ALL {
            let ours = ours(&program, way, kind, &trace);
            let theirs = theirs(way, &trace);
            let (ours, theirs) = least(ours, theirs)?;
            let each = |cost: Cost| cost.processor as f64 / events as f64;
            let speed = size as f64 * 1e3 / ours.processor.max(1) as f64;
            if way == Way::Bytes {
                bandwidth = speed;
            }
            let (beside, ratio) = match theirs {
                Some(theirs) => (
                    format!("{:.0}", each(theirs)),
                    format!("{:.1}", each(theirs) / each(ours)),
                ),
                None => ("-".to_owned(), "-".to_owned()),
            };
            println!(
                "{:8} {:6} {:>9.1} {:>9.1} {speed:>9.0} {:>9} {beside:>14} {ratio:>12} {:>9.0}%",
                kind.name(),
                way.name(),
                each(ours),
                1e3 / each(ours),
                ours.peak,
                100.0 * speed / bandwidth
            );
        }
    }
    threads(&program, events)?;
    println!(
        "\nbandwidth: of what reading the bytes of the files and adding them up takes, which is all that a reader\n\
         without any decoding could reach"
    );
    Ok(())
}

/// Measures the speedup by two threads, where there are two streams: in processor time of the busiest thread, which is
/// the elapsed time on a machine with idle processors.
fn threads(program: &Path, events: u64) -> Result<()> {
    println!(
        "\n{:8} {:6} {:>17} {:>17} {:>12} {:>9}",
        "trace", "way", "ns, one thread", "ns, two threads", "times faster", "peak KiB"
    );
    for kind in [Kind::Mixed, Kind::Packed, Kind::Calls] {
        let trace = trace(kind, events)?;
        for way in [Way::Visit, Way::Text] {
            let run = |threads: &str| -> Result<(u64, u64)> {
                let mut runs = Vec::new();
                for _ in 0..ROUNDS {
                    let mut command = Command::new(program);
                    command.args([way.name(), "--threads", threads]).arg(&trace);
                    runs.push(reported(&mut command)?);
                }
                Ok(runs.into_iter().min().unwrap_or_default())
            };
            let ((one, _), (two, peak)) = (run("1")?, run("2")?);
            let each = |time: u64| time as f64 / events as f64;
            println!(
                "{:8} {:6} {:>17.1} {:>17.1} {:>12.2} {peak:>9}",
                kind.name(),
                way.name(),
                each(one),
                each(two),
                one as f64 / two.max(1) as f64
            );
        }
    }
    Ok(())
}

/// Counts instructions, prints them and checks the budgets, beside babeltrace2's if it is installed.
///
/// # Errors
/// When something cannot be built or run, or a budget is exceeded.
pub fn count() -> Result<()> {
    let program = build()?;
    let babeltrace = run::succeeds(Command::new("babeltrace2").arg("--version"));
    if !babeltrace {
        println!("SKIPPED: no babeltrace2 to compare with");
    }
    println!(
        "\n{:8} {:6} {:>18} {:>7} {:>12} {:>13}",
        "trace", "way", "instructions/event", "budget", "babeltrace2", "times fewer"
    );
    let mut excesses = Vec::new();
    for kind in Kind::ALL {
        let traces = [trace(kind, COUNTED[0])?, trace(kind, COUNTED[1])?];
        for way in Way::ALL {
            let Some(budget) = way.budget(kind) else {
                continue;
            };
            let found = each(&traces, |trace| Ok(ours(&program, way, kind, trace)))?;
            let theirs = match babeltrace {
                true => Some(each(&traces, |trace| {
                    theirs(way, trace).ok_or_else(|| Error::new("babeltrace2 has no such way"))
                })?),
                false => None,
            };
            let ratio = theirs.map(|theirs| theirs as f64 / found.max(1) as f64);
            println!(
                "{:8} {:6} {found:>18} {budget:>7} {:>12} {:>13}",
                kind.name(),
                way.name(),
                theirs.map_or("-".to_owned(), |theirs| theirs.to_string()),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.1}")),
            );
            let what = format!("{}, {}", kind.name(), way.name());
            if found > budget {
                excesses.push(format!(
                    "{what}: {found} instructions an event, at most {budget} are allowed"
                ));
            }
            if let (Kind::Mixed, Some(ratio), Some(least)) = (kind, ratio, way.least_ratio())
                && ratio < least
            {
                excesses.push(format!(
                    "{what}: {ratio:.1} times fewer instructions than babeltrace2, at least {least} are demanded"
                ));
            }
        }
    }
    if excesses.is_empty() {
        return Ok(());
    }
    Err(Error::new(excesses.join("\n")))
}

/// Builds the reading program.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--profile", "shipping"]);
    cargo.args(["-p", "kymo-ctf", "--example", "ctf_speed"]);
    run::run(cargo.current_dir(run::root()))?;
    Ok(run::target_dir().join("shipping/examples/ctf_speed"))
}

/// The directory of a trace, which is written if missing.
fn trace(kind: Kind, events: u64) -> Result<PathBuf> {
    let folder = run::target_dir().join("bench-ctf");
    let trace = folder.join(format!("{}-{events}", kind.name()));
    if !trace.exists() {
        // Complete or not at all.
        let new = folder.join(format!("{}-{events}.{}", kind.name(), std::process::id()));
        kind.write(&new, events)?;
        if fs::rename(&new, &trace).is_err() {
            // Another process was faster.
            fs::remove_dir_all(&new).context(new.display())?;
        }
    }
    Ok(trace)
}

/// Bytes of all streams of a trace.
fn size(trace: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(trace).context(trace.display())? {
        let entry = entry.context(trace.display())?;
        if entry.file_name() != "metadata" {
            size += entry.metadata().context(trace.display())?.len();
        }
    }
    Ok(size)
}

fn ours(program: &Path, way: Way, kind: Kind, trace: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(way.name());
    if way == Way::Field {
        command.arg(kind.field());
    }
    command.arg(trace);
    command
}

fn theirs(way: Way, trace: &Path) -> Option<Command> {
    let mut command = Command::new("babeltrace2");
    command.args(way.babeltrace()?).arg(trace);
    Some(command)
}

/// The minimum processor times and the maximum memory of two programs that alternate.
fn least(mut ours: Command, mut theirs: Option<Command>) -> Result<(Cost, Option<Cost>)> {
    let (mut our, mut their) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (processor, peak) = reported(&mut ours)?;
        our.push(Cost {
            processor,
            peak,
            ..Cost::default()
        });
        if let Some(theirs) = &mut theirs {
            their.push(measure(theirs)?);
        }
    }
    let least = |costs: Vec<Cost>| {
        let peak = costs.iter().map(|cost| cost.peak).max();
        let least = costs.into_iter().min_by_key(|cost| cost.processor);
        least.map(|cost| Cost {
            peak: peak.unwrap_or(0),
            ..cost
        })
    };
    Ok((least(our).unwrap_or_default(), least(their)))
}

/// Our program's own measurement, which is exact to the nanosecond: processor time, and the largest memory in KiB.
fn reported(command: &mut Command) -> Result<(u64, u64)> {
    let reported = run::output(command)?;
    let word = |index: usize| reported.split(' ').nth(index)?.parse().ok();
    match (word(1), word(3)) {
        (Some(time), Some(peak)) => Ok((time, peak)),
        _ => Err(Error::new(format!("expected figures, found {reported:?}"))),
    }
}

/// Instructions per event, from two traces.
fn each(traces: &[PathBuf; 2], command: impl Fn(&Path) -> Result<Command>) -> Result<u64> {
    let [few, many] = traces;
    let (few, many) = (
        instructions(&command(few)?)?,
        instructions(&command(many)?)?,
    );
    Ok(many.saturating_sub(few) / (COUNTED[1] - COUNTED[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_what_babeltrace2_reads() {
        if !run::succeeds(Command::new("babeltrace2").arg("--version")) {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "no babeltrace2"
            );
            println!("SKIPPED: no babeltrace2");
            return;
        }
        for kind in Kind::ALL {
            let trace = trace(kind, 1_000).unwrap();
            let mut command = theirs(Way::Text, &trace).unwrap();
            let text = run::output(&mut command).unwrap();
            assert_eq!(text.lines().count(), 1_000, "{kind:?}");
        }
    }
}
