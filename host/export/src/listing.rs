//! An event as a record, for the formats that list events one by one.

use std::borrow::Cow;

use kymo_analysis::calls::Callee;
use kymo_analysis::titles;
use kymo_event::{
    Event, EventKind, EventRef, Field, FunctionId, Gap, Identities, InterruptId, SpaceId, ThreadId,
    TraceInfo, Value,
};

use crate::format::Context;
use crate::names::Names;

/// Builds records of events.
pub(crate) struct Listing<'a> {
    names: Names<'a>,
    /// Fields of the current event that its source does not have.
    more: Vec<Field>,
}

/// The event with all of its source's fields, or, without those, with its meaning.
pub(crate) fn whole(seen: EventRef<'_>) -> Cow<'_, Event> {
    match seen.event {
        Some(event) => Cow::Borrowed(event),
        None => Cow::Owned(seen.to_event()),
    }
}

impl<'a> Listing<'a> {
    /// Creates the builder, with the names that are known beforehand.
    pub fn new(context: Context<'a>) -> Self {
        Self {
            names: Names::new(context),
            more: Vec::new(),
        }
    }

    /// The name of the function that an event enters or exits.
    pub fn function(&mut self, info: &TraceInfo, event: &Event) -> Option<&str> {
        let function = event.kind.function()?;
        Some(self.names.name(info, Callee::Function(function)))
    }

    /// The event's fields: first those of its source, unchanged, then its further meaning, and its spaces if the trace
    /// has several. The names of functions and markers are not among them.
    pub fn fields<'e>(
        &'e mut self,
        info: &TraceInfo,
        event: &'e Event,
    ) -> impl Iterator<Item = &'e Field> {
        self.more.clear();
        meaning(&info.identities, &event.kind, &mut self.more);
        spaces(info, event, &mut self.more);
        let known = |more: &&Field| event.fields.iter().all(|field| field.name != more.name);
        event.fields.iter().chain(self.more.iter().filter(known))
    }
}

/// The name of the event's thread, as recorded so far.
pub(crate) fn thread_name<'i>(info: &'i TraceInfo, event: &Event) -> Option<&'i str> {
    info.identities.thread_name(event.thread?)
}

/// Adds the names of the event's spaces, if the trace has several: `space` is that of the function or interrupt that it
/// names, `thread_space` that of its thread if it is another one.
fn spaces(info: &TraceInfo, event: &Event, fields: &mut Vec<Field>) {
    let identities = &info.identities;
    if identities.spaces().len() < 2 {
        return;
    }
    let of_function = |id: FunctionId| Some(identities.function(id)?.space);
    let of_interrupt = |id: InterruptId| Some(identities.interrupts().get(id.0 as usize)?.space);
    let of_thread = |id: ThreadId| Some(identities.threads().get(id.0 as usize)?.space);
    let named = match event.kind {
        EventKind::IsrEnter { irq } | EventKind::IsrName { irq, .. } => of_interrupt(irq),
        EventKind::IsrExit { irq } => irq.and_then(of_interrupt),
        EventKind::ThreadName { thread, .. } => of_thread(thread),
        _ => event.kind.function().and_then(of_function),
    };
    let thread = event.thread.and_then(of_thread);
    let of_stream = || info.stream(event.stream).map(|stream| stream.space);
    let text = |space: SpaceId| titles::space(info, space);
    if let Some(space) = named.or(thread).or_else(of_stream) {
        fields.push(Field::new("space", text(space)));
        if let Some(thread) = thread.filter(|thread| *thread != space) {
            fields.push(Field::new("thread_space", text(thread)));
        }
    }
}

/// Adds an event's meaning as fields.
fn meaning(identities: &Identities, kind: &EventKind, fields: &mut Vec<Field>) {
    let hex = |name: &'static str, value| Field::new(name, Value::Hex(value));
    let address = |function: FunctionId| {
        let address = identities.function(function)?.address?;
        Some(hex("function", address.0))
    };
    let irq = |irq| Field::new("irq", u64::from(identities.irq(irq).0));
    match kind {
        EventKind::Enter {
            function,
            call_site,
        } => {
            fields.extend(address(*function));
            fields.extend(call_site.map(|site| hex("call_site", site.0)));
        }
        EventKind::Exit {
            function: Some(function),
        }
        | EventKind::Called { function, .. }
        | EventKind::SpanBegin { function, .. }
        | EventKind::SpanEnd { function, .. } => fields.extend(address(*function)),
        EventKind::IsrEnter { irq: id } | EventKind::IsrExit { irq: Some(id) } => {
            fields.push(irq(*id));
        }
        EventKind::Marker { value, .. } => fields.push(Field::new("value", *value)),
        EventKind::Counter { process, value, .. } => {
            fields.extend(process.map(|process| Field::new("process", process)));
            fields.push(Field::new("value", *value));
        }
        EventKind::Ready { thread } => fields.push(hex("ready", identities.tid(*thread).0)),
        EventKind::ThreadName { thread, name } => fields.extend([
            hex("named_thread", identities.tid(*thread).0),
            Field::new("thread_name", name.as_str()),
        ]),
        EventKind::IsrName { irq: id, name } => {
            fields.extend([irq(*id), Field::new("irq_name", name.as_str())]);
        }
        EventKind::Context { priority, mode } => fields.extend([
            Field::new("priority", i64::from(*priority)),
            Field::new("mode", u64::from(*mode)),
        ]),
        EventKind::Recording { on, cause } => fields.extend([
            Field::new("on", Value::Bool(*on)),
            Field::new("cause", cause.name()),
        ]),
        EventKind::SetJmp { env } | EventKind::LongJmp { env } => {
            fields.push(hex("jmp_buf", env.0));
        }
        EventKind::WallClock {
            unix_ns,
            uncertainty_ns,
        } => fields.extend([
            Field::new("ns", *unix_ns),
            Field::new("uncertainty", u64::from(*uncertainty_ns)),
        ]),
        _ => {}
    }
}

/// A gap's content as fields: numbers, where known, and text.
pub(crate) fn gap_fields(info: &TraceInfo, event: &Event, gap: &Gap) -> Vec<Field> {
    let mut fields = Vec::new();
    let number = |name: &'static str, value: Option<u64>| {
        Field::new(name, value.map_or(Value::None, Value::Unsigned))
    };
    fields.extend([
        Field::new("gap", gap.name()),
        number("lost", gap.lost_events()),
    ]);
    match gap {
        Gap::LostPackets { packets } => fields.push(number("packets", *packets)),
        Gap::Overwritten { packets } => fields.push(number("packets", Some(*packets))),
        Gap::InInterrupt { depth } => {
            fields.push(number("depth", Some(u64::from(*depth))));
        }
        Gap::MissingExit { ago } => fields.push(number("ago_ns", Some(ago.0))),
        Gap::Clock(gap) => fields.push(number("at_least_ns", Some(gap.at_least.0))),
        Gap::TimeBackward { by } => fields.push(number("by_ns", Some(by.0))),
        Gap::Damage { offset, bytes, .. } => {
            fields.push(number("offset", Some(*offset)));
            fields.push(number("bytes", *bytes));
        }
        _ => {}
    }
    fields.push(Field::new("message", gap.to_string()));
    spaces(info, event, &mut fields);
    fields
}
