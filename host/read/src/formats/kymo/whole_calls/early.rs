//! First pass over a recording: finds calls that began too long before their records for the buffer.
//!
//! A recording in a file can be read twice. The first pass finds the calls whose beginnings have been passed when their
//! records are read ([`Early::Finding`]). The second pass outputs their entries at the right times ([`Early::Known`]),
//! so that their callees are nested in them. A stream that is read as it arrives has no first pass
//! ([`Early::Unknown`]).

use std::collections::VecDeque;

use kymo_event::Row;

use super::{Key, WAITING};

/// The entry of a call found by the first pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyEntry {
    key: Key,
    row: Row,
    /// The index of the call's record among all call records.
    record: u64,
}

/// State of the search for these calls.
#[derive(Debug, Default)]
pub(super) enum Early {
    #[default]
    Unknown,
    Finding(Vec<EarlyEntry>),
    Known {
        /// In output order.
        entries: VecDeque<EarlyEntry>,
        /// The records of their calls, in order.
        records: VecDeque<u64>,
    },
}

impl Early {
    /// The result at the end of the first pass.
    pub(super) fn found(self) -> Self {
        let Self::Finding(mut entries) = self else {
            return self;
        };
        let records = entries.iter().map(|entry| entry.record).collect();
        entries.sort_unstable_by_key(|entry| entry.key);
        Self::Known {
            entries: entries.into(),
            records,
        }
    }

    /// Handles a call record; `is_passed`: its beginning is before the output so far. Returns whether
    /// [`next`](Self::next) outputs its entry, or will do so in the second pass.
    pub(super) fn take(&mut self, record: u64, is_passed: bool, key: Key, row: Row) -> bool {
        match self {
            Self::Finding(entries) if is_passed && entries.len() < WAITING => {
                entries.push(EarlyEntry { key, row, record });
                true
            }
            Self::Known { records, .. } => {
                let is_one = records.front() == Some(&record);
                if is_one {
                    records.pop_front();
                }
                is_one
            }
            _ => false,
        }
    }

    /// The next entry, if it precedes `other`.
    pub(super) fn next(&mut self, other: Key) -> Option<Row> {
        let Self::Known { entries, .. } = self else {
            return None;
        };
        entries.front().filter(|entry| entry.key < other)?;
        entries.pop_front().map(|entry| entry.row)
    }
}
