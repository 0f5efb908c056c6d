//! `kymo command`: sends a target one of the commands that have no subcommand of their own.

use std::process::ExitCode;

use kymo_link::AddressError;
use kymo_link::zephyr::tracing::{HostCommand, send};
use kymo_wire::link::Command;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::escape::escaped;
use crate::target::{Protocol, TargetArgs, explain, timeouts};

/// The options of `kymo command`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo command on                                  record from now on, without a trigger
  kymo command off                                 stop, until the trigger is entered
  kymo command mode fixed                          keep the oldest events when the buffer is full
  kymo command clear tcp:localhost:4000            forget what was recorded
  kymo command disable                             record nothing at all, until enable
  kymo command enable --protocol zephyr-tracing --serial /dev/ttyUSB1
                                                   Zephyr's tracing: send the stream from now on")]
pub struct Args {
    /// enable, disable, on, off, mode overwrite, mode fixed, mode stream, clear or listsets; and behind
    /// that the target, a serial port or tcp:HOST:PORT, unless --target or --serial names it.
    #[arg(value_name = "WORD", required = true, num_args = 1..=3)]
    words: Vec<String>,

    #[command(flatten)]
    target: TargetArgs,
}

/// Sends the command and prints the target's answer.
///
/// # Errors
/// When the words form no such command, or the target refuses it or does not answer.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let (words, target) = split(args)?;
    // A wrong command must fail before the target is contacted.
    let command = parse(&words.join(" "))?;
    if target.protocol() == Protocol::ZephyrTracing {
        return tracing(&target, command, context);
    }
    let mut live = target.connect(context)?;
    let answer = live.target.command(command).map_err(explain)?;
    writeln!(context.out().0, "{}", escaped(&answer))?;
    Ok(ExitCode::SUCCESS)
}

/// Splits the arguments into the words of the command and the target, which follows them or is given by an option.
fn split(args: &Args) -> Result<(&[String], TargetArgs), Report> {
    let named = || args.target.clone();
    let Some((last, words)) = args
        .words
        .split_last()
        .filter(|(_, words)| !words.is_empty())
    else {
        return Ok((&args.words, named()));
    };
    // "mode" takes a word. If only the words before the last one form a command, the last one is an address.
    let is_command = Command::parse(args.words.join(" ").as_bytes()).is_ok();
    if is_command || Command::parse(words.join(" ").as_bytes()).is_err() {
        return Ok((&args.words, named()));
    }
    if args.target.is_named() {
        return Err(Report::new(format_args!(
            "two targets are named, and one of them is {last}"
        ))
        .help("name one, behind the command or with --target"));
    }
    let address = last.parse().map_err(|error: AddressError| {
        Report::caused_by(&error).help("behind the command stands a serial port or tcp:HOST:PORT")
    })?;
    Ok((words, args.target.with_address(address)))
}

/// Sends one of the two commands that Zephyr's tracing accepts. Zephyr answers neither of them.
fn tracing(target: &TargetArgs, command: Command, context: &Context) -> Result<ExitCode, Report> {
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
    let address = target.address();
    let arrived = send(&address, command, timeouts()?).map_err(explain)?;
    context.note(format_args!(
        "{} was sent to {address}, which does not answer; {arrived} bytes of its stream came meanwhile",
        command.name()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Parses a command; refuses those that have a subcommand of their own.
fn parse(line: &str) -> Result<Command, Report> {
    let failed = |problem: &dyn std::fmt::Display| {
        Report::new(format_args!("`{line}` cannot be sent: {problem}"))
    };
    let known = "the words are enable, disable, on, off, once on, once off, mode overwrite, mode fixed, mode \
                 stream, clear, condition ..., duration ... and listsets";
    let subcommand = match Command::parse(line.as_bytes()) {
        Ok(Some(
            command @ (Command::Enable
            | Command::Disable
            | Command::On
            | Command::Off
            | Command::Once(_)
            | Command::Mode(_)
            | Command::Clear
            | Command::Condition(_)
            | Command::Duration(_)
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
        // `record` sends the time of day itself.
        Ok(Some(
            Command::StreamOn { .. }
            | Command::StreamOff
            | Command::Ack(_)
            | Command::Time
            | Command::WallClock { .. },
        )) => "record",
    };
    Err(failed(&"it has a subcommand of its own").help(format_args!("use `kymo {subcommand}`")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_target_may_stand_behind_the_command() {
        for (line, command, target) in [
            ("on", "on", "/dev/ttyACM0"),
            ("on tcp:a:1", "on", "tcp:a:1"),
            ("on --target tcp:a:1", "on", "tcp:a:1"),
            ("mode fixed", "mode fixed", "/dev/ttyACM0"),
            ("mode fixed /dev/ttyUSB0", "mode fixed", "/dev/ttyUSB0"),
        ] {
            let line = ["command"].into_iter().chain(line.split(' '));
            let Line { args } = Line::try_parse_from(line).expect("a command line");
            let (words, found) = split(&args).expect("a target");
            assert_eq!(words.join(" "), command);
            assert_eq!(found.address().to_string(), target);
        }
        for (line, part) in [
            ("on tcp:a:1 --target tcp:b:2", "two targets"),
            ("on tcp:a", "port behind the host"),
        ] {
            let line = ["command"].into_iter().chain(line.split(' '));
            let Line { args } = Line::try_parse_from(line).expect("a command line");
            let report = split(&args).expect_err("no target");
            assert!(report.message().contains(part), "{report:?}");
        }
    }
}
