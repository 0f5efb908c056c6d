//! The command `kymo`: shows what firmware, a kernel or a program really did.
//!
//! This crate connects the parts: it parses the command line ([`args`]), opens the input or the target and its
//! symbols, passes the events to an analysis or an export, and shows the result ([`render`]). Each subcommand is one
//! module of [`commands`].
//!
//! Three rules apply to all of them, so that `kymo` works in scripts. Results go to stdout, and all other messages to
//! stderr ([`context`]). An error is one `error:` line with the problem and its place, and a `help:` line with the
//! next step ([`diagnostic`]). The exit code is 0 for success, 1 for a check that failed, and 2 for errors; a reader
//! of our output that closes it early (`| head`) is none of these.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod diagnostic;
mod event_filter;
mod filter;
mod follow;
mod gdb;
mod hardware;
mod input;
mod interrupt;
mod live_stream;
mod mapping;
mod names;
mod output;
mod recording;
mod records;
mod render;
mod rescue;
mod rtems;
mod span;
mod systemview;
mod target;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use context::Context;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return diagnostic::usage(&error),
    };
    let mut context = Context::new(cli.color, cli.verbose);
    interrupt::outlive_size_limits();
    context.limit_threads(cli.threads);
    let result = commands::run(cli.command, &mut context);
    // Buffered results are written before any message, because they were found first.
    let result = match (result, context.flush()) {
        (Ok(_), Err(error)) => Err(error.into()),
        (result, _) => result,
    };
    context.finish();
    result.unwrap_or_else(|report| context.fail(&report))
}
