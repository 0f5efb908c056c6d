//! Event classes whose names and fields are wanted.

use kymo_ctf::metadata::{EventClass, Metadata, StructClass};

use crate::OpenOptions;

/// Name of the events whose own names programs declare ([`Declarations`](crate::Declarations)).
const DECLARED: &str = "block";

/// Which events of a trace are wanted with their details, by stream class and index of the event class in it. Empty if
/// all are.
#[derive(Debug, Default)]
pub(crate) struct Built(Vec<Vec<bool>>);

impl Built {
    /// Selects the classes with the chosen names and fields. All are wanted if events without a name are chosen, as the
    /// others are then; to choose alone, those are wanted that are not chosen.
    pub(crate) fn of(metadata: &Metadata, options: &OpenOptions) -> Self {
        let chosen = &options.events;
        // The names of fields are suggestions for one that no event has.
        let fields: Vec<&str> = match Fields::new(metadata, &options.fields) {
            Some(fields) => fields.0,
            None => return Self::default(),
        };
        let takes_unnamed = chosen.wants("");
        let by_name = options.only_to_choose && options.fields.is_empty();
        let inverts = takes_unnamed && by_name && !chosen.drop.is_empty();
        if takes_unnamed && !inverts && fields.is_empty() {
            return Self::default();
        }
        let streams = metadata.streams.iter();
        let classes = streams.map(|stream| {
            let events = stream.events.iter();
            let builds = |event: &EventClass| {
                let has = |field: &&str| {
                    let own = [&event.fields, &event.context, &stream.event_context];
                    own.into_iter().flatten().any(|it| has_field(it, field))
                };
                let is_named = match inverts {
                    true => !chosen.wants(&event.name),
                    false => takes_unnamed || chosen.wants(&event.name),
                };
                matches!(event.name.as_str(), "" | DECLARED) || is_named && fields.iter().all(has)
            };
            events.map(builds).collect()
        });
        Self(classes.collect())
    }

    /// Returns the classes of a stream class; `None` if all are wanted.
    pub(crate) fn of_stream(&self, class: usize) -> Option<&[bool]> {
        self.0.get(class).map(Vec::as_slice)
    }
}

/// First parts of the paths of fields that event classes may have or lack.
struct Fields<'f>(Vec<&'f str>);

impl<'f> Fields<'f> {
    /// Returns the fields that decide whether an event is wanted; `None` if no event of the trace has one of them.
    fn new(metadata: &Metadata, paths: &'f [String]) -> Option<Self> {
        let mut fields = Vec::new();
        for path in paths {
            let first = path.split('.').next().unwrap_or_default();
            let first = first.trim_start_matches('_');
            let mut streams = metadata.streams.iter();
            let is_of_all = first == "context"
                || metadata.streams.iter().any(|stream| {
                    let of_all = [&stream.packet_context, &stream.event_header];
                    of_all.into_iter().flatten().any(|it| has_field(it, first))
                });
            let is_there = streams.any(|stream| {
                let mut own = stream
                    .events
                    .iter()
                    .flat_map(|it| [&it.fields, &it.context]);
                let mut own = own.by_ref().chain([&stream.event_context]).flatten();
                own.any(|it| has_field(it, first))
            });
            match (is_of_all, is_there) {
                (true, _) => {}
                (false, true) => fields.push(first),
                (false, false) => return None,
            }
        }
        Some(Self(fields))
    }
}

/// Returns whether a structure has a field of this name. LTTng's names begin with `_`, which is not shown.
fn has_field(class: &StructClass, name: &str) -> bool {
    let mut members = class.members.iter();
    members.any(|member| member.name.trim_start_matches('_') == name)
}
