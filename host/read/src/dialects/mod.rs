//! Dialects: what the events of a tracer mean.
//!
//! A reader knows how to find the fields of an event; which event is the entry of a function, and
//! which of its fields is the function's address, is the dialect's to say. One module each.
//!
//! Kymo's own targets have a reader of their own ([`native`](crate::native)); the other dialects are
//! chosen by what the metadata of a CTF trace says, or by a file that says what its events mean
//! ([`Dialect::of`]).

pub(crate) mod export;
pub(crate) mod kymo;
mod lttng;
pub(crate) mod mapping;
mod nesting;
mod zephyr;

use std::sync::Arc;

use kymo_ctf::Trace;
use kymo_ctf::metadata::{EnvValue, FieldClass, Metadata};
use kymo_event::{Cpu, EventKind, Field, ThreadId, TraceInfo};

use crate::fields;

use mapping::{Mapping, MappingError};

/// What the records of one CTF trace mean.
pub(crate) enum Dialect {
    /// Nobody knows: they have their names and fields.
    Unknown,
    /// What `kymo export --to ctf` writes.
    Export,
    /// LTTng's, of the kernel and of user space.
    Lttng(Box<lttng::Lttng>),
    /// Zephyr's, of its tracing and its instrumentation subsystem.
    Zephyr(Box<zephyr::Zephyr>),
    /// What a file says that came with the trace.
    Mapped(Box<mapping::Mapped>),
}

impl Dialect {
    /// The dialect of a trace: what the mapping says, if there is one, else what its metadata suggests.
    ///
    /// # Errors
    /// When the mapping does not fit the trace.
    pub(crate) fn of(trace: &Trace, mapping: Option<&Arc<Mapping>>) -> Result<Self, MappingError> {
        if let Some(mapping) = mapping {
            let mapped = mapping::Mapped::new(mapping, trace)?;
            return Ok(Self::Mapped(Box::new(mapped)));
        }
        Ok(Self::of_trace(trace))
    }

    fn of_trace(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        if export::is_export(metadata) {
            return Self::Export;
        }
        if let Some(zephyr) = zephyr::Zephyr::of(metadata) {
            return Self::Zephyr(Box::new(zephyr));
        }
        lttng::Lttng::of(trace).map_or(Self::Unknown, |lttng| Self::Lttng(Box::new(lttng)))
    }

    /// Tells what is known of the trace before its events are read.
    pub(crate) fn describe(&self, trace: &Trace, info: &mut TraceInfo) {
        match self {
            Self::Lttng(lttng) => lttng.describe(trace, info),
            Self::Zephyr(zephyr) => zephyr.describe(info),
            Self::Mapped(mapped) => mapped.describe(info),
            Self::Unknown | Self::Export => {}
        }
    }

    /// Gives what a record means to `out`; `cpu` is the processor that its packet names.
    ///
    /// Nothing, if the packets have told it already. One of what is given is the record itself.
    pub(crate) fn meanings(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        cpu: Option<Cpu>,
        out: &mut Vec<Meaning>,
    ) {
        match self {
            Self::Unknown => out.push(Meaning::of(EventKind::Other)),
            Self::Export => out.extend(export::meaning(record)),
            Self::Lttng(lttng) => lttng.meanings(record, cpu, out),
            Self::Zephyr(zephyr) => zephyr.meanings(record, cpu, out),
            Self::Mapped(mapped) => mapped.meanings(record, out),
        }
    }

    /// When a record of a stream happened, in nanoseconds from the origin of its clock.
    pub(crate) fn time_ns(&mut self, record: &kymo_ctf::Event<'_>, stream: usize) -> Option<i64> {
        match self {
            Self::Zephyr(zephyr) => zephyr.time_ns(record, stream),
            Self::Unknown | Self::Export | Self::Lttng(_) | Self::Mapped(_) => record.time_ns(),
        }
    }

    /// The fields of a record, for people.
    pub(crate) fn fields(
        &self,
        record: &kymo_ctf::Event<'_>,
        pool: &mut fields::Pool,
    ) -> Vec<Field> {
        match self {
            Self::Export => export::fields(record),
            Self::Unknown | Self::Lttng(_) | Self::Zephyr(_) | Self::Mapped(_) => {
                fields::all(record, pool)
            }
        }
    }
}

/// One thing that a record means, and where it happened.
pub(crate) struct Meaning {
    pub(crate) kind: EventKind,
    /// Whether it is the record itself, with its name and fields, or something besides that follows
    /// from it: a switch of threads is one thread's end and another's beginning.
    pub(crate) is_record: bool,
    /// What the record is called, if that is not what the class of events is called.
    pub(crate) name: Option<String>,
    /// The processor, where the packet does not name one.
    pub(crate) cpu: Option<Cpu>,
    pub(crate) thread: Option<ThreadId>,
}

impl Meaning {
    /// The meaning of a record itself.
    pub(crate) const fn of(kind: EventKind) -> Self {
        Self {
            kind,
            is_record: true,
            name: None,
            cpu: None,
            thread: None,
        }
    }

    /// Something besides that follows from a record.
    pub(crate) fn besides(kind: EventKind) -> Self {
        Self {
            is_record: false,
            ..Self::of(kind)
        }
    }

    /// The same of a thread.
    pub(crate) fn in_thread(self, thread: impl Into<Option<ThreadId>>) -> Self {
        Self {
            thread: thread.into(),
            ..self
        }
    }
}

/// The text of a fact in the environment of a trace.
pub(crate) fn env_text<'m>(metadata: &'m Metadata, name: &str) -> Option<&'m str> {
    match metadata.env(name) {
        Some(EnvValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// The bytes that hexadecimal digits write.
pub(crate) fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// The labels of a payload field, with what they stand for: those of all events of this name.
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
