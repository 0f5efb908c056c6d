//! The command `kymo`: shows what firmware, a kernel or a program really did.
//!
//! This crate only joins: it finds out what was asked for ([`args`]), opens the input or the target
//! and its symbols, hands the events to an analysis or an export, and shows the result
//! ([`render`]). Each subcommand is one module of [`commands`].
//!
//! Three rules hold for all of them, so that `kymo` works in scripts. Results go to stdout, and
//! everything else to stderr ([`context`]). A failure is one `error:` line that says what is wrong
//! and where, and a `help:` line that says what to do about it ([`diagnostic`]). The exit code is 0
//! for done, 1 for a check that failed, and 2 for everything that went wrong; a reader of our
//! output that has seen enough (`| head`) is none of these.
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
    // What is buffered goes out before any message does: it was found first.
    let result = match (result, context.flush()) {
        (Ok(_), Err(error)) => Err(error.into()),
        (result, _) => result,
    };
    context.finish();
    result.unwrap_or_else(|report| context.fail(&report))
}
