//! Application of a mapping to a trace: matches entries to event classes.

use std::collections::HashMap;
use std::sync::Arc;

use kymo_ctf::Trace;
use kymo_ctf::metadata::{EventClass, FieldClass, Metadata, StreamClass, StructClass};
use kymo_event::{
    Addr, Cpu, EventKind, FunctionId, Identities, InterruptId, InterruptKind, Irq, ThreadId, Tid,
};

use super::survey;
use super::{Entry, Mapping, MappingError, Means};
use crate::dialects::{Meanings, Sink, Spaces, of_class, quantity};

/// Meanings of a trace's records from a mapping.
pub(crate) struct Mapped {
    mapping: Arc<Mapping>,
    /// Matching entries by stream class and index in it.
    rules: Vec<Vec<Option<Rule>>>,
    spaces: Spaces,
    /// Functions that events name by text.
    by_text: HashMap<String, FunctionId>,
    /// Meanings of the current record.
    meanings: Vec<Meaning>,
}

/// One meaning of a record, with its CPU and thread.
struct Meaning {
    kind: EventKind,
    /// Whether it is the record itself, with its name and fields, or an additional event: a thread switch is the end of
    /// one thread and the start of another.
    is_record: bool,
    /// CPU, if the packet does not have one.
    cpu: Option<Cpu>,
    thread: Option<ThreadId>,
}

impl Meaning {
    /// Returns the meaning of a record itself.
    const fn of(kind: EventKind) -> Self {
        Self {
            kind,
            is_record: true,
            cpu: None,
            thread: None,
        }
    }

    /// Returns an additional event that follows from a record.
    fn besides(kind: EventKind) -> Self {
        Self {
            is_record: false,
            ..Self::of(kind)
        }
    }

    /// Sets the thread.
    fn in_thread(self, thread: impl Into<Option<ThreadId>>) -> Self {
        Self {
            thread: thread.into(),
            ..self
        }
    }
}

impl Meanings for Mapped {
    fn record(&mut self, record: &kymo_ctf::Event<'_>, class: usize, sink: &mut Sink<'_>) {
        sink.begin(record.time_ns());
        let mut meanings = std::mem::take(&mut self.meanings);
        self.meanings(record, class, sink.identities, &mut meanings);
        for meaning in meanings.drain(..) {
            let cpu = sink.cpu.or(meaning.cpu);
            if meaning.is_record {
                sink.whole(record, meaning.kind, (cpu, meaning.thread));
            } else {
                sink.besides(meaning.kind, cpu, meaning.thread);
            }
        }
        self.meanings = meanings;
    }
}

/// Meaning of the events of one class.
#[derive(Clone, Debug)]
struct Rule {
    /// Index of the entry.
    entry: usize,
    /// Function, if the event's name determines it.
    function: Option<FunctionId>,
}

impl Mapped {
    /// Applies a mapping to a trace.
    ///
    /// # Errors
    /// If the mapping does not match.
    pub(crate) fn new(
        mapping: &Arc<Mapping>,
        trace: &Trace,
        spaces: Spaces,
        identities: &mut Identities,
    ) -> Result<Self, MappingError> {
        let metadata = trace.metadata();
        for (key, field) in [("cpu", &mapping.cpu), ("thread", &mapping.thread)] {
            let Some(field) = field else { continue };
            let mut streams = metadata.streams.iter();
            let has_field = |stream: &StreamClass| {
                let mut events = stream.events.iter();
                events.any(|event| find(metadata, stream, event, field).is_some())
            };
            if !streams.any(has_field) {
                return Err(MappingError::NoEventHas {
                    key,
                    field: field.clone(),
                });
            }
        }
        let space = spaces.code;
        let mut rules = Vec::new();
        let mut texts = Vec::new();
        for (class, stream) in metadata.streams.iter().enumerate() {
            let mut of_stream = Vec::new();
            for (place, event) in stream.events.iter().enumerate() {
                let mut entries = mapping.events.iter().enumerate();
                let found =
                    entries.find_map(|(i, entry)| Some((i, entry, entry.fits(&event.name)?)));
                let Some((number, entry, star)) = found else {
                    of_stream.push(None);
                    continue;
                };
                let mut function = None;
                for (key, field) in entry.keys() {
                    let Some(field) = field else { continue };
                    if field == "*" {
                        function = Some(identities.function_named(space, star));
                        continue;
                    }
                    let Some(found) = find(metadata, stream, event, field) else {
                        return Err(MappingError::NoField {
                            event: event.name.clone(),
                            field: field.to_owned(),
                        });
                    };
                    match found {
                        FieldClass::Enumeration(labels) if key == "function" => {
                            for mapping in labels.mappings.list() {
                                if let Some(number) = mapping.first.as_u64() {
                                    let function = identities.function_at(space, Addr(number));
                                    identities.name_function(function, &mapping.label);
                                }
                            }
                        }
                        class_of_field if key == "function" && is_text(class_of_field) => {
                            texts.push((class, place, field));
                        }
                        _ => {}
                    }
                }
                of_stream.push(Some(Rule {
                    entry: number,
                    function,
                }));
            }
            rules.push(of_stream);
        }
        if rules.iter().flatten().all(Option::is_none) {
            let events = metadata.streams.iter().flat_map(|stream| &stream.events);
            let names: Vec<&str> = events.map(|class| class.name.as_str()).take(8).collect();
            return Err(MappingError::NoEvent {
                found: names.join(", "),
            });
        }
        let mut by_text = HashMap::new();
        if !texts.is_empty() {
            for name in survey::names(trace, &texts) {
                let function = identities.function_named(space, &name);
                by_text.insert(name, function);
            }
        }
        Ok(Self {
            mapping: Arc::clone(mapping),
            rules,
            spaces,
            by_text,
            meanings: Vec::new(),
        })
    }

