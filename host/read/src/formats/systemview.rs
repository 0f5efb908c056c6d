//! SEGGER SystemView recordings: `.SVDat` files with or without their text header, live streams of a target, and RTT
//! buffers in a memory dump.
//!
//! `kymo-systemview` reads the packets. This module converts them to events:
//!
//! | packet | event |
//! |---|---|
//! | a task starts, stops, idle | a thread gets or loses its processor |
//! | a task is ready | a thread becomes ready |
//! | an interrupt handler begins and ends | an interrupt handler begins and ends |
//! | `ESP_FunctionTrace` (a module of ESP-IDF), a software timer, a call whose end is recorded | a function is entered and left |
//! | print, markers, user events | a marker |
//! | overflow | a gap, with the count since the overflow before |
//! | everything else | an event with its name and fields |
//!
//! Names of operating-system calls and of module events are in files `SYSVIEW_*.txt` next to the input (for the
//! operating system in the recording) or in the [options](crate::OpenOptions::descriptions), and in the module's own
//! description.
//!
//! Recordings of several cores are one trace: a directory with a file for each core, or one file with the streams of
//! all. Packets about the whole recording, which each core sends, are handled once.

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

/// [`TraceInfo::format`](kymo_event::TraceInfo::format) of these recordings.
pub const FORMAT: &str = "systemview";

/// Number of bytes of a file in which the start of a stream is searched.
const LOOKED_AT: usize = 1 << 16;

/// Returns whether bytes begin like a recording: with its text header or with the synchronization of a stream.
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
    // Waits for no more of a pipe than is needed.
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

/// Returns whether a file has the extension of recordings, in any case.
fn is_named(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    extension.eq_ignore_ascii_case("SVDat")
}

/// Returns whether a file or directory holds a SystemView recording. `false` if it cannot be read, or not twice.
pub(crate) fn is_one(path: &Path) -> bool {
    if !path.is_file() && !path.is_dir() {
        return false;
    }
    let found = Peek::open(path).and_then(|mut peek| probe(&mut peek, &OpenOptions::default()));
    found.is_ok_and(|found| found.is_some())
}

/// Returns whether a text header is one of recordings.
fn is_ours(header: &file::Header<'_>) -> bool {
    let version = header.value("Version").unwrap_or_default();
    version.starts_with(b"SEGGER SystemView") || header.value("Offset Core0").is_some()
}

pub(crate) fn open(mut peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    if peek.is_directory() {
        return files::open_directory(peek.path(), options).map(Opened::Source);
    }
    let path = peek.path().to_owned();
    // With other cores, all of the input is needed, because packets of several streams are merged.
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

/// Opens the recording from a target or a pipe. Events are returned as they arrive.
///
/// `name` is the name of its stream. The text header of files may come first.
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

/// Opens a memory image of a target, whose `bytes` begin at `base_address` if that is known (core files do not need
/// it). Returns `None` if it has no RTT control block with SystemView packets.
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
