//! Layout of exported CTF traces: plain integers and strings on byte boundaries, so that even the simplest reader of
//! CTF supports them.
//!
//! The event classes are fixed, one for each kind in the event model. Thus a stream's content is known before its
//! first event; only the names of functions and interrupts, which are labels of an enumeration, have to wait for the
//! end of the trace.

use kymo_analysis::calls::Callee;
use kymo_analysis::titles;
use kymo_ctf::metadata::{
    Base, ByteOrder, Clock, ClockId, EnumerationClass, EnvValue, EventClass, FieldClass,
    FloatClass, IntegerClass, Mappings, Metadata, Role, StreamClass, StringClass, StructClass,
    Value64, standard,
};
use kymo_event::{Identities, SpaceId, Stack, StreamInfo, ThreadId, Time, TraceInfo};

use super::numbers::{Numbers, is_plain};
use crate::format::Context;
use crate::names::Names;

/// Index of the class of streams of a CPU, which have the CPU in every packet.
pub(super) const OF_CPU: usize = 0;

/// Index of the class of all other streams, whose events carry their CPU.
pub(super) const OTHER: usize = 1;

/// Value of an unknown thread or CPU.
pub(super) const UNKNOWN: i64 = -1;

/// The classes of events, numbered from 0 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `function`.
    Enter,
    /// `function`, `call_site`.
    EnterFrom,
    /// `function`.
    Exit,
    /// An exit whose function follows from nesting.
    ExitUnnamed,
    /// No fields of its own.
    SwitchedIn,
    /// No fields of its own.
    SwitchedOut,
    /// `irq`.
    IsrEnter,
    /// `irq`.
    IsrExit,
    /// The end of an unnamed interrupt.
    IsrExitUnnamed,
    /// `value`.
    Marker,
    /// `label`, `value`.
    NamedMarker,
    /// `named_thread`, `thread_name`.
    ThreadName,
    /// `irq`, `irq_name`.
    IsrName,
    /// `priority`, `mode`.
    Context,
    /// `on`, `cause`.
    Recording,
    /// `jmp_buf`.
    SetJmp,
    /// `jmp_buf`.
    LongJmp,
    /// `ns` since 1970 in UTC.
    WallClock,
    /// `kind`, `message`, `amount` (packets, nanoseconds or bytes; all ones if unknown) and for damage its `offset`: a
    /// gap that CTF itself can't represent.
    Gap,
    /// `name`.
    Other,
    /// `ready_thread`, `name`: a thread becomes ready.
    Ready,
    /// `function`, `duration`: an exit whose entry was not recorded, of a call with a known duration in nanoseconds of
    /// elapsed time.
    ExitStated,
    /// `function`, `caller` (0 if unknown): a call without a recorded end.
    Called,
    /// `counter`, `process` (0 if none), `value`: a real number.
    Counter,
    /// As `Counter`, with a signed integer.
    SignedCounter,
    /// As `Counter`, with an unsigned integer.
    UnsignedCounter,
    /// `span`, `per_cpu`.
    SpanBegin,
    /// `span`, `per_cpu`.
    SpanEnd,
    /// `function`, `call_site` (0 if unknown), `found`: the call was already open when it was found.
    EnterFound,
    /// `unseen`: the thread may run elsewhere meanwhile, in an unknown order.
    SwitchedOutUnseen,
    /// The last time in the source: later ones are extrapolated.
    LastTime,
    /// `function`: it was observed running, after a gap.
    Runs,
    /// An exit of a call that did not return.
    ExitLeft,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 33] = [
        Self::Enter,
        Self::EnterFrom,
        Self::Exit,
        Self::ExitUnnamed,
        Self::SwitchedIn,
        Self::SwitchedOut,
        Self::IsrEnter,
        Self::IsrExit,
        Self::IsrExitUnnamed,
        Self::Marker,
        Self::NamedMarker,
        Self::ThreadName,
        Self::IsrName,
        Self::Context,
        Self::Recording,
        Self::SetJmp,
        Self::LongJmp,
        Self::WallClock,
        Self::Gap,
        Self::Other,
        Self::Ready,
        Self::ExitStated,
        Self::Called,
        Self::Counter,
        Self::SignedCounter,
        Self::UnsignedCounter,
        Self::SpanBegin,
        Self::SpanEnd,
        Self::EnterFound,
        Self::SwitchedOutUnseen,
        Self::LastTime,
        Self::Runs,
        Self::ExitLeft,
    ];

    /// Its index among the classes of a stream, which is also its number in the file.
    pub const fn position(self) -> usize {
        self as usize
    }

    /// The name of its events; two classes that differ only in their fields share one.
    const fn name(self) -> &'static str {
        match self {
            Self::Enter | Self::EnterFrom | Self::EnterFound => "enter",
            Self::Exit | Self::ExitStated | Self::ExitLeft | Self::ExitUnnamed => "exit",
            Self::Called => "called",
            Self::Counter | Self::SignedCounter | Self::UnsignedCounter => "counter",
            Self::SpanBegin => "span_begin",
            Self::SpanEnd => "span_end",
            Self::SwitchedIn => "switched_in",
            Self::SwitchedOut | Self::SwitchedOutUnseen => "switched_out",
            Self::LastTime => "last_time",
            Self::Runs => "runs",
            Self::IsrEnter => "isr_enter",
            Self::IsrExit | Self::IsrExitUnnamed => "isr_exit",
            Self::Marker | Self::NamedMarker => "marker",
            Self::ThreadName => "thread_name",
            Self::IsrName => "isr_name",
            Self::Context => "context",
            Self::Recording => "recording",
            Self::SetJmp => "setjmp",
            Self::LongJmp => "longjmp",
            Self::WallClock => "wall_clock",
            Self::Gap => "gap",
            Self::Other => "other",
            Self::Ready => "ready",
        }
    }

    /// Whether its events end with the source's other fields, as a JSON object (empty if there are none). Calls don't,
    /// because they are too frequent.
    pub const fn has_more(self) -> bool {
        !matches!(
            self,
            Self::Enter
                | Self::EnterFrom
                | Self::EnterFound
                | Self::Exit
                | Self::ExitStated
                | Self::ExitLeft
                | Self::ExitUnnamed
                | Self::Called
        )
    }
}

