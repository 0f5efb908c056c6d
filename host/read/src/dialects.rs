//! Dialects: the meanings of tracers' events.
//!
//! A reader finds the fields of an event. The dialect defines which event is the entry of a function, and which of its
//! fields is the function's address. Each dialect is one module.
//!
//! Kymo's own targets have a separate reader ([`native`](crate::formats::kymo)). The other dialects are selected by the
//! metadata of a CTF trace, or by a mapping file ([`Dialect::of`]).

mod built;
pub(crate) mod export;
pub(crate) mod kymo;
mod lttng;
pub(crate) mod mapping;
mod nesting;
mod same_context;
mod sink;
mod straight;
mod zephyr_tracing;

use std::sync::Arc;

use kymo_ctf::metadata::{EnvValue, FieldClass, Metadata, Value64};
use kymo_ctf::{Events, Packet, Trace};
use kymo_event::{
    Cpu, EventKind, Field, Identities, Quantity, RowKind, SpaceId, ThreadId, TraceInfo, Wanted,
};

use crate::fields::Pool;

pub(crate) use built::Built;
use mapping::{Mapping, MappingError};
pub(crate) use sink::{Caches, Clock, Sink};

/// Namespaces of the numbers in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spaces {
    /// Addresses and function names. Each trace has its own.
    pub(crate) code: SpaceId,
    /// Numbers of threads and interrupts. Traces of one machine share them; such traces have the same clock.
    pub(crate) machine: SpaceId,
}

/// Converter from the records of a trace to events.
///
/// The meaning of each event class, and the fields that it needs, are determined once, when the trace is opened.
pub(crate) trait Meanings {
    /// Passes the meaning of a record to `sink`, after its time ([`Sink::begin`]): exactly one record, or none if the
    /// packets already represent it. `class` is the class of its stream.
    fn record(&mut self, record: &kymo_ctf::Event<'_>, class: usize, sink: &mut Sink<'_>);
}

/// Converts a number of any kind, with all bits, and signed if its field is.
fn quantity(value: &kymo_ctf::Value<'_>) -> Option<Quantity> {
    let integer = value.integer().map(|integer| match integer {
        Value64::Unsigned(value) => Quantity::Unsigned(value),
        Value64::Signed(value) => Quantity::Signed(value),
    });
    integer.or_else(|| value.as_f64().map(Quantity::Real))
}

/// Dialect of a trace whose events have no known meaning.
pub(crate) struct Unknown;

impl Meanings for Unknown {
    fn record(&mut self, record: &kymo_ctf::Event<'_>, _: usize, sink: &mut Sink<'_>) {
        sink.begin(record.time_ns());
        sink.other(record, sink.cpu, None);
    }
}

/// Dialect of one CTF trace.
pub(crate) enum Dialect {
    /// Unknown meanings: the records only have their names and fields.
    Unknown(Unknown),
    /// Traces from `kymo export --to ctf`.
    Export(Box<export::Export>),
    /// LTTng, kernel and user space.
    Lttng(Box<lttng::Lttng>),
    /// Zephyr, tracing and instrumentation subsystems.
    Zephyr(Box<zephyr_tracing::Zephyr>),
    /// Meanings from a mapping file.
    Mapped(Box<mapping::Mapped>),
}

impl Dialect {
    /// Selects the dialect of a trace: the mapping, if there is one, else the one that the metadata suggests.
    ///
    /// # Errors
    /// If the mapping does not match the trace.
    pub(crate) fn of(
        trace: &Trace,
        mapping: Option<&Arc<Mapping>>,
        spaces: Spaces,
        identities: &mut Identities,
    ) -> Result<Self, MappingError> {
        if let Some(mapping) = mapping {
            let mapped = mapping::Mapped::new(mapping, trace, spaces, identities)?;
            return Ok(Self::Mapped(Box::new(mapped)));
        }
        Ok(Self::of_trace(trace, spaces, identities))
    }

    fn of_trace(trace: &Trace, spaces: Spaces, identities: &mut Identities) -> Self {
        if export::is_export(trace.metadata()) {
            let export = export::Export::new(trace, spaces, identities);
            return Self::Export(Box::new(export));
        }
        if let Some(zephyr) = zephyr_tracing::Zephyr::of(trace, spaces, identities) {
            return Self::Zephyr(Box::new(zephyr));
        }
        lttng::Lttng::of(trace, spaces, identities)
            .map_or(Self::Unknown(Unknown), |lttng| Self::Lttng(Box::new(lttng)))
    }

    /// Returns whether the trace may record thread switches.
    pub(crate) fn tells_switches(&self, trace: &Trace) -> bool {
        match self {
            Self::Lttng(lttng) => lttng.tells_switches(),
            Self::Export(_) => export::tells_switches(trace.metadata()),
            _ => true,
        }
    }

    /// Returns whether a stream class records the thread switches of its CPUs, where other classes record none.
    pub(crate) fn class_tells_switches(&self, class: usize) -> bool {
        match self {
            Self::Lttng(lttng) => lttng.class_tells_switches(class),
            _ => false,
        }
    }

