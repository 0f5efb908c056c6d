//! Meanings of the events of Kymo's own targets ([`EventId`]).

use std::borrow::Cow;
use std::collections::HashMap;

use kymo_ctf::metadata::{Metadata, Scope};
use kymo_event::{
    Addr, CallEnd, ClockGap, Cpu, Duration, Event, EventKind, Field, FunctionId, Gap, Identities,
    InterruptId, InterruptKind, Irq, Picoseconds, Recorded, RecordingCause, RecordingCost, SpaceId,
    StreamId, ThreadId, Ticks, Tid, Time, Value, Wanted, WholeCall,
};
use kymo_wire::cost::{self as wire, Cost};
use kymo_wire::event::{Cause, EventId, Layout, MetadataType, WordSize};
use kymo_wire::packet::EVENT_STREAM;

use super::{nesting::Nesting, wants};
use crate::fields::Collector;
use crate::formats::kymo::{MovedImages, number};

/// State that is common to all streams of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    pub(crate) layout: Layout,
    /// Run-time address of `function` 0.
    pub(crate) text_base: u64,
    pub(crate) clock_hz: u64,
    /// Event ids by stream class and index in it.
    pub(crate) ids: Vec<Vec<Option<EventId>>>,
    /// Namespace of functions, threads and interrupts.
    pub(crate) space: SpaceId,
    /// Number of functions that the trace names. They are interned first.
    pub(crate) labelled: u32,
    /// Names of markers in the trace, by address.
    pub(crate) markers: HashMap<u64, String>,
    /// Events whose fields are wanted. Fields that contain more than the event's kind are always kept.
    pub(crate) wanted: Wanted,
    /// Libraries that were loaded in place of others.
    pub(crate) moved: MovedImages,
}

/// Returns how the call in a record of this kind ended.
pub(crate) const fn call_end(id: EventId) -> CallEnd {
    match id {
        EventId::CallOpen => CallEnd::Open,
        EventId::CallLost => CallEnd::Lost,
        _ => CallEnd::Returned,
    }
}

/// State of one stream at one time.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) stream: StreamId,
    pub(crate) cpu: Option<Cpu>,
    /// Running thread.
    pub(crate) thread: Option<ThreadId>,
    /// Thread in the packet header, to which the numbers of others are relative; 0 for none.
    pub(crate) base: u64,
    /// Resolves exits without a function.
    pub(crate) nesting: Nesting,
}

/// Returns the ids of Kymo's own events in the metadata, by number.
pub(crate) fn event_ids(metadata: &Metadata) -> Vec<Vec<Option<EventId>>> {
    let streams = metadata.streams.iter();
    streams
        .map(|stream| {
            let ours = stream.id == u64::from(EVENT_STREAM);
            let events = stream.events.iter();
            events
                .map(|event| {
                    let id = EventId::from_number(u8::try_from(event.id).ok()?)?;
                    (ours && id.name() == event.name).then_some(id)
                })
                .collect()
        })
        .collect()
}

/// Largest number of threads and interrupts with names. It bounds memory for hostile files.
const NAMED: usize = 100_000;

impl Dialect {
    /// Returns the thread of this number; `None` for 0.
    pub(crate) fn thread(&self, identities: &mut Identities, number: u64) -> Option<ThreadId> {
        (number != 0).then(|| identities.thread(self.space, Tid(number)))
    }

    /// Returns the name of a marker, if it is in the trace. Otherwise it is in the program's image
    /// ([`crate::label_markers`]).
    pub(crate) fn marker(&self, address: u64) -> Option<String> {
        self.markers.get(&address).cloned()
    }

    /// Returns the interrupt of this number, if the number is valid.
    pub(crate) fn interrupt(
        &self,
        identities: &mut Identities,
        number: u64,
    ) -> Option<InterruptId> {
        let irq = Irq(u32::try_from(number).ok()?);
        Some(identities.interrupt(self.space, InterruptKind::Hard, irq))
    }

