//! Event classes whose names and fields are wanted.

use kymo_ctf::metadata::Metadata;
use kymo_event::Choice;

/// Name of the events whose own names programs declare ([`Declarations`](crate::Declarations)).
const DECLARED: &str = "block";

/// Which events of a trace are wanted with their details, by stream class and index of the event class in it. Empty if
/// all are.
#[derive(Debug, Default)]
pub(crate) struct Built(Vec<Vec<bool>>);

impl Built {
    /// Selects the classes with the chosen names. All are wanted if events without a name are chosen, as the others are
    /// then.
    pub(crate) fn of(metadata: &Metadata, chosen: &Choice) -> Self {
        if chosen.wants("") {
            return Self::default();
        }
        let builds = |name: &str| matches!(name, "" | DECLARED) || chosen.wants(name);
        let streams = metadata.streams.iter();
        let classes = streams.map(|stream| {
            let events = stream.events.iter();
            events.map(|event| builds(&event.name)).collect()
        });
        Self(classes.collect())
    }

    /// Returns the classes of a stream class; `None` if all are wanted.
    pub(crate) fn of_stream(&self, class: usize) -> Option<&[bool]> {
        self.0.get(class).map(Vec::as_slice)
    }
}
