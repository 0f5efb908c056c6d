//! Open calls on a stopped target's shadow stacks, as the packet that a readout by the target would have contained.

use kymo_wire::event::{ByteOrder, EventId, Layout, OTHER_BYTES, PacketHeader, Shape};
use kymo_wire::packet::EVENT_STREAM;

use crate::formats::kymo::packets::checked_header;
use crate::formats::kymo::records::{Walk, number};

/// An open call, in ticks.
pub(super) struct OpenCall {
    /// Its address, without the instruction set bit.
    pub function: u64,
    /// Total duration of its completed callees.
    pub callees: u64,
    pub start: u64,
    pub thread: u64,
}

impl OpenCall {
    /// Whether this is the record of another one.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.function, self.start, self.thread) == (other.function, other.start, other.thread)
    }
}

/// The open calls that packets of this CPU have, as they were at `now`.
pub(super) fn recorded(layout: Layout, packets: &[u8], cpu: u16, now: u64) -> Vec<OpenCall> {
    let mut found = Vec::new();
    let mut rest = packets;
    while let Ok(header) = checked_header(layout, rest) {
        let content = rest.get(..header.content_bits as usize / 8);
        let next = rest.get(header.packet_bits as usize / 8..);
        let is_its = (header.stream, header.cpu, header.end) == (EVENT_STREAM, cpu, now);
        let mut walk = Walk::new(
            layout,
            &header,
            content.filter(|_| is_its).unwrap_or_default(),
        );
        while let Ok(Some(id)) = walk.next() {
            let word = layout.word.bytes();
            if id != EventId::CallOpen || walk.clock != now || walk.payload.len() < 16 + 2 * word {
                continue;
            }
            let (function, rest) = walk.payload.split_at(word);
            let (duration, rest) = rest.split_at(8);
            let (own, thread) = rest.split_at(8);
            let number = |bytes| number(layout.order, bytes);
            let duration = number(duration);
            found.push(OpenCall {
                function: number(function),
                callees: duration.saturating_sub(number(own)),
                start: now.saturating_sub(duration),
                thread: number(thread),
            });
        }
        rest = next.unwrap_or_default();
    }
    found
}

/// Iterates over the headers of consecutive packets.
pub(super) fn headers(layout: Layout, packets: &[u8]) -> impl Iterator<Item = PacketHeader> {
    let mut rest = packets;
    std::iter::from_fn(move || {
        let header = checked_header(layout, rest).ok()?;
        rest = rest.get(header.packet_bits as usize / 8..)?;
        Some(header)
    })
}

/// The packet that records a stream's open calls at `now`, after all its others; `None` without any. `head` identifies
/// the stream. The threshold does not apply, because the calls' real durations are unknown: the program may have hung
/// in one that had just begun.
pub(super) fn packet(
    layout: Layout,
    head: PacketHeader,
    now: u64,
    packets: &[u8],
    calls: &[OpenCall],
) -> Option<Vec<u8>> {
    if calls.is_empty() {
        return None;
    }
    let last = headers(layout, packets)
        .filter(|header| (header.stream, header.cpu) == (EVENT_STREAM, head.cpu))
        .last();
    let mut head = PacketHeader {
        stream: EVENT_STREAM,
        sequence: last.map_or(0, |last| last.sequence.wrapping_add(1)),
        discarded: last.map_or(head.discarded, |last| last.discarded),
        begin: now,
        end: now,
        ..head
    };
    let mut packet = vec![0; layout.header_bytes()];
    let mut put = |value: u64, bytes: usize| match layout.order {
        ByteOrder::Little => packet.extend_from_slice(&value.to_le_bytes()[..bytes]),
        ByteOrder::Big => packet.extend_from_slice(&value.to_be_bytes()[8 - bytes..]),
    };
    for call in calls {
        let duration = now.saturating_sub(call.start);
        put(
            Shape::other_header(layout.order, EventId::CallOpen, now),
            OTHER_BYTES,
        );
        put(call.function, layout.word.bytes());
        put(duration, 8);
        put(duration.saturating_sub(call.callees), 8);
        put(call.thread, layout.word.bytes());
    }
    head.content_bits = u32::try_from(packet.len() * 8).ok()?;
    head.packet_bits = head.content_bits;
    head.write(layout, &mut packet)?;
    Some(packet)
}
