//! Incremental reader of a recording from a pipe.
//!
//! With several streams, an event is delayed until each stream has a later one. The streams of a dump follow each
//! other, and none is longer than the target's buffers. When that many bytes have arrived after an event's packet, the
//! event is output. Older events that arrive still later are counted.

use std::io::{self, Read};
use std::path::Path;

use kymo_ctf::metadata::Metadata;
use kymo_event::{Batch, Event, Time, TraceInfo};
use kymo_wire::event::METADATA_STREAM;

use super::feed::PacketNote;
use super::live::{Bounds, Live};
use super::packets::{Damaged, Packet, Piece, Pieces, checked_header};
use super::raw::{LINE_MAX, PREFIX_BYTES, RawFile, split_identity};
use super::source::{Chosen, open_directory};
use super::streams::StreamKind;
use crate::peek::Peek;
use crate::{OpenError, OpenOptions, ReadError, Source};

/// Number of bytes per read.
const CHUNK: usize = 1 << 16;

/// Upper limit of a packet's size, in bytes: a header that states more is not valid.
const PACKET_MAX: usize = 1 << 24;

/// Minimum and maximum number of bytes that an event is delayed for other streams.
const HELD: (usize, usize) = (1 << 16, 1 << 26);

/// Reader of a recording from a pipe.
pub(super) struct Piped {
    name: String,
    live: Live,
    input: Box<dyn Read + Send>,
    /// Received bytes that are not yet part of a packet, and their offset in the input.
    waiting: Vec<u8>,
    offset: usize,
    /// The damage after the last packet.
    damaged: Vec<Damaged>,
    /// A packet that reports discarded events. If it is the last of all packets, they were lost after it.
    held: Option<Held>,
    /// The counter of discarded events.
    discarded: u32,
    /// The time of the newest event, and the number of older events that arrived after it.
    newest: Time,
    late: u64,
    is_at_end: bool,
}

/// A delayed packet.
struct Held {
    packet: Packet,
    content: Vec<u8>,
    note: PacketNote,
    /// The damage before the packet, and at its end.
    damaged: Vec<Damaged>,
    cut: Option<Damaged>,
}

/// Opens a raw file from a pipe: incrementally if [`OpenOptions::as_it_comes`] is set, else as a whole.
///
/// # Errors
/// [`OpenError`] if it cannot be read, or its identity is not valid for a recording.
pub(crate) fn open_raw(
    mut peek: Peek,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    let path = peek.path().to_owned();
    if options.as_it_comes && !peek.is_file() {
        // Reads byte by byte, so as not to wait for data after the line; the line is short.
        let mut length = PREFIX_BYTES;
        while length < LINE_MAX && !peek.first(length)?.contains(&b'\n') {
            length += 1;
        }
        if let Ok((identity, start)) = split_identity(peek.first(length)?) {
            let live = Live::of_target(&identity, &path.to_string_lossy(), None, options)?;
            let live = match identity.streams {
                1 => live,
                streams => live.within(bounds(streams, identity.buffer_bytes)),
            };
            return Ok(Box::new(Piped::new(peek, live, start)?));
        }
    }
    RawFile::new(&path, peek.into_bytes()?)?.into_source(options)
}

/// Opens one stream of a trace directory from a pipe.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or the metadata lacks something.
pub(crate) fn open_described(
    peek: Peek,
    directory: &Path,
    metadata: Metadata,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    if !options.as_it_comes {
        let chosen = Chosen::Piped(peek.into_bytes()?);
        return open_directory(directory, metadata, chosen, options);
    }
    let live = Live::described(metadata, options).map_err(|why| {
        why.of(directory.join("metadata"), |path, message| {
            OpenError::Metadata {
                path,
                offset: 0,
                message,
            }
        })
    });
    let mut live = live?;
    let names = directory.join(StreamKind::Metadata.file_name(METADATA_STREAM));
    if names.is_file() {
        live.push(std::fs::read(&names).map_err(|source| OpenError::Io {
            path: names,
            source,
        })?);
    }
    Ok(Box::new(Piped::new(peek, live, 0)?))
}

/// Limits on waiting for other streams, for this number of streams and size of buffers.
fn bounds(streams: u32, buffer_bytes: u32) -> Bounds {
    let all = u64::from(streams.max(1)).saturating_mul(buffer_bytes.into());
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    Bounds {
        streams: streams as usize,
        bytes: all.clamp(HELD.0, HELD.1),
    }
}

impl Piped {
    /// Creates a reader of the packets after the first `start` bytes.
    fn new(peek: Peek, live: Live, start: usize) -> Result<Self, OpenError> {
        let path = peek.path().to_owned();
        let name = path.display().to_string();
        let input = peek
            .into_reader()
            .ok_or(OpenError::Empty { path: path.clone() });
        let mut input = input?;
        let skipped = io::copy(&mut input.by_ref().take(start as u64), &mut io::sink());
        skipped.map_err(|source| OpenError::Io {
            path: path.clone(),
            source,
        })?;
        let mut piped = Self {
            name,
            live: live.once(),
            input,
            waiting: Vec::new(),
            offset: start,
            damaged: Vec::new(),
            held: None,
            discarded: 0,
            newest: Time(i64::MIN),
            late: 0,
            is_at_end: false,
        };
        // Callers choose their output by the streams, so at least one must be known.
        while !piped.is_at_end && !piped.live.info().streams.iter().any(|it| !it.timeless) {
            piped.read().map_err(|source| OpenError::Io {
                path: path.clone(),
                source,
            })?;
            piped.take();
        }
        Ok(piped)
    }

