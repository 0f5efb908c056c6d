//! The one shape that every input takes.

use kymo_event::{Addr, Batch, Damage, Event, EventKind, TraceInfo, Value};

use crate::ReadError;

/// A trace, whatever it was read from: events in the order of time, a batch at a time.
///
/// A source knows beforehand what of its events is [wanted](kymo_event::Wanted)
/// ([`OpenOptions::wanted`](crate::OpenOptions::wanted)). It promises no relation between records and events: a
/// record can mean several things, or one event can stand for many.
/// [`Event::record`] tells which events stand for a record of the input.
pub trait Source: Send {
    /// What is known of the trace so far: identities grow with each batch, damage is listed as it is
    /// met, the end times of streams are those of their last events.
    fn info(&self) -> &TraceInfo;

    /// The same, for callers that add to it (symbols) or take what is new
    /// ([`Identities::news`](kymo_event::Identities::news)).
    fn info_mut(&mut self) -> &mut TraceInfo;

    /// Empties `batch` and puts the next events into it. `false` after the last: then the batch is
    /// empty.
    ///
    /// # Errors
    /// [`ReadError`] if the input cannot be read any further; after that there are no events. What could
    /// be read has been given before.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError>;

    /// How many threads work on it, that which calls [`fill`](Self::fill) included.
    fn threads(&self) -> usize {
        1
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn threads(&self) -> usize {
        (**self).threads()
    }

    fn info(&self) -> &TraceInfo {
        (**self).info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        (**self).info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        (**self).fill(batch)
    }
}

/// The events of a [`Source`] as an iterator of whole [`Event`]s, for what is not in a hurry. It ends after
/// an error.
pub struct Events<'a> {
    source: &'a mut dyn Source,
    batch: Batch,
    next: usize,
    ended: bool,
}

impl<'a> Events<'a> {
    /// The events that `source` has not given yet.
    pub fn new(source: &'a mut dyn Source) -> Self {
        Self {
            source,
            batch: Batch::default(),
            next: 0,
            ended: false,
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.batch.get(self.next) {
                self.next += 1;
                return Some(Ok(event.to_event()));
            }
            if self.ended {
                return None;
            }
            self.next = 0;
            match self.source.fill(&mut self.batch) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    self.batch.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Gives named markers their names.
///
/// A target records only the address of a marker's name; the string itself is in the program's
/// image. `string_at` finds it (`kymo_symbols::Symbols::string_at`); it is asked for every named
/// marker whose name the trace does not hold.
pub fn label_markers<S: Source>(
    source: S,
    string_at: impl Fn(Addr) -> Option<String> + Send,
) -> impl Source {
    LabelMarkers { source, string_at }
}

struct LabelMarkers<S, F> {
    source: S,
    string_at: F,
}

impl<S: Source, F: Fn(Addr) -> Option<String> + Send> Source for LabelMarkers<S, F> {
    fn threads(&self) -> usize {
        self.source.threads()
    }

    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let more = self.source.fill(batch)?;
        for event in batch.events_mut() {
            label_marker(event, &self.string_at);
        }
        Ok(more)
    }
}

/// Gives an event its name, as [`label_markers`] does, if it is a named marker that has none.
pub fn label_marker(event: &mut Event, string_at: &impl Fn(Addr) -> Option<String>) {
    let Event { kind, fields, .. } = event;
    if let EventKind::Marker { label, .. } = kind
        && label.is_none()
        && let Some(address) = fields.iter().find_map(|field| match field.value {
            Value::Hex(address) if field.name == "name" => Some(address),
            _ => None,
        })
    {
        *label = string_at(Addr(address));
    }
}

/// Adds a place of a stream that cannot be read, where the whole [`TraceInfo`] is not at hand.
pub(crate) fn add_damage(
    places: &mut Vec<Damage>,
    more: &mut u64,
    stream: &str,
    offset: u64,
    message: String,
) {
    let damage = Damage {
        stream: stream.to_owned(),
        offset,
        message,
    };
    damage.add_to(places, more);
}

#[cfg(test)]
mod tests {
    use kymo_event::{Field, StreamId, Time};

    use super::*;

    struct List(TraceInfo, std::vec::IntoIter<Event>);

    impl Source for List {
        fn info(&self) -> &TraceInfo {
            &self.0
        }

        fn info_mut(&mut self) -> &mut TraceInfo {
            &mut self.0
        }

        fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
            batch.clear();
            // Two events a batch, so that there are borders.
            self.1
                .by_ref()
                .take(2)
                .for_each(|event| batch.push_event(event));
            Ok(!batch.is_empty())
        }
    }

    #[test]
    fn only_markers_without_a_label_are_asked_for() {
        let marker = |label: Option<&str>, name| Event {
            time: Time(0),
            stream: StreamId(0),
            cpu: None,
            thread: None,
            kind: EventKind::Marker {
                label: label.map(str::to_owned),
                value: 7,
            },
            named: false,
            record: true,
            stamp: None,
            name: "named_marker".into(),
            fields: vec![Field::new("name", Value::Hex(name))],
        };
        let events = vec![
            marker(None, 0x10),
            marker(Some("kept"), 0x10),
            marker(None, 0x20),
        ];
        let mut source = label_markers(List(TraceInfo::default(), events.into_iter()), |address| {
            (address == Addr(0x10)).then(|| "frame".to_owned())
        });
        let labels: Vec<_> = Events::new(&mut source)
            .map(|event| match event.unwrap().kind {
                EventKind::Marker { label, .. } => label,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            labels,
            [Some("frame".to_owned()), Some("kept".to_owned()), None]
        );
    }
}
