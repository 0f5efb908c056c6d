//! Direct recording of switches, interrupts and markers on one processor, with interrupts masked once.

use super::{Single, SinglePort};
use crate::Event;
use crate::hot::{Hot, distance, low};
use crate::writer::Place;
use kymo_wire::event::OTHER_BITS;

impl<P: SinglePort + 'static> Single<P> {
    /// Records an event with interrupts masked once, if it needs nothing but a record; returns false if it must be
    /// recorded in the [general way](Self::hook_event). For an event whose kind is a constant: code for other kinds is
    /// removed.
    ///
    /// The cursor's limit is 0 whenever nothing is to be recorded, so the gate need not be checked.
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
            // (Compilers that optimize for size would otherwise outline these loads.)
            let cursor = P::somewhere(cursor);
            if (P::GUARDED && self.inside.get()) || at as usize + beyond >= cursor.limit() {
                break 'done false;
            }
            // SAFETY: the counter exists.
            let now = low::<P>(unsafe { self.port.read(counter) }.into());
            let cursor = P::somewhere(cursor);
            if distance::<P>(now, cursor.last.get()) >> OTHER_BITS != 0 {
                break 'done false;
            }
            let place = Place { cursor, at, now };
            // SAFETY: below the limit there is memory for the fast path's longest record and, as was checked, for what
            // this takes beyond; no other context interrupts.
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
