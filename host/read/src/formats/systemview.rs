//! Recordings of SEGGER SystemView: `.SVDat` files with or without the text before them, streams as they come from a
//! target, and what a target left in its memory (RTT).
//!
//! The packets are read by `kymo-systemview`; here they become events:
//!
//! | packet | event |
//! |---|---|
//! | a task starts, stops, idle | a thread gets or loses its processor |
//! | a task is ready | a thread could go on |
//! | an interrupt handler begins and ends | the same |
//! | `ESP_FunctionTrace` (a module of ESP-IDF's), a software timer, a call of which the end is recorded | a function is entered and left |
//! | print, markers, user events | the program says something |
//! | overflow | a gap, with the count since the overflow before |
//! | everything else | itself, with name and fields |
//!
//! Calls of the operating system and events of modules have their names from files `SYSVIEW_*.txt` beside the input (of
//! the operating system that the recording names) or in the [options](crate::OpenOptions::descriptions), and from the
//! module's own description.
//!
//! Recordings of several cores are one trace: a directory with a file for each, or one file with the streams of all. What
//! each core sends of the recording as a whole is taken once.

mod counters;
mod descriptions;
mod fields;
mod files;
mod meaning;
mod memory;
mod print;
mod source;
mod stream;

use std::io::Read;
use std::path::Path;

use kymo_systemview::file;

use super::{Confidence, Opened};
use crate::bytes::Bytes;
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, Source};

/// What [`TraceInfo::format`](kymo_event::TraceInfo::format) says of these.
pub const FORMAT: &str = "systemview";

/// So many bytes of a file a stream's beginning is looked for.
const LOOKED_AT: usize = 1 << 16;

/// Whether bytes begin like a recording: with its text or with the synchronization of a stream.
fn begins(head: &[u8]) -> bool {
    let text = file::header(head).map_or(0, |header| header.text.len());
    stream::is_start(head.get(text..).unwrap_or_default())
}

pub(crate) fn probe(
    peek: &mut Peek,
    options: &OpenOptions,
) -> Result<Option<Confidence>, OpenError> {
    if peek.is_directory() {
        return Ok(files::in_directory(peek.path()).then_some(Confidence::Likely));
    }
    if options.metadata.is_some() {
        return Ok(None);
    }
    // A pipe is not waited for longer than is needed.
    let is_file = peek.is_file();
    let first = peek.first(1)?.first().copied();
    let enough = match first {
        Some(b';') | Some(0) => 256,
        _ if is_file => LOOKED_AT,
        _ => return Ok(None),
    };
    let head = peek.first(enough)?;
    if begins(head) {
        return Ok(Some(Confidence::Certain));
    }
    if file::header(head).is_some_and(|header| is_ours(&header)) {
        return Ok(Some(Confidence::Certain));
    }
    let Some(bytes) = peek.file() else {
        return Ok(None);
    };
    let head = bytes.get(..LOOKED_AT).unwrap_or(bytes);
    let is_later = stream::start_in(head).is_some();
    let is_memory = || memory::is_image(bytes);
    let is_middle = || is_named(peek.path()) && stream::packets_begin(head);
    Ok((is_later || is_memory() || is_middle()).then_some(Confidence::Likely))
}

/// Whether a file has the extension of recordings, in any case.
fn is_named(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    extension.eq_ignore_ascii_case("SVDat")
}

/// Whether a file or directory holds a recording of SystemView; not if it can't be read twice, or at all.
pub(crate) fn is_one(path: &Path) -> bool {
    if !path.is_file() && !path.is_dir() {
        return false;
    }
    let found = Peek::open(path).and_then(|mut peek| probe(&mut peek, &OpenOptions::default()));
    found.is_ok_and(|found| found.is_some())
}

/// Whether a text is one of those that recordings begin with.
fn is_ours(header: &file::Header<'_>) -> bool {
    let version = header.value("Version").unwrap_or_default();
    version.starts_with(b"SEGGER SystemView") || header.value("Offset Core0").is_some()
}

pub(crate) fn open(mut peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    if peek.is_directory() {
        return files::open_directory(peek.path(), options).map(Opened::Source);
    }
    let path = peek.path().to_owned();
    // Beside other cores all of it is needed: packets of several streams are put in order.
    if !peek.is_file() && options.beside.is_empty() {
        peek.first(1)?;
        return Ok(match peek.into_reader() {
            Some(reader) => Opened::Source(open_reader(&files::name(&path), reader, options)),
            None => return Err(OpenError::Empty { path }),
        });
    }
    let bytes = peek.into_bytes()?;
    let head = bytes.get(..LOOKED_AT).unwrap_or(&bytes);
    // A stream dumped from a buffer can have an old control block behind it.
    let is_stream = || is_named(&path) && stream::packets_begin(head);
    let starts = file::header(&bytes).is_some() || begins(&bytes) || is_stream();
    if !starts && let Some(source) = memory::open(&path, &bytes, None, options)? {
        return Ok(Opened::Source(source));
    }
    files::open_file(&path, bytes, options).map(Opened::Source)
}

/// The recording that comes from a target or a pipe, event by event as it comes.
///
/// `name` is what its stream is called. The text that files begin with may come first.
pub fn open_reader(
    name: &str,
    reader: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Box<dyn Source> {
    let input = stream::Stream::of_reader(name, reader);
    let mut source = source::SystemViewSource::new(vec![input], None, options);
    crate::open::date(&mut source, options);
    Box::new(source)
}

/// What a target left in its memory, of which `bytes` are an image that begins at `base_address`, if that is known (of a
/// core file it is not needed); `None` if it has no control block of RTT with packets of SystemView.
///
/// # Errors
/// [`OpenError`] if a description cannot be read.
pub fn open_memory(
    path: &Path,
    bytes: impl Into<Bytes>,
    base_address: Option<u64>,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Source>>, OpenError> {
    memory::open(path, &bytes.into(), base_address, options)
}
