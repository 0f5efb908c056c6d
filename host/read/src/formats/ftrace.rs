//! Linux ftrace: trace.dat files, directories of raw ring-buffer pages, and the kernel's text.
//!
//! `kymo-ftrace` decodes bytes and fields. This module gives events their meanings. Functions, threads and interrupts
//! belong to one space, the kernel. A function's address and name are those of its symbol in the file's kallsyms.
//!
//! | event | meaning |
//! |---|---|
//! | `funcgraph_entry`, `funcgraph_exit` | a function is entered and exited |
//! | `funcgraph_exit` alone (`tracing_thresh`) | a whole call, sorted into the order of time |
//! | `function` | a call of unknown duration |
//! | `sched_switch`, `sched_wakeup` | a thread gets its CPU, loses it, becomes ready |
//! | `irq_handler_*`, `softirq_*`, `irq_vectors` | an interrupt handler begins and ends |
//! | `sys_enter*`, `sys_exit*` | a call with the system call's name, unless functions are traced, which contain it |
//! | `print`, `bprint`, `bputs` with a text such as `B\|pid\|name` | a span or a counter of a program (`marks`) |
//!
//! All other events have their names and fields only.

mod directory;
mod fields;
mod held;
mod marks;
mod meaning;
mod numbered_calls;
mod output;
mod processes;
mod sorter;
mod source;
mod stacks;
mod tails;
mod text;

use std::path::Path;

use kymo_ftrace::Trace;

use super::{Confidence, Opened};
use crate::bytes::Bytes;
use crate::peek::Peek;
use crate::{OpenError, OpenOptions};

/// [`TraceInfo::format`](kymo_event::TraceInfo::format) of all of these.
const FORMAT: &str = "ftrace";

/// Remark about calls recorded by the function tracer.
const NO_ENDS: &str = "the function tracer records no ends: its calls are counted, and how long they took is not known";

/// Number of beginnings without an end from which ends are assumed not to be recorded. Fewer can be open at the end of
/// a trace.
const BEGINNINGS: u64 = 3;

/// Kinds of interrupts and calls of which a trace has only the beginnings, because only those events were recorded.
/// Their durations are unknown, so they are events, not interrupts or calls.
#[derive(Clone, Copy, Debug, Default)]
struct Beginnings {
    interrupts: bool,
    softirqs: bool,
    calls: bool,
}

impl Beginnings {
    /// Returns a remark about them.
    fn remark(self) -> Option<String> {
        let kinds = [
            (self.interrupts, "interrupts (irq_handler_entry)"),
            (self.softirqs, "softirqs (softirq_entry)"),
            (self.calls, "system calls (sys_enter_*)"),
        ];
        let kinds: Vec<_> = kinds.into_iter().filter(|(alone, _)| *alone).collect();
        let kinds: Vec<_> = kinds.into_iter().map(|(_, kind)| kind).collect();
        (!kinds.is_empty()).then(|| {
            format!(
                "the trace has the beginnings alone of {}: they are events, and take no time",
                kinds.join(" and ")
            )
        })
    }
}

/// ftrace trace for direct access to its records, without the event model.
#[derive(Debug)]
pub struct FtraceTrace {
    /// Metadata of the records, from the file or the directory.
    pub trace: Trace,
    bytes: Bytes,
}

impl FtraceTrace {
    /// Opens a trace.dat from a file or a pipe, or a directory of raw pages; `None` if the input is neither.
    ///
    /// # Errors
    /// [`OpenError`] if the input cannot be read at all.
    pub fn open(path: &Path) -> Result<Option<Self>, OpenError> {
        let options = OpenOptions::default();
        let mut peek = Peek::open(path)?;
        let (trace, bytes) = if raw::probe(&mut peek, &options)?.is_some() {
            directory::open(peek.path())?
        } else if !peek.is_directory() && dat::probe(&mut peek, &options)?.is_some() {
            dat::parse(peek)?
        } else {
            return Ok(None);
        };
        Ok(Some(Self { trace, bytes }))
    }

