//! An event as a record, for the formats that list events one by one.

use std::collections::HashMap;

use kymo_analysis::calls::Callee;
use kymo_event::{Event, EventKind, Field, Gap, ThreadId, TraceInfo, Value};

use crate::format::Context;
use crate::names::Names;

/// Makes records of events.
pub(crate) struct Records<'a> {
    names: Names<'a>,
    threads: HashMap<ThreadId, String>,
}

impl<'a> Records<'a> {
    /// Knows the names that are known beforehand.
    pub fn new(context: Context<'a>) -> Self {
        let TraceInfo { threads, .. } = context.info;
        Self {
            names: Names::new(context),
            threads: threads.iter().cloned().collect(),
        }
    }

    /// Takes note of the names that an event tells.
    pub fn learn(&mut self, event: &Event) {
        if let EventKind::ThreadName { thread, name } = &event.kind {
            self.threads.insert(*thread, name.clone());
        }
    }

    /// The name of the event's thread, as far as the trace has told it by now.
    pub fn thread_name(&self, event: &Event) -> Option<&str> {
        self.threads.get(&event.thread?).map(String::as_str)
    }

    /// The name of the function that an event enters or leaves.
    pub fn function(&mut self, event: &Event) -> Option<&str> {
        let (EventKind::Enter { function, .. }
        | EventKind::Exit {
            function: Some(function),
        }) = event.kind
        else {
            return None;
        };
        let id = self.names.id(Callee::Function(function));
        Some(self.names.get(id))
    }
}

/// What a marker is called.
pub(crate) fn label(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Marker { label, .. } => label.as_deref(),
        _ => None,
    }
}

/// What an event says: the fields of its source as they stand there, then what else it is known to
/// mean. The names of functions and markers are not among them.
pub(crate) fn fields(event: &Event) -> Vec<Field> {
    let mut fields = event.fields.clone();
    for field in meaning(&event.kind) {
        if fields.iter().all(|known| known.name != field.name) {
            fields.push(field);
        }
    }
    fields
}

/// What an event means, as fields.
fn meaning(kind: &EventKind) -> Vec<Field> {
    let hex = |name: &'static str, value| Field::new(name, Value::Hex(value));
    match kind {
        EventKind::Enter {
            function,
            call_site,
        } => {
            let site = call_site.map(|site| hex("call_site", site.0));
            [hex("function", function.0)]
                .into_iter()
                .chain(site)
                .collect()
        }
        EventKind::Exit {
            function: Some(function),
        } => vec![hex("function", function.0)],
        EventKind::IsrEnter { irq } | EventKind::IsrExit { irq: Some(irq) } => {
            vec![Field::new("irq", u64::from(irq.0))]
        }
        EventKind::Marker { value, .. } => vec![Field::new("value", *value)],
        EventKind::ThreadName { thread, name } => {
            vec![
                hex("named_thread", thread.0),
                Field::new("thread_name", name.as_str()),
            ]
        }
        EventKind::IsrName { irq, name } => vec![
            Field::new("irq", u64::from(irq.0)),
            Field::new("irq_name", name.as_str()),
        ],
        EventKind::Context { priority, mode } => vec![
            Field::new("priority", i64::from(*priority)),
            Field::new("mode", u64::from(*mode)),
        ],
        EventKind::Recording { on, cause } => vec![
            Field::new("on", Value::Bool(*on)),
            Field::new("cause", cause.name()),
        ],
        EventKind::SetJmp { env } | EventKind::LongJmp { env } => vec![hex("jmp_buf", env.0)],
        EventKind::WallClock {
            unix_ns,
            uncertainty_ns,
        } => vec![
            Field::new("ns", *unix_ns),
            Field::new("uncertainty", u64::from(*uncertainty_ns)),
        ],
        EventKind::Gap(gap) => gap_fields(gap),
        _ => Vec::new(),
    }
}

/// What a gap says, in numbers as far as there are any, and in words.
fn gap_fields(gap: &Gap) -> Vec<Field> {
    let number = |name: &'static str, value: Option<u64>| {
        Field::new(name, value.map_or(Value::None, Value::Unsigned))
    };
    let mut fields = vec![
        Field::new("gap", gap.name()),
        number("lost", gap.lost_events()),
    ];
    match gap {
        Gap::LostPackets { packets } => fields.push(number("packets", *packets)),
        Gap::Overwritten { packets } => fields.push(number("packets", Some(*packets))),
        Gap::InInterrupt { depth } => {
            fields.push(number("depth", Some(u64::from(*depth))));
        }
        Gap::Clock(gap) => fields.push(number("at_least_ns", Some(gap.at_least.0))),
        Gap::TimeBackward { by } => fields.push(number("by_ns", Some(by.0))),
        Gap::Damage { offset, bytes, .. } => {
            fields.push(number("offset", Some(*offset)));
            fields.push(number("bytes", *bytes));
        }
        _ => {}
    }
    fields.push(Field::new("message", gap.to_string()));
    fields
}
