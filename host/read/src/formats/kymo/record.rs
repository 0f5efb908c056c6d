//! A trace directory that is written while the target records.
//!
//! Whatever ends the recording, a full disk, a pulled cable, a kill, what is in the directory until
//! then is a trace that every CTF reader takes: the metadata is there before the first packet,
//! each packet is appended whole with one write (of one that finds no room, what was written is taken back), and the packet of names, which grows, is put in the
//! place of the one before at once, by renaming.
//!
//! A target may send a packet twice (the host's acknowledgement was lost when the connection broke),
//! and it may have begun anew meanwhile, with another clock and other numbers. Both are recognised by
//! what the packets' heads say.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kymo_event::Addr;
use kymo_wire::event::{METADATA_STREAM, PacketHeader};
use kymo_wire::packet::ITEM_STREAM;
use kymo_wire::{items, metadata};

use super::Identity;
use super::marker_names::MarkerNames;
use super::open_files::OpenFiles;
use super::packets::{Packet, Piece, Pieces};
use super::streams::{StreamKind, StreamNumber};
use super::write::{Program, WriteError, clear, io_error, metadata_text};

/// So many packets of each stream are remembered, to be recognised when they come again: more than a
/// target has on the way at a time.
const REMEMBERED: usize = 64;

/// Writes packets into a trace directory as they come.
#[derive(Debug)]
pub struct Recording {
    directory: PathBuf,
    identity: Identity,
    streams: HashMap<StreamNumber, Recorded>,
    /// Their files, as far as they are open.
    files: OpenFiles<StreamNumber>,
    /// The metadata without markers and items.
    metadata: String,
    markers: MarkerNames,
    /// There are items.
    items: bool,
    /// When it began, in ticks of the target.
    began: u64,
    figures: RecordingFigures,
}

/// What a recording has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingFigures {
    /// Packets that were written.
    pub packets: u64,
    /// Bytes that were written, names included.
    pub bytes: u64,
    /// Events in them, names not included.
    pub events: u64,
    /// Events that the target could not record, as its packets tell.
    pub discarded: u64,
    /// Packets that never came, as the numbers of the others tell.
    pub lost_packets: u64,
    /// Bytes that were no packet, and were not written.
    pub refused: u64,
    /// Of `events`, those in packets that had ended when the recording began: the target had kept them.
    pub earlier: u64,
    /// Of `discarded`, those between such a packet and the next: the target had no room for more of them, because nobody
    /// took what it kept.
    pub discarded_earlier: u64,
    /// When the first of such packets was begun, in ticks before the recording began.
    pub earlier_ticks: u64,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was written.
    Written,
    /// It had been written before.
    Known,
    /// It is none that can be read: it was left out, and counted.
    Refused,
    /// The target has begun anew, so that the packet does not belong to this recording. It was not
    /// written, and none that follow do belong.
    BegunAnew,
}

/// A stream of the recording.
#[derive(Debug)]
struct Recorded {
    path: PathBuf,
    newest: Newest,
    /// How many bytes of its file are whole packets.
    bytes: u64,
    /// What the last packet said was discarded up to then.
    discarded: u32,
    /// The time of the last packet's last event, in ticks.
    end: u64,
}

