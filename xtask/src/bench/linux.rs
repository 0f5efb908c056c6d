//! Cost of a recorded call on this machine in nanoseconds, beside the floor.
//!
//! The floor reads the counter and stores 16 bytes, at entry and at exit (`device/bench/linux.c`). Times depend on the
//! machine and its load. Therefore floor and recorder alternate in one process, the fastest round of each counts, and
//! the result is their ratio. Even that is unreliable on a machine that is busy, or whose counter is emulated. It is
//! therefore only printed, and is an error only above a ratio that load can't explain. (Instruction counts never vary;
//! they have budgets.) If uftrace is installed, the same calls are also measured under it.

use std::fs;
use std::path::Path;
use std::process::Command;

use kymo_targets::library;
use kymo_targets::run::{self, Context, Error, Result};

/// Budget of a recorded call, as a multiple of the floor.
const BUDGET: f64 = 1.15;

/// Ratio that a busy machine does not reach repeatedly: only this is an error.
const LIMIT: f64 = 5.0;

/// Greatest number of measurements until one is within the budget.
const TRIES: u32 = 5;

/// Number of alternations of floor and recorder.
const ROUNDS: &str = "400";

/// Nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// With hooks that do nothing.
    nothing: f64,
    /// With the floor.
    floor: f64,
    /// With Kymo's hooks.
    kymo: f64,
}

/// Measures, prints, and compares with the budget.
///
/// # Errors
/// When something can't be built or run, or a call costs far more than the budget allows on a machine with reliable
/// times.
pub fn measure() -> Result<()> {
    let folder = run::target_dir().join("bench/linux");
    fs::create_dir_all(&folder).context(folder.display())?;
    let program = folder.join("calls");
    let mut gcc = gcc(&program);
    run::run(gcc.arg(library::for_this_machine()?))?;
    let measure = || Figures::read(&run::output(Command::new(&program).arg(ROUNDS))?);
    let mut figures = measure()?;
    for _ in 1..TRIES {
        if figures.ratio() <= BUDGET {
            break;
        }
        figures = figures.best(measure()?);
    }
    println!("\nOn this machine, nanoseconds a call with both hooks, the best of {ROUNDS} rounds:");
    println!("  {:40} {:6.1}", "hooks that do nothing", figures.nothing);
    println!(
        "  {:40} {:6.1}",
        "floor: counter and 16 bytes, twice", figures.floor
    );
    println!(
        "  {:40} {:6.1}   {:.3} times the floor (at most {BUDGET})",
        "Kymo, recording",
        figures.kymo,
        figures.ratio()
    );
    match uftrace(&folder)? {
        Some(uftrace) => println!("  {:40} {uftrace:6.1}", "uftrace, recording"),
        None => println!("  uftrace is not installed"),
    }
    if figures.ratio() > BUDGET {
        println!("  BEYOND THE BUDGET in {TRIES} tries: is this machine busy?");
    }
    if has_steady_counter() {
        figures.check()
    } else {
        println!("  SKIPPED: no limit, because this machine's counter is not steady");
        Ok(())
    }
}

/// Whether the processor has a counter that Kymo reads with one instruction; otherwise it asks the kernel for the time,
/// whose cost varies.
pub fn has_steady_counter() -> bool {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = about.lines().find(|line| line.starts_with("flags"));
    let has = |flag| flags.is_some_and(|line| line.split_whitespace().any(|word| word == flag));
    has("constant_tsc") && has("nonstop_tsc")
}

/// The compiler, for `device/bench/linux.c`.
fn gcc(program: &Path) -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg(run::root().join("device/bench/linux.c"))
        .arg("-I")
        .arg(run::root().join("device/c/include"))
        .arg("-o")
        .arg(program);
    gcc
}

/// The cost of the same calls under uftrace, if it is installed.
fn uftrace(folder: &Path) -> Result<Option<f64>> {
    if !run::succeeds(Command::new("uftrace").arg("--version")) {
        return Ok(None);
    }
    let program = folder.join("calls-uftrace");
    run::run(gcc(&program).args(["-DOTHER_TRACER", "-pg"]))?;
    let mut uftrace = Command::new("uftrace");
    uftrace.args(["record", "-d"]).arg(folder.join("uftrace"));
    let text = run::output(uftrace.arg(&program).arg("20"))?;
    number(&text, "other").map(Some)
}

/// The number in a line `NAME TENTHS`, in whole units.
fn number(text: &str, name: &str) -> Result<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.ok_or_else(|| Error::new(format!("the program did not print {name}")))?;
    let tenths: u32 = line.trim().parse().context(line)?;
    Ok(f64::from(tenths) / 10.0)
}

impl Figures {
    fn read(text: &str) -> Result<Self> {
        Ok(Self {
            nothing: number(text, "nothing")?,
            floor: number(text, "floor")?,
            kymo: number(text, "kymo")?,
        })
    }

    fn ratio(self) -> f64 {
        self.kymo / self.floor
    }

    /// The minimum of both.
    fn best(self, other: Self) -> Self {
        Self {
            nothing: self.nothing.min(other.nothing),
            floor: self.floor.min(other.floor),
            kymo: self.kymo.min(other.kymo),
        }
    }

    fn check(self) -> Result<()> {
        if self.ratio() <= LIMIT {
            return Ok(());
        }
        Err(Error::new(format!(
            "a recorded call costs {:.2} times the floor, more than {LIMIT} (the budget is {BUDGET})",
            self.ratio()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_judged() {
        let figures = Figures::read("nothing 27\nfloor 210\nkymo 231\n").unwrap();
        assert_eq!(figures.kymo, 23.1);
        assert!(figures.check().is_ok());
        let slow = Figures {
            kymo: 110.0,
            ..figures
        };
        assert!(slow.check().is_err());
        assert_eq!(slow.best(figures), figures);
        assert!(Figures::read("floor 210\n").is_err());
    }
}