    /// Reads available bytes; blocks if there are none.
    fn read(&mut self) -> io::Result<()> {
        let mut more = [0; CHUNK];
        loop {
            match self.input.read(&mut more) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.waiting.extend(more.get(..count).unwrap_or(&[])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Consumes the whole packets in the received bytes, and at the end of the input the rest.
    fn take(&mut self) {
        let layout = self.live.layout();
        let waiting = std::mem::take(&mut self.waiting);
        let mut at = 0;
        while at < waiting.len() {
            let rest = waiting.get(at..).unwrap_or(&[]);
            let least = match checked_header(layout, rest) {
                Ok(header) => (header.packet_bits / 8) as usize,
                Err(_) => layout.header_bytes(),
            };
            // One wrong bit can make a packet longer than the whole input; the next packet's header reveals it.
            let is_short = rest.len() < least.min(PACKET_MAX);
            if !self.is_at_end && is_short && !Pieces::new(layout, rest, &[]).has_later_head() {
                break;
            }
            // The header of the next packet, if received, shows whether this one has all its bytes.
            match Pieces::new(layout, rest, &[]).next() {
                Some(Piece::Packet(packet)) => {
                    let end = packet
                        .cut
                        .as_ref()
                        .map_or(packet.bytes.end, |cut| cut.bytes.end);
                    self.packet(packet, rest, at);
                    at += end;
                }
                Some(Piece::Damage(mut damaged)) => {
                    // The end may be the first bytes of the next packet's header.
                    let whole = damaged.bytes.end;
                    if !self.is_at_end && whole == rest.len() {
                        damaged.bytes.end -= layout.header_bytes().min(whole) - 1;
                    }
                    let end = damaged.bytes.end;
                    self.damaged(self.placed(damaged, at));
                    at += end;
                }
                None => break,
            }
        }
        self.offset += at;
        self.waiting = waiting.get(at..).unwrap_or(&[]).to_vec();
        if self.is_at_end {
            self.release(true);
            let damaged = std::mem::take(&mut self.damaged);
            self.live.end(damaged, self.offset);
        }
    }

    /// Converts damage relative to offset `at` of the waiting bytes to offsets in the input.
    fn placed(&self, damaged: Damaged, at: usize) -> Damaged {
        let begin = self.offset + at;
        Damaged {
            bytes: begin + damaged.bytes.start..begin + damaged.bytes.end,
            ..damaged
        }
    }

    fn damaged(&mut self, damaged: Damaged) {
        let before = self.damaged.last_mut();
        if !before.is_some_and(|before| before.join(&damaged)) {
            self.damaged.push(damaged);
        }
    }

    /// Consumes the packet at the start of `rest`, which is at offset `at` of the waiting bytes.
    fn packet(&mut self, mut packet: Packet, rest: &[u8], at: usize) {
        let mut scratch = Vec::new();
        let content = packet.content(self.live.layout(), rest, &mut scratch);
        let content = content.to_vec();
        let cut = packet.cut.take().map(|cut| self.placed(cut, at));
        let header = packet.header;
        // Must precede taking the damage before this packet: the cut of the held packet comes first.
        if header.cpu != METADATA_STREAM {
            self.release(false);
        }
        let damaged = std::mem::take(&mut self.damaged);
        let note = PacketNote {
            offset: self.offset + at,
            cut: cut.is_some(),
            last: false,
        };
        packet.bytes = 0..content.len();
        let held = Held {
            packet,
            content,
            note,
            damaged,
            cut,
        };
        let discarded = header.discarded;
        if header.cpu != METADATA_STREAM
            && std::mem::replace(&mut self.discarded, discarded) != discarded
        {
            self.held = Some(held);
        } else {
            self.push(held);
        }
    }

    /// Passes on the held packet; `last` says whether it is the last one.
    fn release(&mut self, last: bool) {
        if let Some(mut held) = self.held.take() {
            held.note.last = last;
            self.push(held);
        }
    }

    fn push(&mut self, held: Held) {
        let Held {
            packet,
            content,
            note,
            damaged,
            cut,
        } = held;
        let note = (packet.header.cpu != METADATA_STREAM).then_some(note);
        self.live.push_whole(packet, content, note, damaged);
        if let Some(cut) = cut {
            // Before the damage after the packet.
            self.damaged.insert(0, cut);
        }
    }

    /// Updates the newest time and the stream's times with an event.
    fn meet(&mut self, event: &Event) {
        let info = self.live.info_mut();
        let Some(stream) = info.streams.get_mut(event.stream.0 as usize) else {
            return;
        };
        if event.record {
            stream.start = Some(
                stream
                    .start
                    .map_or(event.time, |start| start.min(event.time)),
            );
            stream.end = Some(stream.end.map_or(event.time, |end| end.max(event.time)));
        }
        if !stream.timeless {
            self.late += u64::from(event.time < self.newest);
            self.newest = self.newest.max(event.time);
        }
    }

    /// Adds the remarks at the end of the input.
    fn remark(&mut self) {
        let streams = &self.live.info().streams;
        let several = streams.iter().filter(|stream| !stream.timeless).count() > 1;
        let late = std::mem::take(&mut self.late);
        if several && late > 0 {
            self.live.info_mut().remarks.push(format!(
                "{late} events came behind later ones of other streams: a pipe is read as it comes, a file is put in \
                 order"
            ));
        }
    }
}

impl Source for Piped {
    fn info(&self) -> &TraceInfo {
        self.live.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.live.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        loop {
            while !batch.is_full()
                && let Some(event) = self.live.next(self.is_at_end)
            {
                self.meet(&event);
                batch.push_event(event);
            }
            if !batch.is_empty() {
                return Ok(true);
            }
            if self.is_at_end {
                self.remark();
                return Ok(false);
            }
            self.read().map_err(|source| ReadError::Io {
                stream: self.name.clone(),
                offset: (self.offset + self.waiting.len()) as u64,
                source,
            })?;
            self.take();
        }
    }
}
