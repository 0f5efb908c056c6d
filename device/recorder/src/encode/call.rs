//! Records of complete calls, for duration mode.

use kymo_wire::event::{ByteOrder, EventId, OTHER_BITS, OTHER_BYTES, Shape};

use super::{Depth, Found, Need, Stream};
use crate::Target;
use crate::hot::{distance, low, store};

/// A complete call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeCall {
    /// How it ended: [`EventId::Call`], or another id with the payload of [`EventId::CallFar`].
    pub how: EventId,
    /// The function, without the Thumb bit.
    pub function: usize,
    /// Its duration.
    pub duration: u64,
    /// Its self time: the duration without its callees.
    pub own: u64,
    /// Its thread.
    pub thread: usize,
}

impl<T: Target> Stream<T> {
    /// Sets whether packets from the next one on hold records of calls.
    pub(crate) fn set_calls(&self, calls: bool) {
        self.buffer.set_calls(calls);
    }

    /// Records a call that ends at `now`, where no other context can interrupt; returns false if it is discarded.
    pub(crate) fn place_call(&self, now: u64, call: &WholeCall) -> bool {
        let layout = T::LAYOUT;
        let word = layout.word.bytes();
        let named = layout.shape.named_bits() as usize / 8;
        let Some(cursor) = self.cursor() else {
            self.add_discarded(1);
            return false;
        };
        let number = cursor.number::<T>(call.function);
        let short = call.how == EventId::Call
            && number as u64 >> layout.shape.named_bits() == 0
            && (call.duration | call.own) >> 32 == 0;
        let id = match call.how {
            EventId::Call if !short => EventId::CallFar,
            how => how,
        };
        let (function, first, time) = match short {
            true => (number, named, 4),
            false => (call.function, word, 8),
        };
        let bytes = OTHER_BYTES + first + 2 * time + word;
        let need = Need {
            // The function is stored as the next power of two of bytes; the fields behind it then overwrite the excess.
            bytes: (layout.fast_bytes() + bytes) as u32,
            bits: OTHER_BITS,
            depth: Depth::Stays,
        };
        loop {
            let at = cursor.at();
            let now_low = low::<T>(now);
            let near = distance::<T>(now_low, cursor.last.get()) >> OTHER_BITS == 0;
            if near && (at as usize + bytes) < cursor.limit() {
                let order = layout.order;
                let mut to = at;
                // SAFETY: below the limit there is room for all of the record, and behind that for the fast path's
                // longest, so also for what is stored beyond an end.
                unsafe {
                    put(
                        order,
                        &mut to,
                        Shape::other_header(order, id, now),
                        OTHER_BYTES,
                    );
                    if short {
                        put(order, &mut to, function as u64, named);
                        put(order, &mut to, call.duration, 4);
                        put(order, &mut to, call.own, 4);
                    } else {
                        put(order, &mut to, function as u64, word);
                        put(order, &mut to, call.duration, 8);
                        put(order, &mut to, call.own, 8);
                    }
                    put(order, &mut to, call.thread as u64, word);
                }
                cursor.commit(to, now_low);
                return true;
            }
            if self.make_room(need, now) != Found::Again {
                return false;
            }
        }
    }
}

/// Stores the low `bytes` bytes of a number, and advances the address. (Inlined, so that `bytes` is a constant.)
///
/// # Safety
/// As of [`store`].
#[inline(always)]
unsafe fn put(order: ByteOrder, to: &mut *mut u8, value: u64, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe { store(order, *to, value, bytes) };
    *to = to.wrapping_add(bytes);
}
