//! Table of record headers, indexed by the first byte of a record. One lookup replaces the decisions
//! that [`Walk`](super::records::Walk) makes for every record.

use kymo_wire::event::{ByteOrder, EventId, Form, Layout};

use super::records::{Payload, payload};

/// Decoding parameters for records that begin with a certain byte. Shifts and masks apply to the
/// first eight bytes as an integer ([`load`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Mask of the clock's low bits, after shifting by `time_shift`.
    pub(super) time_mask: u64,
    /// Mask of the function number, after shifting by `function_shift`; 0 where there is none.
    pub(super) function_mask: u32,
    pub(super) time_shift: u8,
    pub(super) function_shift: u8,
    /// The size of the whole record in bytes; 0 where it depends on more than the first byte
    /// ([`HeaderTable::size`]).
    pub(super) size: u8,
    /// The kind of the record; [`EventId::Time`] also for first bytes of no record.
    pub(super) id: EventId,
}

impl Header {
    /// Whether the record is an entry or an exit of the usual forms.
    #[inline(always)]
    pub(super) const fn is_call(&self) -> bool {
        self.function_mask != 0 || matches!(self.id, EventId::Exit)
    }
}

/// [`Header`]s indexed by the first byte of a record.
#[derive(Debug)]
pub(super) struct HeaderTable {
    layout: Layout,
    headers: [Header; 256],
}

/// Size of a record whose first byte does not determine it.
pub(super) enum Size {
    /// The size in bytes.
    Bytes(usize),
    /// The packet ends before the field that holds the length.
    Cut,
    /// No record has this id.
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

    /// The size of the record at offset `at` of a packet, where its first byte does not determine it.
    #[cold]
    pub(super) fn size(&self, content: &[u8], at: usize) -> Size {
        self.size_of(content.get(at..).unwrap_or(&[]), at)
    }

    /// The size of the record at the start of `rest`, which is at offset `at` of its packet.
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
        // Records with a form of their own never use this one.
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
    // The bits that encode the form precede the time.
    let front = match form {
        Form::ExitShort => 1,
        Form::EnterShort | Form::ExitLong | Form::EnterLong => 3,
        Form::Other | Form::Time => 8,
    };
    // CTF fills bit fields from the first byte: at the low end on little-endian, the high end on big-endian.
    let (time_shift, function_shift) = match order {
        ByteOrder::Little => (front, front + time_bits),
        ByteOrder::Big => (
            64 - front - time_bits,
            64 - front - time_bits - function_bits,
        ),
    };
    let mask = |bits: u32| u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    // All of these fit into a byte.
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

/// Loads up to eight bytes from `at` as an integer, padded with zeros at the end: the first byte is the least
/// significant one on little-endian, the most significant one on big-endian.
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
