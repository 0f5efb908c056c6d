//! Meanings of the events in Kymo's own CTF exports (`kymo export --to ctf`).
//!
//! The exporter writes one event class for each kind of the event model, byte-aligned and with names as labels, so that
//! other tools can read it. This module reads them back: calls, threads and interrupts are those of the exported trace.
//! Facts that CTF itself can represent (lost events, lost packets) are in the packets, and handled by the CTF reader.

mod rule;
mod threads;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::metadata::{Base, EnvValue, FieldClass, Metadata, Scope};
use kymo_ctf::{Events, Message, Projected, Projection, StreamReader, Trace};
use kymo_event::{
    Addr, Caller, ClockGap, Cpu, Duration, EventKind, Field, FunctionId, Gap, Identities,
    InterruptId, InterruptKind, Irq, RecordingCause, RowKind, ThreadId, Tid, TimeUnit, TraceInfo,
    Value,
};
use kymo_wire::event::METADATA_STREAM;

use super::same_context::SameContext;
use super::straight::{self, Call, Common};
use super::{Sink, Spaces, env_text, hex_bytes, labels, quantity};
use crate::fields::{Collector, Pool};
use crate::formats::kymo::StreamKind;
use rule::Rule;
use threads::{address, stack, thread_class, thread_labels};

/// Returns whether this is the metadata of a Kymo export.
pub(crate) fn is_export(metadata: &Metadata) -> bool {
    env_text(metadata, "tracer_name") == Some("kymo-export")
}

/// Returns whether the exported trace may record thread switches.
pub(crate) fn tells_switches(metadata: &Metadata) -> bool {
    env_text(metadata, "kymo_without_switches").is_none()
}

/// Returns the date of time 0 in the exported trace, in nanoseconds since 1970 UTC, if it is known.
pub(crate) fn origin(metadata: &Metadata) -> Option<i64> {
    env_text(metadata, "kymo_origin_ns")?.parse().ok()
}

/// High word of the numbers that exports use instead of an address for functions of which only the name is known: the
/// letters "kymo", where no processor has code.
const NAME_ONLY: u64 = 0x6b79_6d6f;

/// State of an exported Kymo trace.
pub(crate) struct Export {
    spaces: Spaces,
    /// Rules by stream class and index in it.
    rules: Vec<Arc<[Rule]>>,
    /// Which of them are entries and exits.
    calls: Arc<[Vec<Option<Call>>]>,
    /// CPU and thread of an event: [`CPU`], [`THREAD`].
    places: Projection,
    /// Numbers that the rules need from the payload: [`ITEM`], [`CALL_SITE`].
    numbers: Arc<Projection>,
    /// CPU and thread in the context of each stream's last event.
    contexts: Vec<SameContext<(Option<Cpu>, Option<ThreadId>)>>,
    /// Functions without an address, by their numbers.
    named: HashMap<u64, FunctionId>,
}

/// Indices of fields in [`Export::places`].
const CPU: usize = 0;
const THREAD: usize = 1;

/// Indices of fields in [`Export::numbers`]: the function or interrupt, and the call site.
const ITEM: usize = 0;
const CALL_SITE: usize = 1;

/// The same index, for exits that state the durations of their calls.
const WALL: usize = CALL_SITE;

/// The same index, for spans: whether each processor has its own.
const PER_CPU: usize = CALL_SITE;

/// The same index, for called functions: the caller.
const CALLER: usize = CALL_SITE;

