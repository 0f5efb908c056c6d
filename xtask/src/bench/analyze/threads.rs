//! Speedup by threads: the greatest gain of two processors.
//!
//! Instructions are counted for each thread, so the figure does not depend on the load of the machine. With two
//! processors, the time is that of the longest thread, and at least half of the total. Waiting of threads for each
//! other is not included.

use std::fs;
use std::process::{Command, Stdio};

use kymo_targets::run::{self, Context, Error, Result};

/// Name of the row.
pub const ROW: &str = "threads";

/// Required speedup by two processors of a table of calls.
pub const TABLE: f64 = 1.5;
/// Required speedup of a conversion. The aim is 1.7; 1.51 is reached for Kymo's own traces to Perfetto, 1.89 for CTF.
/// For the former, one thread takes 292 instructions per record, and two take 387: sending the steps of calls to the
/// other thread and receiving them there costs 95, because the end of a call has some 170 bytes. A smaller step for
/// calls that simply returned may improve it.
pub const CONVERSION: f64 = 1.45;

/// The greatest speedup by two processors with the default number of threads for two, and the instructions of each
/// thread, in millions. The figures are the differences between two commands, which do the same with a short and with a
/// long recording.
///
/// # Errors
/// If a command can't be run, the counts can't be read, or the commands differ in the number of threads.
pub fn gain([few, many]: [&Command; 2]) -> Result<(f64, Vec<f64>)> {
    let more = |threads| -> Result<Vec<f64>> {
        let (few, many) = (of_threads(few, threads)?, of_threads(many, threads)?);
        if few.len() != many.len() {
            let (few, many) = (few.len(), many.len());
            return Err(Error::new(format!(
                "{few} threads, and {many} with more records"
            )));
        }
        let more = few.iter().zip(&many).map(|(few, many)| many - few);
        Ok(more.filter(|count| *count > 0.0).collect())
    };
    let sum = |all: &[f64]| all.iter().sum::<f64>();
    let (one, all) = (sum(&more(1)?), more(3)?);
    let longest = all.iter().copied().fold(0.0, f64::max);
    Ok((one / longest.max(sum(&all) / 2.0), all))
}

/// The instructions of each thread, in millions, in the order of the threads' start.
fn of_threads(command: &Command, threads: u32) -> Result<Vec<f64>> {
    let folder = run::target_dir().join("bench-analyze/callgrind");
    if folder.exists() {
        fs::remove_dir_all(&folder).context(folder.display())?;
    }
    fs::create_dir_all(&folder).context(folder.display())?;
    let mut valgrind = Command::new("valgrind");
    // Valgrind runs one thread at a time. Without fair scheduling, one of two threads that share a queue sometimes does
    // all of its work.
    valgrind.args([
        "--tool=callgrind",
        "--separate-threads=yes",
        "--fair-sched=yes",
    ]);
    let file = folder.join("counts");
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    valgrind.arg(command.get_program()).args(command.get_args());
    valgrind.args(["--threads", &threads.to_string()]);
    let shown = run::line(&valgrind);
    let output = valgrind.stdin(Stdio::null()).output().context(&shown)?;
    if !output.status.success() {
        let reported = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!(
            "{shown}: {}\n{reported}",
            output.status
        )));
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).context(folder.display())? {
        files.push(entry.context(folder.display())?.path());
    }
    // The names end with the numbers of the threads.
    files.sort();
    let mut counts = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).context(path.display())?;
        counts.extend(total(&text).map(|count| count as f64 / 1e6));
    }
    match counts.is_empty() {
        true => Err(Error::new(format!("{shown}: no counts of any thread"))),
        false => Ok(counts),
    }
}

/// The total number of instructions in a callgrind file; `None` for a file without instructions, which belongs to no
/// thread.
fn total(text: &str) -> Option<u64> {
    let mut totals = text.lines().filter_map(|line| {
        let count = line.strip_prefix("totals: ")?;
        count.trim().parse().ok()
    });
    totals.next_back().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_last_total() {
        assert_eq!(total("part: 1\ntotals: 7\npart: 2\ntotals: 12\n"), Some(12));
        assert_eq!(total("part: 1\ntotals: 0\n"), None);
        assert_eq!(total("events: Ir\n"), None);
    }
}