impl Recording {
    /// Begins a recording in `directory`, in the place of a trace that may be there. `origin` is when
    /// tick 0 of the target's clock was, in nanoseconds since 1970 in UTC, if that is known: then every
    /// CTF reader shows dates. The rest is as for [`write_trace`](super::write_trace).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn create(
        directory: &Path,
        identity: &Identity,
        target: &str,
        origin: Option<i64>,
        program: &Program<'_>,
    ) -> Result<Self, WriteError> {
        clear(directory)?;
        fs::create_dir_all(directory).map_err(io_error(directory))?;
        let recording = Self {
            directory: directory.to_owned(),
            identity: *identity,
            streams: HashMap::new(),
            files: OpenFiles::new(),
            metadata: metadata_text(identity, target, origin, program, false),
            markers: MarkerNames::default(),
            items: false,
            began: 0,
            figures: RecordingFigures::default(),
        };
        recording.describe()?;
        Ok(recording)
    }

    /// Says what the target's clock showed when the recording began, so that what it had kept from before is
    /// [told apart](RecordingFigures::earlier).
    pub const fn begins_at(&mut self, ticks: u64) {
        self.began = ticks;
    }

    /// What was written so far, and what is known to be missing.
    pub const fn figures(&self) -> RecordingFigures {
        self.figures
    }

    /// Whose recording it is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Takes a packet that came from the target.
    ///
    /// # Errors
    /// [`WriteError`]: the packet is then not in the recording, or not whole.
    pub fn push(&mut self, packet: &[u8]) -> Result<Taken, WriteError> {
        let layout = self.identity.layout;
        let refuse = |figures: &mut RecordingFigures| {
            figures.refused += packet.len() as u64;
            Ok(Taken::Refused)
        };
        // What the reader would find fault with does not get into the recording.
        let whole = Pieces::new(layout, packet, &[]).next();
        let Some(Piece::Packet(Packet {
            bytes,
            header,
            cut: None,
        })) = whole
        else {
            return refuse(&mut self.figures);
        };
        if bytes.len() != packet.len() {
            return refuse(&mut self.figures);
        }
        if header.cpu == METADATA_STREAM {
            let name = StreamKind::Metadata.file_name(header.cpu);
            self.replace(&name, packet)?;
            self.figures.packets += 1;
            self.figures.bytes += packet.len() as u64;
            return Ok(Taken::Written);
        }
        if header.stream == ITEM_STREAM && !self.items {
            self.items = true;
            self.describe()?;
        }
        let number = StreamNumber::of(&header);
        let directory = &self.directory;
        let stream = self
            .streams
            .entry(number)
            .or_insert_with(|| Recorded::new(directory, &header));
        match stream.place(&header) {
            Taken::Written => {}
            other => return Ok(other),
        }
        let whole = stream.bytes;
        let append = |file: &mut File| {
            file.write_all(packet).inspect_err(|_| {
                // A part of a packet is damage. Where it cannot be taken back either, the reader says so.
                let _ = file.set_len(whole);
            })
        };
        self.files
            .with(number, || stream.open(), append)
            .map_err(io_error(&stream.path))?;
        let is_later = stream.is_later(&header, self.began);
        let lost = stream.note(&header, packet.len());
        let events = self.count(&header, packet);
        let figures = &mut self.figures;
        figures.packets += 1;
        figures.bytes += packet.len() as u64;
        figures.events += events;
        figures.lost_packets += u64::from(lost.packets);
        figures.discarded += u64::from(lost.events);
        if header.end < self.began {
            figures.earlier += events;
            figures.earlier_ticks = figures.earlier_ticks.max(self.began - header.begin);
        }
        if !is_later {
            figures.discarded_earlier += u64::from(lost.events);
        }
        Ok(Taken::Written)
    }

    /// Adds the names of the markers that have come since to the metadata; `string_at` finds them
    /// (`kymo_symbols::Symbols::string_at`).
    ///
    /// # Errors
    /// [`WriteError`]: the metadata is then as it was.
    pub fn name_markers(
        &mut self,
        string_at: impl Fn(Addr) -> Option<String>,
    ) -> Result<(), WriteError> {
        if self.markers.resolve(string_at) {
            self.describe()?;
        }
        Ok(())
    }

    /// Writes the metadata.
    fn describe(&self) -> Result<(), WriteError> {
        let mut text = self.metadata.clone();
        self.markers.write(&mut text);
        if self.items {
            // Cannot fail: a string takes any text.
            let _ = metadata::write_items(&mut text, self.identity.layout);
        }
        self.replace("metadata", text.as_bytes())
    }

    /// How many events a packet has, whose records are all good.
    fn count(&mut self, header: &PacketHeader, packet: &[u8]) -> u64 {
        let layout = self.identity.layout;
        if header.stream == ITEM_STREAM {
            let items = packet.len().saturating_sub(items::header_bytes(layout));
            return (items / items::item_bytes(layout.word)) as u64;
        }
        self.markers.note(layout, header, packet)
    }

    /// Puts a file with this content in the place of the one before, if there is one.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        // Readers pass over files whose names begin like this.
        let new = self.directory.join(format!(".{name}"));
        fs::write(&new, content).map_err(io_error(&new))?;
        fs::rename(&new, &path).map_err(io_error(&path))
    }
}

/// The newest packets of a stream, to know them when they come again: their numbers, and when they were
/// begun.
#[derive(Debug, Default)]
pub(super) struct Newest(VecDeque<(u32, u64)>);

impl Newest {
    /// Whether a packet is one of them.
    pub(super) fn has(&self, header: &PacketHeader) -> bool {
        self.0.contains(&(header.sequence, header.begin))
    }

    /// Remembers a packet.
    pub(super) fn add(&mut self, header: &PacketHeader) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((header.sequence, header.begin));
    }
}

/// What a packet's head says is missing in front of it.
struct Lost {
    packets: u32,
    events: u32,
}

impl Recorded {
    fn new(directory: &Path, header: &PacketHeader) -> Self {
        let name = StreamKind::of_file("", Some(header)).file_name(header.cpu);
        Self {
            path: directory.join(name),
            newest: Newest::default(),
            bytes: 0,
            discarded: 0,
            end: 0,
        }
    }

    /// Opens its file: a new one, or that of the packets before, to append. If somebody has taken it away
    /// meanwhile, the packets before are gone, and that is an error.
    fn open(&self) -> io::Result<File> {
        if self.newest.0.is_empty() {
            File::create(&self.path)
        } else {
            OpenOptions::new().append(true).open(&self.path)
        }
    }

    /// Whether a packet follows those that are there.
    fn place(&self, header: &PacketHeader) -> Taken {
        let Some((last, begin)) = self.newest.0.back() else {
            return Taken::Written;
        };
        if self.newest.has(header) {
            Taken::Known
        } else if header.sequence.wrapping_sub(*last) > u32::MAX / 2
            || header.sequence == *last
            || header.begin < *begin
        {
            Taken::BegunAnew
        } else {
            Taken::Written
        }
    }

    /// Whether what is missing in front of a packet may be missing since `began`: the packet before it, or it itself if
    /// it is the first one, tells.
    fn is_later(&self, header: &PacketHeader, began: u64) -> bool {
        let before = match self.newest.0.is_empty() {
            true => header.begin,
            false => self.end,
        };
        before >= began
    }

    /// Remembers a packet of so many bytes that was written.
    fn note(&mut self, header: &PacketHeader, bytes: usize) -> Lost {
        let before = self.newest.0.back().map(|(sequence, _)| *sequence);
        let expected = before.map_or(0, |sequence| sequence.wrapping_add(1));
        let lost = Lost {
            packets: before.map_or(0, |_| header.sequence.wrapping_sub(expected)),
            events: header.discarded.wrapping_sub(self.discarded),
        };
        self.newest.add(header);
        self.bytes += bytes as u64;
        self.discarded = header.discarded;
        self.end = header.end;
        lost
    }
}
