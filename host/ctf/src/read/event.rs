//! Views of packets and events, which borrow from the reader until its next call.

use std::sync::{Arc, LazyLock};

use super::run_program::Place;
use super::stream::{EventRecord, NO_TIME, View};
use super::value::Value;
use super::walk::{Container, Sink, number};
use crate::metadata::{Clock, Encoding, EventClass, Mappings, Metadata, Scope, StreamClass};
use crate::plan::header_table::HeaderEntry;
use crate::plan::{IntegerNode, Meaning, Plan};

/// Receives every field of a scope in order. Elements of arrays have no names.
pub trait Visitor<'a> {
    /// Whether it needs the nesting of fields. A visitor that doesn't is [faster](Event::visit_all), and may not
    /// receive [`begin`](Self::begin), [`end`](Self::end) and [`scope`](Self::scope).
    const NESTED: bool = true;

    /// Visits a field without inner fields.
    fn value(&mut self, name: &'a str, value: Value<'a>);

    /// Begins a field with inner fields; not called for a scope itself.
    fn begin(&mut self, name: &'a str, container: Container) {
        let _ = (name, container);
    }

    /// Ends the field that began last.
    fn end(&mut self, container: Container) {
        let _ = container;
    }

    /// Begins the fields of a scope: called by [`Event::visit_all`] and [`Event::visit_body`], which visit several.
    fn scope(&mut self, scope: Scope) {
        let _ = scope;
    }

    /// Whether to visit further fields; called before each field.
    fn wants_more(&self) -> bool {
        true
    }
}

/// Adapts a [`Visitor`] to a walk.
pub(super) struct Visit<'v, V> {
    pub visitor: &'v mut V,
}

/// The value of a plain number.
#[inline(always)]
pub(super) fn integer(node: &IntegerNode, value: u64) -> Value<'_> {
    Value::Integer {
        value: number(node, value),
        class: &node.class,
        mappings: node.mappings.as_deref(),
    }
}

impl<'a, V: Visitor<'a>> Sink<'a> for Visit<'_, V> {
    const FIELDS: bool = true;

    fn wants_more(&self) -> bool {
        self.visitor.wants_more()
    }

    #[inline(always)]
    fn scope(&mut self, scope: Scope) {
        self.visitor.scope(scope);
    }

    #[inline(always)]
    fn number(&mut self, name: &'a str, node: &'a IntegerNode, value: u64) {
        self.visitor.value(name, integer(node, value));
    }

    fn integer(&mut self, name: &'a str, node: &'a IntegerNode, value: u64, size: u32) {
        static NONE: LazyLock<Mappings> = LazyLock::new(Mappings::default);
        let mappings = node.mappings.as_deref();
        let value = match node.meaning {
            Meaning::Number => integer(node, value),
            Meaning::Boolean => Value::Boolean(value != 0),
            Meaning::Bits => Value::Bits {
                value,
                size,
                flags: mappings.unwrap_or(&NONE),
            },
        };
        self.visitor.value(name, value);
    }

    fn blob(&mut self, name: &'a str, bytes: &'a [u8], media_type: &'a str) {
        self.visitor.value(name, Value::Blob { bytes, media_type });
    }

    fn absent(&mut self, name: &'a str) {
        self.visitor.value(name, Value::Absent);
    }

    fn float(&mut self, name: &'a str, value: f64, size: u32) {
        self.visitor.value(name, Value::Float { value, size });
    }

    fn text(&mut self, name: &'a str, bytes: &'a [u8], encoding: Encoding) {
        self.visitor.value(name, Value::Text { bytes, encoding });
    }

    fn begin(&mut self, name: &'a str, container: Container) {
        self.visitor.begin(name, container);
    }

    fn end(&mut self, container: Container) {
        self.visitor.end(container);
    }
}

/// Finds the first field with a name at the top of a scope.
struct Find<'n, 'a> {
    name: &'n str,
    depth: u32,
    found: Option<Value<'a>>,
}

impl<'a> Visitor<'a> for Find<'_, 'a> {
    fn value(&mut self, name: &'a str, value: Value<'a>) {
        if self.depth == 0 && self.found.is_none() && name == self.name {
            self.found = Some(value);
        }
    }

    fn begin(&mut self, _: &'a str, _: Container) {
        self.depth += 1;
    }

    fn end(&mut self, _: Container) {
        self.depth -= 1;
    }

    fn wants_more(&self) -> bool {
        self.found.is_none()
    }
}

