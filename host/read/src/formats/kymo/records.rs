//! Validation of the records in a packet.
//!
//! The CTF reader decodes events, but cannot detect bytes that a lossy link has damaged. Every
//! packet is therefore checked first. The check decodes only the size and the time of each record.

use kymo_wire::event::{BLOCK_ALIGN, ByteOrder, EventId, Form, Layout, PacketHeader, Shape};
use kymo_wire::items;
use kymo_wire::packet::ITEM_STREAM;

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
    let mut last = walk.at;
    // Calls entered in this packet; may exceed the target's own count, which a switch resets.
    let mut entered = 0u64;
    let nested = header.flags & PacketHeader::FLAG_NESTED != 0;
    loop {
        let at = walk.at;
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
            Err(fault) => return (at, Some(fault)),
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

/// Size of the payload after the header of a [`Form::Other`] record.
pub(super) enum Payload {
    Bytes(usize),
    /// Two 16-bit numbers, followed by as many bytes as the second one states. The numbers are
    /// aligned in the packet; the value is the alignment in bytes.
    Counted(usize),
}

/// The payload of a record with this id; `None` if no [`Form::Other`] record has it.
pub(super) fn payload(layout: Layout, id: EventId) -> Option<Payload> {
    let word = layout.word.bytes();
    let function = layout.shape.named_bits() as usize / 8;
    Some(Payload::Bytes(match id {
        // These have forms of their own; no target writes them as `Form::Other`.
        EventId::Enter | EventId::Exit | EventId::EnterLong | EventId::Time => return None,
        EventId::ExitNamed => function,
        EventId::EnterFar | EventId::ExitFar => word,
        EventId::EnterFrom => function + word,
        EventId::EnterFarFrom => 2 * word,
        EventId::Context | EventId::NamedMarker => word + 4,
        EventId::SwitchedIn | EventId::SwitchedOutNamed => word,
        EventId::Setjmp | EventId::Longjmp => word,
        EventId::SwitchedOut | EventId::IsrExit => 0,
        EventId::IsrEnter => 1,
        EventId::SwitchedInNear
        | EventId::IsrEnterWide
        | EventId::IsrExitNamed
        | EventId::Recording => 2,
        EventId::Marker => 4,
        EventId::ClockGap => 8,
        EventId::WallClock => 12,
        EventId::Call => function + 8 + word,
        EventId::CallFar | EventId::CallOpen | EventId::CallLost => 16 + 2 * word,
        EventId::Metadata => return Some(Payload::Counted(1)),
        EventId::Block => return Some(Payload::Counted(BLOCK_ALIGN)),
    }))
}

/// Iterator over a packet's records that decodes only their sizes and times.
pub(super) struct Walk<'a> {
    layout: Layout,
    content: &'a [u8],
    /// The offset of the next record.
    at: usize,
    /// The time of the last record, in ticks.
    pub(super) clock: u64,
    /// The payload of the last record.
    pub(super) payload: &'a [u8],
}

impl<'a> Walk<'a> {
    /// Starts at the first record of a packet.
    pub(super) const fn new(layout: Layout, header: &PacketHeader, content: &'a [u8]) -> Self {
        Self {
            layout,
            content,
            at: layout.header_bytes(),
            clock: header.begin,
            payload: &[],
        }
    }

    /// Skips the next record and returns its id; `None` if the record is incomplete.
    ///
    /// # Errors
    /// If the id is unknown.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<EventId>, Fault> {
        let Layout { shape, order, .. } = self.layout;
        let rest = self.content.get(self.at..).unwrap_or(&[]);
        let Some(&first) = rest.first() else {
            return Ok(None);
        };
        let form = Form::of(order, first);
        let bits = shape.time_bits(form);
        let time = time(shape, order, form, head(order, rest));
        let size = shape.bytes(form);
        let (id, bytes) = match form {
            Form::ExitShort | Form::ExitLong => (EventId::Exit, 0),
            // The function fills the record.
            Form::EnterShort => (EventId::Enter, 0),
            Form::EnterLong => (EventId::EnterLong, 0),
            Form::Time => (EventId::Time, 0),
            Form::Other => {
                let number = Form::other_id(order, first);
                let id = EventId::from_number(number);
                let known = id.and_then(|id| Some((id, payload(self.layout, id)?)));
                match known {
                    Some((id, Payload::Bytes(bytes))) => (id, bytes),
                    Some((id, Payload::Counted(align))) => {
                        let from = self.at + size;
                        let pad = from.next_multiple_of(align) - from;
                        match rest.get(size + pad + 2..size + pad + 4) {
                            Some(length) => (id, pad + 4 + self::number(order, length) as usize),
                            None => return Ok(None),
                        }
                    }
                    None => {
                        return Err(Fault::UnknownEvent {
                            at: self.at,
                            id: number,
                        });
                    }
                }
            }
        };
        let Some(payload) = rest.get(size..size + bytes) else {
            return Ok(None);
        };
        self.at += size + payload.len();
        self.clock = advance(self.clock, time, bits);
        self.payload = payload;
        Ok(Some(id))
    }
}

/// Loads up to eight bytes as an integer: the first byte is the least significant one on little-endian, the
/// most significant one on big-endian.
#[inline]
fn head(order: ByteOrder, bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    match bytes.first_chunk() {
        Some(whole) => head = *whole,
        None => head
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from),
    }
    match order {
        ByteOrder::Little => u64::from_le_bytes(head),
        ByteOrder::Big => u64::from_be_bytes(head),
    }
}

/// The low bits of the clock in a record of this form; `head` is its first eight bytes.
#[inline]
const fn time(shape: Shape, order: ByteOrder, form: Form, head: u64) -> u64 {
    let from = match form {
        Form::ExitShort => 1,
        Form::EnterShort | Form::ExitLong | Form::EnterLong => 3,
        Form::Other | Form::Time => 8,
    };
    let bits = shape.time_bits(form);
    // CTF fills bit fields from the first byte: at the low end on little-endian, the high end on big-endian.
    let shift = match order {
        ByteOrder::Little => from,
        ByteOrder::Big => 64 - from - bits,
    };
    head >> shift & ((1 << bits) - 1)
}

/// The first tick at or after `clock` with these low bits (CTF's partial clock update).
const fn advance(clock: u64, time: u64, bits: u32) -> u64 {
    let turn = 1u64 << bits;
    let low = clock & (turn - 1);
    let next = (clock - low).wrapping_add(time);
    if time < low {
        next.wrapping_add(turn)
    } else {
        next
    }
}

/// Decodes an unsigned integer of at most 8 bytes.
pub(crate) fn number(order: ByteOrder, bytes: &[u8]) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, fold),
        ByteOrder::Big => bytes.iter().fold(0, fold),
    }
}
