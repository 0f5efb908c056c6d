//! Results of the steps, and their times.

use std::io::Read;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kymo_targets::run::{self, Context, Error, Result};

use super::{cargo, executables};

/// Result of a step that did not fail.
pub enum Done {
    /// It was completed.
    Whole,
    /// It was skipped, because this machine lacks something.
    Skipped(&'static str),
}

/// Results so far.
#[derive(Default)]
pub struct Report {
    passed: u32,
    skipped: Vec<String>,
    failed: Vec<String>,
    /// Elapsed seconds, seconds of processor time, and the step.
    times: Vec<(f64, Option<f64>, String)>,
}

impl Report {
    /// Runs a step and records its result.
    pub fn step(&mut self, name: &str, check: impl FnOnce() -> Result<Done>) {
        println!("\n==> {name}");
        let (started, before) = (Instant::now(), children_seconds());
        let result = check();
        let seconds = started.elapsed().as_secs_f64();
        let cpu = children_seconds().zip(before).map(|(now, then)| now - then);
        let took = took(seconds, cpu);
        match result {
            Ok(Done::Skipped(why)) => {
                println!("<== {name}: SKIPPED: {why}");
                self.skipped.push(format!("{name}: {why}"));
            }
            Ok(Done::Whole) => {
                println!("<== {name}: passed ({took})");
                self.passed += 1;
            }
            Err(error) => {
                println!("<== {name}: FAILED ({took}): {error}");
                self.failed.push(format!("{name}: {error}"));
            }
        }
        self.times.push((seconds, cpu, name.to_owned()));
    }

    /// Runs the steps of these names in parallel, one for each core, and records their results.
    ///
    ///  Each is a separate process, `cargo xtask test --only NAME`, so that their outputs don't mix.
    pub fn side_by_side(&mut self, names: Vec<String>, long: bool) {
        let waiting = Mutex::new(names.into_iter());
        let ended = Mutex::new(self);
        std::thread::scope(|scope| {
            for _ in 0..executables::cores() {
                scope.spawn(|| {
                    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).next();
                    while let Some(name) = next() {
                        let started = Instant::now();
                        let result = process(&name, long);
                        let seconds = started.elapsed().as_secs_f64();
                        let mut ended = ended.lock().unwrap_or_else(|e| e.into_inner());
                        ended.process(name, seconds, result);
                    }
                });
            }
        });
    }

    /// Prints the output of such a process, and records its result.
    fn process(&mut self, name: String, seconds: f64, result: Result<Output>) {
        match result {
            Ok(output) => {
                let printed = String::from_utf8_lossy(&output.stdout);
                // Without the output of the set-up, and the totals of a single step.
                let step = printed.find(&format!("\n==> {name}\n")).unwrap_or(0);
                let step = &printed[step..];
                let end = step.find("\nAll steps: ").unwrap_or(step.len());
                println!("{}", step[..end].trim_end());
                let skipped = format!("SKIPPED: {name}: ");
                let why = printed.lines().find_map(|line| line.strip_prefix(&skipped));
                match why {
                    Some(why) => self.skipped.push(format!("{name}: {why}")),
                    None if output.status.success() => self.passed += 1,
                    None => self.failed.push(format!("{name}: {}", output.status)),
                }
            }
            Err(error) => self.failed.push(format!("{name}: {error}")),
        }
        self.times.push((seconds, None, name));
    }

    /// Prints the results.
    ///
    /// # Errors
    /// If a step failed.
    pub fn end(mut self, elapsed: Duration) -> Result<()> {
        let cpu = children_seconds();
        println!("\nAll steps: {}", took(elapsed.as_secs_f64(), cpu));
        self.times.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (seconds, cpu, name) in &self.times {
            println!("  {name}: {}", took(*seconds, *cpu));
        }
        // Repeated at the end, where users see it.
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

/// Runs one step in a process of its own. Its standard output contains all of its output, in order.
fn process(name: &str, long: bool) -> Result<Output> {
    let mut step = cargo(".", "xtask");
    step.args(["test", "--only", name]);
    if long {
        step.arg("--long");
    }
    let (mut reader, writer) = std::io::pipe().context("a pipe")?;
    step.stdout(writer.try_clone().context("a pipe")?);
    step.stderr(writer).stdin(Stdio::null());
    let shown = run::line(&step);
    let mut child = step.spawn().context(&shown)?;
    // Closes this process's copy of the pipe's writing end, so that reading ends with the child.
    drop(step);
    let mut stdout = Vec::new();
    reader.read_to_end(&mut stdout).context(&shown)?;
    let status = child.wait().context(&shown)?;
    Ok(Output {
        status,
        stdout,
        stderr: Vec::new(),
    })
}

/// Formats elapsed seconds, and seconds of processor time if known.
pub fn took(seconds: f64, cpu: Option<f64>) -> String {
    match cpu {
        Some(cpu) => format!("{seconds:.0} s, {cpu:.0} s of processor time"),
        None => format!("{seconds:.0} s"),
    }
}

/// The processor time in seconds of all child processes that have been waited for, and of their own children; `None` if
/// there is no `/proc`.
fn children_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may contain spaces: state, ..., utime, stime, cutime, cstime (fields 14 to 17).
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(13);
    let ticks = ticks.next()?.parse::<f64>().ok()? + ticks.next()?.parse::<f64>().ok()?;
    // USER_HZ, which is 100 on every architecture that Rust's compiler runs on.
    Some(ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_and_later_steps_still_run() {
        let mut report = Report::default();
        report.step("bad", || Err(Error::new("no")));
        report.step("good", || Ok(Done::Whole));
        report.step("lacking", || Ok(Done::Skipped("no tool")));
        assert_eq!((report.passed, report.failed.len()), (1, 1));
        assert_eq!(report.skipped, ["lacking: no tool"]);
        assert!(report.end(Duration::ZERO).is_err());
        assert!(Report::default().end(Duration::ZERO).is_ok());
    }
}
