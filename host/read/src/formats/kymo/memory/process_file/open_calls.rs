//! Open calls of a killed process in duration mode, from its threads' shadow stacks.

use kymo_wire::event::{ByteOrder, Layout, PacketHeader};
use kymo_wire::packet::EVENT_STREAM;
use kymo_wire::process_file::{header, read_u32, read_u64, region};

use super::super::open_calls::{self, OpenCall, headers};
use super::Region;
use crate::formats::kymo::records::number;

/// Whether the regions of a file contain the location of their shadow stacks.
pub(super) fn has_shadow_stacks(order: ByteOrder, file: &[u8]) -> bool {
    read_u32(order, file, header::REGION_BYTES).is_some_and(|bytes| bytes as usize >= region::BYTES)
}

/// The last known time of a process: of any entry, exit or packet.
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

/// The [packet](open_calls::packet) of a thread's open calls.
pub(super) fn packet(
    layout: Layout,
    buffer: &Region<'_>,
    now: u64,
    packets: &[u8],
    discarded: u32,
) -> Option<Vec<u8>> {
    let calls: Vec<OpenCall> = calls(layout, buffer).collect();
    let head = PacketHeader {
        stream: EVENT_STREAM,
        flags: PacketHeader::FLAG_THREAD | PacketHeader::FLAG_CALLS,
        isr_depth: 0,
        cpu: u16::try_from(buffer.half(region::STREAM)).ok()?,
        sequence: 0,
        discarded,
        begin: 0,
        end: 0,
        content_bits: 0,
        packet_bits: 0,
        thread: buffer.half(region::THREAD).into(),
    };
    open_calls::packet(layout, head, now, packets, &calls)
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
            thread: buffer.half(region::THREAD).into(),
        })
    });
    // Overlapping frames show a damaged file, whose frame count may exceed its size.
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
