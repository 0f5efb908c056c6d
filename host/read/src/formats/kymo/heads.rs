//! Summary of a stream's packet headers, computed before any record is read.

use kymo_wire::event::PacketHeader;
use kymo_wire::packet::EVENT_STREAM;

use super::feed::Input;
use super::packets::{Packet, Piece, Pieces};
use super::streams::StreamNumber;

/// Summary of a stream's packet headers.
pub(super) struct Heads {
    /// Whether all packets hold events: a stream that also holds items can only be read with metadata.
    pub(super) events: bool,
    /// Whether no packet begins before the end of the previous one. All records lie within their packet's times.
    pub(super) in_order: bool,
    /// The earliest begin and the latest end, in ticks.
    pub(super) span: Option<(u64, u64)>,
    /// Whether some packets record each call as one record ([`PacketHeader::FLAG_CALLS`]).
    pub(super) whole_calls: bool,
}

impl Heads {
    pub(super) fn of(input: &Input) -> Self {
        let pieces = Pieces::new(input.layout, &input.bytes, &input.missing);
        let mut pieces = pieces.starting_at(input.range.start).heads_only();
        let (mut heads, mut end) = (
            Self {
                events: true,
                in_order: true,
                span: None,
                whole_calls: false,
            },
            0,
        );
        while pieces.offset() < input.range.end
            && let Some(piece) = pieces.next()
        {
            let Piece::Packet(Packet { header, .. }) = piece else {
                continue;
            };
            if input
                .number
                .is_some_and(|number| number != StreamNumber::of(&header))
            {
                continue;
            }
            heads.events &= input.number.is_some() || header.stream == EVENT_STREAM;
            heads.whole_calls |= header.flags & PacketHeader::FLAG_CALLS != 0;
            heads.in_order &= header.begin >= end;
            let (first, last) = heads.span.unwrap_or((header.begin, header.end));
            heads.span = Some((first.min(header.begin), last.max(header.end)));
            end = header.end;
        }
        heads
    }
}
