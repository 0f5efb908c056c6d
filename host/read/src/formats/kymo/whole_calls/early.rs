//! Calls that began too long before their records to wait for these, found by reading the recording before.
//!
//! A recording that lies in a file can be read twice. The first reading finds the calls whose beginnings have been passed when
//! their records come ([`Early::Finding`]); the second gives their entries where they belong ([`Early::Known`]), so that
//! what they called is below them. A stream that is read as it comes has no first reading ([`Early::Unknown`]).

use std::collections::VecDeque;

use kymo_event::Row;

use super::{Key, WAITING};

/// The entry of such a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyEntry {
    key: Key,
    row: Row,
    /// Which of all records of calls is the call's.
    record: u64,
}

/// What is known of these calls.
#[derive(Debug, Default)]
pub(super) enum Early {
    #[default]
    Unknown,
    Finding(Vec<EarlyEntry>),
    Known {
        /// In the order in which they are to be given.
        entries: VecDeque<EarlyEntry>,
        /// The records of their calls, in order.
        records: VecDeque<u64>,
    },
}

impl Early {
    /// What is known when all has been read.
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

    /// Takes a record of a call; `is_passed`: its beginning has been. Whether its entry is given by [`next`](Self::next), or would
    /// be in the second reading.
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

    /// The next entry, if it comes in front of `other`.
    pub(super) fn next(&mut self, other: Key) -> Option<Row> {
        let Self::Known { entries, .. } = self else {
            return None;
        };
        entries.front().filter(|entry| entry.key < other)?;
        entries.pop_front().map(|entry| entry.row)
    }
}
