//! The packets of names: what they say of a recording as a whole.

use kymo_event::{Event, EventKind, RecordingCost, TraceInfo, Value};
use kymo_wire::event::MetadataType;

use super::clock_checks::CheckFacts;
use super::images::{ImageFacts, MovedImages};
use super::stream::Stream;
use crate::dialects::kymo::Dialect;

/// What was read of names and other facts.
#[derive(Debug, Default)]
pub(super) struct Facts {
    images: ImageFacts,
    checks: CheckFacts,
}

impl Facts {
    /// Reads the names of threads and interrupts into the identities, the files that were in memory, what recording
    /// costs, and the build id if nothing else has it. Gives what those files share, and what the clock was compared
    /// with.
    pub(super) fn read_all(
        mut self,
        info: &mut TraceInfo,
        mut stream: Stream,
        dialect: &Dialect,
    ) -> (MovedImages, CheckFacts) {
        let moved = self.read(info, &mut stream, dialect, |_| {});
        (moved.unwrap_or_default(), self.checks)
    }

    /// The same with what a stream has now; events go to `each`. Gives what the files share, if there are more of them.
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

    /// What the clock was compared with so far.
    pub(super) const fn checks(&self) -> CheckFacts {
        self.checks
    }

    /// Takes an event of the packets of names.
    fn add(&mut self, info: &mut TraceInfo, dialect: &Dialect, event: &Event) {
        match &event.kind {
            // A later one of the same kind takes the place of an earlier one.
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
