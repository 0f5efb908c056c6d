//! What a subcommand needs from its surroundings: where results go, where remarks go, and what the
//! terminal can do.

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

/// The surroundings of a subcommand. Results are written through [`out`](Self::out); whatever else there
/// is to say goes to stderr by [`warn`](Self::warn), [`note`](Self::note) and
/// [`detail`](Self::detail).
pub struct Context {
    out: Out,
    out_palette: Palette,
    remarks: Remarks,
    /// What was warned of so far.
    warnings: RefCell<Vec<String>>,
    /// How many threads may work on a trace, if the user said.
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

/// Where remarks go: stderr. Apart from the rest so that a thread can have it too.
#[derive(Clone, Debug)]
pub struct Remarks {
    palette: Palette,
    verbose: bool,
    /// Messages that may come again, of all threads.
    fold: Arc<Mutex<Fold>>,
}

impl Context {
    /// The surroundings of this process.
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

    /// How many threads may work on a trace.
    pub fn threads(&self) -> usize {
        self.threads
            .map_or_else(kymo_read::default_threads, NonZeroUsize::get)
    }

    /// Lets so many threads work on a trace.
    pub const fn limit_threads(&mut self, threads: Option<NonZeroUsize>) {
        self.threads = threads;
    }

    /// How to read a trace of which so much is to be known.
    pub fn open_options(&self, wanted: Wanted) -> OpenOptions {
        OpenOptions {
            wanted,
            threads: self.threads(),
            ..OpenOptions::default()
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

    /// Whether anything was written to stdout so far.
    pub fn has_output(&self) -> bool {
        self.out.is_used
    }

    /// Hands to stdout what is buffered. [`main`](crate::main) does it at the end; a subcommand that waits
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

    /// Says why the subcommand failed, and gives the exit code for it. A closed pipe is no failure.
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
    /// A `warning:` line: the result is there, but it may not be what was wanted. A warning that comes
    /// again and again is printed a few times, with a count.
    pub fn warn(&self, message: impl Display) {
        let message = message.to_string();
        if let Some(message) = self.fold().count(&message) {
            self.say(self.palette.warning, "warning: ", &message);
        }
    }

    /// A `note:` line: something that helps to understand the result. Folded as warnings are.
    pub fn note(&self, message: impl Display) {
        let message = message.to_string();
        if let Some(message) = self.fold().count(&message) {
            self.say(self.palette.note, "note: ", &message);
        }
    }

    /// A line that is shown with `--verbose` only: what is being done.
    pub fn detail(&self, message: impl Display) {
        if self.verbose {
            let style = self.palette.dim;
            let message = message.to_string();
            let message = escaped_lines(&message);
            print(format_args!("{style}{message}{style:#}"));
        }
    }

    /// Prints how often warnings and notes came that were not all printed.
    pub fn finish(&self) {
        for message in self.fold().rest() {
            self.say(self.palette.note, "note: ", &message);
        }
    }

    /// Prints a message behind its label. Only the label is styled; the message is escaped, because
    /// most of them name something from outside.
    fn say(&self, style: Style, label: &str, message: &str) {
        let (label, message) = (label.trim_end(), escaped_lines(message));
        print(format_args!("{style}{label}{style:#} {message}"));
    }

    /// The messages so far; also if a thread failed while it counted one.
    fn fold(&self) -> MutexGuard<'_, Fold> {
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a line to stderr. When that fails (it is closed, or its disk is full) there is nowhere left
/// to complain.
fn print(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
