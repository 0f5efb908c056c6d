//! `kymo ping`: checks that a target answers.

use std::process::ExitCode;
use std::time::Instant;

use kymo_wire::link::Command;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::escape::escaped;
use crate::target::{Either, NamedTarget, explain};

/// The options of `kymo ping`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo ping                                  the board on /dev/ttyACM0
  kymo ping /dev/ttyUSB0 --baud 921600
  kymo ping tcp:localhost:4000               a UART of QEMU's")]
pub struct Args {
    #[command(flatten)]
    target: NamedTarget,
}

/// Pings the target and prints its answer.
///
/// # Errors
/// When the target does not answer.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let target = args.target.args().recognise(context)?;
    let started = Instant::now();
    let answer = match target {
        Either::Kymo(mut live) => live.target.command(Command::Ping).map_err(explain)?,
        Either::Zephyr(mut live) => {
            live.ping()?;
            "pong".to_owned()
        }
    };
    let took = started.elapsed();
    writeln!(context.out().0, "{}", escaped(&answer))?;
    context.detail(format_args!("after {:.1} ms", took.as_secs_f64() * 1e3));
    Ok(ExitCode::SUCCESS)
}
