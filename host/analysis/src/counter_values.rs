//! The values that counters have when a window begins.

use std::collections::BTreeMap;

use kymo_event::{Event, EventKind, EventRef, SpaceId, Time, TraceInfo};

/// Counters of which the value is kept; hostile input has millions.
const MOST: usize = 1 << 16;

/// The latest value of each counter: one event for each, without its fields.
#[derive(Clone, Debug, Default)]
pub struct CounterValues {
    /// By space, process and name.
    latest: BTreeMap<(SpaceId, Option<u64>, String), Event>,
}

impl CounterValues {
    /// Takes an event, which may be of any kind.
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
        // A process that is named is one of its machine, whichever thread the mark is of.
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

    /// Events that say the values at a time; none is a record.
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
