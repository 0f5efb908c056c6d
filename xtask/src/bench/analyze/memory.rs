//! Memory of `kymo report`, which must not grow with the trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use kymo_targets::run::{self, Context, Error, Result};

/// Name of the row.
pub const ROW: &str = "memory";

/// Greatest amount of anonymous memory, in KiB: 64 MiB.
const MOST: u64 = 64 << 10;

/// Greatest difference in KiB between a trace and one that is ten times as long: room for different batches and
/// outputs.
const MORE: u64 = 2 << 10;

/// Limit of a recording's size.
const ROOM: &str = "1024M";

/// Number of rounds of the program; each has 100,000 records.
const ROUNDS: u32 = 10;

/// Records a short trace and one that is ten times as long (1 and 10 million records, or if `long` 10 and 100 million),
/// and measures `kymo report` of both. Prints the results, and returns the exceeded gates.
///
/// # Errors
/// If something can't be run, or ended before its memory could be read.
pub fn measure(kymo: &Path, program: &Path, long: bool) -> Result<Vec<String>> {
    let rounds = if long { 10 * ROUNDS } else { ROUNDS };
    let mut held = [0; 2];
    for (rounds, held) in [rounds, 10 * rounds].into_iter().zip(&mut held) {
        let trace = record(program, rounds)?;
        let mut report = Command::new(kymo);
        report.arg("report").arg("--elf").arg(program).arg(&trace);
        *held = anonymous(&mut report)?;
        let size = run::size(&trace)? / 1_000_000;
        println!(
            "{ROW:12} {held} KiB of anonymous memory for `report` of {size} MB, at most {MOST}"
        );
        fs::remove_file(&trace).context(trace.display())?;
    }
    let [short, long] = held;
    let mut exceeded = Vec::new();
    if long > MOST {
        exceeded.push(format!("{ROW}: {long} KiB, at most {MOST} allowed"));
    }
    if long > short + MORE {
        exceeded.push(format!(
            "{ROW}: {long} KiB where a tenth of the trace takes {short}: at most {MORE} more allowed"
        ));
    }
    Ok(exceeded)
}

/// Makes a raw recording of this number of rounds, and checks that it is complete.
fn record(program: &Path, rounds: u32) -> Result<PathBuf> {
    /// Minimum size of a round.
    const BYTES: u64 = 400_000;
    let path = run::target_dir().join(format!("bench-analyze/memory-{rounds}.kymo"));
    let mut command = Command::new(program);
    command.arg(rounds.to_string()).env("KYMO_OUTPUT", &path);
    run::output(command.env("KYMO_BUFFER", ROOM))?;
    let size = run::size(&path)?;
    if size < BYTES * u64::from(rounds) {
        return Err(Error::new(format!(
            "{}: {size} bytes, which is not all of {rounds} rounds",
            path.display()
        )));
    }
    Ok(path)
}

/// The largest anonymous memory of a program, in KiB. Mapped files are excluded: Linux reclaims their pages if it needs
/// memory.
fn anonymous(command: &mut Command) -> Result<u64> {
    let shown = run::line(command);
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = silent.stderr(Stdio::null()).spawn().context(&shown)?;
    let path = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().context(&shown)?.is_none() {
        let status = fs::read_to_string(&path).unwrap_or_default();
        most = most.max(held(&status).unwrap_or(0));
        thread::sleep(Duration::from_millis(1));
    }
    let status = run::wait(&mut child, run::PATIENCE).context(&shown)?;
    if !status.success() || most == 0 {
        return Err(Error::new(format!("{shown}: {status}, {most} KiB seen")));
    }
    Ok(most)
}

/// The anonymous memory in a process's `/proc/PID/status`, in KiB.
fn held(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_what_a_program_allocates() {
        let held = held("VmHWM:\t  9000 kB\nRssAnon:\t    3868 kB\nRssFile:\t 5000 kB\n");
        assert_eq!(held, Some(3868));
        // 8 MB in a shell variable, and then a loop so that the variable exists long enough.
        let program = "x=$(head -c 8000000 /dev/zero | tr '\\0' a); i=0; \
                       while [ $i -lt 100000 ]; do i=$((i+1)); done; : $x";
        let most = anonymous(Command::new("sh").args(["-c", program])).unwrap();
        assert!(most > 7_000, "{most} KiB");
        assert!(anonymous(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }
}