impl Export {
    /// Interns the names in the metadata.
    pub(crate) fn new(trace: &Trace, spaces: Spaces, identities: &mut Identities) -> Self {
        let metadata = trace.metadata();
        let streams = metadata.streams.iter();
        let rules: Vec<Arc<[Rule]>> = streams
            .map(|stream| stream.events.iter().map(Rule::of).collect())
            .collect();
        let numbers = Projection::of_classes(trace.plan(), |stream, event| {
            let rule = rules.get(stream).and_then(|events| events.get(event));
            let fields = rule.map_or([""; 2], |rule| rule.fields());
            fields.map(|name| (Scope::EventFields, name))
        });
        let context = ["cpu", "thread"].map(|name| (Scope::StreamEventContext, name));
        let call = |rule: &Rule| match rule {
            Rule::Enter => Some(Call::Enter),
            Rule::Exit => Some(Call::Exit),
            _ => None,
        };
        let calls = rules.iter();
        let calls = calls.map(|rules| rules.iter().map(call).collect());
        let mut export = Self {
            spaces,
            calls: calls.collect(),
            rules,
            places: Projection::of_scopes(trace.plan(), context),
            numbers: Arc::new(numbers),
            contexts: Vec::new(),
            named: HashMap::new(),
        };
        let functions = [
            ("enter", "function"),
            ("exit", "function"),
            ("called", "function"),
            ("span_begin", "span"),
            ("span_end", "span"),
        ];
        for (number, label) in functions
            .into_iter()
            .flat_map(|(event, field)| labels(metadata, event, field))
        {
            if number >> 32 == NAME_ONLY {
                let function = identities.function_named(spaces.code, label);
                export.named.insert(number, function);
            } else if address(label) != Some(Addr(number)) {
                // Without a name, the label is the address.
                let function = identities.function_at(spaces.code, Addr(number));
                identities.name_function(function, label);
            }
        }
        for (number, label) in thread_labels(metadata) {
            let thread = export.thread(number, identities);
            if (thread.0 as usize) < NAMES_LISTED {
                identities.name_thread(thread, label);
            }
        }
        for (number, label) in labels(metadata, "isr_enter", "irq") {
            // Interrupts are labelled with their number and, if they have one, their name.
            if let Ok(irq) = u32::try_from(number).map(Irq)
                && let Some(name) = label.strip_prefix(&format!("IRQ {irq} "))
            {
                let irq = export.interrupt(irq, identities);
                identities.name_interrupt(irq, name);
            }
        }
        export
    }

    fn interrupt(&self, irq: Irq, identities: &mut Identities) -> InterruptId {
        identities.interrupt(self.spaces.machine, InterruptKind::Hard, irq)
    }

    fn thread(&self, number: u64, identities: &mut Identities) -> ThreadId {
        identities.thread(self.spaces.machine, Tid(number))
    }

    /// Returns the function of a number.
    #[inline]
    fn function(&self, number: u64, sink: &mut Sink<'_>) -> Option<FunctionId> {
        let space = self.spaces.code;
        sink.function(space, number, |identities| {
            let named = self.named.get(&number).copied();
            Some(named.unwrap_or_else(|| identities.function_at(space, Addr(number))))
        })
    }
}

impl Export {
    /// Passes the meanings of a run of records to `sink`.
    pub(crate) fn records(&mut self, events: &Events<'_>, sink: &mut Sink<'_>) {
        let class = events.packet().info().stream_class;
        let rules = self.rules.get(class).cloned().unwrap_or_default();
        let numbers = Arc::clone(&self.numbers);
        let numbers = events.projected(&numbers);
        let calls = Arc::clone(&self.calls);
        let calls = calls.get(class).map_or(&[][..], Vec::as_slice);
        let mut events = events.iter();
        loop {
            let known = self.contexts.get(sink.index);
            if let Some((context, (cpu, thread))) = known.and_then(|known| known.last(class)) {
                let common = Common {
                    context,
                    cpu: sink.cpu.or(*cpu),
                    thread: *thread,
                    space: self.spaces.code,
                };
                straight::take(&mut events, &numbers, common, sink, calls);
            }
            let Some(record) = events.next() else { return };
            let rule = rules.get(record.class_index()).copied();
            match rule.unwrap_or(Rule::Other) {
                Rule::Rare => self.rare(&record, sink),
                rule => self.record(&record, (class, rule), &numbers, sink),
            }
        }
    }

