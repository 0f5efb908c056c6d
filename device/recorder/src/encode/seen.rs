//! Detects whether anything was recorded since a record was prepared.

use crate::hot::Cursor;

/// End of a stream and time of its last record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    last: usize,
    at: *mut u8,
}

impl Seen {
    /// Takes the current state.
    #[inline(always)]
    pub fn now(cursor: &Cursor) -> Self {
        Self {
            last: cursor.last.get(),
            at: cursor.at(),
        }
    }

    /// End of the stream.
    #[inline(always)]
    pub fn at(self) -> *mut u8 {
        self.at
    }

    /// The last record's time, truncated by [`low`](crate::hot::low).
    #[inline(always)]
    pub fn last(self) -> usize {
        self.last
    }

    /// Whether nothing has been recorded since. (A ring that wraps around to the same address has a later time.)
    #[inline(always)]
    pub fn holds(self, cursor: &Cursor) -> bool {
        cursor.at() == self.at && cursor.last.get() == self.last
    }
}
