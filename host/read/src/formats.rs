//! Supported formats, one module each, and the table that registers them.
//!
//! An input passes through four stages. It is opened as a [`Peek`] (the transport: a directory, a file, a pipe). Every
//! format of the [table](FORMATS) states its confidence that the input is its own (the probe). The most confident
//! format opens the input. The result is a [`Source`].
//!
//! # To add a format
//! Write a module here with two functions, and add one entry to the table:
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
//! A probe must request no more bytes than it needs, because a pipe waits for them. It may use the options: raw memory
//! is an input only together with its program.

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

/// Confidence of a format that an input is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Confidence {
    /// Possible: no other known input looks like this.
    Possible,
    /// Likely because of neighbouring files or the options.
    Likely,
    /// The input identifies itself.
    Certain,
}

/// Result of opening: the source, or the unchanged input if it has another format after all.
pub(crate) enum Opened {
    Source(Box<dyn Source>),
    Other(Peek),
}

/// Input format.
pub(crate) struct Format {
    /// Description for the user.
    pub(crate) what: &'static str,
    /// Checks whether an input has this format, based on its first bytes and the options.
    pub(crate) probe: fn(&mut Peek, &OpenOptions) -> Result<Option<Confidence>, OpenError>,
    pub(crate) open: fn(Peek, &OpenOptions) -> Result<Opened, OpenError>,
}

/// The format that may hold several dumps.
const CONSOLE: &str = "a console's log with a dump of kymo_dump_text()";

/// The other format that may hold several dumps.
const RTEMS: &str = "a recording of RTEMS's events";

/// All formats. Equally confident formats open the input in this order.
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
    // In front of the formats that wait for more of a pipe than its first bytes.
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

/// Lists the formats for messages.
pub(crate) fn expected() -> String {
    let (last, others) = match FORMATS.split_last() {
        Some((last, others)) => (last.what, others),
        None => return String::new(),
    };
    let others: Vec<_> = others.iter().map(|format| format.what).collect();
    format!("{}, or {last}", others.join(", "))
}

/// Opens an input with the most confident format. Returns the unchanged input if there is none.
///
/// # Errors
/// [`OpenError`] if the input cannot be read, or if its format rejects it.
pub(crate) fn open(mut peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    let mut sure = Vec::new();
    for format in &FORMATS {
        if let Some(confidence) = (format.probe)(&mut peek, options)? {
            sure.push((std::cmp::Reverse(confidence), format));
            if confidence == Confidence::Certain {
                break;
            }
            // Other formats may still be more confident, but only based on bytes that have already arrived.
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

/// Returns whether a pipe begins like a dump of Zephyr's instrumentation.
///
/// # Errors
/// [`OpenError::Io`] if it cannot be read.
pub(crate) fn is_dump(peek: &mut Peek) -> Result<bool, OpenError> {
    Ok(probes::dump::probe(peek, &OpenOptions::default())?.is_some())
}
