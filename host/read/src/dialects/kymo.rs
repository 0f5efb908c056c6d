//! What the events of Kymo's own targets mean ([`EventId`]).

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

/// What holds for all streams of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    pub(crate) layout: Layout,
    /// The run-time address of `function` 0.
    pub(crate) text_base: u64,
    pub(crate) clock_hz: u64,
    /// What the events of the metadata are, by stream class and place in it.
    pub(crate) ids: Vec<Vec<Option<EventId>>>,
    /// Where its functions, threads and interrupts are.
    pub(crate) space: SpaceId,
    /// How many functions the trace names: they are interned first.
    pub(crate) labelled: u32,
    /// The names of markers that the trace tells, by the addresses that stand for them.
    pub(crate) markers: HashMap<u64, String>,
    /// Of which events fields are wanted; they are kept anyway where they say what the event's kind does
    /// not.
    pub(crate) wanted: Wanted,
    /// Where libraries were loaded in the place of others.
    pub(crate) moved: MovedImages,
}

/// How the call came to its end that a record of this kind tells of.
pub(crate) const fn call_end(id: EventId) -> CallEnd {
    match id {
        EventId::CallOpen => CallEnd::Open,
        EventId::CallLost => CallEnd::Lost,
        _ => CallEnd::Returned,
    }
}

/// What holds for one stream at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) stream: StreamId,
    pub(crate) cpu: Option<Cpu>,
    /// The thread that runs.
    pub(crate) thread: Option<ThreadId>,
    /// The thread that the packet names, from which others are counted; 0 for none.
    pub(crate) base: u64,
    /// What exits without a name leave.
    pub(crate) nesting: Nesting,
}

/// Which events of the metadata are ours, by their numbers.
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

/// So many threads and interrupts get names; a file of nothing else must not fill the memory.
const NAMED: usize = 100_000;

impl Dialect {
    /// The thread of this number; 0 is none.
    pub(crate) fn thread(&self, identities: &mut Identities, number: u64) -> Option<ThreadId> {
        (number != 0).then(|| identities.thread(self.space, Tid(number)))
    }

    /// The name of a marker, if the trace tells it; else it is in the program's image ([`crate::label_markers`]).
    pub(crate) fn marker(&self, address: u64) -> Option<String> {
        self.markers.get(&address).cloned()
    }

    /// The interrupt of this number, if there can be one.
    pub(crate) fn interrupt(
        &self,
        identities: &mut Identities,
        number: u64,
    ) -> Option<InterruptId> {
        let irq = Irq(u32::try_from(number).ok()?);
        Some(identities.interrupt(self.space, InterruptKind::Hard, irq))
    }

    /// The event that a record is; `context` follows the switches of threads.
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
            // Among items.
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
                // The thread that loses the processor, although it does not run any more.
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

    /// What a record means; `None` if a field is not there that would say so.
    fn kind(
        &self,
        id: EventId,
        identities: &mut Identities,
        context: &mut Context,
        time: Time,
        record: &kymo_ctf::Event<'_>,
    ) -> Option<EventKind> {
        let field = |name| field(record, name);
        // 0 is no place of a call.
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
        // Wider than any `function` field is only what somebody else's metadata declares.
        let function = u32::try_from(function).unwrap_or(u32::MAX);
        Addr(self.layout.address(function, self.text_base))
    }

    /// The address of code, without the Thumb bit, moved where it was another function's at another time.
    pub(crate) fn code(&self, address: u64, time: Time) -> Addr {
        let mode_bits = (1u64 << self.layout.function_shift.min(1)) - 1;
        Addr(self.moved.address(address & !mode_bits, time))
    }

    /// A word of the target, out of a computation that may have left it.
    pub(crate) const fn word(&self, value: u64) -> u64 {
        match self.layout.word {
            WordSize::Bits32 => value & 0xFFFF_FFFF,
            WordSize::Bits64 => value,
        }
    }

    /// What a record of this type and value tells once.
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
                    // Costs of what is not known here are no cost that could be taken off.
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

    /// The fields of a record, as recorded; but a function and a thread are shown by their address,
    /// also where the record leaves it to the reader to know them, and bytes as bytes.
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
        // The label of the enumeration is in the event's kind.
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

    /// What the trace calls a function.
    fn label<'i>(&self, identities: &'i Identities, function: FunctionId) -> Option<&'i str> {
        let known = identities.function(function);
        known
            .filter(|_| function.0 < self.labelled)?
            .name
            .as_deref()
    }
}

impl Context {
    /// At the beginning of a stream.
    pub(crate) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            cpu: None,
            thread: None,
            base: 0,
            nesting: Nesting::default(),
        }
    }

    /// A gap behind the last event, which was at this time.
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

    /// This thread runs from here on, or none.
    fn switch(&mut self, thread: Option<ThreadId>) {
        self.thread = thread;
        self.nesting.switch(thread);
    }
}

/// The number in a field of the payload.
fn field(record: &kymo_ctf::Event<'_>, name: &str) -> Option<u64> {
    record.field_of(Scope::EventFields, name)?.as_u64()
}

/// The bytes of a metadata record.
fn bytes(record: &kymo_ctf::Event<'_>) -> Vec<u8> {
    /// The elements of arrays: they have no names.
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

/// Text without the zeros that pad it.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).into_owned()
}
