//! Common interface of all inputs.

use kymo_event::{Addr, Batch, Damage, Event, EventKind, TraceInfo, Value};

use crate::ReadError;

/// Trace of any format: its events in order of time, in batches.
///
/// A source knows beforehand how much of its events is [wanted](kymo_event::Wanted)
/// ([`OpenOptions::wanted`](crate::OpenOptions::wanted)). Records and events do not correspond one to one: a record can
/// yield several events, and one event can represent many records. [`Event::record`] tells which events represent a
/// record of the input.
pub trait Source: Send {
    /// Returns the properties of the trace known so far. Identities grow with each batch, damage is listed when it is
    /// found, and the end times of streams are those of their last events.
    fn info(&self) -> &TraceInfo;

    /// Like [`info`](Self::info), for callers that add to it (symbols) or take what is new
    /// ([`Identities::news`](kymo_event::Identities::news)).
    fn info_mut(&mut self) -> &mut TraceInfo;

    /// Replaces the contents of `batch` with the next events. Returns `false`, with an empty batch, behind the last
    /// event.
    ///
    /// # Errors
    /// [`ReadError`] if the input cannot be read any further. No events follow it; the events before it have been
    /// returned.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError>;

    /// Returns the number of threads that read this source, including the one that calls [`fill`](Self::fill).
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

/// Iterator over the single [`Event`]s of a [`Source`], for code that is not time-critical. It ends after an error.
pub struct Events<'a> {
    source: &'a mut dyn Source,
    batch: Batch,
    next: usize,
    ended: bool,
}

impl<'a> Events<'a> {
    /// Creates an iterator over the events that `source` has not returned yet.
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

/// Sets the labels of named markers.
///
/// A target records only the address of a marker's name. The string itself is in the program's image, where `string_at`
/// finds it (`kymo_symbols::Symbols::string_at`). It is called for every named marker whose name is not in the trace.
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

/// Sets the label of an event, as [`label_markers`] does, if it is a named marker without one.
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

/// Adds a damaged part of a stream, for code that does not have the whole [`TraceInfo`].
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
            // Two events per batch, so that there are batch borders.
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
