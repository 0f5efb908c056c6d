//! Recording into nowhere, to see how long it takes.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use super::Stream;
use crate::Target;
use crate::hot::{Saved, low};

/// Room for the longest records that a probe leads to, and for what is stored beyond their ends.
pub(crate) type Scratch = MaybeUninit<[u64; 8]>;

/// What a [`Stream`] was before a probe.
#[derive(Debug)]
pub(crate) struct Before {
    cursor: Saved,
    place_end: *mut u8,
    last: u64,
    isr_before: u8,
}

impl<T: Target> Stream<T> {
    /// Records go to `scratch` from now on, until [`resume`](Self::resume). With interrupts masked all
    /// the while. `None` if the stream has not been set up.
    #[inline(always)]
    pub(crate) fn divert(&self, scratch: &mut Scratch) -> Option<Before> {
        let cursor = self.cursor.get()?;
        let before = Before {
            last: self.sync(cursor),
            cursor: cursor.save(),
            place_end: self.end.get(),
            isr_before: self.isr_before.get(),
        };
        self.end.set(scratch.as_mut_ptr().wrapping_add(1).cast());
        Some(before)
    }

    /// The next record goes to the beginning of `scratch`, as if `depth` calls were open.
    #[inline(always)]
    pub(crate) fn rewind(&self, scratch: &mut Scratch, depth: usize) {
        let Some(cursor) = self.cursor.get() else {
            return;
        };
        cursor.depth.set(depth);
        cursor
            .at
            .store(scratch.as_mut_ptr().cast(), Ordering::Relaxed);
        self.open(cursor);
    }

    /// The last record is said to have been at `last`: as few instructions as can be.
    #[inline(always)]
    pub(crate) fn say_last(&self, last: u64) {
        self.last.set(last);
        if let Some(cursor) = self.cursor.get() {
            cursor.last.set(low::<T>(last));
        }
    }

    /// Goes on as before [`divert`](Self::divert).
    #[inline(always)]
    pub(crate) fn resume(&self, before: Before) {
        let Some(cursor) = self.cursor.get() else {
            return;
        };
        self.end.set(before.place_end);
        self.isr_before.set(before.isr_before);
        self.last.set(before.last);
        cursor.restore(before.cursor);
    }
}
