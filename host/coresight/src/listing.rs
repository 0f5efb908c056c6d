//! Listings of packets and elements in the layout of OpenCSD's `trc_pkt_lister`, for line-by-line comparison.
//!
//! Packets of several sources are in the order of their last bytes in the buffer.

use std::fmt::{self, Write};

use crate::element::Element;
use crate::flow::{EtmV4Options, Flow, Sink};
use crate::frames::{Offsets, Segment, Stream, TraceId};
use crate::memory::{Memory, View};
use crate::source::{Protocol, Source};
use crate::{etmv3, etmv4, itm, ptm, stm};

mod values;

pub use values::Value;

/// Packet of any protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packet {
    /// Of ETMv4 or ETE.
    EtmV4(etmv4::Packet),
    /// Of ETMv3.
    EtmV3(etmv3::Packet),
    /// Of a PTM.
    Ptm(ptm::Packet),
    /// Of an STM.
    Stm(stm::Packet),
    /// Of an ITM.
    Itm(itm::Packet),
}

impl Packet {
    /// Position of its first byte in the stream.
    pub fn start(&self) -> usize {
        match self {
            Packet::EtmV4(packet) => packet.start,
            Packet::EtmV3(packet) => packet.start,
            Packet::Ptm(packet) => packet.start,
            Packet::Stm(packet) => packet.start(),
            Packet::Itm(packet) => packet.start,
        }
    }

    /// Distance of its offset in listings from the offset of its first byte. The reference tool lists an STM packet
    /// that begins in the middle of a byte at the next offset.
    fn number_shift(&self) -> u64 {
        match self {
            Packet::Stm(packet) => packet.start_nibble as u64 % 2,
            _ => 0,
        }
    }

    /// Bits of the first byte that belong to it.
    fn first_byte_mask(&self) -> u8 {
        match self {
            Packet::Stm(packet) if packet.start_nibble % 2 == 1 => 0xf0,
            _ => 0xff,
        }
    }

    /// Position after its last byte.
    pub fn end(&self) -> usize {
        match self {
            Packet::EtmV4(packet) => packet.end(),
            Packet::EtmV3(packet) => packet.end(),
            Packet::Ptm(packet) => packet.end(),
            Packet::Stm(packet) => packet.end(),
            Packet::Itm(packet) => packet.end(),
        }
    }
}

/// Splits the bytes of a source of any protocol into packets.
#[derive(Clone, Debug)]
pub enum PacketDecoder<'a> {
    /// Of ETMv4 or ETE.
    EtmV4(Box<etmv4::Decoder<'a>>),
    /// Of ETMv3.
    EtmV3(etmv3::Decoder<'a>),
    /// Of a PTM.
    Ptm(ptm::Decoder<'a>),
    /// Of an STM.
    Stm(stm::Decoder<'a>),
    /// Of an ITM.
    Itm(itm::Decoder<'a>),
}

impl<'a> PacketDecoder<'a> {
    /// Decodes `bytes` from `start` on.
    pub fn new(protocol: &Protocol, bytes: &'a [u8], start: usize) -> Self {
        match protocol {
            Protocol::EtmV4(config) => {
                PacketDecoder::EtmV4(Box::new(etmv4::Decoder::new(config, bytes, start)))
            }
            Protocol::EtmV3(config) => {
                PacketDecoder::EtmV3(etmv3::Decoder::new(config, bytes, start))
            }
            Protocol::Ptm(config) => PacketDecoder::Ptm(ptm::Decoder::new(config, bytes, start)),
            Protocol::Stm(_) => PacketDecoder::Stm(stm::Decoder::new(bytes, start)),
            Protocol::Itm(_) => PacketDecoder::Itm(itm::Decoder::new(bytes, start)),
        }
    }
}

impl PacketDecoder<'_> {
    /// Position of the next packet; `None` for sources that trace no instructions.
    pub(crate) fn next_start(&self) -> Option<usize> {
        match self {
            PacketDecoder::EtmV4(decoder) => Some(decoder.next_start()),
            PacketDecoder::EtmV3(decoder) => Some(decoder.next_start()),
            PacketDecoder::Ptm(decoder) => Some(decoder.next_start()),
            PacketDecoder::Stm(_) | PacketDecoder::Itm(_) => None,
        }
    }

    /// Whether both decode the same following bytes to the same packets.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (PacketDecoder::EtmV4(a), PacketDecoder::EtmV4(b)) => a.is_like(b),
            (PacketDecoder::EtmV3(a), PacketDecoder::EtmV3(b)) => a.is_like(b),
            (PacketDecoder::Ptm(a), PacketDecoder::Ptm(b)) => a.is_like(b),
            _ => false,
        }
    }
}

impl Iterator for PacketDecoder<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        match self {
            PacketDecoder::EtmV4(decoder) => decoder.next().map(Packet::EtmV4),
            PacketDecoder::EtmV3(decoder) => decoder.next().map(Packet::EtmV3),
            PacketDecoder::Ptm(decoder) => decoder.next().map(Packet::Ptm),
            PacketDecoder::Stm(decoder) => decoder.next().map(Packet::Stm),
            PacketDecoder::Itm(decoder) => decoder.next().map(Packet::Itm),
        }
    }
}

