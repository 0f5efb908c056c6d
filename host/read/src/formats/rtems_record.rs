//! RTEMS event recordings: streams and dumps of targets, from files, console logs, or live.
//!
//! `kymo-rtems-record` decodes items and their times. This module gives them meanings. Each processor is a stream, and
//! each item an event with RTEMS's own name. Some items have a further meaning:
//!
//! | items | meaning |
//! |---|---|
//! | `THREAD_SWITCH_OUT`, `THREAD_SWITCH_IN` | a thread loses its processor, another one gets it |
//! | `INTERRUPT_ENTRY`, `INTERRUPT_EXIT` | an interrupt handler begins and ends, maybe nested in another one |
//! | `WRITE_ENTRY`, `WRITE_EXIT`, and all other pairs of this form | a call of `write`, with its arguments and results |
//! | `FUNCTION_ENTRY`, `FUNCTION_EXIT` | a call of the function at that address |
//! | `ISR_LOCK_ACQUIRE_ENTRY`, `_EXIT`, `ISR_LOCK_RELEASE` | a span of waiting, then one of holding |
//! | `ISR_DISABLE`, `ISR_ENABLE`, `THREAD_DISPATCH_DISABLE`, `_ENABLE` | a span between them |
//! | `UMA_*`, `HEAP_*`, `WORKSPACE_*` | counters of allocations, or of sizes |
//! | `ADDRESS`, `LENGTH`, then `MEMORY`, `BUFFER` or `REGISTERS` | a block of memory, as one event behind its words |
//! | `THREAD_START`, `THREAD_RESTART` | the thread becomes ready |
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

/// [`TraceInfo::format`](kymo_event::TraceInfo::format) of these recordings.
pub const FORMAT: &str = "rtems-record";

/// Number of bytes at the start that recognize an input other than a log.
const HEAD: usize = 256;

/// Number of bytes of a pipe in which the mark of a dump is searched.
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
    // A search through a whole file is cheap. Only text can be a log.
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

/// Largest number of dumps of a file that are read together.
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
    // A dump extends from the line of its mark to the line of the next mark. Text in front of the first mark belongs to
    // none.
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
        // A single dump is searched from the start of the file.
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

/// Opens the data of a live target or a pipe. Events are returned as they arrive. `path` is its name in errors.
///
/// # Errors
/// [`OpenError`] if it is not a recording, or ends before it has described the target.
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

/// Reader of bytes in memory.
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
