//! Error reports for the user.
//!
//! Libraries return errors with what they expected, what they found and where. A [`Report`] adds what only the
//! subcommand knows (the file, the operation) and advice.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::render::escape::escaped;

/// An error of a subcommand: one message, and advice.
///
/// Printed as `error: MESSAGE` and a `help: ADVICE` line for each advice; the exit code is 2.
#[derive(Clone, Debug)]
pub struct Report {
    message: String,
    help: Vec<String>,
    closed_pipe: bool,
}

impl Report {
    /// A report with this message: lower case, no full stop, its subject first.
    pub fn new(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            help: Vec::new(),
            closed_pipe: false,
        }
    }

    /// A report that `doing` something failed, followed by the error and all its causes.
    pub fn caused(doing: impl Display, error: &(dyn Error + 'static)) -> Self {
        Self::new(format_args!("{doing}: {}", with_causes(error)))
    }

    /// A report of the error and its causes alone.
    pub fn caused_by(error: &(dyn Error + 'static)) -> Self {
        Self::new(with_causes(error))
    }

    /// Adds a line of advice: what to do, as a sentence without a full stop.
    #[must_use]
    pub fn help(mut self, advice: impl Display) -> Self {
        self.help.push(advice.to_string());
        self
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The advice, line by line.
    pub fn help_lines(&self) -> &[String] {
        &self.help
    }

    /// Whether the reader of our output has closed it, as `head` does, which is no error for the user.
    pub fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }
}

/// An error and its causes, outermost first. Some errors contain the text of their cause, which is not repeated.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

/// An error of writing results. Other operations add their path with [`Report::caused`].
impl From<io::Error> for Report {
    fn from(error: io::Error) -> Self {
        let closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self {
            closed_pipe,
            ..Self::new(format_args!("cannot write the result: {error}"))
                .help("is the disk full, or was the output closed?")
        }
    }
}

/// The error of writing an output file or directory.
pub fn unwritable(path: &Path, error: &io::Error) -> Report {
    let report = Report::caused(format_args!("cannot write {}", path.display()), error);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            report.help("the disk is full: make room, or write to another one")
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
            report.help("give another name, or remove what is there")
        }
        _ if path.is_dir() => report.help("that is a directory: name a file in it"),
        _ => report.help("is there such a directory, and may you write to it?"),
    }
}

/// Prints the message of the command line parser: help and version on stdout (exit code 0), an error with advice on
/// stderr (exit code 2).
pub fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print().and_then(|()| io::stdout().flush()) {
            // The reader has closed the pipe.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                // An error of stderr can't be reported.
                let _ = writeln!(io::stderr().lock(), "error: cannot write the help: {error}");
                ExitCode::from(2)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let text = error.render().to_string();
    let advice = match other_spelling(error) {
        Some(advice) => format!("help: {advice}\n"),
        None => String::new(),
    };
    let text = text.replace(
        "For more information, try '--help'.",
        &format!("{advice}help: '--help' shows examples and all options"),
    );
    // Arguments may come from a file list, so names in them are escaped for the terminal.
    let lines = text.split('\n').map(escaped).collect::<Vec<_>>();
    // An error of stderr can't be reported.
    let _ = io::stderr().lock().write_all(lines.join("\n").as_bytes());
    ExitCode::from(2)
}

/// Options of other tools, and their names here.
const SPELLINGS: [(&str, &str); 9] = [
    ("--json", "`--format json` is the option for it"),
    (
        "--csv",
        "`--format csv` is the option for it, where a subcommand has that; `kymo export --to csv` has all",
    ),
    (
        "--threshold",
        "`--min-duration 100us` chooses calls by their duration; `kymo trace` and `kymo record --ftrace` have --threshold",
    ),
    (
        "--limit",
        "`-n 20` is the option for it, where a subcommand has that",
    ),
    (
        "--top",
        "`-n 20` is the option for it, where a subcommand has that",
    ),
    (
        "--output-format",
        "`--format` or, for `kymo export`, `--to` is the option for it",
    ),
    ("--from", "`--begin 1.5s` is the option for it"),
    ("--until", "`--end 1.5s` is the option for it"),
    ("--symbols", "`--elf FILE` is the option for it"),
];

/// The name here of an unknown argument, if it is another tool's.
fn other_spelling(error: &clap::Error) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if !argument.starts_with('-') {
        return Some(
            "one input at a time: `--with FILE` adds another recording of the same run, where a subcommand has that",
        );
    }
    let mut spellings = SPELLINGS.iter();
    let (_, advice) = spellings.find(|(other, _)| other == argument)?;
    Some(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_joined_and_not_repeated() {
        #[derive(Debug)]
        struct Outer(io::Error);
        impl Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "header unreadable: {}", self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let report = Report::caused("trace.kymo", &Outer(io::Error::other("no luck"))).help("try");
        assert_eq!(report.message(), "trace.kymo: header unreadable: no luck");
        assert_eq!(report.help_lines(), ["try"]);
    }

    #[test]
    fn a_closed_pipe_is_told_apart() {
        assert!(Report::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_closed_pipe());
        assert!(!Report::from(io::Error::from(io::ErrorKind::StorageFull)).is_closed_pipe());
    }
}
