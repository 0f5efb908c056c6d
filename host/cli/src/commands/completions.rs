//! `kymo completions`: a completion script for a shell, generated from the command line's definition.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::context::Context;
use crate::diagnostic::Report;

/// The options of `kymo completions`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo completions bash > ~/.local/share/bash-completion/completions/kymo
  kymo completions zsh  > ~/.zfunc/_kymo
  kymo completions fish > ~/.config/fish/completions/kymo.fish")]
pub struct Args {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes the script to stdout.
///
/// # Errors
/// Only when stdout can't be written.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    // The generator panics when its output fails, so it writes to memory first.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kymo", &mut script);
    context.out().0.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
