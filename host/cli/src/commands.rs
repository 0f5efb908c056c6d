//! Subcommands, one module each, with its options (`Args`) and its implementation (`run`).

pub mod advise;
pub mod annotate;
pub mod branches;
pub mod calls;
pub mod command;
mod compensated;
pub mod completions;
pub mod disasm;
pub mod doctor;
pub mod export;
pub mod graph;
pub mod hotspots;
pub mod info;
pub mod man;
pub mod packets;
pub mod ping;
pub mod profile;
pub mod ranges;
pub mod reboot;
pub mod record;
pub mod report;
pub mod show;
pub mod status;
pub mod trace;

use std::process::ExitCode;

use crate::args::Command;
use crate::context::Context;
use crate::diagnostic::Report;

/// Runs a subcommand.
///
/// # Errors
/// Those of the subcommand; everything found before is written already.
pub fn run(command: Command, context: &mut Context) -> Result<ExitCode, Report> {
    match command {
        Command::Status(args) => status::run(&args, context),
        Command::Ping(args) => ping::run(&args, context),
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Reboot(args) => reboot::run(&args, context),
        Command::Send(args) => command::run(&args, context),
        Command::Trace(args) => trace::run(&args, context),
        Command::Record(args) => record::run(&args, context),
        Command::Profile(args) => profile::run(&args, context),
        Command::Show(args) => show::run(&args, context),
        Command::Report(args) => report::run(&args, context),
        Command::Calls(args) => calls::run(&args, context),
        Command::Graph(args) => graph::run(&args, context),
        Command::Advise(args) => advise::run(&args, context),
        Command::Export(args) => export::run(&args, context),
        Command::Hotspots(args) => hotspots::run(&args, context),
        Command::Annotate(args) => annotate::run(&args, context),
        Command::Branches(args) => branches::run(&args, context),
        Command::Disasm(args) => disasm::run(&args, context),
        Command::Ranges(args) => ranges::run(&args, context),
        Command::Packets(args) => packets::run(&args, context),
        Command::Info(args) => info::run(&args, context),
        Command::Completions(args) => completions::run(&args, context),
        Command::Man(args) => man::run(&args, context),
    }
}
