//! Whether anybody has recorded something since a record was prepared.

use crate::hot::Cursor;

/// Where a stream ended, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    last: usize,
    at: *mut u8,
}

impl Seen {
    /// At this moment.
    #[inline(always)]
    pub fn now(cursor: &Cursor) -> Self {
        Self {
            last: cursor.last.get(),
            at: cursor.at(),
        }
    }

    /// Where it ended.
    #[inline(always)]
    pub fn at(self) -> *mut u8 {
        self.at
    }

    /// The last record's time, cut by [`low`](crate::hot::low).
    #[inline(always)]
    pub fn last(self) -> usize {
        self.last
    }

    /// Nothing has been recorded since. (A ring that came round to the same place has taken time.)
    #[inline(always)]
    pub fn holds(self, cursor: &Cursor) -> bool {
        cursor.at() == self.at && cursor.last.get() == self.last
    }
}
