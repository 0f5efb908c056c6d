//! Discovery of the streams in a sequence of packets.

use std::ops::Range;

use kymo_wire::event::{METADATA_STREAM, PacketHeader};
use kymo_wire::packet::ITEM_STREAM;

use super::packets::{Packet, Piece, Pieces};

/// The source of a stream's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Events of one processor.
    Cpu,
    /// Events of one thread of a process: `cpu_id` is a running number.
    Thread,
    /// Items of a processor (`cpu_id` modulo 256: its rings may be several), or of a thread.
    Items,
    /// Names and other data recorded once.
    Metadata,
}

/// The key of a stream. The metadata stream sorts last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StreamNumber {
    /// The packets' `cpu_id`.
    pub(super) cpu: u16,
    /// Their `stream_id`.
    pub(super) stream: u8,
}

impl StreamNumber {
    /// The stream of a packet.
    pub(super) const fn of(header: &PacketHeader) -> Self {
        Self {
            cpu: header.cpu,
            stream: header.stream,
        }
    }
}

impl StreamKind {
    /// The name of the file of such a stream in a trace directory.
    pub fn file_name(self, number: u16) -> String {
        match self {
            Self::Cpu => format!("cpu{number}"),
            Self::Thread => format!("thread-{number}"),
            Self::Items => format!("items{number}"),
            Self::Metadata => "target".to_owned(),
        }
    }

    /// The kind of a stream in its own file: from its first packet, else from the name that
    /// [`file_name`](Self::file_name) produces.
    pub(super) fn of_file(name: &str, first: Option<&PacketHeader>) -> Self {
        match first.and_then(Self::of_packet) {
            Some(kind) => kind,
            None if name.starts_with("thread-") => Self::Thread,
            None if name.starts_with("items") => Self::Items,
            None => Self::Cpu,
        }
    }

    /// The kind that a packet header encodes; `None` for a processor's packets, which have no mark.
    fn of_packet(header: &PacketHeader) -> Option<Self> {
        if header.stream == ITEM_STREAM {
            Some(Self::Items)
        } else if header.cpu == METADATA_STREAM {
            Some(Self::Metadata)
        } else {
            (header.flags & PacketHeader::FLAG_THREAD != 0).then_some(Self::Thread)
        }
    }
}

/// One stream among the packets of a dump or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamRange {
    pub(super) number: StreamNumber,
    pub(super) kind: StreamKind,
    /// The `flags` of the first packet.
    pub(super) flags: u8,
    /// The thread of the first packet; 0 if it names none.
    pub(super) thread: u64,
    /// From the first packet to the end of the damage after the last one. The range may contain
    /// packets of other streams.
    pub(super) bytes: Range<usize>,
}

/// Finds the streams of `pieces`, in the order of their numbers, the metadata stream last.
///
/// Packets with [`PacketHeader::FLAG_THREAD`] belong to a thread; the others belong to a processor.
pub(super) fn find_streams(pieces: Pieces<'_>) -> Vec<StreamRange> {
    let mut streams: Vec<StreamRange> = Vec::new();
    let mut by_number = std::collections::HashMap::new();
    // Damage belongs to the stream of the packet before it, or to the first stream if there is none.
    let mut current = None;
    let (start, mut end) = (pieces.offset(), 0);
    for piece in pieces {
        match piece {
            Piece::Packet(packet) => {
                let Packet { bytes, header, cut } = packet;
                end = cut.map_or(bytes.end, |cut| cut.bytes.end);
                let number = StreamNumber::of(&header);
                let index = *by_number.entry(number).or_insert_with(|| {
                    streams.push(StreamRange {
                        number,
                        flags: header.flags,
                        kind: StreamKind::of_packet(&header).unwrap_or(StreamKind::Cpu),
                        thread: header.thread,
                        bytes: if streams.is_empty() {
                            start
                        } else {
                            bytes.start
                        }..end,
                    });
                    streams.len() - 1
                });
                if let Some(stream) = streams.get_mut(index) {
                    stream.bytes.end = end;
                }
                current = Some(index);
            }
            Piece::Damage(damaged) => {
                end = damaged.bytes.end;
                if let Some(stream) = current.and_then(|index| streams.get_mut(index)) {
                    stream.bytes.end = end;
                }
            }
        }
    }
    // Damage without any packet still needs a stream that reports it.
    if streams.is_empty() && start < end {
        streams.push(StreamRange {
            number: StreamNumber { cpu: 0, stream: 0 },
            flags: 0,
            kind: StreamKind::Cpu,
            thread: 0,
            bytes: start..end,
        });
    }
    streams.sort_by_key(|stream| stream.number);
    streams
}
