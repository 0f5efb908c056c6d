//! `kymo record --ftrace`: records the kernel of this machine with ftrace into a trace.dat.

use std::ffi::OsString;

use crate::filter;

#[cfg(target_os = "linux")]
mod live;
#[cfg(not(target_os = "linux"))]
#[path = "ftrace/elsewhere.rs"]
mod live;

pub use live::record;

/// The options of `kymo record --ftrace`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Linux ftrace")]
pub struct FtraceArgs {
    /// Record the kernel of this machine: all of it until ctrl-C, or what COMMAND and its children make it
    /// do. Functions, unless events alone are asked for.
    #[arg(long, conflicts_with_all = ["address", "target", "serial", "metadata"])]
    pub ftrace: bool,

    /// Calls of at least this duration alone: a number with us, ms or s.
    #[arg(long, value_name = "TIME", value_parser = threshold, requires = "ftrace")]
    pub threshold: Option<u64>,

    /// Stop recording where this function is entered.
    #[arg(long, value_name = "FUNC", requires = "ftrace")]
    pub stop_at: Option<String>,

    /// These functions alone, as the kernel matches them: vfs_read, 'vfs_*'. Repeatable.
    #[arg(long, value_name = "GLOB", requires = "ftrace")]
    pub function: Vec<String>,

    /// All functions but these, in the same form. Repeatable.
    #[arg(long, value_name = "GLOB", requires = "ftrace")]
    pub hide: Vec<String>,

    /// So many levels of calls alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "ftrace")]
    pub depth: Option<u32>,

    /// These events: SYSTEM:NAME or SYSTEM, with * and ?. Repeatable.
    #[arg(long, value_name = "SYSTEM:NAME", value_parser = event, requires = "ftrace")]
    pub event: Vec<String>,

    /// This process alone, with its threads and whatever they start. Repeatable.
    #[arg(
        long,
        value_name = "N",
        requires = "ftrace",
        conflicts_with = "command"
    )]
    pub pid: Vec<u32>,

    /// The kernel's tracer: function_graph, function (no durations), nop, or another that it has.
    #[arg(long, value_name = "NAME", requires = "ftrace")]
    pub tracer: Option<String>,

    /// The clock of the trace: global, mono, boot, or another that the kernel has.
    #[arg(long, value_name = "NAME", requires = "ftrace")]
    pub clock: Option<String>,

    /// The size of the kernel's buffer for each CPU: a number of bytes, with k, M or G.
    #[arg(long, value_name = "BYTES", value_parser = super::size, default_value = "4M", requires = "ftrace")]
    pub buffer: u64,

    /// Print the kernel command line that traces a boot; with -o, save what the boot has recorded.
    #[arg(long, requires = "ftrace", conflicts_with_all = ["pid", "command", "duration", "events", "size"])]
    pub boot: bool,

    /// What to run and record, behind `--`.
    #[arg(value_name = "COMMAND", last = true, requires = "ftrace")]
    pub command: Vec<OsString>,
}

/// Parses a duration into microseconds, the kernel's unit.
fn threshold(text: &str) -> Result<u64, String> {
    let nanoseconds = filter::duration(text)?.0;
    match nanoseconds % 1000 {
        0 if nanoseconds > 0 => Ok(nanoseconds / 1000),
        _ => Err(format!("expected whole microseconds, found {text:?}")),
    }
}

/// Checks the name of an event.
fn event(text: &str) -> Result<String, String> {
    #[cfg(target_os = "linux")]
    text.parse::<kymo_tracefs::EventName>()?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_whole_microseconds() {
        assert_eq!(threshold("100us"), Ok(100));
        assert_eq!(threshold("1.5ms"), Ok(1500));
        assert_eq!(threshold("2s"), Ok(2_000_000));
        for wrong in ["0us", "100ns", "1.5us", "x", "-1us", ""] {
            assert!(threshold(wrong).is_err(), "{wrong}");
        }
    }
}
