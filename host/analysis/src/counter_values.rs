//! Values of counters at the begin of a window.

use std::collections::BTreeMap;

use kymo_event::{Event, EventKind, EventRef, SpaceId, Time, TraceInfo};

/// Maximum number of counters kept; hostile input has millions.
const MOST: usize = 1 << 16;

/// The latest value of each counter: one event each, without its fields.
#[derive(Clone, Debug, Default)]
pub struct CounterValues {
    /// Keyed by space, process and name.
    latest: BTreeMap<(SpaceId, Option<u64>, String), Event>,
}

impl CounterValues {
    /// Processes an event of any kind.
    pub fn take(&mut self, info: &TraceInfo, event: EventRef<'_>) {
        let Some(event) = event.event else {
            return;
        };
        let EventKind::Counter { name, process, .. } = &event.kind else {
            return;
        };
        let threads = info.identities.threads();
        let thread = event.thread.and_then(|id| threads.get(id.0 as usize));
        let stream = info.stream(event.stream);
        // A process number is one of the machine, regardless of the thread of the event.
        let space = match process {
            Some(_) => stream.map(|stream| stream.machine),
            None => thread
                .map(|thread| thread.space)
                .or(stream.map(|stream| stream.space)),
        };
        let key = (space.unwrap_or_default(), *process, name.clone());
        if self.latest.len() >= MOST && !self.latest.contains_key(&key) {
            return;
        }
        let value = Event {
            fields: Vec::new(),
            name: event.name.clone(),
            kind: event.kind.clone(),
            ..*event
        };
        self.latest.insert(key, value);
    }

    /// Events with the values as of `time`; none is a record.
    pub fn at(self, time: Time) -> impl Iterator<Item = Event> {
        let events = self.latest.into_values();
        events.map(move |event| Event {
            time,
            record: false,
            stamp: None,
            ..event
        })
    }
}
