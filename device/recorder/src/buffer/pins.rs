//! Which packets hold records that the program is filling in place.
//!
//! Such a packet must not be overwritten, and no reader may have it or those behind it. What is being filled is counted
//! in two generations: each has the number of the first packet that may hold one of its records. A record of a later packet
//! joins the generation that is empty, and while neither is, the newer one. So a program that always has some record
//! open, but none for ever, holds back a packet only as long as the records of two generations take.
//!
//! A record may be finished on another processor than where it was reserved: then it is found by its address.

use super::Buffer;
use crate::Target;
use crate::sync::{AtomicU32, Ordering, change, load_acquire, store_release};

/// The generations. All zero without records.
#[derive(Debug)]
pub(super) struct Pins {
    /// How many records are being filled: of the first generation in the lower half, of the second in the upper one.
    counts: AtomicU32,
    /// The number of the first packet that may hold one, of each.
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

    /// How many packets before `packet` the first is that a generation may have records in.
    fn age(&self, second: bool, packet: u32) -> u32 {
        let [one, other] = &self.from;
        packet.wrapping_sub(load_acquire(if second { other } else { one }))
    }

    /// How many packets before `packet` the first one with a record is, of those that are before it at all; 0 if there
    /// is none.
    #[inline(never)]
    pub(super) fn oldest(&self, packet: u32) -> u32 {
        let counts = load_acquire(&self.counts);
        let mut oldest = 0;
        for (second, used) in [
            (false, !counts.is_multiple_of(SECOND)),
            (true, counts >= SECOND),
        ] {
            let age = self.age(second, packet);
            // What begins behind it has no record before it.
            if used && age <= u32::MAX / 2 {
                oldest = oldest.max(age);
            }
        }
        oldest
    }
}

impl<T: Target> Buffer<T> {
    /// One more record in the newest packet is being filled: packets from the first one on that holds any keep
    /// their places, and are not read, until [`unpin`](Self::unpin). False if there are too many.
    #[inline(always)]
    pub(crate) fn pin(&self) -> bool {
        let newest = self.begun.load(Ordering::Relaxed).wrapping_sub(1);
        let Pins { counts, from } = &self.pins;
        if load_acquire(counts) != 0 {
            return self.pin_beside(newest);
        }
        // A reader may see this beside counts from before: what was filled until then is whole.
        store_release(&from[0], newest);
        self.recount(|counts| counts + 1);
        true
    }

    /// Changes the counts, which another processor may do at the same moment where records are finished there; returns
    /// what they were. (Else that need not be one step: it would lock memory.)
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

    /// The same where there are others.
    #[cold]
    #[inline(never)]
    fn pin_beside(&self, newest: u32) -> bool {
        let Pins { counts, from } = &self.pins;
        let now = load_acquire(counts);
        let (first, second) = (now % SECOND, now / SECOND);
        let age = |second| self.pins.age(second, newest);
        // The one of this packet, or the one that is empty, or the newer one.
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

    /// The record with this data has been filled. `elsewhere`: the writer may be at work meanwhile.
    #[inline(always)]
    pub(crate) fn unpin(&self, data: *const u8, elsewhere: bool) {
        let counts = load_acquire(&self.pins.counts);
        let second = counts >= SECOND
            && (counts.is_multiple_of(SECOND) || self.is_of_second(data, elsewhere));
        let one = if second { SECOND } else { 1 };
        self.recount(|counts| counts.saturating_sub(one));
    }

    /// Whether a record is taken to be of the second generation, where both are used: of the newer of those that begin
    /// at its packet or before. Where another one held it back, that goes on until as many records have been finished
    /// as it counts: so both hold back too much at times, and never too little.
    #[cold]
    #[inline(never)]
    fn is_of_second(&self, data: *const u8, elsewhere: bool) -> bool {
        let begun = self.begun();
        let place = |at: u32| at / self.packet_bytes.get().max(1);
        let newest = place(self.start.load(Ordering::Relaxed));
        let offset = (data as usize).wrapping_sub(self.memory.address(0) as usize);
        let places = self.places();
        let back = (newest + places - place(offset as u32)) % places.max(1);
        // What is begun meanwhile makes it seem one packet older than it is, which would be too old.
        let age = if elsewhere { back } else { back + 1 };
        let (one, other) = (self.pins.age(false, begun), self.pins.age(true, begun));
        if other < one { other >= age } else { one < age }
    }

    /// Whether the byte at an address is one of this buffer's.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn holds(&self, data: *const u8) -> bool {
        let offset = (data as usize).wrapping_sub(self.memory.address(0) as usize);
        offset < self.memory.length() as usize
    }

    /// Makes the atomics of a model, before several threads use them.
    #[cfg(all(test, loom))]
    pub(crate) fn make_pins(&self) {
        self.pin();
        self.pin_beside(7);
        self.recount(|_| 0);
    }

    /// Whether records are being filled. Anybody may ask.
    pub fn is_pinned(&self) -> bool {
        load_acquire(&self.pins.counts) != 0
    }

    /// How many packets a reader may have taken: those that have been closed, but for what is being
    /// filled. (A record is reserved before its packet is closed, so who sees the packet closed sees
    /// that too.)
    pub(super) fn ready(&self) -> u32 {
        let closed = load_acquire(&self.closed);
        match self.is_pinned() {
            true => closed.wrapping_sub(self.pins.oldest(closed)),
            false => closed,
        }
    }

    /// Gives up the records that are being filled, because who did that is no more; returns how many there were. They
    /// stay unfinished.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn give_up(&self) -> u32 {
        let counts = self.recount(|_| 0);
        counts % SECOND + counts / SECOND
    }
}
