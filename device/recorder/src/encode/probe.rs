//! Recording into nowhere, to see how long it takes.

use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use super::Stream;
use crate::Target;
use crate::hot::{Cursor, Saved, low};

/// Room for the longest two records that a probe leads to, and for what is stored beyond their ends.
pub(crate) type Scratch = MaybeUninit<[u64; 8]>;

/// What a [`Stream`] was before a probe.
#[derive(Debug)]
pub(crate) struct Before {
    cursor: Saved,
    place_end: *mut u8,
    last: u64,
    discarded: u32,
}

impl<T: Target> Stream<T> {
    /// Records go to `scratch` from now on, until [`resume`](Self::resume). With interrupts masked all
    /// the while. The stream has been set up with this cursor.
    #[inline(always)]
    pub(crate) fn divert(&self, cursor: &Cursor, scratch: &mut Scratch) -> Before {
        let before = Before {
            last: self.last.get(),
            cursor: cursor.save(),
            place_end: self.end.get(),
            discarded: self.buffer.discarded(),
        };
        // (Compilers would keep three addresses of it.)
        let at = black_box(scratch.as_mut_ptr());
        cursor.at.store(at.cast(), Ordering::Relaxed);
        self.end.set(at.wrapping_add(1).cast());
        self.scratch.set(at.cast());
        self.open(cursor);
        before
    }

    /// The last record is said to have been at `last`: as few instructions as can be.
    #[inline(always)]
    pub(crate) fn say_last(&self, cursor: &Cursor, last: u64) {
        self.last.set(last);
        cursor.last.set(low::<T>(last));
    }

    /// Goes on as before [`divert`](Self::divert); the next event takes the slow path.
    #[inline(always)]
    pub(crate) fn resume(&self, cursor: &Cursor, before: Before) {
        self.scratch.set(null_mut());
        self.end.set(before.place_end);
        self.last.set(before.last);
        self.buffer.set_discarded(before.discarded);
        cursor.restore(before.cursor);
    }

    /// Where records are diverted, lets them begin anew at `now` instead of in a packet that would be another one: a clock
    /// of so many ticks that each try is far from the one before fills any room with times.
    #[inline(always)]
    pub(super) fn rewind(&self, cursor: &Cursor, now: u64) -> bool {
        let scratch = self.scratch.get();
        if scratch.is_null() {
            return false;
        }
        self.last.set(now);
        cursor.commit(scratch, low::<T>(now));
        self.open(cursor);
        true
    }
}