/// Facts that a packet states about itself. Times are in ticks of the clock of its stream class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketInfo {
    /// Number of the packet in the stream, from 0.
    pub number: u64,
    /// Where it begins, in bytes from the start of the stream.
    pub offset: u64,
    /// Size with padding, in bits; `None` when it reaches to the end of the stream.
    pub size: Option<u64>,
    /// Size without padding, in bits; `None` likewise.
    pub content_size: Option<u64>,
    /// Index of its class in [`Metadata::streams`].
    pub stream_class: usize,
    /// Number of the stream within its class, if the packet header states it.
    pub stream_instance: Option<u64>,
    /// Clock value at its beginning.
    pub begin_ticks: Option<u64>,
    /// Clock value at its end.
    pub end_ticks: Option<u64>,
    /// Its sequence number in the stream, as assigned by the tracer.
    pub seq_num: Option<u64>,
    /// Number of events dropped in the stream up to its end, a counter that may wrap.
    pub events_discarded: Option<u64>,
    /// The CPU of its events.
    pub cpu_id: Option<u64>,
    /// Whether its header has a UUID other than that of the metadata. This happens in traces with regenerated metadata,
    /// and is harmless if no stream has the UUID of the metadata. Otherwise the stream belongs to another trace, and is
    /// rejected ([`DecodeErrorKind::ForeignUuid`](crate::DecodeErrorKind::ForeignUuid)).
    pub foreign: bool,
}

/// A packet of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    pub(super) view: &'a View,
}

impl<'a> Packet<'a> {
    /// The facts that the packet states about itself.
    #[must_use]
    pub fn info(&self) -> &'a PacketInfo {
        &self.view.packet
    }

    /// The metadata of the trace.
    #[must_use]
    pub fn metadata(&self) -> &'a Metadata {
        self.view.plan.metadata()
    }

    /// The class of the stream.
    #[must_use]
    pub fn stream_class(&self) -> &'a StreamClass {
        self.view.class()
    }

    /// The clock of the stream.
    #[must_use]
    pub fn clock(&self) -> Option<&'a Clock> {
        self.view.clock()
    }

    /// Time of the beginning in nanoseconds from the clock's origin.
    #[must_use]
    pub fn begin_ns(&self) -> Option<i64> {
        self.clock()?.nanoseconds(self.info().begin_ticks?)
    }

    /// Time of the end in nanoseconds from the clock's origin.
    #[must_use]
    pub fn end_ns(&self) -> Option<i64> {
        self.clock()?.nanoseconds(self.info().end_ticks?)
    }

    /// Visits the fields of the packet's header or context; other scopes have no fields here.
    pub fn visit<V: Visitor<'a>>(&self, scope: Scope, visitor: &mut V) {
        if let Some((program, start)) = self.view.packet_program(scope) {
            self.view
                .show_head(program, scope, start, &mut Visit { visitor });
        }
    }

    /// The plan that decodes it.
    #[inline(always)]
    pub(crate) fn plan(&self) -> &'a Arc<Plan> {
        &self.view.plan
    }

    /// Position of the fields of the context.
    #[inline(always)]
    pub(crate) fn context(&self) -> (Place<'a, 'a>, u64) {
        self.view.context_place()
    }

    /// The field of the packet context with this name, at its top.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        let mut find = Find {
            name,
            depth: 0,
            found: None,
        };
        self.visit(Scope::PacketContext, &mut find);
        find.found
    }
}

/// Consecutive events of one packet. Iterating is cheap and repeatable.
#[derive(Debug, Clone, Copy)]
pub struct Events<'a> {
    view: &'a View,
    records: &'a [EventRecord],
    /// Number of the first one in the packet.
    first: u64,
}

impl<'a> Events<'a> {
    #[inline(always)]
    pub(super) const fn new(view: &'a View, records: &'a [EventRecord], first: u64) -> Self {
        Self {
            view,
            records,
            first,
        }
    }

    /// The number of events, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// The packet that contains them.
    #[must_use]
    pub const fn packet(&self) -> Packet<'a> {
        Packet { view: self.view }
    }

    /// The events in order.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> EventIter<'a> {
        EventIter {
            view: self.view,
            records: self.records.iter(),
            next: self.first,
        }
    }
}

impl<'a> IntoIterator for Events<'a> {
    type Item = Event<'a>;
    type IntoIter = EventIter<'a>;

