//! Encodes records other than the short entries and exits.

use kymo_wire::event::{ByteOrder, EventId, Layout, OTHER_BITS, OTHER_BYTES, Shape};

use super::{Depth, Need};
use crate::Target;
use crate::hot::{Cursor, distance, store};
use crate::unaligned::{put32, put64};

/// A record that is neither a short entry nor a short exit: `id`, time, and a payload of at most 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    id: EventId,
    /// Length of the payload.
    bytes: usize,
    /// The payload as stored in memory.
    payload: [u32; 4],
}

/// Length in bytes of the first and second number in a record's payload: `w` is a word of the target, `f` the number of
/// a function. Other ids have no payload, or are no such record.
const fn sizes(id: EventId, layout: Layout) -> (usize, usize) {
    let w = layout.word.bytes();
    let f = layout.shape.named_bits() as usize / 8;
    match id {
        EventId::ExitNamed => (f, 0),
        EventId::EnterFrom => (f, w),
        EventId::EnterFarFrom => (w, w),
        EventId::Context | EventId::NamedMarker => (w, 4),
        EventId::EnterFar
        | EventId::ExitFar
        | EventId::SwitchedIn
        | EventId::SwitchedOutNamed
        | EventId::Setjmp
        | EventId::Longjmp => (w, 0),
        EventId::IsrEnter => (1, 0),
        EventId::SwitchedInNear
        | EventId::IsrEnterWide
        | EventId::IsrExitNamed
        | EventId::Recording => (2, 0),
        EventId::Marker => (4, 0),
        EventId::ClockGap => (8, 0),
        EventId::WallClock => (8, 4),
        _ => (0, 0),
    }
}

/// Requirements of a record of this form.
pub(super) fn need_of<T: Target>(form: EventId, depth: Depth) -> Need {
    let (a, b) = sizes(form, T::LAYOUT);
    Need {
        bytes: (T::LAYOUT.fast_bytes() + beyond(a + b)) as u32,
        bits: OTHER_BITS,
        depth,
    }
}

/// Bytes that are stored beyond those of a usual record, for this length of payload.
#[inline(always)]
const fn beyond(bytes: usize) -> usize {
    match bytes {
        0..=4 => 0,
        5..=8 => 4,
        _ => 12,
    }
}

impl Record {
    /// Builds a record whose payload is these two numbers.
    #[inline(always)]
    pub fn new<T: Target>(id: EventId, first: u64, second: usize) -> Self {
        let (a, b) = sizes(id, T::LAYOUT);
        let mut payload = [0; 4];
        let at = payload.as_mut_ptr().cast::<u8>();
        // SAFETY: the first number takes the first 8 bytes, and the second one as many behind those
        // that are used of these, which are at most 8.
        unsafe {
            put::<T>(at, first, a);
            put::<T>(at.add(a), second as u64, b);
        }
        Self {
            id,
            bytes: a + b,
            payload,
        }
    }

    /// Stores the record at `now` (truncated by [`low`](crate::hot::low)), if there is room and the time is near.
    ///
    /// # Safety
    /// Below the cursor's limit there is memory for [`Layout::fast_bytes`] bytes at `at`, which nobody
    /// else writes.
    #[inline(always)]
    pub unsafe fn store<T: Target>(&self, cursor: &Cursor, now: usize) -> bool {
        let at = cursor.at();
        if at as usize + beyond(self.bytes) >= cursor.limit()
            || distance::<T>(now, cursor.last.get()) >> OTHER_BITS != 0
        {
            return false;
        }
        let order = T::LAYOUT.order;
        let header = Shape::other_header(order, self.id, now as u64);
        let [first, second, third, fourth] = self.payload;
        // SAFETY: by this function's contract there is memory for a header and 4 bytes, and, as was
        // seen, for those beyond.
        unsafe {
            store(order, at, header, OTHER_BYTES);
            let payload = at.add(OTHER_BYTES);
            put32(payload, first);
            if self.bytes > 4 {
                put32(payload.add(4), second);
                if self.bytes > 8 {
                    put32(payload.add(8), third);
                    put32(payload.add(12), fourth);
                }
            }
        }
        cursor.commit(at.wrapping_add(OTHER_BYTES + self.bytes), now);
        true
    }
}

/// Stores the low `bytes` bytes of `value`, at most 8, in the target's order. The rest of the 8 bytes is undefined.
///
/// # Safety
/// There is memory for 8.
#[inline(always)]
unsafe fn put<T: Target>(at: *mut u8, value: u64, bytes: usize) {
    let value = match T::LAYOUT.order {
        ByteOrder::Little => value.to_le(),
        ByteOrder::Big => value.wrapping_shl(64 - 8 * bytes as u32).to_be(),
    };
    // SAFETY: by this function's contract.
    unsafe { put64(at, value) };
}
