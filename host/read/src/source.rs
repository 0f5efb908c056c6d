//! The one shape that every input takes.

use kymo_event::{Addr, Event, EventKind, TraceInfo, Value};

use crate::ReadError;

/// A trace, whatever it was read from: events in the order of time.
///
/// Every record of the input is one event, also where it means nothing to an analysis
/// ([`EventKind::Other`]), so that counting the events counts the records. What the reader adds, a
/// [`Gap`](kymo_event::Gap) that no record tells of, has an empty [`name`](Event::name).
pub trait Source: Send {
    /// What is known of the trace so far: names of threads from the start on, damage as it is
    /// met, the end times of streams when their last event was given.
    fn info(&self) -> &TraceInfo;

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// [`ReadError`] if the input cannot be read any further; after that there are no events.
    fn next(&mut self) -> Result<Option<Event>, ReadError>;

    /// Takes an event back that was given out: what is in it may serve for another one. Nobody has to
    /// give any back.
    fn take_back(&mut self, event: Event) {
        drop(event);
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn info(&self) -> &TraceInfo {
        (**self).info()
    }

    fn next(&mut self) -> Result<Option<Event>, ReadError> {
        (**self).next()
    }

    fn take_back(&mut self, event: Event) {
        (**self).take_back(event);
    }
}

/// The events of a [`Source`] as an iterator, for what wants one. It ends after an error.
pub struct Events<'a>(pub &'a mut dyn Source);

impl Iterator for Events<'_> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().transpose()
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
    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn next(&mut self) -> Result<Option<Event>, ReadError> {
        let mut event = self.source.next()?;
        if let Some(event) = &mut event {
            label_marker(event, &self.string_at);
        }
        Ok(event)
    }

    fn take_back(&mut self, event: Event) {
        self.source.take_back(event);
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

#[cfg(test)]
mod tests {
    use kymo_event::{Field, StreamId, Time};

    use super::*;

    struct List(TraceInfo, std::vec::IntoIter<Event>);

    impl Source for List {
        fn info(&self) -> &TraceInfo {
            &self.0
        }

        fn next(&mut self) -> Result<Option<Event>, ReadError> {
            Ok(self.1.next())
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
        let labels: Vec<_> = Events(&mut source)
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
