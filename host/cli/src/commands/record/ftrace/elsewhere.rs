//! `kymo record --ftrace` on other systems than Linux.

use std::process::ExitCode;

use crate::commands::record::Args;
use crate::context::Context;
use crate::diagnostic::Report;

/// Fails: there is no Linux here.
///
/// # Errors
/// Always.
pub fn record(_: &Args, _: &mut Context) -> Result<ExitCode, Report> {
    Err(
        Report::new("--ftrace records the Linux kernel that kymo runs on")
            .help("record on that machine; its trace.dat can be read anywhere"),
    )
}
