//! Remarks on trace that cannot be decoded, mostly because it is of another protocol: it never synchronizes, or it has
//! invalid packets and none from which instructions can be followed.

use super::{Remark, counted};
use crate::frames::{Stream, TraceId};
use crate::input::{self, Buffer};
use crate::listing::{Packet, PacketDecoder};
use crate::source::{Protocol, Source};
use crate::{etmv3, etmv4, itm, ptm, stm};

impl Packet {
    /// Whether it is its protocol's synchronization packet (A-sync).
    fn is_synchronization(&self) -> bool {
        match self {
            Packet::EtmV4(packet) => packet.kind == etmv4::Kind::Async,
            Packet::EtmV3(packet) => packet.kind == etmv3::Kind::Async,
            Packet::Ptm(packet) => packet.kind == ptm::Kind::Async,
            Packet::Stm(packet) => packet.kind == stm::Kind::Async,
            Packet::Itm(packet) => packet.kind == itm::Kind::Async,
        }
    }

    /// Whether instructions can be followed from it on (I-sync, trace info). Always true for message protocols.
    fn begins(&self) -> bool {
        match self {
            Packet::EtmV4(packet) => packet.kind == etmv4::Kind::TraceInfo,
            Packet::EtmV3(packet) => {
                use etmv3::Kind::{ISync, ISyncCycle};
                matches!(packet.kind, ISync | ISyncCycle)
            }
            Packet::Ptm(packet) => packet.kind == ptm::Kind::ISync,
            Packet::Stm(_) | Packet::Itm(_) => true,
        }
    }

    /// Whether it is invalid in its protocol.
    fn is_bad(&self) -> bool {
        match self {
            Packet::EtmV4(packet) => {
                use etmv4::Kind::{BadSequence, Reserved};
                matches!(packet.kind, BadSequence | Reserved)
            }
            Packet::EtmV3(packet) => {
                use etmv3::Kind::{BadSequence, Reserved};
                matches!(packet.kind, BadSequence | Reserved)
            }
            Packet::Ptm(packet) => {
                matches!(packet.kind, ptm::Kind::BadSequence | ptm::Kind::Reserved)
            }
            Packet::Stm(_) | Packet::Itm(_) => false,
        }
    }
}

/// Packets of a stream, segment by segment.
fn packets<'a>(source: &'a Source, stream: &'a Stream<'_>) -> impl Iterator<Item = Packet> + 'a {
    stream.segments().flat_map(move |segment| {
        let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
        PacketDecoder::new(&source.protocol, bytes, segment.start)
    })
}

/// Protocols whose synchronization is a run of zeros followed by 0x80, with the minimum length of the run. An ITM's is
/// as long as that of ETMv3 and PTM.
const PROTOCOLS: [(usize, &str); 2] = [(11, "ETMv4 or ETE"), (5, "ETMv3, PTM or ITM")];

/// Protocol as which the bytes synchronize, and the first position: by the longest run of zeros before 0x80, else as
/// STM.
fn other_protocol(bytes: &[u8]) -> Option<(&'static str, usize)> {
    let mut runs: [Option<usize>; 2] = [None; 2];
    let mut zeros = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == 0x80
            && let Some(run) = PROTOCOLS.iter().position(|(length, _)| zeros >= *length)
        {
            runs[run].get_or_insert(at - PROTOCOLS[run].0);
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
    }
    let found = PROTOCOLS.iter().zip(runs);
    let mut found = found.filter_map(|((_, name), at)| Some((*name, at?)));
    found.next().or_else(|| {
        let mut packets = stm::Decoder::new(bytes, 0);
        let found = packets.find(|packet| packet.kind == stm::Kind::Async);
        found.map(|packet| ("STM", packet.start()))
    })
}

/// Position of the first synchronization of ETMv4 or ETE in the trace of a shorter one (ETMv3, PTM), if it has no other.
/// The decoder of the shorter one takes the end of each for its own. A single one with more zeros is no sign: a cleared
/// buffer has zeros before its first synchronization.
fn longer_protocol(protocol: &Protocol, bytes: &[u8]) -> Option<usize> {
    if !matches!(protocol, Protocol::EtmV3(_) | Protocol::Ptm(_)) {
        return None;
    }
    let [(long, _), (short, _)] = PROTOCOLS;
    let (mut zeros, mut first, mut is_sure) = (0, None, false);
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == 0x80 && zeros >= long {
            is_sure |= zeros == long || first.is_some();
            first.get_or_insert(at - long);
        } else if *byte == 0x80 && zeros >= short {
            return None;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
    }
    first.filter(|_| is_sure)
}

/// Remark on the start of decoding of an ITM stream without a synchronization at its start.
fn of_itm(buffer: &Buffer, source: &Source, stream: &Stream<'_>) -> Option<Remark> {
    let segment = stream.segments().next()?;
    let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
    let mut packets = itm::Decoder::new(bytes, segment.start);
    let first = packets.clone().next()?;
    let synchronization = packets.find(|packet| packet.kind == itm::Kind::Async);
    let mut offsets = stream.offsets();
    let start = offsets.of(segment.start);
    let text = match (first.kind, synchronization) {
        (itm::Kind::Async, _) => return None,
        (itm::Kind::NotSync, Some(packet)) => format!(
            "decoding begins with the synchronization at offset {}: {} before it left out",
            offsets.of(packet.start),
            counted((packet.start - segment.start) as u64, "byte")
        ),
        (_, Some(packet)) => format!(
            "decoding begins at offset {start}, where packets are, before the first synchronization at offset {}",
            offsets.of(packet.start)
        ),
        (_, None) => format!(
            "there is no synchronization: decoding begins at offset {start}, as if a packet began there"
        ),
    };
    let name = format!("{}/{}", buffer.name, source.name);
    Some(Remark::warning(&name, text))
}

