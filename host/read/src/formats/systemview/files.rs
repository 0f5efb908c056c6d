//! Recording files: one stream, several streams in one file, or one file for each core.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use kymo_systemview::file::{self, Header};
use kymo_systemview::scan::UNKNOWN;
use kymo_systemview::{Form, Packet, Piece, Scan};

use super::source::SystemViewSource;
use super::stream::Stream;
use crate::bytes::Bytes;
use crate::{OpenError, OpenOptions, Source};

/// Returns the name of an input.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Largest number of files that are examined in a directory.
const FILES: usize = 256;

/// Returns whether a directory holds recordings, and no trace of another format.
pub(super) fn in_directory(path: &Path) -> bool {
    !path.join("metadata").exists() && !recordings(path).is_empty()
}

/// Returns the recordings in a directory, by name.
fn recordings(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_recording = |path: &PathBuf| {
        let mut head = Vec::new();
        let file = path.is_file().then(|| fs::File::open(path).ok()).flatten();
        let read = file.and_then(|file| file.take(1024).read_to_end(&mut head).ok());
        read.is_some() && super::begins(&head)
    };
    let mut found: Vec<_> = files.take(FILES).filter(is_recording).collect();
    found.sort();
    found
}

/// Opens the recording in a directory, with the file of each core.
pub(super) fn open_directory(
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    open_files(path, read(&recordings(path))?, options)
}

/// Reads files.
fn read(files: &[PathBuf]) -> Result<Vec<(PathBuf, Bytes)>, OpenError> {
    let read = |file: &PathBuf| Ok((file.clone(), crate::open::file_bytes(file)?));
    files.iter().map(read).collect()
}

/// Opens a file, with those of other cores that the options name.
pub(super) fn open_file(
    path: &Path,
    bytes: Bytes,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    if !options.beside.is_empty() {
        let mut files = vec![(path.to_owned(), bytes)];
        files.extend(read(&options.beside)?);
        return open_files(path, files, options);
    }
    let streams = streams_of(&name(path), &bytes);
    Ok(Box::new(SystemViewSource::new(
        streams,
        Some(path),
        options,
    )))
}

fn open_files(
    path: &Path,
    mut files: Vec<(PathBuf, Bytes)>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let starts: Vec<_> = files.iter().map(|(_, bytes)| start(bytes)).collect();
    let Some(first) = starts.first() else {
        return Err(crate::open::unknown(path, "no recording".to_owned()));
    };
    if !starts.iter().all(|start| belong(first, start)) {
        return Err(OpenError::Several {
            path: path.to_owned(),
            traces: files
                .iter()
                .map(|(file, _)| file.display().to_string())
                .collect(),
        });
    }
    let count = files.len();
    files.sort_by_key(|(file, _)| core_of(&name(file), count));
    let mut streams = Vec::new();
    for (file, bytes) in files {
        streams.extend(streams_of(&name(&file), &bytes));
    }
    if streams.len() > 1 {
        (0..)
            .zip(&mut streams)
            .for_each(|(core, stream)| stream.core = Some(core));
    }
    Ok(Box::new(SystemViewSource::new(
        streams,
        Some(path),
        options,
    )))
}

/// Returns the sort key for the files of cores. ESP32's cores are named `pro` (0) and `app` (1), others have numbers.
fn core_of(name: &str, files: usize) -> (u32, String) {
    let lower = name.to_ascii_lowercase();
    let rank = match files {
        2 if lower.contains("pro") => 0,
        2 if lower.contains("app") => 2,
        // Standard input has no name: the other file determines which core it is.
        _ => 1,
    };
    (rank, lower)
}

/// Returns the streams of a file.
fn streams_of(name: &str, bytes: &Bytes) -> Vec<Stream> {
    let all = bytes.len() as u64;
    let Some(header) = file::header(bytes) else {
        let form = Form::default();
        return vec![Stream::new(name, None, bytes.clone(), 0..all, form)];
    };
    let ranges: Vec<_> = header.streams(all).collect();
    let one = ranges.len() == 1;
    let streams = ranges.into_iter().map(|(core, range)| {
        let name = match one {
            true => name.to_owned(),
            false => format!("{name} core {core}"),
        };
        let core = (!one).then_some(core);
        Stream::new(&name, core, bytes.clone(), range, header.form())
    });
    streams.collect()
}

/// Returns the first packets of a recording, up to the first one that belongs to a single core.
fn start(bytes: &[u8]) -> Vec<&[u8]> {
    /// Enough packets to distinguish two recordings.
    const PACKETS: usize = 256;
    let header = file::header(bytes);
    let start = header.map_or(0, |header| header.text.len());
    let form = header.map_or(Form::default(), |header: Header<'_>| header.form());
    let stream = bytes.get(start..).unwrap_or_default();
    let mut scan = Scan::with_form(form);
    let mut packets = Vec::new();
    while packets.len() < PACKETS {
        let rest = usize::try_from(scan.offset())
            .ok()
            .and_then(|at| stream.get(at..));
        match scan.next(rest.unwrap_or_default(), true, UNKNOWN) {
            Some(Piece::Sync { .. }) => {}
            Some(Piece::Record(record)) if record.packet.is_common() => packets.push(record.bytes),
            _ => break,
        }
    }
    packets
}

/// Returns whether two recordings begin with the same packets at the same times.
fn belong(one: &[&[u8]], other: &[&[u8]]) -> bool {
    let shared = one.len().min(other.len());
    // Start, frequency and description of the system.
    shared >= 3 && one.get(..shared) == other.get(..shared)
}

/// Returns whether another core may send the same packet.
pub(super) const fn is_shared(packet: &Packet<'_>) -> bool {
    packet.is_common()
}