    /// Converts a record to an event, and updates `context` with thread switches.
    pub(crate) fn event(
        &self,
        identities: &mut Identities,
        context: &mut Context,
        time: Time,
        record: &kymo_ctf::Event<'_>,
    ) -> Event {
        let class = self.ids.get(record.packet().info().stream_class);
        let id = class.and_then(|events| *events.get(record.class_index())?);
        let running = context.thread;
        let kind = id.and_then(|id| self.kind(id, identities, context, time, record));
        let kind = kind.unwrap_or_else(|| match id {
            Some(EventId::Metadata) => EventKind::Fact,
            // A timestamp record among items.
            None if record.name() == EventId::Time.name() => EventKind::Time,
            _ => EventKind::Other,
        });
        let keep = wants(self.wanted, &kind)
            || matches!(
                id,
                None | Some(EventId::NamedMarker | EventId::Metadata | EventId::Block)
            );
        let fields = if keep {
            self.fields(id, &kind, record, identities)
        } else {
            Vec::new()
        };
        Event {
            time,
            stream: context.stream,
            cpu: context.cpu,
            thread: match id {
                // The thread that loses the processor, although it no longer runs.
                Some(
                    EventId::SwitchedOutNamed
                    | EventId::Call
                    | EventId::CallFar
                    | EventId::CallOpen
                    | EventId::CallLost,
                ) => field(record, "thread").and_then(|thread| self.thread(identities, thread)),
                Some(EventId::SwitchedIn | EventId::SwitchedInNear | EventId::Context) => {
                    context.thread
                }
                _ => running,
            },
            kind,
            named: matches!(id, Some(EventId::ExitNamed | EventId::ExitFar)),
            record: true,
            stamp: None,
            name: match id {
                Some(id) => Cow::Borrowed(id.name()),
                None => Cow::Owned(record.name().to_owned()),
            },
            fields,
        }
    }

