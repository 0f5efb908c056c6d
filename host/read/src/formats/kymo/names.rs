//! Reader of the metadata stream: names and other facts about a recording as a whole.

use kymo_event::{Event, EventKind, RecordingCost, TraceInfo, Value};
use kymo_wire::event::MetadataType;

use super::clock_checks::CheckFacts;
use super::images::{ImageFacts, MovedImages};
use super::stream::Stream;
use crate::dialects::kymo::Dialect;

/// Facts read from the metadata stream so far.
#[derive(Debug, Default)]
pub(super) struct Facts {
    images: ImageFacts,
    checks: CheckFacts,
}

impl Facts {
    /// Reads the whole metadata stream into `info`: names of threads and interrupts, the load map, the recording
    /// overhead, and the build id if no other source has it. Returns the moved images and the clock checks.
    pub(super) fn read_all(
        mut self,
        info: &mut TraceInfo,
        mut stream: Stream,
        dialect: &Dialect,
    ) -> (MovedImages, CheckFacts) {
        let moved = self.read(info, &mut stream, dialect, |_| {});
        (moved.unwrap_or_default(), self.checks)
    }

    /// Like [`read_all`](Self::read_all), with the records available now; passes every event to `each`. Returns the
    /// moved images if there are new images.
    pub(super) fn read(
        &mut self,
        info: &mut TraceInfo,
        stream: &mut Stream,
        dialect: &Dialect,
        mut each: impl FnMut(Event),
    ) -> Option<MovedImages> {
        while let Some(event) = stream.next(dialect, &mut info.identities, &mut |_, _| {}) {
            self.add(info, dialect, &event);
            each(event);
        }
        self.checks.lost = stream.facts_lost;
        let (mappings, moved) = self.images.changed()?;
        if let Some(space) = info.identities.space_mut(dialect.space) {
            space.mappings = mappings;
        }
        Some(moved)
    }

    /// The clock checks so far.
    pub(super) const fn checks(&self) -> CheckFacts {
        self.checks
    }

    /// Adds an event of the metadata stream.
    fn add(&mut self, info: &mut TraceInfo, dialect: &Dialect, event: &Event) {
        match &event.kind {
            // A later measurement replaces an earlier one of the same kind.
            EventKind::Costs(costs) => {
                for cost in costs {
                    let same = |other: &RecordingCost| {
                        (other.recorded, other.from) == (cost.recorded, cost.from)
                    };
                    info.costs.retain(|other| !same(other));
                    info.costs.push(*cost);
                }
            }
            EventKind::Fact => {
                let field = |name| event.fields.iter().find(|field| field.name == name);
                if let Some(Value::Unsigned(kind)) = field("type").map(|field| &field.value)
                    && let Some(Value::Bytes(value)) = field("value").map(|field| &field.value)
                {
                    if *kind != MetadataType::BuildId as u64 {
                        self.images.add(dialect.layout, *kind, value, event.time);
                        self.checks.add(dialect.layout, *kind, value);
                    } else if info.build_id.is_none() && !value.is_empty() {
                        info.build_id = Some(value.clone());
                        if let Some(space) = info.identities.space_mut(dialect.space) {
                            space.build_id = Some(value.clone());
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
