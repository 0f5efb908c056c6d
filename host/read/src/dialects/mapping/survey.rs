//! Names of functions that events contain as text. They are collected before the events are read, because consumers
//! need the functions of a trace beforehand.

use std::collections::BTreeSet;

use kymo_ctf::{Message, Trace};

/// Largest number of collected names. A field with more values does not contain names.
const MANY: usize = 1 << 16;

/// Returns the texts in these fields (stream class, index in it, and name), in alphabetical order.
pub(super) fn names(trace: &Trace, fields: &[(usize, usize, &str)]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Ok(mut messages) = trace.messages() else {
        return names;
    };
    loop {
        let record = match messages.next_message() {
            Ok(Some((_, Message::Event(record)))) => record,
            Ok(Some(_)) => continue,
            Ok(None) => break,
            // Damage is reported when the events are read.
            Err(_) => continue,
        };
        let class = record.packet().info().stream_class;
        let place = record.class_index();
        let mut wanted = fields
            .iter()
            .filter(|field| (field.0, field.1) == (class, place));
        let Some(field) = wanted.next() else { continue };
        let text = record.field(field.2).and_then(|value| value.text());
        if let Some(text) = text
            && !names.contains(&*text)
        {
            if names.len() == MANY {
                break;
            }
            names.insert(text.into_owned());
        }
    }
    names
}