    /// Returns the meaning of a record; `None` if a required field is missing.
    fn kind(
        &self,
        id: EventId,
        identities: &mut Identities,
        context: &mut Context,
        time: Time,
        record: &kymo_ctf::Event<'_>,
    ) -> Option<EventKind> {
        let field = |name| field(record, name);
        // 0 is not a call site.
        let caller = || {
            field("caller")
                .map(|it| self.code(it, time))
                .filter(|it| it.0 != 0)
        };
        let nesting = &mut context.nesting;
        let mut enter = |identities: &mut Identities, function, call_site| {
            let function = identities.function_at(self.space, function);
            nesting.enter(function);
            EventKind::Enter {
                function,
                call_site,
            }
        };
        Some(match id {
            EventId::Enter | EventId::EnterLong => {
                enter(identities, self.address(field("function")?), None)
            }
            EventId::EnterFar => enter(identities, self.code(field("address")?, time), None),
            EventId::EnterFrom => enter(identities, self.address(field("function")?), caller()),
            EventId::EnterFarFrom => {
                enter(identities, self.code(field("address")?, time), caller())
            }
            EventId::Exit => EventKind::Exit {
                function: nesting.exit(),
            },
            EventId::ExitNamed => {
                nesting.exit_named();
                self.exit(identities, self.address(field("function")?))
            }
            EventId::ExitFar => {
                nesting.exit_named();
                self.exit(identities, self.code(field("address")?, time))
            }
            EventId::Time => EventKind::Time,
            EventId::Block => EventKind::Other,
            EventId::Call | EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
                let address = match id {
                    EventId::Call => self.address(field("function")?),
                    _ => self.code(field("address")?, time),
                };
                let ns = |ticks| Duration(Ticks(ticks).to_ns(self.clock_hz));
                EventKind::Call(WholeCall {
                    function: identities.function_at(self.space, address),
                    duration: ns(field("duration")?),
                    self_time: ns(field("self_time")?),
                    end: call_end(id),
                })
            }
            EventId::Context => {
                context.switch(self.thread(identities, field("thread")?));
                let priority = record.field_of(Scope::EventFields, "priority")?.as_i64()?;
                EventKind::Context {
                    priority: i32::try_from(priority).ok()?,
                    mode: u32::try_from(field("mode")?).ok()?,
                }
            }
            EventId::SwitchedIn => {
                context.switch(self.thread(identities, field("thread")?));
                EventKind::SwitchedIn
            }
            EventId::SwitchedInNear => {
                let offset = record.field_of(Scope::EventFields, "thread_offset")?;
                let thread = context
                    .base
                    .wrapping_add_signed(offset.as_i64()?.wrapping_mul(4));
                context.switch(self.thread(identities, self.word(thread)));
                EventKind::SwitchedIn
            }
            EventId::SwitchedOut | EventId::SwitchedOutNamed => {
                context.switch(None);
                EventKind::SwitchedOut
            }
            EventId::IsrEnter | EventId::IsrEnterWide => {
                let irq = self.interrupt(identities, field("irq")?)?;
                nesting.interrupt(irq);
                EventKind::IsrEnter { irq }
            }
            EventId::IsrExit => EventKind::IsrExit {
                irq: nesting.interrupt_end(None),
            },
            EventId::IsrExitNamed => EventKind::IsrExit {
                irq: {
                    let irq = field("irq").and_then(|irq| self.interrupt(identities, irq));
                    nesting.interrupt_end(irq)
                },
            },
            EventId::Marker => EventKind::Marker {
                label: None,
                value: field("value")?,
            },
            EventId::NamedMarker => EventKind::Marker {
                label: self.marker(field("name")?),
                value: field("value")?,
            },
            EventId::Metadata => self.metadata(identities, field("type")?, &bytes(record))?,
            EventId::ClockGap => EventKind::Gap(Gap::Clock(ClockGap {
                at_least: Duration(Ticks(field("ticks")?).to_ns(self.clock_hz)),
            })),
            EventId::Recording => {
                let on = field("on")? != 0;
                if on {
                    nesting.turned_on();
                }
                EventKind::Recording {
                    on,
                    cause: recording_cause(field("cause")?),
                }
            }
            EventId::Setjmp => {
                let env = Addr(field("jmp_buf")?);
                nesting.set_jump(env);
                EventKind::SetJmp { env }
            }
            EventId::Longjmp => {
                let env = Addr(field("jmp_buf")?);
                nesting.jump(env);
                EventKind::LongJmp { env }
            }
            EventId::WallClock => EventKind::WallClock {
                unix_ns: field("ns")?,
                uncertainty_ns: u32::try_from(field("uncertainty")?).ok()?,
            },
        })
    }

    fn exit(&self, identities: &mut Identities, function: Addr) -> EventKind {
        EventKind::Exit {
            function: Some(identities.function_at(self.space, function)),
        }
    }

    #[inline]
    pub(crate) fn address(&self, function: u64) -> Addr {
        // Only foreign metadata declares a wider `function` field.
        let function = u32::try_from(function).unwrap_or(u32::MAX);
        Addr(self.layout.address(function, self.text_base))
    }

    /// Returns a code address without the Thumb bit. Relocates it if another function had this address at another time.
    pub(crate) fn code(&self, address: u64, time: Time) -> Addr {
        let mode_bits = (1u64 << self.layout.function_shift.min(1)) - 1;
        Addr(self.moved.address(address & !mode_bits, time))
    }

    /// Truncates a computed value to the target's word size.
    pub(crate) const fn word(&self, value: u64) -> u64 {
        match self.layout.word {
            WordSize::Bits32 => value & 0xFFFF_FFFF,
            WordSize::Bits64 => value,
        }
    }

    /// Returns the meaning of a metadata record with this type and value.
    pub(crate) fn metadata(
        &self,
        identities: &mut Identities,
        kind: u64,
        value: &[u8],
    ) -> Option<EventKind> {
        let order = self.layout.order;
        let name = |from: usize| value.get(from..).map(text);
        let number = |size: usize| Some(number(order, value.get(..size)?));
        let word = self.layout.word.bytes();
        Some(
            match MetadataType::from_number(u16::try_from(kind).ok()?)? {
                MetadataType::ThreadName => {
                    let thread = identities.thread(self.space, Tid(number(word)?));
                    let name = name(word)?;
                    if (thread.0 as usize) < NAMED {
                        identities.name_thread(thread, &name);
                    }
                    EventKind::ThreadName { thread, name }
                }
                MetadataType::IsrName => {
                    let irq = self.interrupt(identities, number(2)?)?;
                    let name = name(4)?;
                    identities.name_interrupt(irq, &name);
                    EventKind::IsrName { irq, name }
                }
                MetadataType::Cost => {
                    let costs = value.chunks_exact(Cost::BYTES);
                    // Overhead of unknown records cannot be subtracted.
                    let costs = costs.filter_map(|cost| Cost::decode(order, cost));
                    EventKind::Costs(costs.map(|cost| self.cost(&cost)).collect())
                }
                MetadataType::Measured => {
                    let costs = wire::costs(order, value);
                    EventKind::Costs(costs.map(|cost| self.cost(&cost)).collect())
                }
                MetadataType::BuildId
                | MetadataType::Clock
                | MetadataType::Image
                | MetadataType::ImagePath
                | MetadataType::ImageUnloaded
                | MetadataType::TickCheck
                | MetadataType::HostCheck => EventKind::Fact,
            },
        )
    }

    fn cost(&self, cost: &Cost) -> RecordingCost {
        let hz = u128::from(self.clock_hz.max(1));
        let picoseconds = |parts: u32| {
            let ps = u128::from(parts) * 1_000_000_000_000 / u128::from(Cost::UNIT) / hz;
            Picoseconds(u64::try_from(ps).unwrap_or(u64::MAX))
        };
        let from = match cost.from_bits {
            0 => 0,
            bits => Ticks(1u64.checked_shl(bits.into()).unwrap_or(u64::MAX)).to_ns(self.clock_hz),
        };
        RecordingCost {
            recorded: match cost.recorded {
                wire::Recorded::Enter => Recorded::Enter,
                wire::Recorded::Exit => Recorded::Exit,
                wire::Recorded::ExitNamed => Recorded::ExitNamed,
                wire::Recorded::SwitchedOut => Recorded::SwitchedOut,
                wire::Recorded::SwitchedIn => Recorded::SwitchedIn,
                wire::Recorded::IsrEnter => Recorded::IsrEnter,
                wire::Recorded::IsrExit => Recorded::IsrExit,
            },
            from: Duration(from),
            before: picoseconds(cost.before),
            after: picoseconds(cost.after),
            uncertainty: picoseconds(cost.uncertainty.into()),
        }
    }

    /// Returns the fields of a record as recorded, with some conversions: functions and threads are shown by their
    /// address, also if the record relies on the reader to know them, and bytes are shown as bytes.
    fn fields(
        &self,
        id: Option<EventId>,
        kind: &EventKind,
        record: &kymo_ctf::Event<'_>,
        identities: &Identities,
    ) -> Vec<Field> {
        let hex = |name: &'static str, value| Field::new(name, Value::Hex(value));
        match (id, kind) {
            (Some(EventId::EnterFar | EventId::ExitFar), _) => {}
            (
                _,
                EventKind::Enter { function, .. }
                | EventKind::Exit {
                    function: Some(function),
                },
            ) => {
                let known = identities.function(*function);
                let address = known.and_then(|function| function.address);
                let mut fields = vec![hex("function", address.unwrap_or_default().0)];
                let label = self.label(identities, *function);
                fields.extend(label.map(|name| Field::new("label", name)));
                if let EventKind::Enter {
                    call_site: Some(caller),
                    ..
                } = kind
                {
                    fields.push(hex("caller", caller.0));
                }
                return fields;
            }
            (Some(EventId::IsrExit), EventKind::IsrExit { irq: Some(irq) }) => {
                return vec![Field::new("irq", u64::from(identities.irq(*irq).0))];
            }
            _ => {}
        }
        let mut fields = Collector::of(record, Scope::EventFields);
        if let EventKind::Call(call) = kind
            && let Some(first) = fields.first_mut()
        {
            let known = identities.function(call.function);
            let address = known.and_then(|function| function.address);
            *first = hex("function", address.unwrap_or_default().0);
        }
        // The label of the enumeration is part of the event's kind.
        if id == Some(EventId::NamedMarker)
            && let (Some(first), Some(name)) = (fields.first_mut(), field(record, "name"))
        {
            *first = hex("name", name);
        }
        let bytes_in = match id {
            Some(EventId::Metadata) => "value",
            Some(EventId::Block) => "data",
            _ => return fields,
        };
        if let Some(field) = fields.iter_mut().find(|field| field.name == bytes_in) {
            field.value = Value::Bytes(bytes(record));
        }
        fields
    }

    /// Returns the trace's name of a function.
    fn label<'i>(&self, identities: &'i Identities, function: FunctionId) -> Option<&'i str> {
        let known = identities.function(function);
        known
            .filter(|_| function.0 < self.labelled)?
            .name
            .as_deref()
    }
}