/// Metadata of an export whose times begin at `base`. The names of numbered functions and interrupts are labels in it,
/// and so are those of threads. With several machines it is that of one.
pub(super) fn metadata(
    (info, machine): (&TraceInfo, Option<SpaceId>),
    context: Context<'_>,
    base: Time,
    numbers: &Numbers,
) -> Metadata {
    let mut metadata = Metadata::new(ByteOrder::Little);
    metadata.environment = environment((info, machine), context);
    metadata.clocks.push(clock(base, origin(info)));
    let word = IntegerClass::unsigned(32, ByteOrder::Little);
    metadata.packet_header = Some(
        StructClass::new()
            .with("magic", word.base(Base::Hexadecimal).role(Role::Magic))
            .with("stream_id", word.role(Role::StreamId)),
    );
    let labels = Labels::new(info, context, numbers);
    // In the format of other tools: addresses of control blocks, or numbers.
    let base = match info.numbered_threads {
        true => Base::Decimal,
        false => Base::Hexadecimal,
    };
    let thread = labelled(signed(64).base(base), &labels.threads);
    metadata.streams = [OF_CPU, OTHER]
        .map(|position| stream(position, &thread, &labels))
        .to_vec();
    metadata
}

/// Properties of a thread besides its name, as environment entries.
pub(super) fn about_thread(
    identities: &Identities,
    number: u64,
    id: ThreadId,
) -> Vec<(String, EnvValue)> {
    let Some(thread) = identities.threads().get(id.0 as usize) else {
        return Vec::new();
    };
    let fact = |what: &str, text| (format!("kymo_thread_{number}_{what}"), EnvValue::Text(text));
    let priority = thread.priority.map(|it| fact("priority", it.to_string()));
    let stack = thread.stack.map(|Stack { base, bytes, used }| {
        let used = used.map(|used| format!(" {used}")).unwrap_or_default();
        fact("stack", format!("{base} {bytes}{used}"))
    });
    priority.into_iter().chain(stack).collect()
}

