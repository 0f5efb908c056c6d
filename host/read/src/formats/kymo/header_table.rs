//! What the first byte of a record tells: one look-up in the place of the decisions that
//! [`Walk`](super::records::Walk) makes for every record.

use kymo_wire::event::{ByteOrder, EventId, Form, Layout};

use super::records::{Payload, payload};

/// How to read a record that begins with a certain byte. Shifts and masks are those of the first
/// eight bytes as an integer ([`load`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The low bits of the clock, behind `time_shift`.
    pub(super) time_mask: u64,
    /// The function, behind `function_shift`; 0 where there is none.
    pub(super) function_mask: u32,
    pub(super) time_shift: u8,
    pub(super) function_shift: u8,
    /// The bytes of the whole record; 0 where more than the first byte tells ([`HeaderTable::size`]).
    pub(super) size: u8,
    /// What it is; [`EventId::Time`] also where it is nothing.
    pub(super) id: EventId,
}

impl Header {
    /// Whether it is that of an entry or of an exit of the usual forms.
    #[inline(always)]
    pub(super) const fn is_call(&self) -> bool {
        self.function_mask != 0 || matches!(self.id, EventId::Exit)
    }
}

/// [`Header`]s by first bytes.
#[derive(Debug)]
pub(super) struct HeaderTable {
    layout: Layout,
    headers: [Header; 256],
}

/// What a record is that has no fixed size.
pub(super) enum Size {
    /// So many bytes.
    Bytes(usize),
    /// More than there are in the packet.
    Cut,
    /// There is no record with this id.
    Unknown(u8),
}

impl HeaderTable {
    pub(super) fn new(layout: Layout) -> Self {
        let mut first = 0;
        let headers = [(); 256].map(|()| {
            let header = header(layout, first);
            first = first.wrapping_add(1);
            header
        });
        Self { layout, headers }
    }

    #[inline(always)]
    pub(super) fn get(&self, first: u8) -> &Header {
        &self.headers[usize::from(first)]
    }

    /// The size of the record at `at` of a packet, whose first byte does not tell it.
    #[cold]
    pub(super) fn size(&self, content: &[u8], at: usize) -> Size {
        self.size_of(content.get(at..).unwrap_or(&[]), at)
    }

    /// The size of the record that `rest` begins with, at `at` of its packet.
    #[cold]
    pub(super) fn size_of(&self, rest: &[u8], at: usize) -> Size {
        let Layout { shape, order, .. } = self.layout;
        let first = rest.first().copied().unwrap_or(0);
        let number = Form::other_id(order, first);
        let payload = EventId::from_number(number).and_then(|id| payload(self.layout, id));
        let header = shape.bytes(Form::of(order, first));
        match payload {
            None => Size::Unknown(number),
            Some(Payload::Bytes(bytes)) => Size::Bytes(header + bytes),
            Some(Payload::Counted(align)) => {
                let counted = (at + header).next_multiple_of(align);
                match rest.get(counted - at + 2..counted - at + 4) {
                    Some(length) => {
                        let length = super::number(order, length) as usize;
                        Size::Bytes(counted + 4 + length - at)
                    }
                    None => Size::Cut,
                }
            }
        }
    }
}

fn header(layout: Layout, first: u8) -> Header {
    let Layout { shape, order, .. } = layout;
    let form = Form::of(order, first);
    let id = match form {
        Form::ExitShort | Form::ExitLong => Some(EventId::Exit),
        Form::EnterShort => Some(EventId::Enter),
        Form::EnterLong => Some(EventId::EnterLong),
        Form::Time => Some(EventId::Time),
        // Of what has a form of its own there is none in this one.
        Form::Other => EventId::from_number(Form::other_id(order, first))
            .filter(|id| payload(layout, *id).is_some()),
    };
    let header = shape.bytes(form);
    let size = match (form, id.and_then(|id| payload(layout, id))) {
        (Form::Other, Some(Payload::Bytes(bytes))) => header + bytes,
        (Form::Other, _) => 0,
        _ => header,
    };
    let time_bits = shape.time_bits(form);
    let function_bits = shape.function_bits(form);
    // The bits that tell the form stand in front of the time.
    let front = match form {
        Form::ExitShort => 1,
        Form::EnterShort | Form::ExitLong | Form::EnterLong => 3,
        Form::Other | Form::Time => 8,
    };
    // Bit fields fill a record from the end at which its first byte is.
    let (time_shift, function_shift) = match order {
        ByteOrder::Little => (front, front + time_bits),
        ByteOrder::Big => (
            64 - front - time_bits,
            64 - front - time_bits - function_bits,
        ),
    };
    let mask = |bits: u32| u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    // None of these is larger than what a byte holds.
    let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    Header {
        time_mask: mask(time_bits),
        function_mask: u32::try_from(mask(function_bits)).unwrap_or(u32::MAX),
        time_shift: byte(time_shift & 63),
        function_shift: byte(function_shift & 63),
        size: u8::try_from(size).unwrap_or(0),
        id: id.unwrap_or(EventId::Time),
    }
}

/// The first eight bytes from `at` on, or as many as there are, as an integer: from its least significant
/// byte on little-endian, from its most significant one on big-endian.
#[inline(always)]
pub(super) fn load(big: bool, bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let head = match rest.first_chunk() {
        Some(whole) => *whole,
        None => short(rest),
    };
    if big {
        u64::from_be_bytes(head)
    } else {
        u64::from_le_bytes(head)
    }
}

#[cold]
fn short(bytes: &[u8]) -> [u8; 8] {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = *from;
    }
    head
}

#[cfg(test)]
mod tests {
    use kymo_wire::event::{Shape, WordSize};

    use super::*;

    #[test]
    fn what_is_no_record_is_no_call() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let layout = Layout {
                shape: Shape::Compact,
                word: WordSize::Bits32,
                order,
                function_shift: 1,
            };
            for first in 0..=255 {
                let header = header(layout, first);
                let is_other = Form::of(order, first) == Form::Other;
                assert!(!is_other || !header.is_call(), "{first:#x}");
                assert!(header.size > 0 || !header.is_call(), "{first:#x}");
            }
        }
    }
}
