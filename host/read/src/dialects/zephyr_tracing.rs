//! Meanings of the events of Zephyr's tracing subsystem (`subsys/tracing/ctf` in its tree), and of its instrumentation
//! subsystem if a dump was converted to a CTF trace with the metadata of its build.
//!
//! Events are identified by their names, which all generations share. The metadata defines the widths of times and
//! event numbers, and whether there are packets. The running thread follows from the switches. An interrupt handler
//! lasts from `isr_enter` to `isr_exit`; the interrupt number is not recorded. Services of the kernel and the network
//! are recorded in pairs (`semaphore_take_enter`, `semaphore_take_exit`; likewise for mutexes, queues, sockets and a
//! dozen others). Each pair is a call, named by the common part. `named_event`, which the program itself records, is a
//! marker.
//!
//! # Time
//! Until 2026, times are nanoseconds in 32 bits, which wrap around every 4.29 s. On real targets they also step back a
//! little when they are read between the timer's interrupt and the announcement of its tick. A reader that treats every
//! step back as a wraparound turns 11 s into 45 s. Here a step back of up to 2^30 ns (1.07 s; the 24-bit timer of a
//! Cortex-M cannot be off by more) is a step back, and a larger one is a wraparound. So the time after a pause of 3.2 s
//! or more is ambiguous: the bits contain no more information.

use std::collections::HashMap;

use kymo_ctf::metadata::{Clock, EventClass, Metadata, Scope, StructClass};
use kymo_ctf::{Numbers, Packet, Projection, Trace};
use kymo_event::{
    Addr, Cpu, EventKind, FunctionId, Identities, InterruptId, InterruptKind, Irq, Row, RowKind,
    ThreadId,
};

use super::{Meanings, Sink, Spaces, of_class};

/// State of a Zephyr trace.
pub(crate) struct Zephyr {
    /// Rules by stream class and index in it.
    rules: Vec<Vec<OfClass>>,
    spaces: Spaces,
    /// Functions of the paired events.
    functions: Vec<FunctionId>,
    /// The one interrupt: events do not identify it.
    interrupt: InterruptId,
    /// Clock of `timestamp`.
    clock: Clock,
    /// Number of bits of the times in event headers, if there are any.
    time_bits: Option<u32>,
    /// Numbers that the rules need: [`TIME`] and following.
    numbers: Projection,
    /// Texts that the rules need: [`NAME`], [`THREAD_NAME`].
    texts: Projection,
    /// Current time of each stream in ticks.
    ticks: HashMap<usize, i64>,
    /// Running thread of each CPU.
    running: HashMap<Cpu, ThreadId>,
    /// Whether the name of the interrupt was passed on.
    interrupt_named: bool,
    /// Names of the CPU number's field in packets, and in events.
    cpu_names: [Option<&'static str>; 2],
}

/// Indices of fields in [`Zephyr::numbers`]: the time in the header, the time in the payload, the thread, the callee or
/// marker value, the caller, the CPU.
const TIME: usize = 0;
const OWN_TIME: usize = 1;
const THREAD: usize = 2;
const ITEM: usize = 3;
const CALLER: usize = 4;
const CPU: usize = 5;

/// Indices of fields in [`Zephyr::texts`].
const NAME: usize = 0;
const THREAD_NAME: usize = 1;

/// Largest number of CPUs whose threads are tracked.
const MOST_CPUS: usize = 1 << 10;

/// Rule of a class, and whether it needs a text of its events.
type OfClass = (Rule, bool);

/// Meaning of the events of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    SwitchedIn,
    SwitchedOut,
    Ready,
    /// Event about a thread, which contains its name.
    Thread,
    Create,
    Abort,
    IsrEnter,
    IsrExit,
    /// Call of the function with this index in [`Zephyr::functions`].
    Begin(usize),
    End(usize),
    Marker,
    /// Event of the instrumentation subsystem.
    FunctionEntry,
    FunctionExit,
    Other,
}

/// Largest step back that is not treated as a wraparound of the 32 bits.
const STEP_BACK_NS: u64 = 1 << 30;

/// Names of the CPU number's field, in packets or events. There are several proposals for multiple CPUs.
const CPU_NAMES: [&str; 3] = ["cpu", "cpu_id", "core_id"];

/// Name that the kernel uses for threads without a name.
const NAMELESS: &str = "unknown";

