//! What comes out.

use crate::EventId;

/// One item of the stream with its time, or one thing that the reader knows about the items.
///
/// Made by the reader, and by no target: [`EventId::UNRELIABLE_TIME`] (from here on the times of this processor are
/// worked out from those of others), [`EventId::TIME_ADJUSTMENT`] (the data says by how many nanoseconds the target's
/// uptime went back here; times are held meanwhile), and [`EventId::PER_CPU_OVERFLOW`] at the last record before a loss. The
/// target's item of that number stands before the first record behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds of the target's uptime. An item without a time has that of the item before it.
    pub time: i64,
    /// The item's word of data.
    pub data: u64,
    /// What it is.
    pub event: EventId,
    /// The processor.
    pub cpu: u8,
    /// Which dump of the input it is in, counted from 0.
    pub dump: u16,
    /// Whether it stands in the stream; else the reader made it.
    pub is_item: bool,
}

/// The name of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    /// Its object id.
    pub id: u64,
    /// Its name, as the bytes of it say.
    pub name: String,
}
