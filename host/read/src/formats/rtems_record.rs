//! Recordings of RTEMS's event recording: streams and dumps of targets, from files, logs of consoles, and live.
//!
//! `kymo-rtems-record` knows items and their times; here is what they mean. Each processor is a stream. Every item is
//! an event with RTEMS's own name; what it says beyond that:
//!
//! | items | meaning |
//! |---|---|
//! | `THREAD_SWITCH_OUT`, `THREAD_SWITCH_IN` | a thread loses its processor, another one gets it |
//! | `INTERRUPT_ENTRY`, `INTERRUPT_EXIT` | an interrupt handler begins and ends, maybe in another one |
//! | `WRITE_ENTRY`, `WRITE_EXIT`, and all other pairs of that kind | a call of `write`, with its arguments and results |
//! | `FUNCTION_ENTRY`, `FUNCTION_EXIT` | a call of the function at that address |
//! | `ISR_LOCK_ACQUIRE_ENTRY`, `_EXIT`, `ISR_LOCK_RELEASE` | a call for the time of waiting, then one for that of holding |
//! | `ISR_DISABLE`, `ISR_ENABLE`, `THREAD_DISPATCH_DISABLE`, `_ENABLE` | a call for the time in between |
//! | `UMA_*`, `HEAP_*`, `WORKSPACE_*` | markers with the number of allocations, or the size |
//! | `ADDRESS`, `LENGTH`, then `MEMORY`, `BUFFER` or `REGISTERS` | a block of memory, as one event behind its words |
//! | `THREAD_START`, `THREAD_RESTART` | the thread can go on |
//! | `PER_CPU_OVERFLOW` | records were lost |
//! | the header, names, processors | facts |

mod inputs;
mod meaning;
mod names;
mod source;

use std::io::{self, Read};
use std::path::Path;

use kymo_rtems_record::{BEGIN, Kind, Reader, probe as probe_bytes};
pub use kymo_rtems_record::{EventNames, NamesError};
use memchr::memmem;

use super::{Confidence, Opened};
use crate::bytes::Bytes;
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, Source};

/// What [`TraceInfo::format`](kymo_event::TraceInfo::format) says of these.
pub const FORMAT: &str = "rtems-record";

/// Bytes of the beginning that show what is not a log.
const HEAD: usize = 256;

/// So far into a pipe the mark of a dump is looked for.
const MARK_WITHIN: usize = 1 << 20;

pub(crate) fn probe(peek: &mut Peek, _: &OpenOptions) -> Result<Option<Confidence>, OpenError> {
    if peek.is_directory() {
        return Ok(None);
    }
    let confidence = |found: Option<(Kind, bool)>| {
        found.map(|(_, certain)| match certain {
            true => Confidence::Certain,
            false => Confidence::Possible,
        })
    };
    for count in [8, HEAD] {
        if let Some(found) = confidence(probe_bytes(peek.first(count)?)) {
            return Ok(Some(found));
        }
    }
    // Of a file a look at all of it costs little; text only is a log.
    let head = peek.first(HEAD)?;
    let is_text = head.iter().filter(|byte| **byte < 7).count() == 0 && !head.is_empty();
    if !is_text {
        return Ok(None);
    }
    if let Some(bytes) = peek.file() {
        return Ok(memmem::find(bytes, BEGIN).map(|_| Confidence::Certain));
    }
    Ok(confidence(probe_bytes(peek.first(MARK_WITHIN)?)))
}

/// So many dumps of a file are read beside each other.
const MOST_DUMPS: usize = 256;

pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    let path = peek.path().to_owned();
    if !peek.is_file() && options.console_dump.is_none() {
        return match peek.into_reader() {
            Some(reader) => open_stream(&path, reader, options).map(Opened::Source),
            None => Err(OpenError::Empty { path }),
        };
    }
    let bytes = peek.into_bytes()?;
    let marks: Vec<usize> = memmem::find_iter(&bytes, BEGIN).collect();
    let dumps = marks.len();
    let refuse = |message: String| OpenError::Console {
        path: path.clone(),
        message,
    };
    // From the line of one mark to that of the next; what stands in front of the first one is none of them.
    let begin = |mark: &usize| {
        let before = bytes.get(..*mark).unwrap_or_default();
        memchr::memrchr2(b'\n', b'\r', before).map_or(0, |end| end + 1)
    };
    let begins: Vec<usize> = marks.iter().map(begin).collect();
    let ends = begins.iter().skip(1).copied().chain([bytes.len()]);
    let mut parts: Vec<_> = begins.iter().copied().zip(ends).collect();
    match options.console_dump {
        Some(number) => {
            let chosen = number.checked_sub(1).and_then(|place| parts.get(place));
            let chosen = chosen.copied().ok_or_else(|| {
                refuse(format!(
                    "expected a dump number {number} in the log, found {dumps} dumps"
                ))
            })?;
            parts = vec![chosen];
        }
        None if dumps > MOST_DUMPS => {
            return Err(refuse(format!(
                "expected at most {MOST_DUMPS} dumps in the log, found {dumps}: --dump chooses one"
            )));
        }
        // Also what stands in front of a single one is looked at.
        None if dumps < 2 => parts = vec![(0, bytes.len())],
        None => {}
    }
    let reader = |(at, end): (usize, usize)| {
        let bytes = BytesReader {
            bytes: bytes.clone(),
            at,
            end,
        };
        let reader: inputs::Bytes = Box::new(bytes);
        (Reader::new(reader), at as u64)
    };
    let inputs = inputs::Inputs::new(parts.into_iter().map(reader));
    let mut source = source::RecordSource::new(&path, inputs, options)?;
    if dumps > 1 {
        source.remark_dumps(dumps, options.console_dump);
    }
    Ok(Opened::Source(Box::new(source)))
}

/// Opens what comes from a live target, or through a pipe: events are given as they come. `path` is what errors call it.
///
/// # Errors
/// [`OpenError`] if it is no recording, or ends before it has said what the target is.
pub fn open_stream(
    path: &Path,
    reader: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let inputs = inputs::Inputs::new([(Reader::new(reader).live(), 0)]);
    let mut source = source::RecordSource::new(path, inputs, options)?;
    crate::open::date(&mut source, options);
    Ok(Box::new(source))
}

/// Reads what is in memory.
struct BytesReader {
    bytes: Bytes,
    at: usize,
    end: usize,
}

impl Read for BytesReader {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let rest = self.bytes.get(self.at..self.end).unwrap_or(&[]);
        let count = rest.len().min(room.len());
        if let (Some(room), Some(rest)) = (room.get_mut(..count), rest.get(..count)) {
            room.copy_from_slice(rest);
        }
        self.at += count;
        Ok(count)
    }
}