    #[inline]
    fn into_iter(self) -> EventIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Events`].
#[derive(Debug, Clone)]
pub struct EventIter<'a> {
    view: &'a View,
    records: std::slice::Iter<'a, EventRecord>,
    next: u64,
}

impl<'a> Iterator for EventIter<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        let record = self.records.next()?;
        self.next += 1;
        Some(Event::new(self.view, record, self.next - 1))
    }

    #[inline]
    fn nth(&mut self, passed: usize) -> Option<Event<'a>> {
        let record = self.records.nth(passed)?;
        self.next += passed as u64 + 1;
        Some(Event::new(self.view, record, self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl ExactSizeIterator for EventIter<'_> {}

/// An event of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    view: &'a View,
    record: &'a EventRecord,
    /// Its number in the packet.
    number: u64,
}

impl<'a> Event<'a> {
    #[inline(always)]
    pub(super) const fn new(view: &'a View, record: &'a EventRecord, number: u64) -> Self {
        Self {
            view,
            record,
            number,
        }
    }

    /// The internals of the event: view and record.
    #[inline(always)]
    pub(super) const fn parts(&self) -> (&'a View, &'a EventRecord) {
        (self.view, self.record)
    }

    /// The class of the event.
    #[must_use]
    pub fn class(&self) -> &'a EventClass {
        self.view.event_class(self.record)
    }

    /// Index of the class in [`StreamClass::events`].
    #[must_use]
    #[inline]
    pub const fn class_index(&self) -> usize {
        self.record.parts.class as usize
    }

    /// The name of the event.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.class().name
    }

    /// The packet that contains it.
    #[must_use]
    pub const fn packet(&self) -> Packet<'a> {
        Packet { view: self.view }
    }

    /// Its number in the packet, from 0.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Its position, in bits from the start of the stream.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.view.packet.offset * 8 + self.record.start - self.record.padding as u64
    }

    /// Its size in the packet, including the padding before it, in bits.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.record.end) + u64::from(self.record.padding)
    }

    /// Its time in ticks of the clock of its stream class.
    #[must_use]
    #[inline]
    pub fn ticks(&self) -> Option<u64> {
        self.view.clock().map(|_| self.record.ticks)
    }

    /// Its time in nanoseconds from the clock's origin.
    #[must_use]
    #[inline]
    pub fn time_ns(&self) -> Option<i64> {
        Some(self.record.time).filter(|time| *time != NO_TIME)
    }

    /// Position of the fields after the header.
    #[inline(always)]
    pub(crate) fn body(&self) -> (Place<'a, 'a>, u64) {
        self.view.body_place(self.record)
    }

    /// Visits the fields of one scope; packet header and context are allowed, too.
    #[inline]
    pub fn visit<V: Visitor<'a>>(&self, scope: Scope, visitor: &mut V) {
        let mut visit = Visit { visitor };
        if scope == Scope::EventHeader {
            let ops = self.view.lead(self.record).and_then(HeaderEntry::header);
            if self.view.show_led(self.record, ops, 0, &mut visit) {
                return;
            }
        }
        match self.view.event_program(self.record, scope) {
            Some((program, start)) => self.view.show_event(program, scope, start, &mut visit),
            None => self.packet().visit(scope, visitor),
        }
    }

    /// Visits all fields of the event: header, contexts, payload. Faster than scope by scope.
    #[inline]
    pub fn visit_all<V: Visitor<'a>>(&self, visitor: &mut V) {
        let mut visit = Visit { visitor };
        visit.visitor.scope(Scope::EventHeader);
        let shown = if V::NESTED {
            let ops = self.view.lead(self.record).and_then(HeaderEntry::all);
            self.view.show_led(self.record, ops, 0, &mut visit)
        } else {
            self.view.show_values(self.record, &mut visit)
        };
        if !shown {
            self.visit(Scope::EventHeader, visitor);
            self.visit_body(visitor);
        }
    }

    /// As [`visit_all`](Self::visit_all) without the header, which tells nothing beyond [`ticks`](Self::ticks) and
    /// [`class`](Self::class).
    #[inline]
    pub fn visit_body<V: Visitor<'a>>(&self, visitor: &mut V) {
        const SCOPES: [Scope; 3] = [
            Scope::StreamEventContext,
            Scope::EventContext,
            Scope::EventFields,
        ];
        let mut visit = Visit { visitor };
        let ops = self.view.lead(self.record).and_then(HeaderEntry::body);
        if self.view.show_led(self.record, ops, 0, &mut visit)
            || self.view.show_body(self.record, &mut visit)
        {
            return;
        }
        for scope in SCOPES {
            if let Some((program, start)) = self.view.event_program(self.record, scope) {
                visit.visitor.scope(scope);
                self.view.show_event(program, scope, start, &mut visit);
            }
        }
    }

    /// The field with this name at the top of the payload, or else of the event's contexts and header.
    ///
    /// A field with inner fields has no single value: [`visit`](Self::visit) visits it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        const INSIDE_OUT: [Scope; 4] = [
            Scope::EventFields,
            Scope::EventContext,
            Scope::StreamEventContext,
            Scope::EventHeader,
        ];
        INSIDE_OUT
            .into_iter()
            .find_map(|scope| self.field_of(scope, name))
    }

    /// The field with this name at the top of one scope.
    #[must_use]
    pub fn field_of(&self, scope: Scope, name: &str) -> Option<Value<'a>> {
        let mut find = Find {
            name,
            depth: 0,
            found: None,
        };
        self.visit(scope, &mut find);
        find.found
    }
}

/// A loss in a stream, reported at its position in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The kind of loss.
    pub kind: GapKind,
    /// Number of packets or events lost; `None` if unknown because the sequence number went backward.
    pub count: Option<u64>,
    /// For lost packets the end of the previous packet, in ticks; `None` before the first one. For discarded events the
    /// last event of the packet that counts them: tracers (LTTng, barectf) discard when a packet is full and there is no
    /// room for another one.
    pub from_ticks: Option<u64>,
    /// For lost packets and earlier events the beginning of the packet after the gap, for discarded events the end of the
    /// packet that counts them, in ticks.
    pub to_ticks: Option<u64>,
}

/// Kinds of losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// Whole packets, missing from the sequence numbers.
    Packets,
    /// Events that the tracer had to drop.
    Events,
    /// Events that it had to drop before the first packet that is there: those of earlier packets, which were overwritten
    /// or are missing, are in its count.
    EarlierEvents,
}