    /// Passes on a record that a row can represent.
    fn record<'a>(
        &mut self,
        record: &kymo_ctf::Event<'a>,
        (class, rule): (usize, Rule),
        numbers: &Projected<'a>,
        sink: &mut Sink<'_>,
    ) {
        sink.begin(record.time_ns());
        let context = numbers.stream_context(record);
        let known = self.contexts.get(sink.index);
        let (cpu, thread) = match known.and_then(|known| known.get(class, context)) {
            Some(place) => *place,
            None => self.new_place(record, (class, context), sink),
        };
        let cpu = sink.cpu.or(cpu);
        let numbers = numbers.numbers::<2>(record);
        let item = numbers.unsigned(ITEM);
        let machine = self.spaces.machine;
        let irq = |sink: &mut Sink<'_>| sink.interrupt(machine, InterruptKind::Hard, item?);
        let row = match rule {
            Rule::Enter | Rule::EnterFound => {
                item.and_then(|item| self.function(item, sink)).map(|it| {
                    let call_site = numbers.unsigned(CALL_SITE).unwrap_or(0);
                    let row = sink.row(RowKind::Enter).function(Some(it));
                    row.word(Addr(call_site)).found(rule == Rule::EnterFound)
                })
            }
            Rule::Exit | Rule::ExitLeft => {
                let function = item.and_then(|item| self.function(item, sink));
                let row = sink.row(RowKind::Exit).function(function);
                Some(row.left(rule == Rule::ExitLeft))
            }
            Rule::Called => item.and_then(|item| self.function(item, sink)).map(|it| {
                let caller = numbers.unsigned(CALLER).filter(|caller| *caller != 0);
                let caller = caller.and_then(|caller| self.function(caller, sink));
                let row = sink.row(RowKind::Called).function(Some(it));
                row.called_by(caller.map(|function| Caller {
                    function,
                    offset: 0,
                }))
            }),
            Rule::SpanBegin | Rule::SpanEnd => {
                let kind = match rule {
                    Rule::SpanBegin => RowKind::SpanBegin,
                    _ => RowKind::SpanEnd,
                };
                let per_cpu = numbers.unsigned(PER_CPU).is_some_and(|it| it != 0);
                item.and_then(|item| self.function(item, sink))
                    .map(|it| sink.row(kind).function(Some(it)).per_cpu(per_cpu))
            }
            Rule::ExitStated => {
                let function = item.and_then(|item| self.function(item, sink));
                let row = sink.row(RowKind::Exit).function(function);
                let wall = numbers.unsigned(WALL).map(Duration);
                Some(wall.map_or(row, |wall| row.took(wall)))
            }
            Rule::SwitchedIn => Some(sink.row(RowKind::SwitchedIn)),
            Rule::SwitchedOut => Some(sink.row(RowKind::SwitchedOut)),
            Rule::SwitchedOutUnseen => Some(sink.row(RowKind::SwitchedOut).unseen(true)),
            Rule::LastTime => Some(sink.row(RowKind::Time).last_time()),
            Rule::Runs => {
                let function = item.and_then(|item| self.function(item, sink));
                Some(sink.row(RowKind::Other).function(function))
            }
            Rule::IsrEnter => irq(sink).map(|irq| sink.row(RowKind::IsrEnter).interrupt(Some(irq))),
            Rule::IsrExit => {
                let irq = irq(sink);
                Some(sink.row(RowKind::IsrExit).interrupt(irq))
            }
            Rule::Rare | Rule::Other => None,
        };
        match row {
            Some(row) => sink.common(record, row.at(cpu, thread)),
            None => sink.other(record, cpu, thread),
        }
    }

    /// Determines the CPU and thread of a record whose context differs from that of the record before.
    #[inline(never)]
    fn new_place(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        (class, context): (usize, Option<&[u8]>),
        sink: &mut Sink<'_>,
    ) -> (Option<Cpu>, Option<ThreadId>) {
        let place = self.place(record, sink.identities);
        if self.contexts.len() <= sink.index {
            self.contexts
                .resize_with(sink.index + 1, SameContext::default);
        }
        if let Some(known) = self.contexts.get_mut(sink.index) {
            known.set(class, context, place);
        }
        place
    }
}

impl Export {
    /// Returns the CPU and thread of a record.
    fn place(
        &self,
        record: &kymo_ctf::Event<'_>,
        identities: &mut Identities,
    ) -> (Option<Cpu>, Option<ThreadId>) {
        let numbers = record.numbers::<2>(&self.places);
        let known = |place| numbers.bits(place).filter(|it| *it != UNKNOWN);
        let cpu = known(CPU).and_then(|cpu| u32::try_from(cpu).ok()).map(Cpu);
        let thread = known(THREAD).map(|thread| self.thread(thread, identities));
        (cpu, thread)
    }

    /// Passes on a record of a rare kind.
    #[inline(never)]
    fn rare(&self, record: &kymo_ctf::Event<'_>, sink: &mut Sink<'_>) {
        let kind = self.kind(record, sink.identities);
        if matches!(kind, Some(EventKind::Gap(Gap::Overwritten { .. }))) {
            return;
        }
        sink.begin(record.time_ns());
        let (cpu, thread) = self.place(record, sink.identities);
        let place = (sink.cpu.or(cpu), thread);
        let own = matches!(record.name(), "other" | "ready")
            .then(|| text(record, "name"))
            .flatten();
        match kind {
            None if own.is_none() => sink.other(record, place.0, place.1),
            kind => sink.rare(record, kind.unwrap_or(EventKind::Other), place, own),
        }
    }