    /// Returns the thread of this number; `None` for 0.
    fn thread(&self, number: u64, identities: &mut Identities) -> Option<ThreadId> {
        (number != 0).then(|| identities.thread(self.spaces.machine, Tid(number)))
    }

    /// Returns the interrupt of this number, if the number is valid.
    fn interrupt(&self, number: u64, identities: &mut Identities) -> Option<InterruptId> {
        let irq = Irq(u32::try_from(number).ok()?);
        Some(identities.interrupt(self.spaces.machine, InterruptKind::Hard, irq))
    }

    /// Determines the meanings of a record.
    fn meanings(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        class: usize,
        identities: &mut Identities,
        out: &mut Vec<Meaning>,
    ) {
        let rule = of_class(&self.rules, class, record).cloned().flatten();
        let mapping = Arc::clone(&self.mapping);
        let of_any = |field: &Option<String>| number(record, field.as_deref()?);
        let cpu = of_any(&mapping.cpu).and_then(|cpu| u32::try_from(cpu).ok().map(Cpu));
        let entry = rule
            .as_ref()
            .and_then(|rule| mapping.events.get(rule.entry));
        let own = entry.and_then(|entry| number(record, entry.thread.as_deref()?));
        let everywhere = of_any(&mapping.thread);
        let from = out.len();
        // The thread that a record names, or that becomes ready, need not be the running one.
        let is_other = |means| matches!(means, Means::ThreadName | Means::Ready);
        let thread = match entry {
            Some(entry) if is_other(entry.means) => everywhere,
            _ => own.or(everywhere),
        };
        let thread = thread.and_then(|thread| self.thread(thread, identities));
        let kind = match (&rule, entry) {
            (Some(rule), Some(entry)) => self.kind(rule, entry, record, identities, out),
            _ => None,
        };
        match kind {
            Some(Outcome::Kind(kind)) => out.push(Meaning::of(kind).in_thread(thread)),
            Some(Outcome::Switched) => {}
            None => out.push(Meaning::of(EventKind::Other).in_thread(thread)),
        }
        for meaning in out.iter_mut().skip(from) {
            meaning.cpu = cpu;
        }
    }

    fn kind(
        &mut self,
        rule: &Rule,
        entry: &Entry,
        record: &kymo_ctf::Event<'_>,
        identities: &mut Identities,
        out: &mut Vec<Meaning>,
    ) -> Option<Outcome> {
        let field = |name: &Option<String>| number(record, name.as_deref()?);
        let irq = |identities| self.interrupt(field(&entry.irq)?, identities);
        let thread = |identities| self.thread(field(&entry.thread)?, identities);
        Some(Outcome::Kind(match entry.means {
            Means::Enter => EventKind::Enter {
                function: self.function(rule, entry, record, identities)?,
                call_site: field(&entry.call_site).map(Addr),
            },
            Means::Exit => EventKind::Exit {
                function: self.function(rule, entry, record, identities),
            },
            Means::SpanBegin => EventKind::SpanBegin {
                function: self.function(rule, entry, record, identities)?,
                per_cpu: entry.per_cpu,
            },
            Means::SpanEnd => EventKind::SpanEnd {
                function: self.function(rule, entry, record, identities)?,
                per_cpu: entry.per_cpu,
            },
            Means::SwitchedIn => EventKind::SwitchedIn,
            Means::SwitchedOut => EventKind::SwitchedOut,
            Means::Ready => EventKind::Ready {
                thread: thread(identities)?,
            },
            Means::Switch => {
                let next = self.thread(field(&entry.to)?, identities);
                let previous = field(&entry.from);
                let previous = previous.and_then(|thread| self.thread(thread, identities));
                switch(previous, next, out);
                return Some(Outcome::Switched);
            }
            Means::IsrEnter => {
                let irq = irq(identities)?;
                if let Some(name) = text(record, entry.irq_name.as_deref())
                    && identities.interrupt_name(irq) != Some(&name)
                {
                    identities.name_interrupt(irq, &name);
                    out.push(Meaning::besides(EventKind::IsrName { irq, name }));
                }
                EventKind::IsrEnter { irq }
            }
            Means::IsrExit => EventKind::IsrExit {
                irq: irq(identities),
            },
            Means::Marker => EventKind::Marker {
                label: text(record, entry.label.as_deref())
                    .or_else(|| Some(record.name().to_owned())),
                value: field(&entry.value)
                    .or_else(|| rounded(record, entry.value.as_deref()?))
                    .unwrap_or(0),
            },
            Means::Counter => EventKind::Counter {
                name: text(record, entry.label.as_deref())
                    .unwrap_or_else(|| record.name().to_owned()),
                process: None,
                value: quantity(&value(record, entry.value.as_deref()?)?)?,
            },
            Means::ThreadName => {
                let thread = thread(identities)?;
                let name = text(record, entry.thread_name.as_deref())?;
                identities.name_thread(thread, &name);
                EventKind::ThreadName { thread, name }
            }
        }))
    }

