//! Raw records of CTF traces, for code that needs these instead of the event model.

use std::borrow::Cow;

use kymo_ctf::metadata::Scope;
use kymo_ctf::{Container, Origin, Trace, Visitor};
use kymo_event::{Cpu, Operand, Subject, Tid, Time};

/// The name of a stream in messages: its trace, if there are several, and its file.
pub fn stream_name(traces: &[Trace], trace: usize, stream: usize) -> String {
    let Some(trace) = traces.get(trace) else {
        return String::new();
    };
    let stream = trace.stream_names().nth(stream).unwrap_or_default();
    match trace.name() {
        "" => stream.to_owned(),
        name => format!("{name}/{stream}"),
    }
}

/// As [`stream_name`], but for one of the stream's files.
pub fn file_name(traces: &[Trace], origin: Origin, file: u32) -> String {
    let trace = traces.get(origin.trace);
    let file = trace.and_then(|trace| trace.files(origin.stream).nth(file as usize));
    match (trace.map_or("", Trace::name), file.unwrap_or_default()) {
        ("", file) => file.to_owned(),
        (name, file) => format!("{name}/{file}"),
    }
}

/// A record of a trace as a subject of filters. Its thread is that of the contexts.
pub struct Record<'a, 'e> {
    /// The record.
    pub event: &'a kymo_ctf::Event<'e>,
    /// The origin of times, in nanoseconds by its clock.
    pub origin: i64,
}

impl Subject for Record<'_, '_> {
    fn time(&self) -> Option<Time> {
        let time = self.event.time_ns()?;
        Some(Time(time.saturating_sub(self.origin)))
    }

    fn name(&self) -> &str {
        self.event.name()
    }

    fn cpu(&self) -> Option<Cpu> {
        let cpu = self.event.packet().info().cpu_id?;
        u32::try_from(cpu).ok().map(Cpu)
    }

    fn thread(&self) -> Option<Tid> {
        let mut fields = ["vtid", "_vtid", "tid", "_tid", "thread"].iter();
        let tid = fields.find_map(|name| self.event.field(name)?.as_u64())?;
        Some(Tid(tid))
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        self.event.field("procname")?.text()
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        let path = path.strip_prefix("context.").unwrap_or(path);
        if let Some(value) = self.event.field(path) {
            return operand(&value);
        }
        let scopes = [
            Scope::EventFields,
            Scope::EventContext,
            Scope::StreamEventContext,
        ];
        scopes.into_iter().find_map(|scope| {
            let mut inside = Inside {
                path,
                open: Vec::new(),
                found: None,
            };
            self.event.visit(scope, &mut inside);
            inside.found
        })
    }
}

/// The value as an operand of comparisons; `None` for a compound value.
fn operand<'a>(value: &kymo_ctf::Value<'a>) -> Option<Operand<'a>> {
    let signed = || value.as_i64().map(i128::from);
    let number = value.as_u64().map(i128::from).or_else(signed);
    if let (Some(label), Some(number)) = (value.label(), number) {
        return Some(Operand::Label(label, number));
    }
    if let Some(number) = number {
        return Some(Operand::Integer(number));
    }
    match value {
        kymo_ctf::Value::Float { value, .. } => Some(Operand::Real(*value)),
        kymo_ctf::Value::Boolean(value) => Some(Operand::Bool(*value)),
        kymo_ctf::Value::Text { .. } => value.text().map(Operand::Text),
        _ => None,
    }
}

/// Finds a nested field by its path: names and indices of elements, separated by dots.
struct Inside<'p, 'a> {
    path: &'p str,
    /// The open fields: the path to each, and the number of fields in it so far; `None` for a variant or an optional
    /// field, whose content has the same path.
    open: Vec<(String, Option<u64>)>,
    found: Option<Operand<'a>>,
}

impl Inside<'_, '_> {
    /// The path to the next field.
    fn next(&mut self, name: &str) -> String {
        let Some((outer, count)) = self.open.last_mut() else {
            return name.to_owned();
        };
        let Some(count) = count else {
            return outer.clone();
        };
        let number = *count;
        *count += 1;
        match name {
            "" => format!("{outer}.{number}"),
            name => format!("{outer}.{name}"),
        }
    }
}

impl<'a> Visitor<'a> for Inside<'_, 'a> {
    fn value(&mut self, name: &'a str, value: kymo_ctf::Value<'a>) {
        if self.next(name) == self.path && self.found.is_none() {
            self.found = operand(&value);
        }
    }

    fn begin(&mut self, name: &'a str, container: Container) {
        let path = self.next(name);
        let counts = matches!(container, Container::Struct | Container::Array(_));
        self.open.push((path, counts.then_some(0)));
    }

    fn end(&mut self, _: Container) {
        self.open.pop();
    }
}
