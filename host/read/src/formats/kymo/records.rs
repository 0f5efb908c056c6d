//! Validation of the records in a packet.
//!
//! The CTF reader decodes events, but cannot detect bytes that a lossy link has damaged. Every
//! packet is therefore checked first. The check decodes only the size and the time of each record.

use kymo_wire::event::{EventId, Layout, PacketHeader};
use kymo_wire::items;
use kymo_wire::packet::ITEM_STREAM;
pub(crate) use kymo_wire::walk::number;
pub(super) use kymo_wire::walk::{Payload, Walk, payload};
use kymo_wire::walk::{UnknownEvent, advance};

use super::packets::Fault;

/// Number of zero bytes at the start of a record that count as a hole (the missing part of a dump):
/// as records they would be several entries of function 0 at the same time.
pub(super) const HOLE: usize = 12;

/// Checks the records of a packet: `content` is its header and records, without padding.
/// Returns the end of the last valid record, and the fault if that is not the end of the content.
pub(super) fn check(
    layout: Layout,
    header: &PacketHeader,
    content: &[u8],
) -> (usize, Option<Fault>) {
    if header.stream == ITEM_STREAM {
        return check_items(layout, header, content);
    }
    let mut walk = Walk::new(layout, header, content);
    let mut last = walk.offset();
    // Calls entered in this packet; may exceed the target's own count, which a switch resets.
    let mut entered = 0u64;
    let nested = header.flags & PacketHeader::FLAG_NESTED != 0;
    loop {
        let at = walk.offset();
        let rest = content.get(at..).unwrap_or(&[]);
        if rest.is_empty() {
            return (at, None);
        }
        if rest
            .first_chunk::<HOLE>()
            .is_some_and(|bytes| *bytes == [0; HOLE])
        {
            // The hole may have begun inside the last record.
            let torn = content.get(at - 1) == Some(&0);
            return (if torn { last } else { at }, Some(Fault::Hole));
        }
        let id = match walk.next() {
            Ok(Some(id)) => id,
            Ok(None) => {
                let found = rest.len();
                return (at, Some(Fault::EventCut { at, found }));
            }
            Err(UnknownEvent { at, id }) => return (at, Some(Fault::UnknownEvent { at, id })),
        };
        match id {
            EventId::Enter
            | EventId::EnterLong
            | EventId::EnterFar
            | EventId::EnterFrom
            | EventId::EnterFarFrom => entered += 1,
            EventId::Exit if !nested => match entered.checked_sub(1) {
                Some(left) => entered = left,
                None => return (at, Some(Fault::ExitWithoutEnter { at })),
            },
            _ => {}
        }
        if walk.clock > header.end {
            let (end, found) = (header.end, walk.clock);
            return (at, Some(Fault::EventLate { at, end, found }));
        }
        last = at;
    }
}

/// The time of the last whole record, in ticks, for packets that were not completed.
pub(super) fn end(layout: Layout, header: &PacketHeader, content: &[u8]) -> u64 {
    if header.stream == ITEM_STREAM {
        let content = content.get(items::header_bytes(layout)..).unwrap_or(&[]);
        let items = content.chunks_exact(items::item_bytes(layout.word));
        return items.fold(header.begin, |clock, item| after_item(layout, clock, item));
    }
    let mut walk = Walk::new(layout, header, content);
    while let Ok(Some(_)) = walk.next() {}
    walk.clock
}

/// The clock after an item.
fn after_item(layout: Layout, clock: u64, item: &[u8]) -> u64 {
    let order = layout.order;
    let half = |from: usize| number(order, item.get(from..from + 4).unwrap_or(&[])) as u32;
    let (id, time) = items::split(order, half(0));
    match id {
        items::TIME => items::from_long_time(order, clock, [half(0), half(4)]),
        _ => advance(clock, time.into(), items::TIME_BITS),
    }
}

/// [`check`] of a packet of items.
fn check_items(layout: Layout, header: &PacketHeader, content: &[u8]) -> (usize, Option<Fault>) {
    let size = items::item_bytes(layout.word);
    let mut at = items::header_bytes(layout);
    let mut clock = header.begin;
    for item in content.get(at..).unwrap_or(&[]).chunks(size) {
        if item.len() < size {
            let found = item.len();
            return (at, Some(Fault::EventCut { at, found }));
        }
        if content
            .get(at..)
            .and_then(<[u8]>::first_chunk::<HOLE>)
            .is_some_and(|bytes| *bytes == [0; HOLE])
        {
            return (at, Some(Fault::Hole));
        }
        clock = after_item(layout, clock, item);
        if clock > header.end {
            let (end, found) = (header.end, clock);
            return (at, Some(Fault::EventLate { at, end, found }));
        }
        at += size;
    }
    (at, None)
}
