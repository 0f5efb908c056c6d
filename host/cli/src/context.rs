//! What a verb needs from its surroundings: where results go, where remarks go, and what the
//! terminal can do.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

use crate::args::Color;
use crate::diagnostic::Report;
use crate::render::palette::Palette;

/// The surroundings of a verb. Results are written through [`out`](Self::out); whatever else there
/// is to say goes to stderr by [`warn`](Self::warn), [`note`](Self::note) and
/// [`detail`](Self::detail).
pub struct Context {
    out: BufWriter<StdoutLock<'static>>,
    out_palette: Palette,
    remarks: Remarks,
    /// What was warned of so far.
    warnings: RefCell<Vec<String>>,
}

/// Where remarks go: stderr. Apart from the rest so that a thread can have it too.
#[derive(Clone, Debug)]
pub struct Remarks {
    palette: Palette,
    verbose: bool,
}

impl Context {
    /// The surroundings of this process.
    pub fn new(color: Color, verbose: bool) -> Self {
        Self {
            // One large buffer: a trace has millions of lines.
            out: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
            out_palette: Palette::choose(color, &io::stdout()),
            remarks: Remarks {
                palette: Palette::choose(color, &io::stderr()),
                verbose,
            },
            warnings: RefCell::default(),
        }
    }

    /// Where remarks go.
    pub const fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    /// Where results go, and the colours to use there. Buffered until [`flush`](Self::flush).
    pub fn out(&mut self) -> (&mut dyn Write, &Palette) {
        (&mut self.out, &self.out_palette)
    }

    /// Hands to stdout what is buffered. [`main`](crate::main) does it at the end; a verb that waits
    /// for something in between does it before.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// See [`Remarks::warn`].
    pub fn warn(&self, message: impl Display) {
        self.remarks.warn(&message);
        self.warnings.borrow_mut().push(message.to_string());
    }

    /// What was warned of so far, for results that programs read: those don't look at stderr.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// See [`Remarks::note`].
    pub fn note(&self, message: impl Display) {
        self.remarks.note(message);
    }

    /// See [`Remarks::detail`].
    pub fn detail(&self, message: impl Display) {
        self.remarks.detail(message);
    }

    /// Whether somebody watches stderr: progress bars are for people only.
    pub fn progress_visible(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether stdout is a terminal: what is not text is no use there.
    pub fn shows_output(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Says why the verb failed, and gives the exit code for it. A closed pipe is no failure.
    pub fn fail(&self, report: &Report) -> ExitCode {
        if report.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let Palette { error, note, .. } = self.remarks.palette;
        self.remarks
            .say(format_args!("{error}error:{error:#} {}", report.message()));
        for help in report.help_lines() {
            self.remarks.say(format_args!("{note}help:{note:#} {help}"));
        }
        ExitCode::from(2)
    }
}

impl Remarks {
    /// A `warning:` line: the result is there, but it may not be what was wanted.
    pub fn warn(&self, message: impl Display) {
        let style = self.palette.warning;
        self.say(format_args!("{style}warning:{style:#} {message}"));
    }

    /// A `note:` line: something that helps to understand the result.
    pub fn note(&self, message: impl Display) {
        let style = self.palette.note;
        self.say(format_args!("{style}note:{style:#} {message}"));
    }

    /// A line that is shown with `--verbose` only: what is being done.
    pub fn detail(&self, message: impl Display) {
        if self.verbose {
            let style = self.palette.dim;
            self.say(format_args!("{style}{message}{style:#}"));
        }
    }

    /// Writes a line to stderr. When that fails there is nowhere left to complain.
    fn say(&self, line: impl Display) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