    /// Returns the meaning of such a record; `None` if its kind is unknown or a field is missing.
    fn kind(&self, record: &kymo_ctf::Event<'_>, identities: &mut Identities) -> Option<EventKind> {
        let number = |name| record.field_of(Scope::EventFields, name)?.as_u64();
        let irq = |identities| {
            let irq = u32::try_from(number("irq")?).ok().map(Irq)?;
            Some(self.interrupt(irq, identities))
        };
        Some(match record.name() {
            "marker" => EventKind::Marker {
                label: text(record, "label"),
                value: number("value")?,
            },
            "counter" => EventKind::Counter {
                name: text(record, "counter")?,
                // 0 means none.
                process: number("process").filter(|process| *process != 0),
                value: quantity(&record.field_of(Scope::EventFields, "value")?)?,
            },
            "ready" => EventKind::Ready {
                thread: self.thread(number("ready_thread")?, identities),
            },
            "thread_name" => {
                let thread = self.thread(number("named_thread")?, identities);
                let name = text(record, "thread_name")?;
                if (thread.0 as usize) < NAMES_LISTED {
                    identities.name_thread(thread, &name);
                }
                EventKind::ThreadName { thread, name }
            }
            "isr_name" => {
                let irq = irq(identities)?;
                let name = text(record, "irq_name")?;
                if (irq.0 as usize) < NAMES_LISTED {
                    identities.name_interrupt(irq, &name);
                }
                EventKind::IsrName { irq, name }
            }
            "context" => {
                let priority = record.field_of(Scope::EventFields, "priority")?.as_i64()?;
                EventKind::Context {
                    priority: i32::try_from(priority).ok()?,
                    mode: u32::try_from(number("mode")?).ok()?,
                }
            }
            "recording" => EventKind::Recording {
                on: number("on")? != 0,
                cause: cause(&text(record, "cause")?),
            },
            "setjmp" => EventKind::SetJmp {
                env: Addr(number("jmp_buf")?),
            },
            "longjmp" => EventKind::LongJmp {
                env: Addr(number("jmp_buf")?),
            },
            "wall_clock" => EventKind::WallClock {
                unix_ns: number("ns")?,
                uncertainty_ns: u32::try_from(number("uncertainty")?).ok()?,
            },
            "gap" => EventKind::Gap(gap(
                &text(record, "kind")?,
                number("amount"),
                number("offset")?,
                text(record, "message")?,
            )?),
            _ => return None,
        })
    }
}

/// Returns the fields of a record. Separates an address from its name, and omits empty fields.
pub(crate) fn fields(record: &kymo_ctf::Event<'_>, _: &mut Pool) -> Vec<Field> {
    let mut fields = Vec::new();
    for field in Collector::of(record, Scope::EventFields) {
        match (&*field.name, field.value) {
            ("more", Value::Text(more)) if more.is_empty() => {}
            ("function", Value::Struct(parts)) => {
                let part = |name| parts.iter().find(|part| part.name == name);
                let number = part("value").map(|part| part.value.clone());
                fields.extend(number.map(|number| Field::new("function", number)));
                fields.extend(part("label").cloned());
            }
            (_, value) => fields.push(Field {
                name: field.name,
                value,
            }),
        }
    }
    fields
}

/// Value for an unknown thread or processor.
const UNKNOWN: u64 = u64::MAX;

/// Returns the text in a payload field.
fn text(record: &kymo_ctf::Event<'_>, name: &str) -> Option<String> {
    let value = record.field_of(Scope::EventFields, name)?;
    Some(value.text()?.into_owned())
}

fn cause(word: &str) -> RecordingCause {
    [
        RecordingCause::Build,
        RecordingCause::Function,
        RecordingCause::Command,
    ]
    .into_iter()
    .find(|cause| cause.name() == word)
    .unwrap_or(RecordingCause::Unknown)
}

/// Returns a gap of this kind. `amount` is the number of missing units of the kind; `None` if unknown.
fn gap(kind: &str, amount: Option<u64>, offset: u64, message: String) -> Option<Gap> {
    let amount = amount.filter(|amount| *amount != u64::MAX);
    let duration = Duration(amount.unwrap_or(0));
    Some(match kind {
        "discarded" => Gap::Discarded { events: amount },
        "lost_packets" => Gap::LostPackets { packets: amount },
        "overwritten" => Gap::Overwritten {
            packets: amount.unwrap_or(0),
        },
        "in_interrupt" => Gap::InInterrupt {
            depth: u32::try_from(amount?).ok()?,
        },
        "missing_exit" => Gap::MissingExit { ago: duration },
        "clock" => Gap::Clock(ClockGap { at_least: duration }),
        "time_backward" => Gap::TimeBackward { by: duration },
        "damage" => Gap::Damage {
            offset,
            bytes: amount,
            message,
        },
        _ => return None,
    })
}

