//! Writers of a dump: as a trace directory, which other tools read too, or as a raw file.
//!
//! The output is valid for every CTF reader: damaged bytes are left out, packets without their end
//! are cut after their last whole event and marked
//! ([`PacketHeader::FLAG_CUT`](kymo_wire::event::PacketHeader::FLAG_CUT)), and missing packets show
//! as gaps in the sequence numbers. The caller gets a list of the damage.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kymo_event::{Addr, Damage};
use kymo_wire::event::PacketHeader;
use kymo_wire::metadata::{self, Description};
use kymo_wire::packet::ITEM_STREAM;
use thiserror::Error;

use super::clocks;
use super::marker_names::MarkerNames;
use super::packets::{Damaged, Piece};
use super::streams::{StreamNumber, find_streams};
use super::{Dump, Identity};

/// Summary of the written streams and of the damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The streams, in the order of their numbers.
    pub streams: Vec<WrittenStream>,
    /// The damage that was left out, with offsets in the dump.
    pub damage: Vec<Damage>,
}

/// Summary of one written stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenStream {
    /// Its name; in a trace directory the name of its file.
    pub name: String,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Facts about the traced program that a recording's metadata keeps, so that it can be read without the ELF file.
#[derive(Clone)]
pub struct Program<'n> {
    /// Its functions with their run-time addresses, in any order. The metadata gets those that the events' `function`
    /// field can address, so that every CTF reader shows names.
    pub functions: Vec<(Addr, &'n str)>,
    /// Its declarations of custom events: the section `.kymo.events` of its ELF file, and of each library.
    pub events: Vec<&'n [u8]>,
    /// Reads the constant string at an address: the names of markers.
    pub string_at: &'n dyn Fn(Addr) -> Option<String>,
}

impl Default for Program<'_> {
    /// A program without any known facts.
    fn default() -> Self {
        Self {
            functions: Vec::new(),
            events: Vec::new(),
            string_at: &|_| None,
        }
    }
}

impl std::fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("functions", &self.functions.len())
            .field("events", &self.events.len())
            .finish_non_exhaustive()
    }
}

/// Error of writing a recording.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An error of the operating system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The directory holds other files than a trace; they are not overwritten.
    #[error("{}: expected an empty directory or a trace to replace, found {found:?} in it", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The name of one such file.
        found: String,
    },
}

/// Writes `dump` as a CTF trace directory: `metadata`, and a file for each stream (`cpu0`,
/// `thread-0`, `items0`, `target`; see [`StreamKind::file_name`](super::StreamKind::file_name)).
///
/// The metadata gets the facts about `program`. An existing trace in the directory is replaced.
///
/// # Errors
/// [`WriteError`]; the directory may then be incomplete.
pub fn write_trace(
    directory: &Path,
    dump: &Dump<'_>,
    program: &Program<'_>,
) -> Result<Written, WriteError> {
    let io = io_error;
    clear(directory)?;
    fs::create_dir_all(directory).map_err(io(directory))?;

    let streams = streams(dump);
    let items = has_items(streams.keys());
    let mut markers = MarkerNames::default();
    let mut files = HashMap::new();
    for (number, stream) in &streams {
        let path = directory.join(&stream.name);
        let file = File::create(&path).map_err(io(&path))?;
        files.insert(*number, (path, BufWriter::new(file)));
    }
    let written = write_packets(dump, streams, |number, header, content| {
        markers.note(dump.identity.layout, header, content);
        // Never missing: every stream has its file.
        let Some((path, file)) = files.get_mut(&number) else {
            return Ok(());
        };
        file.write_all(content).map_err(io(path))
    })?;
    for (path, mut file) in files.into_values() {
        file.flush().map_err(io(&path))?;
    }
    let path = directory.join("metadata");
    let origin = clocks::origin(dump);
    let mut text = metadata_text(dump.identity, dump.target, origin, program, items);
    markers.resolve(program.string_at);
    markers.write(&mut text);
    fs::write(&path, text).map_err(io(&path))?;
    Ok(written)
}

/// Writes `dump` as a raw file: the identity line, then the packets without damage.
///
/// # Errors
/// Those of `out`.
pub fn write_raw(mut out: impl Write, dump: &Dump<'_>) -> io::Result<Written> {
    writeln!(out, "{}", dump.identity)?;
    let written = write_packets(dump, streams(dump), |_, _, content| out.write_all(content))?;
    out.flush()?;
    Ok(written)
}

/// The streams of a dump by their numbers, with all counts 0.
fn streams(dump: &Dump<'_>) -> BTreeMap<StreamNumber, WrittenStream> {
    let found = find_streams(dump.pieces().heads_only());
    let named = found.into_iter().map(|stream| {
        let stream_written = WrittenStream {
            name: stream.kind.file_name(stream.number.cpu),
            packets: 0,
            bytes: 0,
        };
        (stream.number, stream_written)
    });
    named.collect()
}

