//! `kymo man`: the manual pages, generated from the command line's definition.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Cli;
use crate::context::Context;
use crate::diagnostic::Report;

/// The options of `kymo man`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo man ~/.local/share/man/man1         then: man kymo-show")]
pub struct Args {
    /// Where to put kymo.1, kymo-show.1 and so on; made if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one page for `kymo` and one for each subcommand.
///
/// # Errors
/// When the directory or a page can't be written.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let directory = &args.directory;
    let failed = |error: io::Error| {
        Report::caused(
            format_args!("cannot write pages into {}", directory.display()),
            &error,
        )
        .help("give a directory that you may write to")
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let mut command = Cli::command();
    command.build();
    let subcommands = command
        .get_subcommands()
        .filter(|subcommand| subcommand.get_name() != "help");
    for page in std::iter::once(&command).chain(subcommands) {
        // The page of `kymo show` is kymo-show(1): the parser's display name has that form.
        let name = page
            .get_display_name()
            .unwrap_or(page.get_name())
            .to_owned();
        let text = render(page).map_err(failed)?;
        let path = directory.join(format!("{name}.1"));
        fs::write(&path, text).map_err(failed)?;
        context.detail(format_args!("wrote {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders one page. The examples follow the synopsis, where readers of manual pages expect them; the help on the
/// terminal begins with them.
fn render(page: &clap::Command) -> io::Result<Vec<u8>> {
    let man = Man::new(page.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    if let Some(examples) = page.get_before_help() {
        writeln!(text, ".SH EXAMPLES\n.nf")?;
        for line in examples.to_string().lines().skip(1) {
            // In roff a backslash begins an escape, and a hyphen may become a dash.
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            writeln!(text, "{}", line.trim_start())?;
        }
        writeln!(text, ".fi")?;
    }
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if page.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_version_section(&mut text)?;
    Ok(text)
}
