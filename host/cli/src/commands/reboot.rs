//! `kymo reboot`: reboots a target.

use std::process::ExitCode;
use std::time::Instant;

use crate::args::SymbolArgs;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::escape::escaped;
use crate::target::{Either, LiveZephyr, NamedTarget, trace_info};

/// The options of `kymo reboot`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo reboot                                the board on /dev/ttyACM0
  kymo reboot tcp:localhost:4000 --console   and show what it says meanwhile
  kymo reboot --elf firmware.elf             and warn if it does not run this build then")]
pub struct Args {
    #[command(flatten)]
    target: NamedTarget,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Reboots the target and waits until it answers.
///
/// # Errors
/// When the target refuses or does not answer again, or a file of symbols can't be read.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let target = args.target.args().recognise(context)?;
    let started = Instant::now();
    let name = match target {
        Either::Kymo(mut live) => {
            live.reboot(context)?;
            // Loading warns if the file is not the program that the target runs now.
            args.symbols.load(&trace_info(&live.identity), context)?;
            live.name()
        }
        Either::Zephyr(mut live) => {
            live.reboot(context)?;
            args.symbols.load(&LiveZephyr::info(), context)?;
            live.name()
        }
    };
    let took = started.elapsed();
    writeln!(context.out().0, "{} has rebooted", escaped(&name))?;
    context.detail(format_args!("after {:.1} s", took.as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}
