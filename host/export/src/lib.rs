//! Kymo's events as files for other tools.
//!
//! A trace is worth more in the tool that one knows: a timeline in Perfetto, a flame graph in a
//! browser, a spreadsheet, or any reader of CTF. Each [`Format`] is one module here and one line
//! in [`FORMATS`]; [`export`] runs a trace through one.
//!
//! All of them stream: memory grows with the traced program (its threads, depth and functions;
//! for the two that add up stacks, with the number of different stacks), never with the trace.
//! What a format can't say is not dropped in silence: it is annotated in the file where the format
//! has room for that, and counted in the [`Summary`] in any case.
//!
//! ```
//! use kymo_event::{Addr, Event, EventKind, StreamId, ThreadId, Time, TraceInfo};
//! use kymo_export::{Destination, Options, by_name, export};
//! use kymo_symbols::Symbols;
//!
//! let event = |time, kind| Event {
//!     time: Time(time),
//!     stream: StreamId(0),
//!     cpu: None,
//!     thread: Some(ThreadId(1)),
//!     kind,
//!     named: false,
//!     name: "".into(),
//!     fields: Vec::new(),
//! };
//! let function = Addr(0x1000);
//! let events = [
//!     event(10, EventKind::Enter { function, call_site: None }),
//!     event(35, EventKind::Exit { function: Some(function) }),
//! ];
//! let mut text = Vec::new();
//! let summary = export(
//!     by_name("folded").unwrap(),
//!     &TraceInfo::default(),
//!     &mut events.into_iter().map(Ok::<_, std::convert::Infallible>),
//!     &Symbols::default(),
//!     Destination::Writer(Box::new(&mut text)),
//!     &Options::default(),
//! )?;
//! assert_eq!(text, b"thread 1;0x1000 25\n");
//! assert_eq!(summary.events, 2);
//! # Ok::<(), kymo_export::ExportError<std::convert::Infallible>>(())
//! ```
#![forbid(unsafe_code)]

mod draw;
mod ending;
mod error;
mod format;
mod gaps;
mod json_object;
mod lanes;
mod names;
mod record;
mod stacks;
mod summary;

mod csv;
mod ctf;
mod flamegraph;
mod folded;
mod json;
mod perfetto;
mod trace_event;

use std::path::Path;

use kymo_analysis::steady::Steady;
use kymo_event::{Event, TraceInfo};
use kymo_symbols::Symbols;

pub use error::ExportError;
pub use format::{Destination, Format, Shape};
pub use summary::Summary;

/// All formats, in the order in which a help text lists them.
pub static FORMATS: &[&Format] = &[
    &perfetto::FORMAT,
    &trace_event::FORMAT,
    &folded::FORMAT,
    &flamegraph::FORMAT,
    &ctf::FORMAT,
    &ctf::FORMAT_2,
    &csv::FORMAT,
    &json::FORMAT,
];

/// What the user can choose beside the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the traced program is called: the name of the process in a timeline, the title of a
    /// flame graph.
    pub program: String,
    /// Whether stacks begin with their thread in the formats that add up stacks; else what all
    /// threads did is one sum.
    pub thread_roots: bool,
}

impl Default for Options {
    /// A program without a name, and stacks by thread.
    fn default() -> Self {
        Self {
            program: "program".to_owned(),
            thread_roots: true,
        }
    }
}

/// The format of this name.
pub fn by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// The format whose files end so. A format whose ending says nothing is found by its name only.
pub fn by_path(path: &Path) -> Option<&'static Format> {
    let extension = path.extension()?.to_str()?;
    FORMATS
        .iter()
        .copied()
        .find(|format| format.extensions.contains(&extension))
}

/// Writes a trace in another format.
///
/// `events` come in the order of time, as [`kymo_event`] says; `info` is what is known of them
/// beforehand. The first error that `events` gives ends the export: what came before it is
/// written as a whole file.
///
/// # Errors
/// [`ExportError::Source`] if `events` failed, [`ExportError::Shape`] if the destination is a file
/// and the format a directory or the other way round, [`ExportError::Write`] if writing failed.
pub fn export<E>(
    format: &Format,
    info: &TraceInfo,
    events: &mut dyn Iterator<Item = Result<Event, E>>,
    symbols: &Symbols,
    destination: Destination<'_>,
    options: &Options,
) -> Result<Summary, ExportError<E>> {
    if format.shape != destination.shape() {
        return Err(ExportError::Shape {
            format: format.name,
            expected: format.shape,
            found: destination.shape(),
        });
    }
    let context = format::Context {
        info,
        symbols,
        options,
    };
    let mut summary = Summary::default();
    let mut sink = (format.open)(context, destination)?;
    let mut steady = (format.steady && info.steps_back).then(Steady::default);
    let mut failure = None;
    for event in events {
        match event {
            Ok(event) => {
                summary.take(&event);
                match &mut steady {
                    Some(steady) => through(&mut *sink, |out| steady.push(event, out))?,
                    None => sink.event(&event)?,
                }
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if let Some(mut steady) = steady {
        through(&mut *sink, |out| steady.finish(out))?;
        summary.count_steps(steady.counts());
    }
    sink.finish(&mut summary)?;
    match failure {
        Some(error) => Err(ExportError::Source { error, summary }),
        None => Ok(summary),
    }
}

/// Gives a sink all that somebody gives on, up to the first error.
fn through(
    sink: &mut (dyn format::Sink + '_),
    give: impl FnOnce(&mut dyn FnMut(Event)),
) -> std::io::Result<()> {
    let mut result = Ok(());
    give(&mut |event| {
        if result.is_ok() {
            result = sink.event(&event);
        }
    });
    result
}
