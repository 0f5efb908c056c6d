//! `kymo reboot`: starts a target again.

use std::process::ExitCode;
use std::time::Instant;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::escape::escaped;
use crate::target::{Either, NamedTarget};

/// The options of `kymo reboot`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo reboot                                the board on /dev/ttyACM0
  kymo reboot tcp:localhost:4000 --console   and show what it says meanwhile")]
pub struct Args {
    #[command(flatten)]
    target: NamedTarget,
}

/// Starts the target again and waits until it answers.
///
/// # Errors
/// When it refuses, or does not come back.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let target = args.target.args().recognise(context)?;
    let started = Instant::now();
    let name = match target {
        Either::Kymo(mut live) => {
            live.reboot(context)?;
            live.name()
        }
        Either::Zephyr(mut live) => {
            live.reboot(context)?;
            live.name()
        }
    };
    let took = started.elapsed();
    writeln!(context.out().0, "{} has rebooted", escaped(&name))?;
    context.detail(format_args!("after {:.1} s", took.as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}
