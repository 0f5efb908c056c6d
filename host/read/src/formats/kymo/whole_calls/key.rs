//! The order of the output.

use kymo_event::Time;

/// Sort key of the output: by time; at equal times in the order of the records. Entries precede a record of their tick,
/// or follow all ([`Contexts::place`](super::Contexts::place)); entries of longer calls precede others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) time: Time,
    /// The record's number; for an entry, that of the record that it precedes.
    record: i64,
    is_record: bool,
    /// Of entries: the time of the end, negated.
    end: i64,
    order: i64,
}

impl Key {
    pub(super) const fn of_record(time: Time, number: i64) -> Self {
        Self {
            time,
            record: number,
            is_record: true,
            end: 0,
            order: 0,
        }
    }

    pub(super) const fn of_entry((time, record): (Time, i64), end: Time, order: i64) -> Self {
        Self {
            time,
            record,
            is_record: false,
            end: end.0.saturating_neg(),
            order,
        }
    }
}
