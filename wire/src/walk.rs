//! Sizes and times of a packet's records, without their meaning.
//!
//! Readers check a packet with it before they decode its events, and a target what a reset left in its memory.

use crate::event::{BLOCK_ALIGN, ByteOrder, EventId, Form, Layout, PacketHeader, Shape};

/// Size of the payload after the header of a [`Form::Other`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// So many bytes.
    Bytes(usize),
    /// Two 16-bit numbers, followed by as many bytes as the second one states. The numbers are
    /// aligned in the packet; the value is the alignment in bytes.
    Counted(usize),
}

/// The payload of a record with this id; `None` if no [`Form::Other`] record has it.
pub fn payload(layout: Layout, id: EventId) -> Option<Payload> {
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

/// A record whose id no event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The offset of the record in its packet.
    pub at: usize,
    /// The id.
    pub id: u8,
}

/// Iterator over a packet's records that decodes only their sizes and times.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    layout: Layout,
    content: &'a [u8],
    /// The offset of the next record.
    at: usize,
    /// The time of the last record, in ticks.
    pub clock: u64,
    /// The payload of the last record.
    pub payload: &'a [u8],
}

impl<'a> Walk<'a> {
    /// Starts at the first record of a packet.
    pub const fn new(layout: Layout, header: &PacketHeader, content: &'a [u8]) -> Self {
        Self {
            layout,
            content,
            at: layout.header_bytes(),
            clock: header.begin,
            payload: &[],
        }
    }

    /// The offset of the next record in the packet.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// Skips the next record and returns its id; `None` if the record is incomplete.
    ///
    /// # Errors
    /// If the id is unknown.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<EventId>, UnknownEvent> {
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
                        return Err(UnknownEvent {
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
pub const fn advance(clock: u64, time: u64, bits: u32) -> u64 {
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
pub fn number(order: ByteOrder, bytes: &[u8]) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, fold),
        ByteOrder::Big => bytes.iter().fold(0, fold),
    }
}
