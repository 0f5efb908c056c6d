//! Deformatter for CoreSight frames (Arm IHI 0029, chapter "Formatter"): produces one byte stream for each trace ID.
//!
//! A frame has 16 bytes. In each of its first seven pairs, the first byte is either data, with its lowest bit kept in
//! byte 15, or a new trace ID, which applies from the next byte or from the one after. A trace port (TPIU) inserts full
//! synchronization words (`7FFFFFFF`) between frames and half words (`7FFF`) anywhere between pairs; memory (ETB, ETF,
//! ETR) has neither, except for a frame of four full words, which marks a reset of the decoders.
//!
//! A stream records the origin of its bytes, so that a packet can name its offset in the buffer. Offsets follow
//! OpenCSD's convention: they count a run of bytes of one ID from the position of the pair with which the run begins.

use std::borrow::Cow;

use crate::element::Unsynced;

mod alignment;
mod bits;
mod join;
mod offsets;

pub use alignment::is_odd;
use bits::{LOW_BITS, is_plain};
pub use offsets::Offsets;
use offsets::Run;

/// A trace ID: the ATB identifier of a source. 0x01 to 0x6F are sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub u8);

impl TraceId {
    /// ID of bytes without a source, and of buffers without a formatter.
    pub const NONE: TraceId = TraceId(0);

    /// Whether sources may have this ID; 0x70 to 0x7F are reserved, 0 is padding.
    pub fn is_source(self) -> bool {
        (1..0x70).contains(&self.0)
    }
}

/// Layout of a trace buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// The bytes of one source, without frames.
    Unformatted,
    /// Frames from the first byte on, as in a trace buffer in memory (ETB, ETF, ETR).
    Memory,
    /// Output of a trace port: frames between full and half synchronization words, beginning anywhere.
    Tpiu,
    /// A DSTREAM capture: blocks of 504 bytes of a trace port's data with 8 bytes of the probe's own.
    Dstream,
}

/// Byte stream of one source.
#[derive(Clone, Debug)]
pub struct Stream<'a> {
    /// The source.
    pub id: TraceId,
    /// Its bytes, in order.
    pub bytes: Cow<'a, [u8]>,
    /// Positions in `bytes` at which the decoder must restart.
    pub resets: Vec<usize>,
    runs: Vec<Run>,
    /// Start positions of the trace unit's sessions, with the session numbers.
    sessions: Vec<(usize, u32)>,
    /// Positions at which the recorder lost trace, with the reason.
    losses: Vec<(usize, Unsynced)>,
    /// Segment starts before which no trace is missing; includes 0 if the buffer continues an earlier one.
    joins: Vec<usize>,
}

/// Part of a stream that is decoded on its own: the decoder restarts after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of its first byte.
    pub start: usize,
    /// Position after its last byte.
    pub end: usize,
    /// The session of the trace unit, by its number in the buffer.
    pub session: Option<u32>,
    /// Reason for a loss of trace by the recorder directly before it.
    pub lost_before: Option<Unsynced>,
    /// Whether no trace is missing before it: the trace unit synchronized there, and its earlier state still applies.
    pub goes_on: bool,
}

impl<'a> Stream<'a> {
    /// Creates the stream of a buffer without frames, whose first byte is at `offset`.
    pub fn unformatted(id: TraceId, bytes: &'a [u8], offset: u64) -> Self {
        Stream {
            id,
            bytes: Cow::Borrowed(bytes),
            runs: vec![Run {
                start: 0,
                offset,
                is_frames: false,
            }],
            ..Self::new(id)
        }
    }

    fn new(id: TraceId) -> Self {
        Stream {
            id,
            bytes: Cow::Owned(Vec::new()),
            resets: Vec::new(),
            runs: Vec::new(),
            sessions: Vec::new(),
            losses: Vec::new(),
            joins: Vec::new(),
        }
    }