/// Position of one source in a listing.
struct Cursor<'a> {
    source: &'a Source,
    stream: &'a Stream<'a>,
    offsets: Offsets<'a>,
    decoder: PacketDecoder<'a>,
    flow: Flow<&'a Memory>,
    view: View,
    /// Distance of the last packet's offset in the listing from its first byte.
    number_shift: u64,
    /// Following segments.
    segments: std::vec::IntoIter<Segment>,
    /// Offset of the next packet's last byte, the packet, and the segment if it is the segment's first one.
    next: Option<(u64, Packet, Option<Segment>)>,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a Source, stream: &'a Stream<'a>, flow: Flow<&'a Memory>) -> Self {
        let segments: Vec<_> = stream.segments().collect();
        let mut cursor = Cursor {
            source,
            stream,
            offsets: stream.offsets(),
            decoder: PacketDecoder::new(&source.protocol, &[], 0),
            flow,
            view: View::default(),
            number_shift: 0,
            segments: segments.into_iter(),
            next: None,
        };
        cursor.advance();
        cursor
    }

    fn advance(&mut self) {
        self.next = None;
        let mut begins = None;
        loop {
            if let Some(packet) = self.decoder.next() {
                let last = self.offsets.of(packet.end().saturating_sub(1));
                self.next = Some((last, packet, begins));
                return;
            }
            let Some(segment) = self.segments.next() else {
                return;
            };
            let bytes = self.stream.bytes.get(..segment.end).unwrap_or_default();
            self.decoder = PacketDecoder::new(&self.source.protocol, bytes, segment.start);
            begins = Some(segment);
        }
    }
}

/// Elements of a packet, each with its view of memory.
#[derive(Debug, Default)]
struct Elements {
    all: Vec<(usize, Element, View)>,
    view: View,
    /// Number of branches whose targets are unknown, which are no elements.
    unknown_targets: u64,
}

impl Sink for Elements {
    fn unknown_target(&mut self, _at: usize) {
        self.unknown_targets += 1;
    }

    fn element(&mut self, at: usize, element: Element) {
        self.all.push((at, element, self.view));
    }

    fn memory(&mut self, view: View) {
        self.view = view;
    }
}

/// Packets of all sources of a buffer in the order of their last bytes, each followed by its elements.
pub struct Listing<'a> {
    cursors: Vec<Cursor<'a>>,
    /// Elements of the last packet.
    elements: Elements,
    /// Index of the cursor that they are from, and of the next element.
    from: (usize, usize),
    /// Whether the end elements of the sources have begun.
    is_finished: bool,
}

impl<'a> Listing<'a> {
    /// Lists the packets of the streams with a known source. A stream without an ID belongs to the first source.
    pub fn new(sources: &'a [Source], streams: &'a [Stream<'a>]) -> Self {
        Self::build(sources, streams, |_| Flow::None)
    }

    /// Lists packets, and the elements that need no code, such as losses. `nothing` is an empty memory.
    pub fn checking(sources: &'a [Source], streams: &'a [Stream<'a>], nothing: &'a Memory) -> Self {
        Self::build(sources, streams, |index| match sources.get(index) {
            Some(source) => Flow::new(&source.protocol, EtmV4Options::default(), nothing),
            None => Flow::None,
        })
    }

    /// Lists packets and elements. `code` has the memory of each source's core, in the order of the sources.
    pub fn decoding(
        sources: &'a [Source],
        streams: &'a [Stream<'a>],
        code: &'a [Memory],
        options: EtmV4Options,
    ) -> Self {
        Self::build(sources, streams, |index| {
            match (sources.get(index), code.get(index)) {
                (Some(source), Some(code)) => Flow::new(&source.protocol, options, code),
                _ => Flow::None,
            }
        })
    }

    fn build(
        sources: &'a [Source],
        streams: &'a [Stream<'a>],
        flow: impl Fn(usize) -> Flow<&'a Memory>,
    ) -> Self {
        let cursors = streams
            .iter()
            .filter_map(|stream| {
                let index = match stream.id {
                    TraceId::NONE => 0,
                    id => sources.iter().position(|source| source.id == id)?,
                };
                Some(Cursor::new(sources.get(index)?, stream, flow(index)))
            })
            .collect();
        Listing {
            cursors,
            elements: Elements::default(),
            from: (0, 0),
            is_finished: false,
        }
    }

