//! Writer of a trace directory while the target records.
//!
//! The directory is a valid CTF trace at any time, even if a full disk, a pulled cable or a kill ends the
//! recording. The metadata is written before the first packet. Each packet is appended with one write,
//! which is undone if the disk is full. The growing packet of names is replaced atomically, by renaming.
//!
//! A target may send a packet twice (if the connection broke before the host's acknowledgement arrived),
//! and it may have restarted with another clock and other sequence numbers. The packets' headers show
//! both.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kymo_event::Addr;
use kymo_wire::event::{ByteOrder, Layout, METADATA_STREAM, PacketHeader};
use kymo_wire::packet::ITEM_STREAM;
use kymo_wire::{items, metadata};

use super::Identity;
use super::marker_names::MarkerNames;
use super::open_files::OpenFiles;
use super::packets::{Packet, Piece, Pieces};
use super::streams::{StreamKind, StreamNumber};
use super::write::{Program, WriteError, clear, io_error, metadata_text};

/// Packets remembered per stream to recognise repetitions: more than a target has in flight at any
/// time.
const REMEMBERED: usize = 64;

/// Writes packets into a trace directory as they arrive.
#[derive(Debug)]
pub struct Recording {
    directory: PathBuf,
    identity: Identity,
    streams: HashMap<StreamNumber, Recorded>,
    /// Cache of the streams' open files.
    files: OpenFiles<StreamNumber>,
    /// The metadata without markers and items.
    metadata: String,
    markers: MarkerNames,
    /// Whether there are streams of items.
    items: bool,
    /// The begin of the recording, in ticks of the target.
    began: u64,
    figures: RecordingFigures,
}

/// Counters of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingFigures {
    /// Packets that were written.
    pub packets: u64,
    /// Bytes that were written, names included.
    pub bytes: u64,
    /// Events in them, names not included.
    pub events: u64,
    /// Events that the target could not record, from the packets' headers.
    pub discarded: u64,
    /// Packets that never arrived, from the gaps in the sequence numbers.
    pub lost_packets: u64,
    /// Bytes that were not a valid packet, and were not written.
    pub refused: u64,
    /// The part of `events` in packets that had ended before the recording began: the target had kept them.
    pub earlier: u64,
    /// The part of `discarded` between such a packet and the next: the target's buffers were full, because no host
    /// had fetched the kept packets.
    pub discarded_earlier: u64,
    /// The time from the begin of the first such packet to the begin of the recording, in ticks.
    pub earlier_ticks: u64,
}

/// Outcome of [`Recording::push`] for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The packet was written.
    Written,
    /// The packet had been written before.
    Known,
    /// The packet is not valid: it was left out, and counted.
    Refused,
    /// The target has restarted: neither this packet nor later ones belong to this recording. The
    /// packet was not written.
    BegunAnew,
}

/// A stream of the recording.
#[derive(Debug)]
struct Recorded {
    path: PathBuf,
    newest: Newest,
    /// The length of the whole packets in its file, in bytes.
    bytes: u64,
    /// The counter of discarded events in the last packet.
    discarded: u32,
    /// This counter in the first packet, if the target has sent others before this recording: those losses do not belong to
    /// it, and an earlier recording may have counted them. The written packets count from here on.
    before: u32,
    /// The end of the last packet, in ticks.
    end: u64,
}

impl Recording {
    /// Starts a recording in `directory`; replaces an existing trace. `origin` is the time of tick 0 of
    /// the target's clock, in nanoseconds since 1970 in UTC, if known: CTF readers then show dates. The
    /// other arguments are those of [`write_trace`](super::write_trace).
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

    /// Sets the value of the target's clock at the begin of the recording. Packets that the target had kept
    /// from before are then counted [separately](RecordingFigures::earlier).
    pub const fn begins_at(&mut self, ticks: u64) {
        self.began = ticks;
    }

    /// Counters of written and missing data so far.
    pub const fn figures(&self) -> RecordingFigures {
        self.figures
    }

