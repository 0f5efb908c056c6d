//! Arm hardware trace (CoreSight): recordings of perf and simpleperf, and OpenCSD snapshot directories.
//!
//! `kymo-coresight` decodes the trace. This module converts it to events:
//!
//! | trace | event |
//! |---|---|
//! | calls, returns, tail calls, jumps out of functions | a function is entered and exited |
//! | exceptions and returns from them | an interrupt handler begins and ends; within a thread, a function like `[IRQ]` |
//! | context IDs | a thread gets its processor |
//! | text and values of an STM or ITM | markers and named events |
//! | interrupts, PC samples, counters of a DWT | interrupt handlers, named events |
//! | overflow, code that no image has | a gap |
//! | bad packets, code that does not fit | damage |
//!
//! Only transitions between functions become events. Instructions within a function only increment a count.

mod follow;
mod given;
mod input;
mod meaning;
mod names;
mod program;
mod software;
mod source;
mod unit;

pub use given::GivenSymbols;
pub use input::debug_directories;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use kymo_coresight::perf;
use kymo_coresight::snapshot::Snapshot;

use super::{Confidence, Opened};
use crate::peek::Peek;
use crate::{OpenError, OpenOptions};

/// [`TraceInfo::format`](kymo_event::TraceInfo::format) of these recordings.
pub const FORMAT: &str = "coresight";

pub(crate) fn probe(
    peek: &mut Peek,
    options: &OpenOptions,
) -> Result<Option<Confidence>, OpenError> {
    if options.trace.is_raw() && peek.path().is_file() {
        return Ok(Some(Confidence::Certain));
    }
    if Snapshot::is_at(peek.path()) || is_directory(peek.path()) {
        return Ok(Some(Confidence::Certain));
    }
    let is_perf = peek.first(perf::MAGIC.len())?.starts_with(perf::MAGIC);
    Ok(is_perf.then_some(Confidence::Certain))
}

/// Returns whether a directory is a perf recording with its records in a file.
fn is_directory(path: &Path) -> bool {
    let mut magic = [0; perf::MAGIC.len()];
    let file = path.is_dir().then(|| File::open(perf::records(path)));
    let read = file
        .and_then(Result::ok)
        .map(|mut file| file.read_exact(&mut magic));
    matches!(read, Some(Ok(()))) && magic == *perf::MAGIC
}

pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    let path = peek.path().to_owned();
    let input = if options.trace.is_raw() {
        input::raw(&path, options)?
    } else if Snapshot::is_at(&path) {
        input::snapshot(&path, options)?
    } else if is_directory(&path) {
        let records = perf::records(&path);
        let bytes = std::fs::read(&records).map_err(|source| OpenError::Io {
            path: records,
            source,
        })?;
        input::perf(&path, &bytes, options)?
    } else {
        input::perf(&path, &peek.into_bytes()?, options)?
    };
    Ok(Opened::Source(Box::new(source::CoreSightSource::new(
        input,
        options.wanted,
    ))))
}