    /// Number of branches with unknown targets since the last call, of the source of the last line: they have no line,
    /// as in the reference tool's listing.
    pub fn unknown_targets(&mut self) -> u64 {
        std::mem::take(&mut self.elements.unknown_targets)
    }

    /// Next element of the last packet.
    fn element(&mut self) -> Option<Line<'a>> {
        let (cursor, next) = self.from;
        let (at, element, view) = *self.elements.all.get(next)?;
        self.from.1 += 1;
        let cursor = self.cursors.get_mut(cursor)?;
        Some(Line::Element {
            source: cursor.source,
            offset: cursor.offsets.of(at) + cursor.number_shift,
            at,
            element,
            view,
        })
    }
}

impl<'a> Iterator for Listing<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        loop {
            if let Some(element) = self.element() {
                return Some(element);
            }
            self.elements.all.clear();
            self.from.1 = 0;
            let first = (0..self.cursors.len())
                .filter_map(|index| Some((self.cursors[index].next?.0, index)))
                .min();
            let Some((_, index)) = first else {
                // The end elements of all sources, one source after another.
                let next = if self.is_finished { self.from.0 + 1 } else { 0 };
                self.is_finished = true;
                let cursor = self.cursors.get_mut(next)?;
                self.elements.view = cursor.view;
                cursor.flow.finish_stream(cursor.stream, &mut self.elements);
                self.from = (next, 0);
                continue;
            };
            let cursor = &mut self.cursors[index];
            let (_, packet, begins) = cursor.next?;
            let stream = cursor.stream;
            self.elements.view = cursor.view;
            if let Some(segment) = begins {
                cursor.flow.begin(&segment, &mut self.elements);
            }
            let entry = Entry {
                source: cursor.source,
                id: stream.id,
                offset: cursor.offsets.of(packet.start()) + packet.number_shift(),
                bytes: stream
                    .bytes
                    .get(packet.start()..packet.end())
                    .unwrap_or_default(),
                packet,
            };
            cursor.number_shift = packet.number_shift();
            cursor.flow.packet(&packet, &mut self.elements);
            cursor.view = self.elements.view;
            self.from = (index, 0);
            cursor.advance();
            return Some(Line::Packet(entry));
        }
    }
}

/// Line of a listing.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// A packet.
    Packet(Entry<'a>),
    /// An element.
    Element {
        /// The source.
        source: &'a Source,
        /// Offset in the buffer of the packet that it is from.
        offset: u64,
        /// Position of that packet in the source's stream.
        at: usize,
        /// The element.
        element: Element,
        /// View of the memory.
        view: View,
    },
}

impl<'a> Line<'a> {
    /// The source of the packet or element.
    pub fn source(&self) -> &'a Source {
        match self {
            Line::Packet(entry) => entry.source,
            Line::Element { source, .. } => source,
        }
    }

    /// Writes the line, without its end.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        match self {
            Line::Packet(entry) => entry.write_line(out),
            Line::Element {
                source,
                offset,
                element,
                ..
            } => {
                write!(out, "Idx:{offset}; ID:{:x}; ", source.id.0)?;
                element.describe(out)
            }
        }
    }
}

/// Packet in a listing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The source.
    pub source: &'a Source,
    /// Trace ID in the buffer; [`TraceId::NONE`] without frames.
    pub id: TraceId,
    /// Offset of the first byte in the buffer.
    pub offset: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The packet.
    pub packet: Packet,
}

impl Entry<'_> {
    /// Writes offset, trace ID, bytes, name and meaning as one line, without its end.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_line(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "Idx:{}; ID:{:x}; [", self.offset, self.id.0)?;
        let mut mask = self.packet.first_byte_mask();
        for byte in self.bytes {
            write!(out, "{:#04x} ", byte & mask)?;
            mask = 0xff;
        }
        out.write_str("];\t")?;
        self.describe(out)
    }

    /// Writes the packet's name and fields.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn describe(&self, out: &mut dyn Write) -> fmt::Result {
        match (&self.source.protocol, &self.packet) {
            (Protocol::EtmV4(config), Packet::EtmV4(packet)) => {
                etmv4::describe(config, packet, out)
            }
            (Protocol::EtmV3(config), Packet::EtmV3(packet)) => {
                etmv3::describe(config, packet, out)
            }
            (_, Packet::Ptm(packet)) => ptm::describe(packet, out),
            (_, Packet::Stm(packet)) => stm::describe(packet, out),
            (_, Packet::Itm(packet)) => itm::describe(packet, out),
            // Decoders return only packets of their own protocol.
            _ => Ok(()),
        }
    }
}