impl Zephyr {
    /// Determines the rules of a trace; `None` if it is not from Zephyr.
    pub(crate) fn of(trace: &Trace, spaces: Spaces, identities: &mut Identities) -> Option<Self> {
        let metadata = trace.metadata();
        let mut calls = Vec::new();
        let streams = metadata.streams.iter();
        let rules: Vec<Vec<OfClass>> = streams
            .map(|stream| {
                let mut of_stream = Vec::new();
                for class in &stream.events {
                    let fields = class.fields.as_ref();
                    let has = |name| fields.is_some_and(|it| it.member(name).is_some());
                    let rule = rule(class, &stream.events, &mut calls);
                    let named = has("thread_name") || has("thread_id") && has("name");
                    of_stream.push((rule, named && rule != Rule::Other));
                }
                of_stream
            })
            .collect();
        let known = |rule| rules.iter().flatten().any(|found| found.0 == rule);
        // Other tracers may have switch events with these names, but not function entries with them.
        let tracing = known(Rule::SwitchedIn) && known(Rule::SwitchedOut);
        if !tracing || !(known(Rule::IsrEnter) || known(Rule::FunctionEntry)) {
            return None;
        }
        let cpu_names = cpu_names(metadata);
        let payload = |name| (Scope::EventFields, name);
        let numbers = Projection::of_classes(trace.plan(), |stream, event| {
            let rule = rules.get(stream).and_then(|events| events.get(event));
            let (item, caller) = match rule {
                Some((Rule::Marker, _)) => ("arg0", ""),
                Some((Rule::FunctionEntry | Rule::FunctionExit, _)) => ("callee", "caller"),
                _ => ("", ""),
            };
            [
                (Scope::EventHeader, "timestamp"),
                payload("timestamp"),
                payload("thread_id"),
                payload(item),
                payload(caller),
                payload(cpu_names[1].unwrap_or("")),
            ]
        });
        let names = [payload("name"), payload("thread_name")];
        let headers = metadata.streams.iter().filter_map(|stream| {
            let time = stream.event_header.as_ref()?.member("timestamp")?;
            Some(time.class.as_integer()?.size)
        });
        Some(Self {
            spaces,
            functions: calls
                .into_iter()
                .map(|call| identities.function_named(spaces.code, call))
                .collect(),
            interrupt: identities.interrupt(spaces.machine, InterruptKind::Hard, Irq(0)),
            clock: match metadata.clocks.first() {
                Some(clock) => clock.clone(),
                // Without a clock, the numbers are nanoseconds.
                None => Clock::new("", 1_000_000_000),
            },
            time_bits: headers.max(),
            numbers,
            texts: Projection::of_classes(trace.plan(), |_, _| names),
            ticks: HashMap::new(),
            running: HashMap::new(),
            interrupt_named: false,
            cpu_names,
            rules,
        })
    }

    /// Returns the CPU of a packet's events, if all have the same. A single CPU is CPU 0: kernels for several CPUs
    /// record the CPU in events or packets.
    pub(crate) fn cpu(&self, packet: &Packet<'_>) -> Option<Cpu> {
        match self.cpu_names {
            [None, None] => Some(Cpu(0)),
            [name, _] => {
                let cpu = packet.field(name?)?.as_u64()?;
                u32::try_from(cpu).ok().map(Cpu)
            }
        }
    }

    /// Returns the time of a record in nanoseconds from the clock's origin.
    fn time_ns(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        numbers: &Numbers<6>,
        stream: usize,
    ) -> Option<i64> {
        let (Some(value), Some(bits)) = (numbers.unsigned(TIME), self.time_bits) else {
            // Records of the instrumentation have the time among their fields.
            let time = numbers.unsigned(OWN_TIME);
            let time = time.and_then(|time| i64::try_from(time).ok());
            return time.or_else(|| record.time_ns());
        };
        // Packets provide the bits above these.
        if bits >= 64 || record.packet().info().begin_ticks.is_some() {
            return record.time_ns();
        }
        let turn = 1_i64 << bits;
        let value = i64::try_from(value).ok()?;
        let last = *self.ticks.entry(stream).or_insert(value);
        let forward = (value - last).rem_euclid(turn);
        let back = turn - forward;
        let limit = u128::from(STEP_BACK_NS) * u128::from(self.clock.frequency) / 1_000_000_000;
        let now = if forward > 0 && u128::from(back.unsigned_abs()) <= limit {
            // Times are not before 0.
            (last - back).max(0)
        } else {
            last.saturating_add(forward)
        };
        self.ticks.insert(stream, now);
        self.clock.nanoseconds(now.unsigned_abs())
    }
}