/// Environment entries for the trace's origin.
fn environment(
    (info, machine): (&TraceInfo, Option<SpaceId>),
    context: Context<'_>,
) -> Vec<(String, EnvValue)> {
    let streams = info.streams.iter();
    let streams = streams.filter(|it| machine.is_none_or(|machine| machine == it.machine));
    let (mut build_id, mut text_base) = (info.build_id.as_ref(), info.text_base);
    if machine.is_some() {
        let space = streams.clone().next().map(|stream| stream.space);
        let space = space.and_then(|space| info.identities.space(space));
        build_id = space.and_then(|space| space.build_id.as_ref());
        text_base = space.and_then(|space| space.text_base);
    }
    let mut facts = vec![
        // Not the name of Kymo's targets, whose packets have another layout.
        ("tracer_name", "kymo-export".to_owned()),
        ("kymo_program", context.options.program.clone()),
        ("kymo_format", info.format.clone()),
    ];
    if !info.unit.is_time() {
        facts.push(("kymo_unit", info.unit.suffix().to_owned()));
    }
    if info.wall_times {
        facts.push(("kymo_wall_times", "1".to_owned()));
    }
    if let Some(base) = text_base {
        facts.push(("kymo_text_base", base.to_string()));
    }
    let mut all = streams.clone().peekable();
    if all.peek().is_some() && all.all(|stream| stream.without_switches) {
        facts.push(("kymo_without_switches", "1".to_owned()));
    }
    let with_calls = streams.filter(|stream| !stream.without_calls);
    let is_each = |has: fn(&StreamInfo) -> bool| {
        let mut streams = with_calls.clone().peekable();
        streams.peek().is_some() && streams.all(&has)
    };
    if is_each(|stream| stream.whole_calls) {
        facts.push(("kymo_whole_calls", "1".to_owned()));
    }
    if is_each(|stream| stream.marks_missing_exits) {
        facts.push(("kymo_tells_missing", "1".to_owned()));
    }
    if is_each(|stream| stream.is_silent_behind) {
        facts.push(("kymo_silent_behind", "1".to_owned()));
    }
    if let Some(origin) = origin(info) {
        facts.push(("kymo_origin_ns", origin.to_string()));
    }
    if let Some(id) = build_id {
        let hex = id.iter().map(|byte| format!("{byte:02x}")).collect();
        facts.push(("kymo_build_id", hex));
    }
    facts
        .into_iter()
        .map(|(name, value)| (name.to_owned(), EnvValue::Text(value)))
        .collect()
}

/// The time 0 of the trace in nanoseconds since 1970 in UTC, if known.
fn origin(info: &TraceInfo) -> Option<i64> {
    let wall = info.wall_clock.as_ref()?;
    let first = wall.moments().first()?;
    first.unix_ns.checked_sub(first.time.0)
}

/// A clock in nanoseconds since `base`, with the date if that of time 0 is known.
fn clock(base: Time, origin: Option<i64>) -> Clock {
    const NANO: i64 = 1_000_000_000;
    let base = base.0.saturating_add(origin.unwrap_or(0));
    Clock {
        description: Some("The clock of the trace that was exported".to_owned()),
        offset_seconds: base.div_euclid(NANO),
        offset_ticks: base.rem_euclid(NANO),
        absolute: origin.is_some(),
        ..Clock::new("monotonic", NANO as u64)
    }
}

/// The stream class with this index.
fn stream(position: usize, thread: &FieldClass, labels: &Labels) -> StreamClass {
    let order = ByteOrder::Little;
    let mut packet_context = standard::packet_context(order, ClockId(0));
    let mut event_context = StructClass::new();
    if position == OF_CPU {
        packet_context = packet_context.with("cpu_id", standard::cpu_id(order));
    } else {
        event_context = event_context.with("cpu", signed(32));
    }
    StreamClass {
        id: position as u64,
        packet_context: Some(packet_context),
        event_header: Some(standard::event_header(order, ClockId(0))),
        event_context: Some(event_context.with("thread", thread.clone())),
        events: Class::ALL
            .into_iter()
            .map(|class| EventClass {
                id: class.position() as u64,
                name: class.name().to_owned(),
                fields: Some(payload(class, labels)),
                ..EventClass::default()
            })
            .collect(),
        ..StreamClass::default()
    }
}

