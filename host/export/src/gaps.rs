//! How long gaps last in a timeline.
//!
//! A gap stands behind the last event before a loss and has no length of its own; what a viewer
//! wants to see is the stretch of time about which nothing is known. It ends at the next event of
//! the stream, and several gaps can stand in one place.

use std::collections::BTreeMap;

use kymo_event::{Event, EventKind, Gap, StreamId};

/// Which streams are in a gap.
#[derive(Debug, Default)]
pub(crate) struct OpenGaps {
    /// How many gaps each stream is in.
    streams: BTreeMap<StreamId, usize>,
}

impl OpenGaps {
    /// Takes an event of the trace: how many gaps of its stream end with it.
    pub fn ended_by(&mut self, event: &Event) -> usize {
        // Hardly ever is a gap open, and this is asked for every event.
        if self.streams.is_empty() || matches!(event.kind, EventKind::Gap(_)) {
            return 0;
        }
        self.streams.remove(&event.stream).unwrap_or(0)
    }

    /// Takes a gap: whether it has a length, because something is lost in it.
    pub fn begins(&mut self, stream: StreamId, gap: &Gap) -> bool {
        let lost = gap.lost_events() != Some(0);
        if lost {
            *self.streams.entry(stream).or_default() += 1;
        }
        lost
    }

    /// The gaps that nothing ended, at the end of the trace: streams, and how many of each.
    pub fn rest(&mut self) -> BTreeMap<StreamId, usize> {
        std::mem::take(&mut self.streams)
    }
}