/// Returns whether a stream of an export holds only one-time facts, as in an export of a Kymo recording.
pub(crate) fn is_timeless(metadata: &Metadata, file: &str) -> bool {
    let native = env_text(metadata, "kymo_format") == Some("kymo");
    is_export(metadata) && native && file == StreamKind::Metadata.file_name(METADATA_STREAM)
}

/// Largest number of names that are read from an export. It bounds memory for hostile files.
const NAMES_LISTED: usize = 100_000;

impl Export {
    /// Adds the properties of an exported trace that was found below `directory`. Its streams are those of `info` from
    /// index `first` on.
    ///
    /// The names of threads and the owners of streams are in the streams, so their beginnings are read beforehand.
    pub(crate) fn describe(
        &self,
        trace: &Trace,
        directory: &Path,
        first: usize,
        info: &mut TraceInfo,
    ) {
        let metadata = trace.metadata();
        let base = env_text(metadata, "kymo_text_base").and_then(address);
        let id = env_text(metadata, "kymo_build_id").and_then(hex_bytes);
        if let Some(space) = info.identities.space_mut(self.spaces.code) {
            space.text_base = base;
            space.build_id.clone_from(&id);
        }
        info.text_base = base.or(info.text_base);
        if let Some(unit) = env_text(metadata, "kymo_unit") {
            let named = |known: &TimeUnit| known.suffix() == unit;
            info.unit = TimeUnit::ALL.into_iter().find(named).unwrap_or_default();
        }
        info.build_id = id.or(info.build_id.take());
        info.wall_times |= env_text(metadata, "kymo_wall_times").is_some();
        let added = env_text(metadata, "kymo_added_events").and_then(|text| text.parse().ok());
        info.added_events = info.added_events.saturating_add(added.unwrap_or(0));
        info.numbered_threads |= match thread_class(metadata) {
            Some(FieldClass::Integer(class)) => class.base == Base::Decimal,
            Some(FieldClass::Enumeration(class)) => class.integer.base == Base::Decimal,
            _ => false,
        };
        for (name, value) in &metadata.environment {
            if let Some(about) = name.strip_prefix("kymo_thread_")
                && let (EnvValue::Text(text), Some((number, what))) = (value, about.split_once('_'))
                && let Ok(number) = number.parse()
            {
                let space = self.spaces.machine;
                let thread = info.identities.thread(space, Tid(number));
                match (what, text.parse(), stack(text)) {
                    ("priority", Ok(priority), _) => {
                        info.identities.set_priority(thread, priority);
                    }
                    ("stack", _, Some(stack)) => info.identities.set_stack(thread, stack),
                    _ => {}
                }
            }
        }
        let whole_calls = env_text(metadata, "kymo_whole_calls").is_some();
        let marks_missing_exits = env_text(metadata, "kymo_tells_missing").is_some();
        let is_silent_behind = env_text(metadata, "kymo_silent_behind").is_some();
        let identities = &mut info.identities;
        // A thread of a process has a stream of calls and one of items, which belong together.
        let has_threads = trace.stream_names().any(|file| file.starts_with("thread-"));
        let of_thread =
            |file: &str| file.starts_with("thread-") || (has_threads && file.starts_with("items"));
        let streams = info.streams.iter_mut().skip(first);
        for (stream, file) in streams.zip(trace.stream_names()) {
            stream.whole_calls = whole_calls;
            stream.marks_missing_exits = marks_missing_exits;
            stream.is_silent_behind = is_silent_behind;
            // Errors are reported when the streams are opened.
            let Ok(bytes) = File::open(directory.join(trace.name()).join(file)) else {
                continue;
            };
            let mut reader = StreamReader::new(Arc::clone(trace.plan()), bytes);
            if is_timeless(metadata, file) {
                stream.timeless = true;
                // Their names become part of the identities.
                for _ in 0..NAMES_LISTED {
                    if self.next(&mut reader, identities).is_none() {
                        break;
                    }
                }
            } else if of_thread(file) {
                stream.thread = match self.next(&mut reader, identities) {
                    Some((None, thread)) => thread,
                    _ => None,
                };
            }
        }
    }

    /// Returns the CPU and thread of the next event in a stream, and takes the names in it. `None` at its end, or if it
    /// cannot be read.
    fn next(
        &self,
        reader: &mut StreamReader,
        identities: &mut Identities,
    ) -> Option<(Option<Cpu>, Option<ThreadId>)> {
        loop {
            if let Message::Event(event) = reader.next_message().ok()?? {
                let kind = self.kind(&event, identities);
                if !matches!(kind, Some(EventKind::Gap(Gap::Overwritten { .. }))) {
                    return Some(self.place(&event, identities));
                }
            }
        }
    }
}