impl Context {
    /// Returns the state at the beginning of a stream.
    pub(crate) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            cpu: None,
            thread: None,
            base: 0,
            nesting: Nesting::default(),
        }
    }

    /// Returns a gap behind the last event, whose time is `last`.
    pub(crate) fn gap(&self, last: Option<Time>, gap: Gap) -> Event {
        Event {
            time: last.unwrap_or_default(),
            stream: self.stream,
            cpu: self.cpu,
            thread: self.thread,
            kind: EventKind::Gap(gap),
            named: false,
            record: false,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        }
    }

    /// Sets the running thread, or none.
    fn switch(&mut self, thread: Option<ThreadId>) {
        self.thread = thread;
        self.nesting.switch(thread);
    }
}

/// Returns the number in a payload field.
fn field(record: &kymo_ctf::Event<'_>, name: &str) -> Option<u64> {
    record.field_of(Scope::EventFields, name)?.as_u64()
}

/// Returns the bytes of a metadata record.
fn bytes(record: &kymo_ctf::Event<'_>) -> Vec<u8> {
    /// Collects the elements of arrays, which have no names.
    struct Elements(Vec<u8>);
    impl<'a> kymo_ctf::Visitor<'a> for Elements {
        fn value(&mut self, name: &'a str, value: kymo_ctf::Value<'a>) {
            if name.is_empty() {
                self.0
                    .extend(value.as_u64().and_then(|byte| u8::try_from(byte).ok()));
            }
        }
    }
    let mut elements = Elements(Vec::new());
    record.visit(Scope::EventFields, &mut elements);
    elements.0
}

pub(crate) fn recording_cause(number: u64) -> RecordingCause {
    match u8::try_from(number).ok().and_then(Cause::from_number) {
        Some(Cause::Build) => RecordingCause::Build,
        Some(Cause::Function) => RecordingCause::Function,
        Some(Cause::Command) => RecordingCause::Command,
        None => RecordingCause::Unknown,
    }
}

/// Returns a text without padding zeros.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).into_owned()
}
