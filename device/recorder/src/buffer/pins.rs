//! Reservations: which packets hold records that the program is filling in place.
//!
//! Such a packet must not be overwritten, and no reader may get it or those behind it. Records that are being filled
//! are counted in two generations, each with the number of the first packet that may hold one of its records. A new
//! record joins the generation whose first packet is its own, else an empty one, and if neither is empty the newer one.
//! A program that always has some record open, but none for ever, thus holds back a packet only as long as the records
//! of two generations take.
//!
//! A record may be finished on another processor than the one that reserved it: then its generation is found by its
//! address.

use super::Buffer;
use crate::Target;
use crate::sync::{AtomicU32, Ordering, change, load_acquire, store_release};

/// The counts of both generations. All zero while no record is being filled.
#[derive(Debug)]
pub(super) struct Pins {
    /// Number of records being filled: of the first generation in the lower half, of the second in the upper half.
    counts: AtomicU32,
    /// For each generation, the number of the first packet that may hold one of its records.
    from: [AtomicU32; 2],
}

/// One record of the second generation in the counts; 1 is one of the first.
const SECOND: u32 = 1 << 16;

impl Pins {
    pub(super) const fn new() -> Self {
        Self {
            counts: AtomicU32::new(0),
            from: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    /// How many packets before `packet` the first one lies in which a generation may have records.
    fn age(&self, second: bool, packet: u32) -> u32 {
        let [one, other] = &self.from;
        packet.wrapping_sub(load_acquire(if second { other } else { one }))
    }

    /// How many packets before `packet` the oldest one lies that may have a record being filled; 0 if there is none.
    #[inline(never)]
    pub(super) fn oldest(&self, packet: u32) -> u32 {
        let counts = load_acquire(&self.counts);
        let mut oldest = 0;
        for (second, used) in [
            (false, !counts.is_multiple_of(SECOND)),
            (true, counts >= SECOND),
        ] {
            let age = self.age(second, packet);
            // A generation that begins behind `packet` has no record before it.
            if used && age <= u32::MAX / 2 {
                oldest = oldest.max(age);
            }
        }
        oldest
    }
}

impl<T: Target> Buffer<T> {
    /// Reserves the newest packet for one more record. From the first packet with such a record on, packets keep their
    /// slots and are not read until [`unpin`](Self::unpin). Returns false if too many records are being filled.
    #[inline(always)]
    pub(crate) fn pin(&self) -> bool {
        let newest = self.begun.load(Ordering::Relaxed).wrapping_sub(1);
        let Pins { counts, from } = &self.pins;
        if load_acquire(counts) != 0 {
            return self.pin_beside(newest);
        }
        // A reader may see the new `from` with old counts: then no record was being filled, so all until then are
        // complete.
        store_release(&from[0], newest);
        self.recount(|counts| counts + 1);
        true
    }

    /// Changes the counts and returns the previous ones. Atomic where records may be finished on another processor,
    /// which may change the counts at the same time. (Elsewhere a load and a store are enough, and cheaper than a
    /// locked instruction.)
    #[inline(always)]
    fn recount(&self, to: impl Fn(u32) -> u32) -> u32 {
        let counts = &self.pins.counts;
        if T::FINISHED_ELSEWHERE {
            return change(counts, to);
        }
        let before = counts.load(Ordering::Relaxed);
        store_release(counts, to(before));
        before
    }

    /// [`pin`](Self::pin) while other records are being filled.
    #[cold]
    #[inline(never)]
    fn pin_beside(&self, newest: u32) -> bool {
        let Pins { counts, from } = &self.pins;
        let now = load_acquire(counts);
        let (first, second) = (now % SECOND, now / SECOND);
        let age = |second| self.pins.age(second, newest);
        // The generation that begins with this packet, else an empty one, else the newer one.
        let joins = match (first, second) {
            (0, _) => second != 0 && age(true) == 0,
            (_, 0) => age(false) != 0,
            _ => age(true) < age(false),
        };
        let (count, place, one) = match joins {
            true => (second, &from[1], SECOND),
            false => (first, &from[0], 1),
        };
        if count == SECOND - 1 {
            return false;
        }
        if count == 0 {
            store_release(place, newest);
        }
        self.recount(|counts| counts + one);
        true
    }

    /// Releases the reservation of the record with this data. `elsewhere`: the writer may be running meanwhile.
    #[inline(always)]
    pub(crate) fn unpin(&self, data: *const u8, elsewhere: bool) {
        let counts = load_acquire(&self.pins.counts);
        let second = counts >= SECOND
            && (counts.is_multiple_of(SECOND) || self.is_of_second(data, elsewhere));
        let one = if second { SECOND } else { 1 };
        self.recount(|counts| counts.saturating_sub(one));
    }

    /// Whether a record is attributed to the second generation, where both are in use: to the newer of those that begin
    /// at its packet or before. If the record was counted in the other generation, that one holds packets back until as
    /// many records have been finished as it counts: so generations may hold back too many packets, but never too few.
    #[cold]
    #[inline(never)]
    fn is_of_second(&self, data: *const u8, elsewhere: bool) -> bool {
        let begun = self.begun();
        let place = |at: u32| at / self.packet_bytes.get().max(1);
        let newest = place(self.start.load(Ordering::Relaxed));
        let offset = (data as usize).wrapping_sub(self.memory.address(0) as usize);
        let places = self.places();
        let back = (newest + places - place(offset as u32)) % places.max(1);
        // A packet begun meanwhile would make the record seem one packet older, which would be too old.
        let age = if elsewhere { back } else { back + 1 };
        let (one, other) = (self.pins.age(false, begun), self.pins.age(true, begun));
        if other < one { other >= age } else { one < age }
    }

    /// Whether an address is within this buffer's memory.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn holds(&self, data: *const u8) -> bool {
        let offset = (data as usize).wrapping_sub(self.memory.address(0) as usize);
        offset < self.memory.length() as usize
    }

    /// Creates the atomics in a loom model, before several threads use them.
    #[cfg(all(test, loom))]
    pub(crate) fn make_pins(&self) {
        self.pin();
        self.pin_beside(7);
        self.recount(|_| 0);
    }

    /// Whether records are being filled. Any context may call it.
    pub fn is_pinned(&self) -> bool {
        load_acquire(&self.pins.counts) != 0
    }

    /// How many packets a reader may consume: those that are closed, up to the first one with a record being filled. (A
    /// record is reserved before its packet is closed, so a reader that sees the closed packet sees the reservation,
    /// too.)
    pub(super) fn ready(&self) -> u32 {
        let closed = load_acquire(&self.closed);
        match self.is_pinned() {
            true => closed.wrapping_sub(self.pins.oldest(closed)),
            false => closed,
        }
    }

    /// Drops all reservations, because the context that filled the records no longer exists; returns how many there
    /// were. The records remain unfinished.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn give_up(&self) -> u32 {
        let counts = self.recount(|_| 0);
        counts % SECOND + counts / SECOND
    }
}
