//! Keeping a dump: as a trace directory, which other tools read too, or as a raw file.
//!
//! What is written is fit to be read without complaint, by anybody: damaged bytes are left out,
//! packets that lack their end are cut at their last whole event and marked
//! ([`PacketHeader::FLAG_CUT`](kymo_wire::event::PacketHeader::FLAG_CUT)), and missing packets show
//! as jumps of the sequence number. What was left out is reported to the caller.

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

/// What was written, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The streams, in the order of their numbers.
    pub streams: Vec<WrittenStream>,
    /// What was left out: places in the dump.
    pub damage: Vec<Damage>,
}

/// One stream of a recording that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenStream {
    /// Its name; in a trace directory its file.
    pub name: String,
    /// How many packets it has.
    pub packets: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Facts about the traced program that a recording's metadata keeps, so that it can be read without the ELF file.
#[derive(Clone)]
pub struct Program<'n> {
    /// Its functions with their run-time addresses, in any order; those in reach of the events' `function` field get
    /// into the metadata, so that every CTF reader shows names.
    pub functions: Vec<(Addr, &'n str)>,
    /// What it declares of events of its own: the section `.kymo.events` of its ELF file, of each library too.
    pub events: Vec<&'n [u8]>,
    /// Finds the constant text at an address: the names of markers.
    pub string_at: &'n dyn Fn(Addr) -> Option<String>,
}

impl Default for Program<'_> {
    /// Nothing is known.
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

/// Why a recording could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The directory holds something that is not a trace, which is not overwritten.
    #[error("{}: expected an empty directory or a trace to replace, found {found:?} in it", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// One of the things that are there.
        found: String,
    },
}

/// Writes `dump` as a CTF trace directory: `metadata`, and a file for each stream (`cpu0`,
/// `thread-0`, `items0`, `target`; see [`StreamKind::file_name`](super::StreamKind::file_name)).
///
/// What is known of `program` gets into the metadata. A trace that is in the directory already is replaced.
///
/// # Errors
/// [`WriteError`]; then the directory may be there in part.
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
        // Every stream has its file.
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

/// Writes `dump` as a raw file: the identity line, then the packets that are whole.
///
/// # Errors
/// Those of `out`.
pub fn write_raw(mut out: impl Write, dump: &Dump<'_>) -> io::Result<Written> {
    writeln!(out, "{}", dump.identity)?;
    let written = write_packets(dump, streams(dump), |_, _, content| out.write_all(content))?;
    out.flush()?;
    Ok(written)
}

/// The streams of a dump by their numbers, nothing of them written yet.
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

/// Gives every packet that is good, or its good part, to `write`, with the number of its stream and its head.
fn write_packets<E>(
    dump: &Dump<'_>,
    mut streams: BTreeMap<StreamNumber, WrittenStream>,
    mut write: impl FnMut(StreamNumber, &PacketHeader, &[u8]) -> Result<(), E>,
) -> Result<Written, E> {
    let mut scratch = Vec::new();
    // With the number of the stream that they are of, where that is known.
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
                    // All that is there is good; what is missing never came.
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

/// Whether there are items among these streams.
pub(super) fn has_items<'n>(mut numbers: impl Iterator<Item = &'n StreamNumber>) -> bool {
    numbers.any(|number| number.stream == ITEM_STREAM)
}

/// The CTF metadata for packets of this target, but for its named markers ([`MarkerNames::write`]). `origin` is when tick 0 of its clock was, in
/// nanoseconds since 1970 in UTC, if that is known; `items`: streams of
/// items are described too.
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
    // The first name of an address stays: who gives several has put the best in front.
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

/// What it means that the system refuses something of `path`.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> WriteError + use<> {
    let path = path.to_owned();
    move |source| WriteError::Io { path, source }
}

/// Checks that a directory holds nothing but an older trace of Kymo's, or nothing at all.
///
/// # Errors
/// [`WriteError::Occupied`] if something else is there, or that it can't be read.
pub fn check_replaceable(directory: &Path) -> Result<(), WriteError> {
    files_of_trace(directory).map(drop)
}

/// Removes an older trace of Kymo's. Any other file stays, and is an error.
///
/// # Errors
/// Those of [`check_replaceable`], and of removing.
pub fn clear(directory: &Path) -> Result<(), WriteError> {
    for path in files_of_trace(directory)? {
        fs::remove_file(path).map_err(io_error(directory))?;
    }
    Ok(())
}

/// The files of the trace in a directory that has nothing else.
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
        // What a recording that was killed left of a file that it was about to replace.
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