impl Meanings for Zephyr {
    fn record(&mut self, record: &kymo_ctf::Event<'_>, class: usize, sink: &mut Sink<'_>) {
        let rule = of_class(&self.rules, class, record).copied();
        let (rule, has_text) = rule.unwrap_or((Rule::Other, false));
        let numbers = record.numbers::<6>(&self.numbers);
        sink.begin(self.time_ns(record, &numbers, sink.index));
        let cpu = sink.cpu.or_else(|| {
            let cpu = numbers.unsigned(CPU)?;
            u32::try_from(cpu).ok().map(Cpu)
        });
        let subject = numbers.unsigned(THREAD).filter(|id| *id != 0);
        let subject = subject.and_then(|id| match rule {
            Rule::Create => Some(sink.created(self.spaces.machine, id)),
            _ => sink.thread(self.spaces.machine, id),
        });
        if let (Rule::SwitchedIn | Rule::SwitchedOut | Rule::Abort, Some(thread)) = (rule, subject)
        {
            sink.caches.reused.was_there(thread);
        }
        if has_text && let Some(thread) = subject {
            let mut texts = [None; 2];
            record.project(&self.texts, &mut texts);
            let text = |place: usize| texts.get(place)?.as_ref()?.text();
            if let Some(name) = text(NAME).or_else(|| text(THREAD_NAME)) {
                name_thread(thread, &name, cpu, sink);
            }
        }
        if rule == Rule::IsrEnter && !self.interrupt_named {
            self.interrupt_named = true;
            let (irq, name) = (self.interrupt, "interrupt".to_owned());
            sink.identities.name_interrupt(irq, &name);
            sink.besides(EventKind::IsrName { irq, name }, cpu, None);
        }
        let running = cpu.and_then(|cpu| self.running.get(&cpu).copied());
        let thread = match rule {
            Rule::SwitchedIn | Rule::FunctionEntry | Rule::FunctionExit => {
                if let (Some(thread), Some(cpu)) = (subject, cpu)
                    && running != Some(thread)
                    && (running.is_some() || self.running.len() < MOST_CPUS)
                {
                    self.running.insert(cpu, thread);
                }
                subject
            }
            Rule::SwitchedOut => {
                if let Some(cpu) = cpu {
                    self.running.remove(&cpu);
                }
                subject
            }
            _ => running,
        };
        let rare = match rule {
            Rule::Ready => subject.map(|thread| EventKind::Ready { thread }),
            Rule::Marker => numbers.unsigned(ITEM).map(|value| EventKind::Marker {
                label: text(record, "name"),
                value,
            }),
            _ => None,
        };
        let row = self.row(rule, &numbers, sink);
        match (row, rare) {
            (Some(row), _) => sink.common(record, row.at(cpu, thread)),
            (None, Some(kind)) => sink.rare(record, kind, (cpu, thread), None),
            (None, None) => sink.other(record, cpu, thread),
        }
    }
}

impl Zephyr {
    /// Returns the meaning of a record that a row can represent; `None` if it is something else or a field is missing.
    fn row(&self, rule: Rule, numbers: &Numbers<6>, sink: &mut Sink<'_>) -> Option<Row> {
        let code = |address: u64, thumb: bool| Addr(address & !u64::from(thumb));
        let space = self.spaces.code;
        let callee = || numbers.unsigned(ITEM).map(|it| (it, it & 1 == 1));
        Some(match rule {
            Rule::SwitchedIn => sink.row(RowKind::SwitchedIn),
            Rule::SwitchedOut => sink.row(RowKind::SwitchedOut),
            Rule::IsrEnter => sink.row(RowKind::IsrEnter).interrupt(Some(self.interrupt)),
            Rule::IsrExit => sink.row(RowKind::IsrExit),
            Rule::Begin(call) => {
                let function = *self.functions.get(call)?;
                sink.row(RowKind::Enter).function(Some(function))
            }
            Rule::End(call) => {
                let function = *self.functions.get(call)?;
                sink.row(RowKind::Exit).function(Some(function))
            }
            Rule::FunctionEntry => {
                let (callee, thumb) = callee()?;
                let function = sink.function_at(space, code(callee, thumb))?;
                let caller = numbers.unsigned(CALLER).unwrap_or(0);
                let row = sink.row(RowKind::Enter).function(Some(function));
                row.word(code(caller, thumb))
            }
            Rule::FunctionExit => {
                let function = callee();
                let function =
                    function.and_then(|(it, thumb)| sink.function_at(space, code(it, thumb)));
                sink.row(RowKind::Exit).function(function)
            }
            Rule::Ready
            | Rule::Marker
            | Rule::Thread
            | Rule::Create
            | Rule::Abort
            | Rule::Other => return None,
        })
    }
}