    /// Returns the function of an entry or exit, if the record has it.
    fn function(
        &self,
        rule: &Rule,
        entry: &Entry,
        record: &kymo_ctf::Event<'_>,
        identities: &mut Identities,
    ) -> Option<FunctionId> {
        if rule.function.is_some() {
            return rule.function;
        }
        let value = value(record, entry.function.as_deref()?)?;
        match value.as_u64() {
            Some(number) => Some(identities.function_at(self.spaces.code, Addr(number))),
            None => self.by_text.get(&*value.text()?).copied(),
        }
    }
}

/// Result of applying an entry to a record.
enum Outcome {
    Kind(EventKind),
    /// A switch, which was already passed on.
    Switched,
}

/// Adds a thread switch. The record is the start of the next thread, if there is one.
fn switch(previous: Option<ThreadId>, next: Option<ThreadId>, out: &mut Vec<Meaning>) {
    let left = Meaning::of(EventKind::SwitchedOut).in_thread(previous);
    let entered = Meaning::of(EventKind::SwitchedIn).in_thread(next);
    match (previous, next) {
        (Some(_), Some(_)) => {
            out.push(Meaning {
                is_record: false,
                ..left
            });
            out.push(entered);
        }
        (Some(_), None) => out.push(left),
        (None, Some(_)) => out.push(entered),
        (None, None) => out.push(Meaning::of(EventKind::Other)),
    }
}

/// Finds the class of a field in any scope.
fn find<'m>(
    metadata: &'m Metadata,
    stream: &'m StreamClass,
    event: &'m EventClass,
    name: &str,
) -> Option<&'m FieldClass> {
    let scopes: [Option<&'m StructClass>; 6] = [
        event.fields.as_ref(),
        event.context.as_ref(),
        stream.event_context.as_ref(),
        stream.event_header.as_ref(),
        stream.packet_context.as_ref(),
        metadata.packet_header.as_ref(),
    ];
    let mut members = scopes
        .into_iter()
        .flatten()
        .filter_map(|scope| scope.member(name));
    Some(&members.next()?.class)
}

/// Returns whether a field holds text, not a number.
fn is_text(class: &FieldClass) -> bool {
    class.as_integer().is_none()
        && !matches!(class, FieldClass::Enumeration(_) | FieldClass::Float(_))
}

/// Returns the value of a field in any scope.
fn value<'a>(record: &kymo_ctf::Event<'a>, name: &str) -> Option<kymo_ctf::Value<'a>> {
    let of_packet = || record.packet().field(name);
    record.field(name).or_else(of_packet)
}

fn number(record: &kymo_ctf::Event<'_>, name: &str) -> Option<u64> {
    let value = value(record, name)?;
    value
        .as_u64()
        .or_else(|| value.as_i64().map(i64::cast_unsigned))
}

/// Returns a floating-point number as the nearest integer.
fn rounded(record: &kymo_ctf::Event<'_>, name: &str) -> Option<u64> {
    let value = value(record, name)?.as_f64()?;
    Some((value.round() as i64).cast_unsigned())
}

/// Returns the text of a field, or the label of a number.
fn text(record: &kymo_ctf::Event<'_>, name: Option<&str>) -> Option<String> {
    let value = value(record, name?)?;
    let label = value.label().map(str::to_owned);
    label
        .or_else(|| value.text().map(std::borrow::Cow::into_owned))
        .or_else(|| value.as_i64().map(|number| number.to_string()))
}
