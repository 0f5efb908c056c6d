//! Records into scratch memory, to measure how long recording takes.

use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use super::Stream;
use crate::Target;
use crate::hot::{Cursor, Saved, low};

/// Space for the two longest records that a probe can write, and for the bytes that are stored beyond their ends.
pub(crate) type Scratch = MaybeUninit<[u64; 8]>;

/// State of a [`Stream`] before a probe.
#[derive(Debug)]
pub(crate) struct Before {
    cursor: Saved,
    place_end: *mut u8,
    last: u64,
    discarded: u32,
}

impl<T: Target> Stream<T> {
    /// Diverts records to `scratch` until [`resume`](Self::resume). The caller masks interrupts from here until then,
    /// and the stream has been set up with this cursor.
    #[inline(always)]
    pub(crate) fn divert(&self, cursor: &Cursor, scratch: &mut Scratch) -> Before {
        let before = Before {
            last: self.last.get(),
            cursor: cursor.save(),
            place_end: self.end.get(),
            discarded: self.buffer.discarded(),
        };
        // (Without this, compilers would keep three addresses derived from it.)
        let at = black_box(scratch.as_mut_ptr());
        cursor.at.store(at.cast(), Ordering::Relaxed);
        self.end.set(at.wrapping_add(1).cast());
        self.scratch.set(at.cast());
        self.open(cursor);
        before
    }

    /// Sets the time of the last record, in as few instructions as possible.
    #[inline(always)]
    pub(crate) fn say_last(&self, cursor: &Cursor, last: u64) {
        self.last.set(last);
        cursor.last.set(low::<T>(last));
    }

    /// Restores the state before [`divert`](Self::divert); the next event takes the slow path.
    #[inline(always)]
    pub(crate) fn resume(&self, cursor: &Cursor, before: Before) {
        self.scratch.set(null_mut());
        self.end.set(before.place_end);
        self.last.set(before.last);
        self.buffer.set_discarded(before.discarded);
        cursor.restore(before.cursor);
    }

    /// While records are diverted, restarts the scratch memory at `now` instead of changing the packet. With a clock so
    /// fast that each attempt is far from the one before, `time` records would fill any space.
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
