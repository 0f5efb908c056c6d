//! Interface of output formats: a [`Format`] names the format and opens a [`Sink`], which receives events batch by
//! batch until it is finished.
//!
//! A format is a value and not a type, so that a command line can list all formats and choose one by name or file
//! extension without a change when one is added. Events are pushed into a sink, so that no format depends on their
//! source or its errors.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use kymo_analysis::replay::{self, Replay};
use kymo_event::{Batch, TraceInfo, Wanted};
use kymo_symbols::Symbols;

use crate::{Options, Summary};

/// An output format: one kind of file (or directory).
#[derive(Clone, Copy)]
pub struct Format {
    /// Name on the command line.
    pub name: &'static str,
    /// File extensions without the dot, the usual one first; empty if no extension identifies the format.
    pub extensions: &'static [&'static str],
    /// One-line description: the format and the tool that opens it.
    pub about: &'static str,
    /// Whether the output is one file or a directory.
    pub shape: Shape,
    /// Whether the output is binary and must not be written to a terminal.
    pub binary: bool,
    /// Which information a source has to provide for each event.
    pub wanted: Wanted,
    /// The input of its sink.
    pub takes: Takes,
    /// Whether it uses [`Options::program`].
    pub names_program: bool,
    /// Whether it uses [`Options::thread_roots`].
    pub merges_threads: bool,
    /// Begins an export, with the trace's metadata before the first event.
    pub open: Open,
}

/// Function with which a [`Format`] begins an export.
pub type Open =
    for<'a> fn(&TraceInfo, Context<'a>, Destination<'a>) -> io::Result<Box<dyn Sink + 'a>>;

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format")
            .field("name", &self.name)
            .field("extensions", &self.extensions)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Input of a [`Format`]'s sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
    /// Calls: the sink passes all events to a [`Replay`] ([`Context::replay`]), which clips calls at the window and
    /// applies the selection. Events that were recorded while a clock was ahead get corrected times before they reach
    /// the sink.
    Calls,
    /// Single events: the sink gets those that are selected and in the window, and no others. A selection by properties
    /// of calls (functions, depth, duration) is refused.
    Events {
        /// Whether the format requires increasing times: then events that were recorded while a clock was ahead get
        /// corrected times ([`kymo_analysis::clock_repair`]). Otherwise they keep the recorded times.
        in_order: bool,
    },
}

/// Whether an export is one file or a directory of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One file, written sequentially: it may be a pipe.
    File,
    /// A directory of several files.
    Directory,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "one file",
            Self::Directory => "a directory",
        })
    }
}

/// Destination of an export.
pub enum Destination<'a> {
    /// A writer, for formats of [`Shape::File`]. It needs no buffer.
    Writer(Box<dyn Write + 'a>),
    /// A directory, which is created if missing, for formats of [`Shape::Directory`].
    Directory(&'a Path),
}

impl fmt::Debug for Destination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writer(_) => f.debug_tuple("Writer").finish_non_exhaustive(),
            Self::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
        }
    }
}

impl<'a> Destination<'a> {
    /// The shape of formats that can be written here.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Writer(_) => Shape::File,
            Self::Directory(_) => Shape::Directory,
        }
    }

    /// Returns the writer, for a format of [`Shape::File`]. Each write may be a system call.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a directory.
    pub fn writer(self) -> io::Result<Box<dyn Write + 'a>> {
        match self {
            Self::Writer(writer) => Ok(writer),
            Self::Directory(_) => Err(mismatch(Shape::File)),
        }
    }

    /// Returns the directory, for a format of [`Shape::Directory`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a writer.
    pub fn directory(self) -> io::Result<&'a Path> {
        match self {
            Self::Writer(_) => Err(mismatch(Shape::Directory)),
            Self::Directory(path) => Ok(path),
        }
    }
}

/// The error of a destination that does not have the format's shape.
fn mismatch(expected: Shape) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("this format is {expected}, and its destination is not"),
    )
}

/// Input of every sink beside the trace.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The names of functions.
    pub symbols: &'a Arc<Symbols>,
    /// The user's options.
    pub options: &'a Options,
}

impl Context<'_> {
    /// Creates the replay according to the options, for a sink that takes [calls](Takes::Calls).
    pub fn replay(&self, info: &TraceInfo) -> Replay {
        let options = replay::Options {
            // The export does this before the sink gets events.
            repair_clock: false,
            ..self.options.replay.clone()
        };
        Replay::new(info, self.symbols, options)
    }
}

/// Writer of an export in one format.
pub trait Sink {
    /// Processes the next events; `info` is the current metadata.
    ///
    /// # Errors
    /// Those of writing.
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()>;

    /// Whether it needs no more events, because the window is over.
    fn is_complete(&self) -> bool {
        false
    }

    /// Completes the export, and adds the counts that only this format knows to the summary.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()>;
}
