//! The formats that are read, one module each, and the table in which they register.
//!
//! An input passes once through four stages: it is opened as a [`Peek`] (the transport: a directory, a file, a pipe),
//! every format of the [table](FORMATS) is asked how sure it is that the input is its own (the probe), the surest opens
//! it, and what that gives is a [`Source`].
//!
//! # To add a format
//! Write a module here with two functions, and add one line to the table:
//!
//! ```ignore
//! //! SystemView's recordings.
//!
//! pub(crate) fn probe(peek: &mut Peek, _: &OpenOptions) -> Result<Option<Confidence>, OpenError> {
//!     let is_ours = peek.first(MAGIC.len())?.starts_with(MAGIC);
//!     Ok(is_ours.then_some(Confidence::Certain))
//! }
//!
//! pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
//!     let reader = peek.into_reader(); // as it comes; or into_bytes(), if the format has to seek
//!     ...
//! }
//! ```
//!
//! A probe asks for no more bytes than it needs, because a pipe waits for them. It may look at the options: raw memory is
//! an input only beside its program.

pub mod coresight;
pub mod ctf;
pub mod ftrace;
pub mod kymo;
mod probes;
pub mod rtems_record;
pub mod systemview;
pub mod zephyr_instrumentation;

pub(crate) use probes::metadata_in;

use crate::peek::Peek;
use crate::{OpenError, OpenOptions, Source};

/// How sure a format is that an input is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Confidence {
    /// It may be: nothing else is known to look like that.
    Possible,
    /// What lies beside it, or what the options say, makes it so.
    Likely,
    /// It says so itself.
    Certain,
}

/// What opening gives: the trace, or the input as it was if it is of another format after all.
pub(crate) enum Opened {
    Source(Box<dyn Source>),
    Other(Peek),
}

/// A format of inputs.
pub(crate) struct Format {
    /// What an input of it is, for people.
    pub(crate) what: &'static str,
    /// Whether an input is of it, as far as its beginning and the options tell.
    pub(crate) probe: fn(&mut Peek, &OpenOptions) -> Result<Option<Confidence>, OpenError>,
    pub(crate) open: fn(Peek, &OpenOptions) -> Result<Opened, OpenError>,
}

/// The one that may hold several dumps.
const CONSOLE: &str = "a console's log with a dump of kymo_dump_text()";

/// Another one.
const RTEMS: &str = "a recording of RTEMS's events";

/// All formats. Of those that are equally sure the first one is asked first.
pub(crate) static FORMATS: [Format; 11] = [
    Format {
        what: "a CTF trace directory",
        probe: probes::directory::probe,
        open: probes::directory::open,
    },
    Format {
        what: "a CTF stream beside its metadata",
        probe: probes::stream::probe,
        open: probes::stream::open,
    },
    Format {
        what: "a trace.dat of ftrace",
        probe: ftrace::dat::probe,
        open: ftrace::dat::open,
    },
    Format {
        what: "a directory of raw pages of ftrace",
        probe: ftrace::raw::probe,
        open: ftrace::raw::open,
    },
    Format {
        what: "a recording of Arm hardware trace (perf.data, or a directory with a snapshot.ini)",
        probe: coresight::probe,
        open: coresight::open,
    },
    // Before those that wait for more of a pipe than its first bytes.
    Format {
        what: "a raw kymo file",
        probe: probes::recording::probe,
        open: probes::recording::open,
    },
    Format {
        what: "ftrace's text",
        probe: ftrace::lines::probe,
        open: ftrace::lines::open,
    },
    Format {
        what: RTEMS,
        probe: rtems_record::probe,
        open: rtems_record::open,
    },
    Format {
        what: CONSOLE,
        probe: kymo::console::probe,
        open: kymo::console::open,
    },
    Format {
        what: "a recording of SystemView",
        probe: systemview::probe,
        open: systemview::open,
    },
    Format {
        what: "a dump of Zephyr's instrumentation",
        probe: probes::dump::probe,
        open: probes::dump::open,
    },
];

/// What the formats are, for messages.
pub(crate) fn expected() -> String {
    let (last, others) = match FORMATS.split_last() {
        Some((last, others)) => (last.what, others),
        None => return String::new(),
    };
    let others: Vec<_> = others.iter().map(|format| format.what).collect();
    format!("{}, or {last}", others.join(", "))
}

/// Opens an input with the format that is surest of it; the input as it was if none is.
///
/// # Errors
/// [`OpenError`] if it cannot be read, or the format that it is of refuses it.
pub(crate) fn open(mut peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    let mut sure = Vec::new();
    for format in &FORMATS {
        if let Some(confidence) = (format.probe)(&mut peek, options)? {
            sure.push((std::cmp::Reverse(confidence), format));
            if confidence == Confidence::Certain {
                break;
            }
            // Other formats may still be surer, by what has come; but not by what a pipe has yet to bring.
            if confidence == Confidence::Likely {
                peek.set_waiting(false);
            }
        }
    }
    peek.set_waiting(true);
    sure.sort_by_key(|(confidence, _)| *confidence);
    let path = peek.path().to_owned();
    for (_, format) in sure {
        peek = match (format.open)(peek, options)? {
            Opened::Other(peek) => peek,
            Opened::Source(_)
                if options.console_dump.is_some() && ![CONSOLE, RTEMS].contains(&format.what) =>
            {
                let message = format!("expected {CONSOLE}, to choose from, found {}", format.what);
                return Err(OpenError::Console { path, message });
            }
            opened @ Opened::Source(_) => return Ok(opened),
        };
    }
    Ok(Opened::Other(peek))
}

/// Whether a pipe begins like a dump of Zephyr's instrumentation.
///
/// # Errors
/// [`OpenError::Io`] if it cannot be read.
pub(crate) fn is_dump(peek: &mut Peek) -> Result<bool, OpenError> {
    Ok(probes::dump::probe(peek, &OpenOptions::default())?.is_some())
}