    /// Returns the bytes that [`Records`](kymo_ftrace::Records) of the trace are read from.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Directories with raw pages and event formats.
pub(super) mod raw {
    use super::*;

    pub(crate) fn probe(peek: &mut Peek, _: &OpenOptions) -> Result<Option<Confidence>, OpenError> {
        let is_ours = peek.is_directory() && directory::is_one(peek.path());
        Ok(is_ours.then_some(Confidence::Certain))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        let (trace, bytes) = directory::open(peek.path())?;
        let source = source::DatSource::new(trace, bytes, options);
        Ok(Opened::Source(Box::new(source)))
    }
}

/// The kernel's text, from a file or as it arrives.
pub(super) mod lines {
    use super::text::{LOOKED_AT, Recognised};
    use super::*;
    use crate::formats::probes::described_by;

    /// Number of bytes by which the examined part of a pipe grows.
    const STEP: usize = 64;

    /// Largest number of bytes of a pipe that are examined.
    const MOST: usize = 4096;

    /// Number of lines that are examined in a pipe without a header.
    const LINES: usize = 4;

    fn lines_of(text: &[u8]) -> usize {
        text.iter().filter(|byte| **byte == b'\n').count()
    }

    pub(crate) fn probe(
        peek: &mut Peek,
        options: &OpenOptions,
    ) -> Result<Option<Confidence>, OpenError> {
        if peek.is_directory() || described_by(peek, options).is_some() {
            return Ok(None);
        }
        if peek.is_file() && text::html::is_page(peek.first(STEP)?) {
            let part = peek.file().and_then(|page| text::html::part(page));
            return Ok(part.map(|_| Confidence::Certain));
        }
        if peek
            .file()
            .is_some_and(|file| text::json::text(file).is_some())
        {
            return Ok(Some(Confidence::Certain));
        }
        if peek
            .file()
            .is_some_and(|log| text::dump::find(log).is_some())
        {
            return Ok(Some(Confidence::Certain));
        }
        // A pipe may have only one or two lines for a long time.
        let is_file = peek.is_file();
        let mut wanted = if is_file { LOOKED_AT } else { STEP };
        loop {
            let head = peek.first(wanted)?;
            let ended = head.len() < wanted;
            // The last line may be incomplete.
            let whole = head
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let lines = if ended {
                head
            } else {
                head.get(..whole).unwrap_or_default()
            };
            let is_all = ended || is_file || wanted >= MOST;
            match text::recognise(lines, is_all) {
                Recognised::Certain => return Ok(Some(Confidence::Certain)),
                // A single line of a pipe proves nothing.
                Recognised::Likely if !ended && !is_file && lines_of(lines) < LINES => {
                    wanted += STEP
                }
                Recognised::Likely => return Ok(Some(Confidence::Likely)),
                Recognised::Undecided if !is_all => wanted += STEP,
                Recognised::Undecided | Recognised::No => break,
            }
        }
        let has_header = peek.file().is_some_and(|log| text::has_header(log));
        Ok(has_header.then_some(Confidence::Certain))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        let source = text::TextSource::new(peek, options)?;
        Ok(Opened::Source(Box::new(source)))
    }
}

/// trace.dat files.
pub(super) mod dat {
    use super::*;

    pub(crate) fn probe(peek: &mut Peek, _: &OpenOptions) -> Result<Option<Confidence>, OpenError> {
        let head = peek.first(kymo_ftrace::MAGIC.len())?;
        Ok(Trace::is_dat(head).then_some(Confidence::Certain))
    }

    /// Reads the metadata of the file, and returns it with the file's bytes.
    pub(super) fn parse(peek: Peek) -> Result<(Trace, Bytes), OpenError> {
        let path = peek.path().to_owned();
        let bytes = peek.into_bytes()?;
        let trace = Trace::parse(&bytes).map_err(|error| OpenError::Ftrace {
            path,
            offset: error.offset,
            message: error.to_string(),
        })?;
        Ok((trace, bytes))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        let (trace, bytes) = parse(peek)?;
        let source = source::DatSource::new(trace, bytes, options);
        Ok(Opened::Source(Box::new(source)))
    }
}