    /// Adds the properties that are known before the events are read.
    pub(crate) fn describe(&mut self, trace: &Trace, info: &mut TraceInfo) {
        match self {
            Self::Lttng(lttng) => lttng.describe(trace, info),
            Self::Mapped(_) => info.numbered_threads = true,
            Self::Unknown(_) | Self::Export(_) | Self::Zephyr(_) => {}
        }
    }

    /// Returns the CPU of a packet's events, if the packet or the whole trace determines it.
    pub(crate) fn cpu(&self, packet: &Packet<'_>) -> Option<Cpu> {
        let number = packet.info().cpu_id;
        let cpu = number
            .and_then(|number| u32::try_from(number).ok())
            .map(Cpu);
        match self {
            Self::Zephyr(zephyr) => cpu.or_else(|| zephyr.cpu(packet)),
            Self::Unknown(_) | Self::Export(_) | Self::Lttng(_) | Self::Mapped(_) => cpu,
        }
    }

    /// Passes the meanings of a run of records to `sink`.
    pub(crate) fn records(&mut self, events: Events<'_>, sink: &mut Sink<'_>) {
        match self {
            Self::Unknown(unknown) => run(unknown, events, sink),
            Self::Export(export) => export.records(&events, sink),
            Self::Lttng(lttng) => lttng.records(&events, sink),
            Self::Zephyr(zephyr) => run(&mut **zephyr, events, sink),
            Self::Mapped(mapped) => run(&mut **mapped, events, sink),
        }
    }

    /// Returns the function that converts a record's fields for display.
    pub(crate) fn fields(&self) -> fn(&kymo_ctf::Event<'_>, &mut Pool) -> Vec<Field> {
        match self {
            Self::Export(_) => export::fields,
            Self::Unknown(_) | Self::Lttng(_) | Self::Zephyr(_) | Self::Mapped(_) => {
                sink::all_fields
            }
        }
    }
}

fn run<M: Meanings>(meanings: &mut M, events: Events<'_>, sink: &mut Sink<'_>) {
    let class = events.packet().info().stream_class;
    for record in events {
        meanings.record(&record, class, sink);
    }
}

/// Returns the entry of an event's class in a table by stream class and index in it.
#[inline]
pub(crate) fn of_class<'r, R>(
    table: &'r [Vec<R>],
    class: usize,
    record: &kymo_ctf::Event<'_>,
) -> Option<&'r R> {
    table.get(class)?.get(record.class_index())
}

/// Passes on a thread switch. The record is the start of the next thread, if there is one.
pub(crate) fn switch(
    record: &kymo_ctf::Event<'_>,
    (cpu, previous, next): (Option<Cpu>, Option<ThreadId>, Option<ThreadId>),
    sink: &mut Sink<'_>,
) {
    let mut left = sink.row(RowKind::SwitchedOut).at(cpu, previous);
    let entered = sink.row(RowKind::SwitchedIn).at(cpu, next);
    match (previous, next) {
        (Some(_), Some(_)) => {
            left.record = false;
            sink.batch.push(left);
            sink.common(record, entered);
        }
        (Some(_), None) => sink.common(record, left),
        (None, Some(_)) => sink.common(record, entered),
        (None, None) => sink.other(record, cpu, None),
    }
}

/// Returns whether an event of this kind needs its fields.
pub(crate) const fn wants(wanted: Wanted, kind: &EventKind) -> bool {
    let is_common = matches!(
        kind,
        EventKind::Enter { .. }
            | EventKind::Exit { .. }
            | EventKind::Called { .. }
            | EventKind::SpanBegin { .. }
            | EventKind::SpanEnd { .. }
            | EventKind::SwitchedIn
            | EventKind::SwitchedOut
            | EventKind::IsrEnter { .. }
            | EventKind::IsrExit { .. }
    );
    match wanted {
        Wanted::Meaning => false,
        Wanted::Details => !is_common,
        Wanted::Everything | Wanted::Records => true,
    }
}

/// Returns a text from the environment of a trace.
pub(crate) fn env_text<'m>(metadata: &'m Metadata, name: &str) -> Option<&'m str> {
    match metadata.env(name) {
        Some(EnvValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// Returns a number in the environment of a trace.
pub(crate) fn env_number(metadata: &Metadata, name: &str) -> Option<u64> {
    match metadata.env(name) {
        Some(EnvValue::Integer(number)) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// Decodes hexadecimal digits.
pub(crate) fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Returns the labels of a payload field with their numbers, for all events with this name.
pub(crate) fn labels<'m>(metadata: &'m Metadata, event: &str, field: &str) -> Vec<(u64, &'m str)> {
    let events = metadata.streams.iter().flat_map(|stream| &stream.events);
    events
        .filter(|class| class.name == event)
        .filter_map(|class| match &class.fields.as_ref()?.member(field)?.class {
            FieldClass::Enumeration(class) => Some(class.mappings.list()),
            _ => None,
        })
        .flatten()
        .filter_map(|mapping| Some((mapping.first.as_u64()?, mapping.label.as_str())))
        .collect()
}
