//! What an export is: a [`Format`] says what it is called and opens a [`Sink`], and a sink takes
//! events batch by batch until it is finished.
//!
//! A format is a value and not a type, so that a command line can list all of them, choose one by
//! name or by the ending of a file's name, and stay as it is when one is added. Events are pushed into a
//! sink, so that no format needs to know where they come from or what can go wrong there.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use kymo_analysis::replay::{self, Replay};
use kymo_event::{Batch, TraceInfo, Wanted};
use kymo_symbols::Symbols;

use crate::{Options, Summary};

/// One kind of file (or directory) that a trace can be exported to.
#[derive(Clone, Copy)]
pub struct Format {
    /// What the command line calls it.
    pub name: &'static str,
    /// The endings of its files' names, without the dot, the usual one first; empty where none
    /// tells the format from others.
    pub extensions: &'static [&'static str],
    /// What it is and what opens it, in a line.
    pub about: &'static str,
    /// Whether it is one file or a directory of several.
    pub shape: Shape,
    /// Whether it is for programs alone, and nothing to be shown on a terminal.
    pub binary: bool,
    /// What a source has to tell of each event.
    pub wanted: Wanted,
    /// What it makes its file of.
    pub takes: Takes,
    /// Whether it shows [`Options::program`].
    pub names_program: bool,
    /// Whether it heeds [`Options::thread_roots`].
    pub merges_threads: bool,
    /// Begins an export. The trace is what is known of it before the first event.
    pub open: Open,
}

/// How a [`Format`] begins an export.
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

/// What a [`Format`] makes its file of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
    /// Calls: its sink hands all events to a [`Replay`] ([`Context::replay`]), which clips calls at the
    /// window and leaves out what is not selected. Events that were recorded while a clock was ahead are
    /// put where they happened before they come to the sink.
    Calls,
    /// Events one by one: its sink gets those that lie in the window and are selected, and no others. A
    /// selection by what only calls have (functions, depth, duration) is refused.
    Events {
        /// Whether it can't go back in time: then events that were recorded while a clock was ahead are put
        /// where they happened ([`kymo_analysis::clock_repair`]). Else they have the times that were
        /// recorded.
        in_order: bool,
    },
}

/// Whether an export is one file or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One file, written from front to end: it may be a pipe.
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

/// Where an export goes.
pub enum Destination<'a> {
    /// Into this; for formats of [`Shape::File`]. It needs no buffer of its own.
    Writer(Box<dyn Write + 'a>),
    /// Into files in this directory, which is made if it is not there; for formats of
    /// [`Shape::Directory`].
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
    /// What fits here.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Writer(_) => Shape::File,
            Self::Directory(_) => Shape::Directory,
        }
    }

    /// The writer, where a format of [`Shape::File`] writes. It may cost a system call each time.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a directory.
    pub fn writer(self) -> io::Result<Box<dyn Write + 'a>> {
        match self {
            Self::Writer(writer) => Ok(writer),
            Self::Directory(_) => Err(mismatch(Shape::File)),
        }
    }

    /// The directory, where a format of [`Shape::Directory`] writes.
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

/// The error of a destination that is not of the format's shape.
fn mismatch(expected: Shape) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("this format is {expected}, and its destination is not"),
    )
}

/// What every sink may look at, beside the trace.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The names of functions.
    pub symbols: &'a Arc<Symbols>,
    /// What the user wants.
    pub options: &'a Options,
}

impl Context<'_> {
    /// The replay that the user asks for, for a sink that takes [calls](Takes::Calls).
    pub fn replay(&self, info: &TraceInfo) -> Replay {
        let options = replay::Options {
            // An export does that before its sink sees anything.
            repair_clock: false,
            ..self.options.replay.clone()
        };
        Replay::new(info, self.symbols, options)
    }
}

/// An export that is being written.
pub trait Sink {
    /// Takes the next events; `info` is what is known of the trace by now.
    ///
    /// # Errors
    /// Those of writing.
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()>;

    /// Whether it needs no more events: the window is over.
    fn is_complete(&self) -> bool {
        false
    }

    /// Completes the export, and adds to the summary what only this format can tell.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()>;
}