/// Remark on the bytes before the first synchronization of each part of a stream, which are not decoded. A circular
/// buffer can begin anywhere in a packet, so this is no damage.
fn before(buffer: &Buffer, source: &Source, stream: &Stream<'_>) -> Option<Remark> {
    let (mut bytes, mut places, mut first) = (0, 0, None);
    for segment in stream.segments().filter(|segment| !segment.goes_on) {
        let part = stream.bytes.get(..segment.end).unwrap_or_default();
        let mut packets = PacketDecoder::new(&source.protocol, part, segment.start);
        let synchronization = packets.find(Packet::is_synchronization);
        let end = synchronization.map_or(segment.end, |packet| packet.start());
        if end > segment.start {
            bytes += (end - segment.start) as u64;
            places += 1;
            first.get_or_insert(segment.start);
        }
    }
    let offset = stream.offsets().of(first?);
    let parts = match places {
        1 => String::new(),
        places => format!(" of {places} parts"),
    };
    let text = format!(
        "{} before the first synchronization{parts} not decoded, from offset {offset} on",
        counted(bytes, "byte")
    );
    let name = format!("{}/{}", buffer.name, source.name);
    Some(Remark::note(&name, text))
}

/// Remarks on sources whose trace never synchronizes. ITM packets need no synchronization.
pub(super) fn of_buffers(buffers: &[Buffer]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for parts in input::traces(buffers) {
        let streams = || {
            parts.iter().filter_map(|part| {
                let buffer = buffers.get(part.buffer)?;
                let stream = buffer.frames.streams.get(part.stream)?;
                Some((buffer, buffer.sources.get(part.source)?, stream))
            })
        };
        let is_itm = |source: &Source| matches!(source.protocol, Protocol::Itm(_));
        let itms = streams().filter(|(_, source, _)| is_itm(source));
        remarks.extend(itms.filter_map(|(buffer, source, stream)| of_itm(buffer, source, stream)));
        let is_synchronized = streams().any(|(_, source, stream)| {
            is_itm(source) || packets(source, stream).any(|packet| packet.is_synchronization())
        });
        if is_synchronized {
            let others = streams().filter(|(_, source, _)| !is_itm(source));
            remarks.extend(
                others.filter_map(|(buffer, source, stream)| before(buffer, source, stream)),
            );
        }
        let begins = || {
            streams()
                .any(|(_, source, stream)| packets(source, stream).any(|packet| packet.begins()))
        };
        let bad = match is_synchronized && !begins() {
            true => {
                let packets = streams().flat_map(|(_, source, stream)| packets(source, stream));
                packets.filter(Packet::is_bad).count()
            }
            false => 0,
        };
        // Only a trace that looks like another protocol's is decoded once more here.
        let longer = streams().find_map(|(buffer, source, stream)| {
            let at = longer_protocol(&source.protocol, &stream.bytes)?;
            Some((buffer, source, stream.offsets().of(at)))
        });
        let has_bad = || {
            let mut all = streams().flat_map(|(_, source, stream)| packets(source, stream));
            all.any(|packet| packet.is_bad())
        };
        let longer = longer.filter(|_| begins() && has_bad());
        if let Some((buffer, source, offset)) = longer {
            let title = source.protocol.title();
            let text = format!(
                "no synchronization of {title} (5 zeros, then 0x80), but those of ETMv4 or ETE (11 zeros or more): is the protocol \
                 right? Its name comes from --trace-source or the description of the source"
            );
            let name = format!("{}/{}", buffer.name, source.name);
            remarks.push(Remark::damage(&name, offset, text));
            continue;
        }
        let bytes: usize = streams().map(|(_, _, stream)| stream.bytes.len()).sum();
        let first = streams().find(|(_, _, stream)| !stream.bytes.is_empty());
        let Some((buffer, source, stream)) = first.filter(|_| !is_synchronized || bad > 0) else {
            continue;
        };
        let of = match stream.id {
            TraceId::NONE => String::new(),
            id => format!(" of trace ID {:x}", id.0),
        };
        let hint = match other_protocol(&stream.bytes) {
            Some((name, at)) => format!(
                " (there is one of {name} at offset {})",
                stream.offsets().of(at)
            ),
            None => String::new(),
        };
        let of_bytes = format!("{}{of}", counted(bytes as u64, "byte"));
        let title = source.protocol.title();
        let text = match bad {
            0 => {
                format!("no synchronization of {title} in {of_bytes}: is the protocol right?{hint}")
            }
            bad => format!(
                "no packet of {title} in {of_bytes} from which instructions can be followed, and {}: is the protocol \
                 right?{hint}",
                counted(bad as u64, "invalid packet")
            ),
        };
        let offset = stream.offsets().of(0);
        let name = format!("{}/{}", buffer.name, source.name);
        remarks.push(Remark::damage(&name, offset, text));
    }
    remarks
}
