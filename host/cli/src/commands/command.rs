//! `kymo command`: gives a target one of the commands that no other verb gives.

use std::process::ExitCode;

use kymo_link::zephyr::tracing::{HostCommand, send};
use kymo_wire::link::Command;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::target::{Protocol, TargetArgs, explain, timeouts};

/// The options of `kymo command`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo command on                                  record from now on, without a trigger
  kymo command off                                 stop, until the trigger is entered
  kymo command mode fixed                          keep the oldest events when the buffer is full
  kymo command clear --target tcp:localhost:4000   forget what was recorded
  kymo command disable                             record nothing at all, until enable
  kymo command enable --protocol zephyr-tracing --serial /dev/ttyUSB1
                                                   Zephyr's tracing: send the stream from now on")]
pub struct Args {
    /// enable, disable, on, off, mode overwrite, mode fixed, mode stream, clear or listsets.
    #[arg(value_name = "WORD", required = true, num_args = 1..=2)]
    words: Vec<String>,

    #[command(flatten)]
    target: TargetArgs,
}

/// Gives the command, and prints the target's answer.
///
/// # Errors
/// When it is no such command, or the target refuses it or does not answer.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    // Before anything is sent to anybody.
    let command = parse(&args.words.join(" "))?;
    if args.target.protocol() == Protocol::ZephyrTracing {
        return tracing(args, command, context);
    }
    let mut live = args.target.connect(context)?;
    let answer = live.target.command(command).map_err(explain)?;
    writeln!(context.out().0, "{answer}")?;
    Ok(ExitCode::SUCCESS)
}

/// Gives one of the two commands that Zephyr's tracing takes. It answers neither.
fn tracing(args: &Args, command: Command, context: &Context) -> Result<ExitCode, Report> {
    let command = match command {
        Command::Enable => HostCommand::Enable,
        Command::Disable => HostCommand::Disable,
        other => {
            return Err(
                Report::new(format_args!("Zephyr's tracing does not know `{other}`"))
                    .help("it takes enable and disable, and answers nothing"),
            );
        }
    };
    let address = args.target.address();
    let came = send(&address, command, timeouts()?).map_err(explain)?;
    context.note(format_args!(
        "{} was sent to {address}, which does not answer; {came} bytes of its stream came meanwhile",
        command.name()
    ));
    Ok(ExitCode::SUCCESS)
}

/// The command that a line means.
fn parse(line: &str) -> Result<Command, Report> {
    let failed = |problem: &dyn std::fmt::Display| {
        Report::new(format_args!("`{line}` cannot be sent: {problem}"))
    };
    let known = "the words are enable, disable, on, off, mode overwrite, mode fixed, mode \
                 stream, clear and listsets";
    let verb = match Command::parse(line.as_bytes()) {
        Ok(Some(
            command @ (Command::Enable
            | Command::Disable
            | Command::On
            | Command::Off
            | Command::Mode(_)
            | Command::Clear
            | Command::ListSets),
        )) => return Ok(command),
        Ok(None) => return Err(failed(&"it is empty").help(known)),
        Err(error) => return Err(failed(&error).help(known)),
        Ok(Some(Command::Identify | Command::Status)) => "status",
        Ok(Some(Command::Ping)) => "ping",
        Ok(Some(Command::Reboot)) => "reboot",
        Ok(Some(Command::Trigger(_))) => "trace --trigger",
        Ok(Some(Command::Stopper(_))) => "trace --stopper",
        Ok(Some(Command::DumpProfile)) => "profile",
        Ok(Some(Command::DumpTrace | Command::Resend { .. } | Command::Done)) => "trace",
        // The host tells the time of day while it records.
        Ok(Some(
            Command::StreamOn { .. }
            | Command::StreamOff
            | Command::Ack(_)
            | Command::Time
            | Command::WallClock { .. },
        )) => "record",
    };
    Err(failed(&"it has a verb of its own").help(format_args!("use `kymo {verb}`")))
}
