//! `kymo record --ftrace` on systems other than Linux.

use std::process::ExitCode;

use crate::commands::record::Args;
use crate::context::Context;
use crate::diagnostic::Report;

/// Fails, because only Linux has ftrace.
///
/// # Errors
/// Always.
pub fn record(_: &Args, _: &mut Context) -> Result<ExitCode, Report> {
    Err(
        Report::new("--ftrace records the Linux kernel that kymo runs on")
            .help("record on that machine; its trace.dat can be read anywhere"),
    )
}