    /// Whether the stream begins with a trace unit's alignment synchronization: at least so many zeros, then 0x80.
    pub(crate) fn is_synchronized(&self, least: usize) -> bool {
        let zeros = self.bytes.iter().take_while(|byte| **byte == 0).count();
        zeros >= least && self.bytes.get(zeros) == Some(&0x80)
    }

    /// Its segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let ends = self.resets.iter().copied().chain([self.bytes.len()]);
        let mut start = 0;
        let mut sessions = self.sessions.iter().peekable();
        let mut losses = self.losses.iter().peekable();
        let mut session = None;
        ends.map(move |end| {
            while let Some((_, number)) = sessions.next_if(|(at, _)| *at <= start) {
                session = Some(*number);
            }
            let mut lost_before = None;
            while let Some((_, why)) = losses.next_if(|(at, _)| *at <= start) {
                lost_before = Some(*why);
            }
            let segment = Segment {
                start,
                end,
                session,
                lost_before,
                goes_on: lost_before.is_none() && self.joins.binary_search(&start).is_ok(),
            };
            start = end;
            segment
        })
    }

    fn add(&mut self, bytes: &[u8], offset: u64) {
        let Cow::Owned(all) = &mut self.bytes else {
            return;
        };
        let start = all.len();
        all.extend_from_slice(bytes);
        self.locate(start, offset, false);
    }

    /// Adds the data of whole frames that have no IDs.
    fn add_frames(&mut self, frames: &[[u8; 16]], offset: u64) {
        let Cow::Owned(all) = &mut self.bytes else {
            return;
        };
        let start = all.len();
        all.reserve(15 * frames.len());
        for frame in frames {
            // The low bits of the even bytes are in the last one.
            let [data @ .., low_bits] = *frame;
            let mut whole = [0; 16];
            whole[..15].copy_from_slice(&data);
            let whole = u128::from_le_bytes(whole) | LOW_BITS[usize::from(low_bits)];
            let [data @ .., _] = whole.to_le_bytes();
            all.extend_from_slice(&data);
        }
        self.locate(start, offset, true);
    }

    /// Records that the bytes from position `start` on come from `offset` of the buffer.
    #[inline]
    fn locate(&mut self, start: usize, offset: u64, is_frames: bool) {
        let continues = self
            .runs
            .last()
            .is_some_and(|run| run.is_frames == is_frames && run.offset_of(start) == offset);
        if !continues {
            self.runs.push(Run {
                start,
                offset,
                is_frames,
            });
        }
    }

    /// Translates positions of this stream into offsets of the buffer.
    pub fn offsets(&self) -> Offsets<'_> {
        Offsets::new(&self.runs)
    }
}

/// Content of a buffer, by source.
#[derive(Clone, Debug, Default)]
pub struct Frames<'a> {
    /// The streams in the order in which their IDs first appear.
    pub streams: Vec<Stream<'a>>,
    /// Whole frames.
    pub frames: u64,
    /// Bytes before the first synchronization, and bytes of frames that a synchronization truncated.
    pub skipped_bytes: u64,
    /// Bytes without a source: padding (ID 0), and zeros before the first ID.
    pub padding_bytes: u64,
    /// Bytes before the first ID, of an unknown source.
    pub unnamed_bytes: u64,
    /// Bytes under the reserved IDs 0x70 to 0x7F, without triggers.
    pub reserved_bytes: u64,
    /// Bytes of triggers (ID 0x7D). A formatter writes them where a trigger occurred.
    pub trigger_bytes: u64,
    /// Bytes after the last whole frame.
    pub rest_bytes: u64,
    /// Offset of the first of them.
    pub rest_offset: u64,
    /// Frames that reset the decoders.
    pub resets: u64,
    /// Resets that follow trace; [`reset_offset`](Self::reset_offset) is the offset of the first one.
    pub resets_within: u64,
    /// See [`resets_within`](Self::resets_within).
    pub reset_offset: u64,
    /// Frames of a buffer in memory that contain a trace port's synchronization, so the buffer has another
    /// layout. [`port_offset`](Self::port_offset) is the offset of the first one.
    pub port_frames: u64,
    /// See [`port_frames`](Self::port_frames).
    pub port_offset: u64,
    /// Whether a trace port's data never had a synchronization.
    pub is_unsynced: bool,
    /// The first bytes of a buffer in memory, at most 1 KiB: they show whether its frames begin at an odd offset.
    pub head: Vec<u8>,
}