/// The fields of an event class.
fn payload(class: Class, labels: &Labels) -> StructClass {
    let text = StringClass::default();
    let function = || labelled(unsigned(64).base(Base::Hexadecimal), &labels.functions);
    let irq = || labelled(unsigned(32), &labels.interrupts);
    let fields = StructClass::new();
    let fields = match class {
        Class::Enter | Class::Exit | Class::Runs => fields.with("function", function()),
        Class::ExitStated => fields
            .with("function", function())
            .with("duration", unsigned(64)),
        Class::Called => fields
            .with("function", function())
            .with("caller", function()),
        Class::SpanBegin | Class::SpanEnd => {
            fields.with("span", function()).with("per_cpu", unsigned(8))
        }
        Class::EnterFrom => fields
            .with("function", function())
            .with("call_site", unsigned(64).base(Base::Hexadecimal)),
        Class::EnterFound => fields
            .with("function", function())
            .with("call_site", unsigned(64).base(Base::Hexadecimal))
            .with("found", unsigned(8)),
        Class::ExitLeft => fields
            .with("function", function())
            .with("left", unsigned(8)),
        Class::SwitchedOutUnseen => fields.with("unseen", unsigned(8)),
        Class::ExitUnnamed
        | Class::SwitchedIn
        | Class::SwitchedOut
        | Class::IsrExitUnnamed
        | Class::LastTime => fields,
        Class::IsrEnter | Class::IsrExit => fields.with("irq", irq()),
        Class::SetJmp | Class::LongJmp => {
            fields.with("jmp_buf", unsigned(64).base(Base::Hexadecimal))
        }
        Class::WallClock => fields
            .with("ns", unsigned(64))
            .with("uncertainty", unsigned(32)),
        Class::Marker => fields.with("value", unsigned(64)),
        Class::Counter | Class::SignedCounter | Class::UnsignedCounter => {
            let fields = fields.with("counter", text).with("process", unsigned(64));
            match class {
                Class::Counter => fields.with("value", double()),
                Class::SignedCounter => fields.with("value", signed(64)),
                _ => fields.with("value", unsigned(64)),
            }
        }
        Class::NamedMarker => fields.with("label", text).with("value", unsigned(64)),
        Class::ThreadName => fields
            .with("named_thread", unsigned(64).base(Base::Hexadecimal))
            .with("thread_name", text),
        Class::IsrName => fields.with("irq", unsigned(32)).with("irq_name", text),
        Class::Context => fields
            .with("priority", signed(32))
            .with("mode", unsigned(32)),
        Class::Recording => fields.with("on", unsigned(8)).with("cause", text),
        Class::Gap => fields
            .with("kind", text)
            .with("message", text)
            .with("amount", unsigned(64))
            .with("offset", unsigned(64)),
        Class::Other => fields.with("name", text),
        Class::Ready => fields
            .with("ready_thread", unsigned(64).base(Base::Hexadecimal))
            .with("name", text),
    };
    if class.has_more() {
        fields.with("more", text)
    } else {
        fields
    }
}

/// An unsigned byte-aligned integer.
fn unsigned(bits: u32) -> IntegerClass {
    IntegerClass::unsigned(bits, ByteOrder::Little).align(8)
}

/// A signed byte-aligned integer.
fn signed(bits: u32) -> IntegerClass {
    IntegerClass::signed(bits, ByteOrder::Little).align(8)
}

/// A floating-point number of eight bytes.
const fn double() -> FloatClass {
    FloatClass {
        size: 64,
        reversed: false,
        align: 8,
        byte_order: ByteOrder::Little,
        attributes: None,
    }
}

/// The labels of functions, interrupts and threads.
#[derive(Default)]
struct Labels {
    /// Threads with names.
    threads: Vec<(String, Value64)>,
    functions: Vec<(String, Value64)>,
    interrupts: Vec<(String, Value64)>,
}

impl Labels {
    /// Creates the labels of all numbered objects, in the order of addresses and numbers.
    fn new(info: &TraceInfo, context: Context<'_>, numbers: &Numbers) -> Self {
        let mut names = Names::new(context);
        let functions = numbers.functions().map(|(number, id)| {
            let name = names.name(info, Callee::Function(id));
            (name.to_owned(), Value64::Unsigned(number))
        });
        let interrupts = numbers.interrupts().map(|(number, id)| {
            let identities = &info.identities;
            // An interrupt is identified by a label that begins with its number in the file.
            let is_unnamed = identities.interrupt_name(id).is_none();
            let label = match is_unnamed && is_plain(identities, number, id) {
                true => format!("IRQ {number}"),
                false => format!("IRQ {number} {}", titles::interrupt(identities, id)),
            };
            (label, Value64::Unsigned(number))
        });
        let threads = numbers.threads().filter_map(|(number, id)| {
            let name = info.identities.thread_name(id)?;
            Some((name.to_owned(), Value64::Signed(number.cast_signed())))
        });
        Self {
            threads: threads.collect(),
            functions: functions.collect(),
            interrupts: interrupts.collect(),
        }
    }
}

/// An integer with labels; without any, a plain integer, because an enumeration can't be empty.
fn labelled(integer: IntegerClass, labels: &[(String, Value64)]) -> FieldClass {
    if labels.is_empty() {
        return integer.into();
    }
    EnumerationClass {
        integer,
        mappings: Mappings::from_values(labels.iter().cloned()).into(),
    }
    .into()
}
