//! Calls that were open when a process in duration mode was killed: what its threads' shadow stacks say, as the packet that
//! a dump would have recorded of them.

use kymo_wire::event::{ByteOrder, EventId, Layout, OTHER_BYTES, PacketHeader, Shape};
use kymo_wire::packet::EVENT_STREAM;
use kymo_wire::process_file::{header, read_u32, read_u64, region};

use super::Region;
use crate::formats::kymo::packets::checked_header;
use crate::formats::kymo::records::number;

/// An open call, in ticks.
struct OpenCall {
    function: u64,
    /// How long the calls took that it made and that have ended.
    callees: u64,
    start: u64,
}

/// Whether the regions of a file say where their shadow stacks are.
pub(super) fn has_shadow_stacks(order: ByteOrder, file: &[u8]) -> bool {
    read_u32(order, file, header::REGION_BYTES).is_some_and(|bytes| bytes as usize >= region::BYTES)
}

/// The last time that is known of a process: of any entry, exit or packet.
pub(super) fn last_time(layout: Layout, regions: &[Region<'_>], packets: &[u8]) -> u64 {
    let calls = regions
        .iter()
        .map(|region| match region.half(region::LAST_CALL) {
            0 => 0,
            at => read_u64(region.order, region.bytes, at as usize).unwrap_or(0),
        });
    let packets = headers(layout, packets).map(|header| header.end);
    calls.chain(packets).max().unwrap_or(0)
}

/// The heads of packets that follow each other.
fn headers(layout: Layout, packets: &[u8]) -> impl Iterator<Item = PacketHeader> {
    let mut rest = packets;
    std::iter::from_fn(move || {
        let header = checked_header(layout, rest).ok()?;
        rest = rest.get(header.packet_bits as usize / 8..)?;
        Some(header)
    })
}

/// The packet that records the open calls of a thread at `now`, behind all its others; `None` if it has none. How long they
/// really took nobody knows, so the threshold does not hold for them: the process may have hung in one that had just begun.
pub(super) fn packet(
    layout: Layout,
    buffer: &Region<'_>,
    now: u64,
    packets: &[u8],
    discarded: u32,
) -> Option<Vec<u8>> {
    let calls: Vec<OpenCall> = calls(layout, buffer).collect();
    if calls.is_empty() {
        return None;
    }
    let cpu = u16::try_from(buffer.half(region::STREAM)).ok()?;
    let last = headers(layout, packets)
        .filter(|header| (header.stream, header.cpu) == (EVENT_STREAM, cpu))
        .last();
    let thread = u64::from(buffer.half(region::THREAD));
    let mut head = PacketHeader {
        stream: EVENT_STREAM,
        flags: PacketHeader::FLAG_THREAD | PacketHeader::FLAG_CALLS,
        isr_depth: 0,
        cpu,
        sequence: last.map_or(0, |last| last.sequence.wrapping_add(1)),
        discarded: last.map_or(discarded, |last| last.discarded),
        begin: now,
        end: now,
        content_bits: 0,
        packet_bits: 0,
        thread,
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
        put(thread, layout.word.bytes());
    }
    head.content_bits = u32::try_from(packet.len() * 8).ok()?;
    head.packet_bits = head.content_bits;
    head.write(layout, &mut packet)?;
    Some(packet)
}

/// The open calls of a thread, the outermost first.
fn calls<'a>(layout: Layout, buffer: &'a Region<'_>) -> impl Iterator<Item = OpenCall> + 'a {
    let first = buffer.half(region::FRAMES) as usize;
    let stride = buffer.half(region::FRAME_STRIDE) as usize;
    let count = match first {
        0 => 0,
        _ => buffer.half(region::FRAME_COUNT) as usize,
    };
    let frames = (0..count).map_while(move |n| {
        let at = first.checked_add(n.checked_mul(stride)?)?;
        let field = |n: usize| word(layout, buffer, at.checked_add(n * layout.word.bytes())?);
        Some(OpenCall {
            function: field(0).filter(|function| *function != 0)?,
            callees: field(1)?,
            start: field(2)?,
        })
    });
    // In a damaged file frames may overlap, and be many more than it has bytes for.
    frames.take(match stride < 3 * layout.word.bytes() {
        true => 0,
        false => usize::MAX,
    })
}

/// The word at an offset.
fn word(layout: Layout, buffer: &Region<'_>, at: usize) -> Option<u64> {
    let bytes = buffer.bytes.get(at..)?.get(..layout.word.bytes())?;
    Some(number(layout.order, bytes))
}