    /// The identity of the recorded target.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Writes a packet of the target.
    ///
    /// # Errors
    /// [`WriteError`]: the packet is then not in the recording, or not whole.
    pub fn push(&mut self, packet: &[u8]) -> Result<Taken, WriteError> {
        let layout = self.identity.layout;
        let refuse = |figures: &mut RecordingFigures| {
            figures.refused += packet.len() as u64;
            Ok(Taken::Refused)
        };
        // Packets that the reader would report as damaged are not written.
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
        let counted = stream.counted_from_here(&header, packet, layout);
        let append = |file: &mut File| {
            file.write_all(&counted).inspect_err(|_| {
                // A partial packet is damage. If truncation fails too, the reader reports it.
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

    /// Adds the names of new markers to the metadata; `string_at` finds them
    /// (`kymo_symbols::Symbols::string_at`).
    ///
    /// # Errors
    /// [`WriteError`]: the metadata is then unchanged.
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

    /// Counts the events of a packet whose records are all valid.
    fn count(&mut self, header: &PacketHeader, packet: &[u8]) -> u64 {
        let layout = self.identity.layout;
        if header.stream == ITEM_STREAM {
            let items = packet.len().saturating_sub(items::header_bytes(layout));
            return (items / items::item_bytes(layout.word)) as u64;
        }
        self.markers.note(layout, header, packet)
    }

    /// Replaces a file atomically, or creates it.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        // Readers ignore files whose names begin with a dot.
        let new = self.directory.join(format!(".{name}"));
        fs::write(&new, content).map_err(io_error(&new))?;
        fs::rename(&new, &path).map_err(io_error(&path))
    }
}

/// Sequence numbers and begins of a stream's newest packets, for recognising repetitions.
#[derive(Debug, Default)]
pub(super) struct Newest(VecDeque<(u32, u64)>);

impl Newest {
    /// Whether the packet is one of the remembered ones.
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

/// Loss before a packet, from its header.
struct Lost {
    packets: u32,
    events: u32,
}

impl Recorded {
    fn new(directory: &Path, header: &PacketHeader) -> Self {
        let name = StreamKind::of_file("", Some(header)).file_name(header.cpu);
        // The first packet of all has number 0.
        let before = match header.sequence {
            0 => 0,
            _ => header.discarded,
        };
        Self {
            path: directory.join(name),
            newest: Newest::default(),
            bytes: 0,
            discarded: before,
            before,
            end: 0,
        }
    }

    /// The packet with its counter of discarded events [since the begin](Self::before) of the recording.
    fn counted_from_here<'p>(
        &self,
        header: &PacketHeader,
        packet: &'p [u8],
        layout: Layout,
    ) -> Cow<'p, [u8]> {
        let place = PacketHeader::DISCARDED_OFFSET..PacketHeader::DISCARDED_OFFSET + 4;
        let mut packet = Cow::Borrowed(packet);
        if self.before != 0
            && let Some(place) = packet.to_mut().get_mut(place)
        {
            let discarded = header.discarded.wrapping_sub(self.before);
            place.copy_from_slice(&match layout.order {
                ByteOrder::Little => discarded.to_le_bytes(),
                ByteOrder::Big => discarded.to_be_bytes(),
            });
        }
        packet
    }

    /// Creates the stream's file before the first packet, else opens it for appending. A file that was
    /// deleted meanwhile is an error, because its packets are lost.
    fn open(&self) -> io::Result<File> {
        if self.newest.0.is_empty() {
            File::create(&self.path)
        } else {
            OpenOptions::new().append(true).open(&self.path)
        }
    }

    /// Classifies a packet by its sequence number and begin.
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

    /// Whether the loss before a packet happened at or after `began`, judged by the previous packet's end, or by this
    /// packet's begin if it is the first.
    fn is_later(&self, header: &PacketHeader, began: u64) -> bool {
        let before = match self.newest.0.is_empty() {
            true => header.begin,
            false => self.end,
        };
        before >= began
    }

    /// Remembers a written packet of `bytes` bytes; returns the loss before it.
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
