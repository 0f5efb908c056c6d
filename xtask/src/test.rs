//! `cargo xtask test`: everything that must hold before a change is offered, in one command.
//!
//! Formatting, lints and documentation of every workspace, then all tests, the demonstration's among
//! them. What is missing on the machine is installed first. Every step runs even when an earlier one
//! failed, so that one run tells everything.

use std::process::Command;
use std::time::{Duration, Instant};

use xtask::bench;
use xtask::cpus;
use xtask::run::{self, Error, Result};
use xtask::tools::{self, BareRust, Need};

use crate::proof::{self, Sanitizer};

/// The workspaces: the host's, and those that are built for other machines, or by a nightly
/// compiler when they are used for what they are there for.
const WORKSPACES: [&str; 3] = [".", "device", "fuzz"];

/// The Cortex-M whose hooks are tested instruction by instruction.
const CORTEX_M4: &str = "thumbv7em-none-eabihf";

/// The RISC-V that the recorder is tested on.
const RISCV: &str = "riscv32imac-unknown-none-elf";

/// For how long each fuzz target runs in a long test.
const FUZZ_SECONDS: u32 = 120;

/// Runs all checks.
pub fn test(long: bool) -> Result<()> {
    let started = Instant::now();
    let mut report = Report::default();
    report.step("tools are there", || {
        tools::ensure(&[
            Need::Firmware,
            Need::Processors,
            Need::Native,
            Need::Checks,
            Need::Cpus,
            Need::Foreign,
        ])?;
        BareRust::ensure()?;
        BareRust::ensure_for(CORTEX_M4)?;
        BareRust::ensure_for(RISCV)?;
        BareRust::ensure_for(cpus::TARGET)?;
        tools::babeltrace21()
    });
    for workspace in WORKSPACES {
        report.step(&format!("{workspace}: formatted"), || {
            run::run(cargo(workspace, "fmt").args(["--all", "--check"]))
        });
        report.step(&format!("{workspace}: no lint"), || {
            let mut clippy = cargo(workspace, "clippy");
            clippy.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
            run::run(&mut clippy)
        });
        report.step(&format!("{workspace}: documented"), || {
            let mut doc = cargo(workspace, "doc");
            doc.args(["--workspace", "--no-deps"]);
            run::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
        });
    }
    // Built for another machine, so that it has no tests of its own: `xtask/tests/cpus.rs` has.
    report.step("demos/cpus: formatted", || {
        run::run(cargo("demos/cpus", "fmt").arg("--check"))
    });
    report.step("demos/cpus: no lint", || {
        let mut clippy = cargo("demos/cpus", "clippy");
        clippy.args(["--target", cpus::TARGET, "--", "-D", "warnings"]);
        run::run(&mut clippy)
    });
    for workspace in WORKSPACES {
        report.step(&format!("{workspace}: tests"), || {
            let mut test = cargo(workspace, "test");
            test.args(["--workspace", "--no-fail-fast"]);
            run::run(&mut test)
        });
    }
    report.step("bench recorder: budgets", || bench::recorder(false));
    report.step("bench ctf: budgets", bench::ctf::count);
    report.step("device: models", || {
        proof::models(&mut cargo("device", "test"), long)
    });
    for sanitizer in [Sanitizer::Address, Sanitizer::Thread] {
        report.step_or_skip(&format!("device: {sanitizer:?} sanitizer"), || {
            proof::sanitized(&mut cargo("device", "+nightly"), sanitizer)
        });
    }
    report.step_or_skip("device: Miri", || {
        proof::interpreted(&mut cargo("device", "+nightly"))
    });
    if long {
        long_steps(&mut report);
    }
    report.end(started.elapsed())
}

/// What takes longer than a person waits before offering a change.
fn long_steps(report: &mut Report) {
    for workspace in [".", "device"] {
        report.step(&format!("{workspace}: ignored tests"), || {
            let mut test = cargo(workspace, "test");
            test.args(["--workspace", "--no-fail-fast", "--", "--ignored"]);
            run::run(&mut test)
        });
    }
    let fuzz = |arguments: &[&str]| {
        let mut cargo = cargo("fuzz", "+nightly");
        cargo.arg("fuzz").args(arguments);
        cargo
    };
    let mut targets = String::new();
    report.step("fuzzing can begin", || {
        if !run::succeeds(&mut fuzz(&["--version"])) {
            run::run(cargo(".", "install").args(["--locked", "cargo-fuzz"]))?;
        }
        targets = run::output(&mut fuzz(&["list", "--fuzz-dir", "."]))?;
        Ok(())
    });
    for target in targets.lines() {
        report.step(&format!("fuzz {target}"), || {
            let mut fuzz = fuzz(&["run", "--fuzz-dir", ".", target, "--"]);
            run::run(fuzz.arg(format!("-max_total_time={FUZZ_SECONDS}")))
        });
    }
}

/// `cargo verb` in a workspace.
fn cargo(workspace: &str, verb: &str) -> Command {
    // Through rustup's proxy where there is one: a toolchain's own cargo does not know `+nightly`.
    let mut cargo = Command::new("cargo");
    cargo.arg(verb).current_dir(run::root().join(workspace));
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(variable);
    }
    cargo
}

/// How a step that did not fail was done.
pub enum Done {
    /// All of it.
    Whole,
    /// Not at all, because this machine lacks something.
    Skipped(&'static str),
}

/// What has been found so far.
#[derive(Default)]
struct Report {
    passed: u32,
    skipped: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    fn step(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        self.step_or_skip(name, || check().map(|()| Done::Whole));
    }

    fn step_or_skip(&mut self, name: &str, check: impl FnOnce() -> Result<Done>) {
        println!("\n==> {name}");
        let started = Instant::now();
        let result = check();
        let seconds = started.elapsed().as_secs();
        match result {
            Ok(Done::Skipped(why)) => {
                println!("<== {name}: SKIPPED: {why}");
                self.skipped.push(format!("{name}: {why}"));
            }
            Ok(Done::Whole) => {
                println!("<== {name}: passed ({seconds} s)");
                self.passed += 1;
            }
            Err(error) => {
                println!("<== {name}: FAILED ({seconds} s): {error}");
                self.failed.push(format!("{name}: {error}"));
            }
        }
    }

    fn end(self, took: Duration) -> Result<()> {
        println!("\nAll steps, after {} s:", took.as_secs());
        // Once more, where it is seen.
        for skipped in &self.skipped {
            println!("SKIPPED: {skipped}");
        }
        for failure in &self.failed {
            println!("FAILED: {failure}");
        }
        let (passed, skipped) = (self.passed, self.skipped.len());
        println!(
            "{passed} passed, {skipped} skipped, {} failed",
            self.failed.len()
        );
        match self.failed.len() {
            0 => Ok(()),
            1 => Err(Error::new("one step failed")),
            failed => Err(Error::new(format!("{failed} steps failed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_and_later_steps_still_run() {
        let mut report = Report::default();
        report.step("bad", || Err(Error::new("no")));
        report.step("good", || Ok(()));
        report.step_or_skip("lacking", || Ok(Done::Skipped("no tool")));
        assert_eq!((report.passed, report.failed.len()), (1, 1));
        assert_eq!(report.skipped, ["lacking: no tool"]);
        assert!(report.end(Duration::ZERO).is_err());
        assert!(Report::default().end(Duration::ZERO).is_ok());
    }
}
