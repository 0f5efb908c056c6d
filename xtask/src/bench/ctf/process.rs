//! Processor time and memory of a program's run.
//!
//! The processor time is compared, because other load extends the elapsed time. Linux keeps the processor time of a
//! process that has ended until its exit code is requested, so it is read before that.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kymo_targets::run::{self, Context, Error, Result};

/// Cost of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Processor time, in nanoseconds; in steps of 10 ms unless the program measures it itself.
    pub processor: u64,
    /// The largest memory in KiB, including mapped files.
    pub peak: u64,
    /// The largest memory in KiB, without mapped files, sampled every 2 ms.
    pub anonymous: u64,
}

/// Runs a program and discards its standard output.
///
/// # Errors
/// If it cannot be started or fails.
pub fn measure(command: &mut Command) -> Result<Cost> {
    let shown = run::line(command);
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = silent.spawn().context(&shown)?;
    let cost = follow(&child).context(&shown)?;
    let status = run::wait(&mut child, run::PATIENCE).context(&shown)?;
    if !status.success() {
        return Err(Error::new(format!("{shown}: {status}")));
    }
    Ok(cost)
}

/// Observes a process until it has ended.
fn follow(child: &Child) -> Result<Cost> {
    /// Ticks per second in `/proc/PID/stat`: USER_HZ, which is 100 for all programs on Linux.
    const TICKS: u64 = 100;
    let folder = format!("/proc/{}", child.id());
    let (mut peak, mut anonymous) = (0, 0);
    loop {
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let held = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let held = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            held.unwrap_or(0)
        };
        peak = peak.max(held("VmHWM:"));
        anonymous = anonymous.max(held("RssAnon:"));
        let stat = fs::read_to_string(format!("{folder}/stat")).context("a process's state")?;
        // The name, in parentheses, may contain any character. After it: the state, then eleven fields up to the times.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let fields: Vec<&str> = behind.split_whitespace().collect();
        if fields.first() == Some(&"Z") {
            let ticks = |index: usize| -> Option<u64> { fields.get(index)?.parse().ok() };
            let ticks = ticks(11)
                .zip(ticks(12))
                .map_or(0, |(user, system)| user + system);
            return Ok(Cost {
                processor: ticks * (1_000_000_000 / TICKS),
                peak,
                anonymous,
            });
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The number of instructions that a program executes, counted by Valgrind.
///
/// # Errors
/// If it cannot be run, or Valgrind prints no number.
pub fn instructions(program: &Command) -> Result<u64> {
    let options = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    valgrind(program, options, "Collected : ")
}

/// The largest size of a program's heap, in bytes, measured by Valgrind. For one thread it does not depend on the load
/// of the machine, unlike the memory of a process.
///
/// # Errors
/// If it cannot be run, or Valgrind prints no number.
pub fn heap(program: &Command) -> Result<u64> {
    let options = ["--tool=dhat", "--dhat-out-file=/dev/null"];
    valgrind(program, options, "At t-gmax: ")
}

/// The number after a label in Valgrind's output.
fn valgrind(program: &Command, options: [&str; 2], label: &str) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(options);
    valgrind.arg(program.get_program()).args(program.get_args());
    let shown = run::line(&valgrind);
    let output = valgrind.stdin(Stdio::null()).output().context(&shown)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let number = text.lines().find_map(|line| {
        let (_, behind) = line.split_once(label)?;
        let number = behind.split_whitespace().next()?;
        number.replace(',', "").parse().ok()
    });
    number
        .filter(|_| output.status.success())
        .ok_or_else(|| Error::new(format!("{shown}: {}\n{text}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_took_is_known_when_it_has_ended() {
        let mut busy = Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let cost = measure(&mut busy).unwrap();
        assert!(cost.processor > 0 && cost.peak > 100, "{cost:?}");
        assert!((1..=cost.peak).contains(&cost.anonymous), "{cost:?}");
        assert!(measure(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }

    #[test]
    fn a_heap_is_as_large_as_what_is_allocated() {
        if !run::succeeds(Command::new("valgrind").arg("--version")) {
            println!("SKIPPED: no valgrind");
            return;
        }
        let mut copy = Command::new("dd");
        copy.args(["if=/dev/zero", "of=/dev/null", "bs=3M", "count=2"]);
        let heap = heap(&copy).unwrap();
        assert!((3 << 20..4 << 20).contains(&heap), "{heap}");
    }
}
