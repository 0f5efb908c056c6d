//! Detects conditions on fields that no event has.

use std::collections::BTreeSet;

use super::{Condition, Subject};
use crate::{Field, Value};

/// Maximum number of stored names: enough for any tracer, and a bound for hostile input.
const MOST: usize = 1_000;

/// Fields that conditions name and no event has had so far, with the names of existing fields as suggestions for users
/// who misspelt one.
#[derive(Clone, Debug, Default)]
pub struct Unmet {
    fields: Vec<String>,
    names: BTreeSet<Box<str>>,
}

impl Unmet {
    /// Starts with all fields of `conditions` unmet.
    #[must_use]
    pub fn new(conditions: &[Condition]) -> Self {
        let fields = conditions.iter().map(|it| it.field().to_owned());
        Self {
            fields: fields.collect(),
            names: BTreeSet::new(),
        }
    }

    /// Records an event and its fields. Free once every field has been met.
    pub fn meet(&mut self, subject: &impl Subject, fields: &[Field]) {
        if self.fields.is_empty() {
            return;
        }
        self.fields.retain(|field| subject.field(field).is_none());
        for field in fields {
            // Conditions name context fields without the prefix.
            match &field.value {
                Value::Struct(inner) if field.name == "context" => {
                    inner.iter().for_each(|field| self.name(&field.name));
                }
                // Conditions compare single values.
                Value::List(_) => self.name(&format!("{}.0", field.name)),
                _ => self.name(&field.name),
            }
        }
    }

    fn name(&mut self, name: &str) {
        if self.names.len() < MOST && !self.names.contains(name) {
            self.names.insert(name.into());
        }
    }

    /// The fields that no event had.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(String::as_str)
    }

    /// The names of the fields that events have, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventKind, StreamId, Time};

    #[test]
    fn what_no_event_has_is_told_beside_what_events_have() {
        let conditions = ["ret < 0", "vtid == 4", "nothing == 1"];
        let conditions = conditions.map(|text| text.parse().unwrap());
        let mut unmet = Unmet::new(&conditions);
        let context = Value::Struct(vec![Field::new("vtid", 4u64)]);
        for fields in [
            vec![Field::new("fd", 3u64), Field::new("context", context)],
            vec![Field::new("ret", 0u64)],
        ] {
            let event = Event {
                time: Time(0),
                stream: StreamId(0),
                cpu: None,
                thread: None,
                kind: EventKind::Other,
                named: false,
                record: true,
                stamp: None,
                name: "e".into(),
                fields: fields.clone(),
            };
            unmet.meet(&event, &fields);
        }
        assert_eq!(unmet.fields().collect::<Vec<_>>(), ["nothing"]);
        assert_eq!(unmet.names().collect::<Vec<_>>(), ["fd", "ret", "vtid"]);
    }
}