/// Passes every valid packet, or the valid part of a cut one, to `write`, with its stream number and header.
fn write_packets<E>(
    dump: &Dump<'_>,
    mut streams: BTreeMap<StreamNumber, WrittenStream>,
    mut write: impl FnMut(StreamNumber, &PacketHeader, &[u8]) -> Result<(), E>,
) -> Result<Written, E> {
    let mut scratch = Vec::new();
    // With the number of the damaged stream, where known.
    let mut damaged: Vec<(Option<StreamNumber>, Damaged)> = Vec::new();
    for piece in dump.pieces() {
        let (number, left_out) = match piece {
            Piece::Packet(packet) => {
                let number = StreamNumber::of(&packet.header);
                let content = packet.content(dump.identity.layout, dump.bytes, &mut scratch);
                write(number, &packet.header, content)?;
                if let Some(stream) = streams.get_mut(&number) {
                    stream.packets += 1;
                    stream.bytes += content.len() as u64;
                }
                (Some(number), packet.cut)
            }
            Piece::Damage(damaged) => (None, Some(damaged)),
        };
        if let Some(left_out) = left_out
            && !damaged
                .last_mut()
                .is_some_and(|(_, before)| before.join(&left_out))
        {
            damaged.push((number, left_out));
        }
    }
    let damage = damaged
        .into_iter()
        .map(|(number, Damaged { bytes, fault })| {
            let stream = number.and_then(|number| streams.get(&number));
            Damage {
                stream: stream.map_or(dump.target, |stream| &stream.name).to_owned(),
                offset: bytes.start as u64,
                message: match bytes.len() {
                    // No bytes were left out: the missing ones never arrived.
                    0 => fault.to_string(),
                    count => format!("{count} bytes left out: {fault}"),
                },
            }
        });
    Ok(Written {
        damage: damage.collect(),
        streams: streams.into_values().collect(),
    })
}

/// Whether any of these streams holds items.
pub(super) fn has_items<'n>(mut numbers: impl Iterator<Item = &'n StreamNumber>) -> bool {
    numbers.any(|number| number.stream == ITEM_STREAM)
}

/// The CTF metadata for packets of this target, without its named markers ([`MarkerNames::write`]). `origin` is the
/// time of tick 0 of its clock, in nanoseconds since 1970 in UTC, if known. With `items`, streams of items are
/// described too.
pub(super) fn metadata_text(
    identity: &Identity,
    target: &str,
    origin: Option<i64>,
    program: &Program<'_>,
    items: bool,
) -> String {
    let mut functions: Vec<_> = program
        .functions
        .iter()
        .filter_map(|&(address, name)| {
            let Identity {
                layout, text_base, ..
            } = *identity;
            let bits = layout.shape.named_bits();
            let number = layout.function(bits, address.0, text_base)?;
            Some((number, name))
        })
        .collect();
    // Keeps the first name of an address: callers put the best one first.
    functions.sort_by_key(|(number, _)| *number);
    functions.dedup_by_key(|(number, _)| *number);
    let mut text = String::new();
    let description = Description {
        layout: identity.layout,
        clock_hz: identity.clock_hz,
        clock_bits: identity.clock_bits,
        origin_ns: origin,
        text_base: identity.text_base,
        build_id: identity.build_id(),
        target,
        events: &program.events.join(&0),
        items,
    };
    // Cannot fail: a string takes any text.
    let _ = metadata::write(&mut text, &description, functions.into_iter());
    text
}

/// Wraps an error of the operating system about `path`.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> WriteError + use<> {
    let path = path.to_owned();
    move |source| WriteError::Io { path, source }
}

/// Checks that a directory is empty or holds only an older trace of Kymo.
///
/// # Errors
/// [`WriteError::Occupied`] if it holds other files, [`WriteError::Io`] if it cannot be read.
pub fn check_replaceable(directory: &Path) -> Result<(), WriteError> {
    files_of_trace(directory).map(drop)
}

/// Removes an older trace of Kymo. If there is any other file, removes nothing and returns an error.
///
/// # Errors
/// Those of [`check_replaceable`], and of removing.
pub fn clear(directory: &Path) -> Result<(), WriteError> {
    for path in files_of_trace(directory)? {
        fs::remove_file(path).map_err(io_error(directory))?;
    }
    Ok(())
}

/// Lists the files of the trace in a directory; other files are an error.
fn files_of_trace(directory: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let io = |source| WriteError::Io {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>().map_err(io)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let ours = |name: &str| {
        // A killed recording may leave the temporary copy of a file that it was about to replace.
        let name = name.strip_prefix('.').unwrap_or(name);
        name == "metadata"
            || name == "target"
            || ["cpu", "thread-", "items"].iter().any(|prefix| {
                name.strip_prefix(prefix)
                    .is_some_and(|number| number.parse::<u16>().is_ok())
            })
    };
    let names: Vec<_> = entries.iter().map(fs::DirEntry::file_name).collect();
    if let Some(foreign) = names.iter().find(|name| !name.to_str().is_some_and(ours)) {
        return Err(WriteError::Occupied {
            path: directory.to_owned(),
            found: foreign.to_string_lossy().into_owned(),
        });
    }
    Ok(entries.iter().map(fs::DirEntry::path).collect())
}
