//! Switches, interrupts and markers on one processor: one masked encode.

use super::{Single, SinglePort};
use crate::Event;
use crate::hot::{Hot, distance, low};
use crate::writer::Place;
use kymo_wire::event::OTHER_BITS;

impl<P: SinglePort + 'static> Single<P> {
    /// Records an event with interrupts masked once, if its record is all that it takes; false if it is to
    /// be recorded in the [general way](Self::say). For an event whose kind is a constant: what it does not
    /// take leaves no code.
    ///
    /// The cursor's limit is 0 whenever nothing is to be recorded, so the gate need not be looked at.
    #[inline(always)]
    pub fn record_direct(&self, hot: &Hot, event: Event) -> bool {
        let Some(bytes) = crate::Writer::<P>::direct_bytes(event) else {
            return false;
        };
        if !self.writer.is_direct(event) || !self.is_allowed(hot) {
            return false;
        }
        let beyond = bytes.saturating_sub(P::LAYOUT.fast_bytes());
        let cursor = &hot.cursor;
        let was = self.port.mask();
        let done = 'done: {
            let (counter, at) = (cursor.counter.get(), cursor.at());
            // (A compiler that wants small code would have these loads in a function of their own.)
            let cursor = P::somewhere(cursor);
            if (P::GUARDED && self.inside.get()) || at as usize + beyond >= cursor.limit() {
                break 'done false;
            }
            // SAFETY: the counter is there.
            let now = low::<P>(unsafe { self.port.read(counter) }.into());
            let cursor = P::somewhere(cursor);
            if distance::<P>(now, cursor.last.get()) >> OTHER_BITS != 0 {
                break 'done false;
            }
            let place = Place { cursor, at, now };
            // SAFETY: below the limit there is memory for the fast path's longest record, and, as was
            // seen, for what this takes beyond; nobody else comes here.
            match unsafe { self.writer.record_direct(&place, event) } {
                Some(end) => cursor.commit(end, now),
                None => break 'done false,
            }
            true
        };
        self.port.unmask(was);
        done
    }
}