/// Splits a buffer into the streams of its sources.
///
/// An unformatted buffer becomes one stream with `unformatted_id`.
pub fn split(buffer: &[u8], format: FrameFormat, unformatted_id: TraceId) -> Frames<'_> {
    if format == FrameFormat::Unformatted {
        return Frames {
            streams: vec![Stream::unformatted(unformatted_id, buffer, 0)],
            ..Frames::default()
        };
    }
    let mut splitter = Splitter::new(format);
    splitter.push(buffer);
    splitter.finish()
}

const FULL_SYNC: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];
const HALF_SYNC: [u8; 2] = [0xff, 0x7f];
const RESET: [u8; 16] = [
    0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f,
];

/// Incremental version of [`split`], for a buffer that arrives in parts. An unformatted buffer becomes one stream with
/// [`TraceId::NONE`].
#[derive(Debug)]
pub struct Splitter {
    format: FrameFormat,
    frames: Frames<'static>,
    /// Index into the streams by ID.
    by_id: [u8; 128],
    id: TraceId,
    /// Whether a frame had an ID yet, since the last reset.
    has_id: bool,
    /// Bytes of an incomplete frame: fewer than 16.
    pending: Vec<u8>,
    /// Offset of the first pending byte. In a DSTREAM capture it counts only the trace port's bytes.
    offset: u64,
    /// Bytes of the buffer consumed so far.
    taken: u64,
    port: Port,
}

/// Incomplete frame from a trace port.
#[derive(Debug, Default)]
struct Port {
    is_synced: bool,
    frame: [u8; 16],
    filled: usize,
    /// Offset of its first byte.
    start: u64,
}

const UNSEEN: u8 = u8::MAX;

/// Largest size of [`Frames::head`], in bytes.
const HEAD: usize = 1 << 10;

/// Size of a DSTREAM block, and the size of the trace port's data in it, in bytes.
const BLOCK: u64 = 512;
const BLOCK_DATA: u64 = 504;

impl Splitter {
    /// Creates a splitter for a buffer of the given format.
    pub fn new(format: FrameFormat) -> Self {
        let mut frames = Frames::default();
        if format == FrameFormat::Unformatted {
            frames.streams.push(Stream::new(TraceId::NONE));
        }
        Splitter {
            format,
            frames,
            by_id: [UNSEEN; 128],
            id: TraceId::NONE,
            has_id: false,
            pending: Vec::new(),
            offset: 0,
            taken: 0,
            port: Port::default(),
        }
    }

