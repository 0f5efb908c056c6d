//! Environment of a subcommand: destinations of results and remarks, and properties of the terminal.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anstyle::Style;

use kymo_event::Wanted;
use kymo_read::OpenOptions;

use crate::args::Color;
use crate::diagnostic::Report;
use crate::render::escape::escaped_lines;
use crate::render::fold::Fold;
use crate::render::palette::Palette;

/// The environment of a subcommand. Results are written through [`out`](Self::out); all other messages go to stderr
/// through [`warn`](Self::warn), [`note`](Self::note) and [`detail`](Self::detail).
pub struct Context {
    out: Out,
    out_palette: Palette,
    remarks: Remarks,
    /// The warnings so far.
    warnings: RefCell<Vec<String>>,
    /// Maximum number of threads for reading a trace, if the user gave one.
    threads: Option<NonZeroUsize>,
}

/// Stdout, and whether anything was written there.
struct Out {
    inner: BufWriter<StdoutLock<'static>>,
    is_used: bool,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_used |= !bytes.is_empty();
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writer of remarks to stderr. Separate from the rest so that other threads can have it too.
#[derive(Clone, Debug)]
pub struct Remarks {
    palette: Palette,
    verbose: bool,
    /// Messages that may repeat, of all threads.
    fold: Arc<Mutex<Fold>>,
}

impl Context {
    /// The environment of this process.
    pub fn new(color: Color, verbose: bool) -> Self {
        Self {
            // One large buffer: a trace has millions of lines.
            out: Out {
                inner: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
                is_used: false,
            },
            out_palette: Palette::choose(color, &io::stdout()),
            remarks: Remarks {
                palette: Palette::choose(color, &io::stderr()),
                verbose,
                fold: Arc::default(),
            },
            warnings: RefCell::default(),
            threads: None,
        }
    }

    /// The maximum number of threads for reading a trace.
    pub fn threads(&self) -> usize {
        self.threads
            .map_or_else(kymo_read::default_threads, NonZeroUsize::get)
    }

    /// Sets the maximum number of threads for reading a trace.
    pub const fn limit_threads(&mut self, threads: Option<NonZeroUsize>) {
        self.threads = threads;
    }

    /// The options for reading a trace with the given level of detail.
    pub fn open_options(&self, wanted: Wanted) -> OpenOptions {
        OpenOptions {
            wanted,
            threads: self.threads(),
            ..OpenOptions::default()
        }
    }

    /// The writer of remarks.
    pub const fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    /// The writer of results, and its colours. Buffered until [`flush`](Self::flush).
    pub fn out(&mut self) -> (&mut dyn Write, &Palette) {
        (&mut self.out, &self.out_palette)
    }

    /// Whether anything was written to stdout so far.
    pub fn has_output(&self) -> bool {
        self.out.is_used
    }

    /// Writes a heading to stdout, which is no output by itself.
    ///
    /// # Errors
    /// Those of writing.
    pub fn heading(&mut self, text: impl Display) -> io::Result<()> {
        let is_used = self.out.is_used;
        writeln!(self.out().0, "{text}")?;
        self.out.is_used = is_used;
        Ok(())
    }

    /// Flushes stdout. [`main`](crate::main) does this at the end; a subcommand that waits in between does it before.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// See [`Remarks::warn`].
    pub fn warn(&self, message: impl Display) {
        self.remarks.warn(&message);
        self.warnings.borrow_mut().push(message.to_string());
    }

    /// The warnings so far, for results that programs read, because programs do not read stderr.
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

    /// Whether stderr is a terminal: progress bars are for people only.
    pub fn progress_visible(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether stdout is a terminal, where only text is useful.
    pub fn shows_output(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Reports why the subcommand failed, and returns its exit code. A closed pipe is no failure.
    pub fn fail(&self, report: &Report) -> ExitCode {
        if report.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let Palette { error, note, .. } = self.remarks.palette;
        self.remarks.say(error, "error: ", report.message());
        for help in report.help_lines() {
            self.remarks.say(note, "help: ", help);
        }
        ExitCode::from(2)
    }

    /// See [`Remarks::finish`].
    pub fn finish(&self) {
        self.remarks.finish();
    }
}

impl Remarks {
    /// Prints a `warning:` line: there is a result, but it may not be the intended one. A repeated warning is printed
    /// a few times, with a count.
    pub fn warn(&self, message: impl Display) {
        let message = message.to_string();
        if let Some(message) = self.fold().count(&message) {
            self.say(self.palette.warning, "warning: ", &message);
        }
    }

    /// Prints a `note:` line, which helps to understand the result. Folded as warnings are.
    pub fn note(&self, message: impl Display) {
        let message = message.to_string();
        if let Some(message) = self.fold().count(&message) {
            self.say(self.palette.note, "note: ", &message);
        }
    }

    /// Prints a line about the current activity, only with `--verbose`.
    pub fn detail(&self, message: impl Display) {
        if self.verbose {
            let style = self.palette.dim;
            let message = message.to_string();
            let message = escaped_lines(&message);
            print(format_args!("{style}{message}{style:#}"));
        }
    }

    /// Prints how often warnings and notes occurred that were not all printed.
    pub fn finish(&self) {
        for message in self.fold().rest() {
            self.say(self.palette.note, "note: ", &message);
        }
    }

    /// Prints a message behind its label. Only the label is styled. The message is escaped, because most messages
    /// contain external names.
    fn say(&self, style: Style, label: &str, message: &str) {
        let (label, message) = (label.trim_end(), escaped_lines(message));
        print(format_args!("{style}{label}{style:#} {message}"));
    }

    /// The messages so far; usable even if a thread failed while it held the lock.
    fn fold(&self) -> MutexGuard<'_, Fold> {
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a line to stderr. An error (stderr is closed, or its disk is full) can't be reported and is ignored.
fn print(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
