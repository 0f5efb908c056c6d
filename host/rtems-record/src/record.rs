//! Records that the reader returns.

use crate::EventId;

/// Item of the stream with its time, or an event that the reader inserted.
///
/// The reader inserts three events. [`EventId::UNRELIABLE_TIME`]: from here on the times of this processor are derived
/// from those of others. [`EventId::TIME_ADJUSTMENT`]: the target's uptime went back here by `data` nanoseconds; times
/// do not advance until it has caught up. [`EventId::PER_CPU_OVERFLOW`]: marks a loss, at the last record in front of
/// it. The target's own item of that event is in front of the first record behind the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Uptime of the target in nanoseconds. An item without a time has the time of the item before it.
    pub time: i64,
    /// Data word of the item.
    pub data: u64,
    /// Event.
    pub event: EventId,
    /// Processor.
    pub cpu: u8,
    /// Number of the dump in the input, counted from 0.
    pub dump: u16,
    /// Whether it is an item of the stream, not an event that the reader inserted.
    pub is_item: bool,
}

/// Name of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    /// Object id of the thread.
    pub id: u64,
    /// Name, decoded from its bytes.
    pub name: String,
    /// Whether it belongs to the record of a thread's creation, not to the header: an earlier thread may have had the
    /// same id.
    pub is_created: bool,
}