    /// Consumes the next bytes of the buffer.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.format {
            FrameFormat::Unformatted => {
                if let Some(stream) = self.frames.streams.first_mut() {
                    stream.add(bytes, self.taken);
                }
            }
            FrameFormat::Memory | FrameFormat::Tpiu => {
                let room = HEAD.saturating_sub(self.frames.head.len());
                if room > 0 && self.format == FrameFormat::Memory {
                    let head = bytes.get(..room).unwrap_or(bytes);
                    self.frames.head.extend_from_slice(head);
                }
                self.cut(bytes);
            }
            FrameFormat::Dstream => {
                let mut rest = bytes;
                let mut taken = self.taken;
                while !rest.is_empty() {
                    let within = taken % BLOCK;
                    let is_data = within < BLOCK_DATA;
                    let end = if is_data { BLOCK_DATA } else { BLOCK };
                    let part = rest.len().min((end - within) as usize);
                    if is_data {
                        self.cut(&rest[..part]);
                    }
                    rest = &rest[part..];
                    taken += part as u64;
                }
            }
        }
        self.taken += bytes.len() as u64;
    }

    /// Ends the buffer and returns its content.
    pub fn finish(mut self) -> Frames<'static> {
        let rest = std::mem::take(&mut self.pending);
        match self.format {
            FrameFormat::Unformatted => {}
            FrameFormat::Memory => {
                self.frames.rest_bytes = rest.len() as u64;
                self.frames.rest_offset = self.offset;
            }
            FrameFormat::Tpiu | FrameFormat::Dstream => {
                let used = self.port(&rest, true);
                let unused = rest.len() - used;
                if !self.port.is_synced {
                    self.frames.skipped_bytes += unused as u64;
                    self.frames.is_unsynced = self.taken > 0;
                    return self.frames;
                }
                self.frames.rest_bytes = (unused + self.port.filled) as u64;
                self.frames.rest_offset = match self.port.filled {
                    0 => self.offset + used as u64,
                    _ => self.port.start,
                };
            }
        }
        self.frames
    }

    /// Splits the pending and the new bytes into frames.
    fn cut(&mut self, bytes: &[u8]) {
        let joined;
        let all = if self.pending.is_empty() {
            bytes
        } else {
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(bytes);
            joined = pending;
            &joined
        };
        let used = match self.format {
            FrameFormat::Memory => self.memory(all),
            _ => self.port(all, false),
        };
        self.offset += used as u64;
        self.pending.extend_from_slice(&all[used..]);
    }

    /// Decodes the whole frames of a trace buffer in memory. Returns the number of bytes used.
    fn memory(&mut self, bytes: &[u8]) -> usize {
        let (frames, rest) = bytes.as_chunks::<16>();
        let mut at = 0;
        while let Some(frame) = frames.get(at) {
            let offset = self.offset + 16 * at as u64;
            let plain = frames[at..].iter().take_while(|frame| is_plain(frame));
            let count = plain.count();
            if count > 0 {
                self.plain_frames(&frames[at..at + count], offset);
                at += count;
                continue;
            }
            if *frame == RESET {
                self.reset(offset);
            } else {
                // The word would be the ID 0x7F, which is reserved.
                if frame.windows(4).any(|word| word == FULL_SYNC) {
                    if self.frames.port_frames == 0 {
                        self.frames.port_offset = offset;
                    }
                    self.frames.port_frames += 1;
                }
                self.frame(frame, offset);
            }
            at += 1;
        }
        bytes.len() - rest.len()
    }

    /// Decodes a trace port's data. Returns the number of bytes used; the rest needs more bytes, or at the end of the
    /// buffer is incomplete.
    fn port(&mut self, bytes: &[u8], is_end: bool) -> usize {
        let mut at = 0;
        if !self.port.is_synced {
            let first = bytes.windows(4).position(|word| word == FULL_SYNC);
            let skipped = first.unwrap_or(bytes.len().saturating_sub(3));
            self.frames.skipped_bytes += skipped as u64;
            self.port.is_synced = first.is_some();
            at = skipped;
            if first.is_none() {
                return at;
            }
        }
        while let Some(pair) = bytes.get(at..at + 2) {
            let word = bytes.get(at..at + 4);
            if word.is_none() && !is_end {
                // The pair may begin a full synchronization word.
                break;
            }
            if word == Some(&FULL_SYNC[..]) {
                self.frames.skipped_bytes += self.port.filled as u64;
                self.port.filled = 0;
                at += 4;
                continue;
            }
            if pair == HALF_SYNC {
                at += 2;
                continue;
            }
            let Port {
                frame,
                filled,
                start,
                ..
            } = &mut self.port;
            if *filled == 0 {
                *start = self.offset + at as u64;
            }
            frame[*filled] = pair[0];
            frame[*filled + 1] = pair[1];
            *filled += 2;
            at += 2;
            if *filled == 16 {
                *filled = 0;
                let (frame, start) = (*frame, *start);
                self.frame(&frame, start);
            }
        }
        at
    }

    fn reset(&mut self, offset: u64) {
        self.frames.resets += 1;
        if self
            .frames
            .streams
            .iter()
            .any(|stream| !stream.bytes.is_empty())
        {
            if self.frames.resets_within == 0 {
                self.frames.reset_offset = offset;
            }
            self.frames.resets_within += 1;
        }
        (self.id, self.has_id) = (TraceId::NONE, false);
        for stream in &mut self.frames.streams {
            stream.resets.push(stream.bytes.len());
        }
    }

    #[inline]
    fn frame(&mut self, frame: &[u8; 16], offset: u64) {
        if is_plain(frame) {
            self.plain_frames(&[*frame], offset);
        } else {
            self.frames.frames += 1;
            self.frame_with_ids(frame, offset);
        }
    }

    /// Adds consecutive frames that contain only data of the current ID.
    fn plain_frames(&mut self, frames: &[[u8; 16]], offset: u64) {
        self.frames.frames += frames.len() as u64;
        if let Some(stream) = self.stream() {
            return stream.add_frames(frames, offset);
        }
        for frame in frames {
            self.data(&frame[..15], offset);
        }
    }

    /// Returns the stream of the current ID, if that is a source's ID.
    #[inline]
    fn stream(&mut self) -> Option<&mut Stream<'static>> {
        if !self.id.is_source() {
            return None;
        }
        let index = &mut self.by_id[usize::from(self.id.0)];
        if *index == UNSEEN {
            // At most 111 IDs are sources.
            *index = u8::try_from(self.frames.streams.len()).unwrap_or(0);
            self.frames.streams.push(Stream::new(self.id));
        }
        self.frames.streams.get_mut(usize::from(*index))
    }

    fn frame_with_ids(&mut self, frame: &[u8; 16], offset: u64) {
        let mut data = [0; 15];
        let mut len = 0;
        let mut start = offset;
        let mut low_bits = frame[15];
        for at in (0..14).step_by(2) {
            let (first, second) = (frame[at], frame[at + 1]);
            let low = low_bits & 1;
            low_bits >>= 1;
            if first & 1 == 0 {
                data[len] = first | low;
                data[len + 1] = second;
                len += 2;
                continue;
            }
            let id = TraceId(first >> 1);
            if id == self.id && self.has_id {
                data[len] = second;
                len += 1;
                continue;
            }
            // With the bit set, the second byte still belongs to the previous source.
            if low == 1 {
                data[len] = second;
                len += 1;
            }
            if len > 0 {
                self.data(&data[..len], start);
                len = 0;
                start = offset + at as u64;
            }
            (self.id, self.has_id) = (id, true);
            if low == 0 {
                data[0] = second;
                len = 1;
            }
        }
        if frame[14] & 1 == 0 {
            data[len] = frame[14] | (low_bits & 1);
            len += 1;
            self.data(&data[..len], start);
        } else {
            self.data(&data[..len], start);
            (self.id, self.has_id) = (TraceId(frame[14] >> 1), true);
        }
    }

    fn data(&mut self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        if let Some(stream) = self.stream() {
            return stream.add(data, offset);
        }
        let count = data.len() as u64;
        let unnamed = &mut self.frames.unnamed_bytes;
        match self.id.0 {
            0 if !self.has_id && (*unnamed > 0 || data.iter().any(|byte| *byte != 0)) => {
                *unnamed += count;
            }
            0 => self.frames.padding_bytes += count,
            0x7d => self.frames.trigger_bytes += count,
            _ => self.frames.reserved_bytes += count,
        }
    }
}

#[cfg(test)]
mod tests;
