//! Listings of packets in the layout of OpenCSD's `trc_pkt_lister`, so that people can compare them line by line.
//!
//! Packets of several sources come in the order in which the buffer completes them.

use std::fmt::{self, Write};

use crate::etmv4;
use crate::frames::{Offsets, Stream, TraceId};
use crate::source::{Protocol, Source};

/// A packet of any protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packet {
    /// Of ETMv4 or ETE.
    EtmV4(etmv4::Packet),
}

impl Packet {
    /// Position of its first byte in the stream.
    pub fn start(&self) -> usize {
        match self {
            Packet::EtmV4(packet) => packet.start,
        }
    }

    /// Position behind its last byte.
    pub fn end(&self) -> usize {
        match self {
            Packet::EtmV4(packet) => packet.end(),
        }
    }
}

/// Cuts the bytes of a source of any protocol into packets.
#[derive(Clone, Debug)]
pub enum PacketDecoder<'a> {
    /// Of ETMv4 or ETE.
    EtmV4(Box<etmv4::Decoder<'a>>),
}

impl<'a> PacketDecoder<'a> {
    /// Decodes `bytes` from `start` on.
    pub fn new(protocol: &Protocol, bytes: &'a [u8], start: usize) -> Self {
        match protocol {
            Protocol::EtmV4(config) => {
                PacketDecoder::EtmV4(Box::new(etmv4::Decoder::new(config, bytes, start)))
            }
        }
    }
}

impl Iterator for PacketDecoder<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        match self {
            PacketDecoder::EtmV4(decoder) => decoder.next().map(Packet::EtmV4),
        }
    }
}

/// One source's packets on their way into a listing.
struct Lane<'a> {
    source: &'a Source,
    stream: &'a Stream<'a>,
    /// The ID as it is printed: 0 in a buffer without frames.
    shown: TraceId,
    offsets: Offsets<'a>,
    decoder: PacketDecoder<'a>,
    /// Where the bytes of this decoder end: the next reset or the end.
    limit: usize,
    next: Option<(u64, Packet)>,
}

impl<'a> Lane<'a> {
    fn new(source: &'a Source, stream: &'a Stream<'a>) -> Self {
        let limit = stream.resets.first().copied().unwrap_or(stream.bytes.len());
        let bytes = stream.bytes.get(..limit).unwrap_or_default();
        let mut lane = Lane {
            source,
            stream,
            shown: stream.id,
            offsets: stream.offsets(),
            decoder: PacketDecoder::new(&source.protocol, bytes, 0),
            limit,
            next: None,
        };
        lane.advance();
        lane
    }

    fn advance(&mut self) {
        self.next = None;
        loop {
            if let Some(packet) = self.decoder.next() {
                let last = self.offsets.of(packet.end().saturating_sub(1));
                self.next = Some((last, packet));
                return;
            }
            let start = self.limit;
            if start >= self.stream.bytes.len() {
                return;
            }
            self.limit = self
                .stream
                .resets
                .iter()
                .copied()
                .find(|at| *at > start)
                .unwrap_or(self.stream.bytes.len());
            let bytes = self.stream.bytes.get(..self.limit).unwrap_or_default();
            self.decoder = PacketDecoder::new(&self.source.protocol, bytes, start);
        }
    }
}

/// Writes the packets of all sources that have a stream.
///
/// # Errors
/// What the writer returns.
pub fn packets(sources: &[Source], streams: &[Stream<'_>], out: &mut dyn Write) -> fmt::Result {
    let mut lanes: Vec<_> = streams
        .iter()
        .filter_map(|stream| {
            let source = match stream.id {
                TraceId::NONE => sources.first(),
                id => sources.iter().find(|source| source.id == id),
            };
            source.map(|source| Lane::new(source, stream))
        })
        .collect();
    while let Some(lane) = lanes
        .iter_mut()
        .filter(|lane| lane.next.is_some())
        .min_by_key(|lane| lane.next.map(|(last, _)| last))
    {
        if let Some((_, packet)) = lane.next {
            let offset = lane.offsets.of(packet.start());
            let bytes = lane
                .stream
                .bytes
                .get(packet.start()..packet.end())
                .unwrap_or_default();
            line(lane.source, lane.shown, offset, bytes, &packet, out)?;
        }
        lane.advance();
    }
    Ok(())
}

/// Writes one packet with offset, trace ID and bytes.
fn line(
    source: &Source,
    id: TraceId,
    offset: u64,
    bytes: &[u8],
    packet: &Packet,
    out: &mut dyn Write,
) -> fmt::Result {
    write!(out, "Idx:{offset}; ID:{:x}; [", id.0)?;
    for byte in bytes {
        write!(out, "{byte:#04x} ")?;
    }
    out.write_str("];\t")?;
    describe(source, packet, out)?;
    out.write_char('\n')
}

/// Writes a packet's name and what it says.
///
/// # Errors
/// What the writer returns.
pub fn describe(source: &Source, packet: &Packet, out: &mut dyn Write) -> fmt::Result {
    match (&source.protocol, packet) {
        (Protocol::EtmV4(config), Packet::EtmV4(packet)) => etmv4::describe(config, packet, out),
    }
}