/// Records a thread's name, if it is new.
fn name_thread(thread: ThreadId, name: &str, cpu: Option<Cpu>, sink: &mut Sink<'_>) {
    let known = sink.identities.thread_name(thread);
    let nameless = name.is_empty() || (name == NAMELESS && known.is_some());
    if nameless || known == Some(name) {
        return;
    }
    sink.identities.name_thread(thread, name);
    let name = name.to_owned();
    sink.besides(EventKind::ThreadName { thread, name }, cpu, None);
}

/// Returns the rule of an event class, given all classes of its stream.
fn rule<'m>(class: &'m EventClass, all: &[EventClass], calls: &mut Vec<&'m str>) -> Rule {
    let name = class.name.as_str();
    let has = |field| {
        let fields = class.fields.as_ref();
        fields.is_some_and(|fields| fields.member(field).is_some())
    };
    match name {
        "thread_switched_in" | "sched_switched_in" if has("thread_id") => return Rule::SwitchedIn,
        "thread_switched_out" | "sched_switched_out" if has("thread_id") => {
            return Rule::SwitchedOut;
        }
        "thread_ready" if has("thread_id") => return Rule::Ready,
        "thread_create" if has("thread_id") => return Rule::Create,
        "thread_abort" if has("thread_id") => return Rule::Abort,
        "isr_enter" => return Rule::IsrEnter,
        "isr_exit" | "isr_exit_to_scheduler" => return Rule::IsrExit,
        "named_event" if has("arg0") => return Rule::Marker,
        "func_entry_with_context" if has("callee") => return Rule::FunctionEntry,
        "func_exit_with_context" if has("callee") => return Rule::FunctionExit,
        _ if has("thread_id") && has("name") => return Rule::Thread,
        _ => {}
    }
    let paired = |call: &str, ending: &str| {
        let mut others = all.iter();
        others.any(|other| other.name.strip_prefix(call) == Some(ending))
    };
    if let Some(call) = name.strip_suffix("_enter")
        && paired(call, "_exit")
    {
        Rule::Begin(place(call, calls))
    } else if let Some(call) = name.strip_suffix("_exit")
        && paired(call, "_enter")
    {
        Rule::End(place(call, calls))
    } else {
        Rule::Other
    }
}

/// Returns the index of the function of a pair of events.
fn place<'m>(call: &'m str, calls: &mut Vec<&'m str>) -> usize {
    let known = calls.iter().position(|known| *known == call);
    known.unwrap_or_else(|| {
        calls.push(call);
        calls.len() - 1
    })
}

/// Returns the names of the CPU number's field in packets and in events; `None` if they have none.
fn cpu_names(metadata: &Metadata) -> [Option<&'static str>; 2] {
    let named = |all: &[&StructClass]| {
        let mut names = CPU_NAMES.into_iter();
        names.find(|name| all.iter().any(|fields| fields.member(name).is_some()))
    };
    let streams = metadata.streams.iter();
    let packets: Vec<_> = streams
        .filter_map(|it| it.packet_context.as_ref())
        .collect();
    let events = metadata.streams.iter().flat_map(|stream| &stream.events);
    let events: Vec<_> = events.filter_map(|it| it.fields.as_ref()).collect();
    [named(&packets), named(&events)]
}

/// Returns a text of the payload.
fn text(record: &kymo_ctf::Event<'_>, name: &str) -> Option<String> {
    let value = record.field_of(Scope::EventFields, name)?;
    Some(value.text()?.into_owned())
}
