//! What an export is: a [`Format`] says what it is called and opens a [`Sink`], and a sink takes
//! events one by one until it is finished.
//!
//! A format is a value and not a type, so that a command line can list all of them, choose one by
//! name or by the ending of a file's name, and stay as it is when one is added. A sink is pushed
//! to, rather than pulling events itself, so that no format needs to know where events come from
//! or what can go wrong there.

use std::io::{self, Write};
use std::path::Path;

use kymo_event::{Event, TraceInfo};
use kymo_symbols::Symbols;

use crate::{Options, Summary};

/// One kind of file (or directory) that a trace can be exported to.
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
    /// Whether it can't go back in time, or adds times up: then events that were recorded while a clock was
    /// ahead are put where they happened ([`kymo_analysis::steady`]). A format that lists events has their
    /// times as they were recorded.
    pub steady: bool,
    /// Begins an export.
    pub(crate) open: for<'a> fn(Context<'a>, Destination<'a>) -> io::Result<Box<dyn Sink + 'a>>,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Format")
            .field("name", &self.name)
            .field("extensions", &self.extensions)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Whether an export is one file or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One file, written from front to end: it may be a pipe.
    File,
    /// A directory of several files.
    Directory,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

impl Destination<'_> {
    /// What fits here.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Writer(_) => Shape::File,
            Self::Directory(_) => Shape::Directory,
        }
    }
}

impl<'a> Destination<'a> {
    /// The writer, where a format of [`Shape::File`] writes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a directory.
    pub(crate) fn writer(self) -> io::Result<io::BufWriter<Box<dyn Write + 'a>>> {
        match self {
            Self::Writer(writer) => Ok(io::BufWriter::with_capacity(1 << 16, writer)),
            Self::Directory(_) => Err(mismatch(Shape::File)),
        }
    }

    /// The directory, where a format of [`Shape::Directory`] writes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a writer.
    pub(crate) fn directory(self) -> io::Result<&'a Path> {
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

/// What every sink may look at.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// What is known of the trace.
    pub info: &'a TraceInfo,
    /// The names of functions.
    pub symbols: &'a Symbols,
    /// What the user wants.
    pub options: &'a Options,
}

/// An export that is being written.
pub(crate) trait Sink {
    /// Takes the next event.
    ///
    /// # Errors
    /// Those of writing.
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Completes the export, and adds to the summary what only this format can tell.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self: Box<Self>, summary: &mut Summary) -> io::Result<()>;
}
