//! What the events of Zephyr's tracing subsystem mean (`subsys/tracing/ctf` in its tree), and those of its
//! instrumentation subsystem where a dump was made a CTF trace with the metadata of its build.
//!
//! Events are known by their names, which all generations share; how wide times and numbers of events are,
//! and whether there are packets, is the metadata's to say. Which thread runs follows from the switches. An
//! interrupt handler is `isr_enter` to `isr_exit`; which interrupt it serves is not recorded. What the
//! kernel and the network do for a thread comes in pairs (`semaphore_take_enter`, `semaphore_take_exit`;
//! the same of mutexes, queues, sockets and a dozen others): each pair is a call, named for what they have in
//! common. `named_event`, by which the program speaks for itself, is a marker.
//!
//! # Time
//! Until 2026 times are nanoseconds in 32 bits: they go round every 4.29 s. On real targets they also
//! step back a little, where the timer's interrupt and the announcement of its tick are read in between.
//! A reader that takes every step back for a turn makes 45 s of 11 s. Here a step back of up to 2^30 ns
//! (1.07 s; the timer of a Cortex-M, 24 bits wide, can't be off by more) is one; whatever is further back
//! has gone round. (So after a pause of 3.2 s or more the time is a guess: the bits say no more.)

use std::collections::HashMap;

use kymo_ctf::Value;
use kymo_ctf::metadata::{Clock, EventClass, Metadata, Scope, StructClass};
use kymo_event::{Addr, Cpu, EventKind, Function, Irq, ThreadId, TraceInfo};

use super::Meaning;

/// What is known of a trace by Zephyr.
pub(crate) struct Zephyr {
    /// By stream class and place in it.
    rules: Vec<Vec<Rule>>,
    /// What pairs of events are calls of, by stand-ins.
    functions: Vec<Function>,
    /// What the numbers of `timestamp` are.
    clock: Clock,
    /// Where the time of each stream is, in ticks.
    ticks: HashMap<usize, i64>,
    /// The thread that runs on each processor, or on the only one.
    running: HashMap<Option<Cpu>, ThreadId>,
    threads: HashMap<ThreadId, String>,
    /// Whether the name of interrupts has been told.
    interrupt_named: bool,
    /// What the processor's number is called in packets, and in events.
    processor: [Option<&'static str>; 2],
}

/// What the events of one class are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    SwitchedIn,
    SwitchedOut,
    Ready,
    /// Something about a thread, which tells its name.
    Thread,
    IsrEnter,
    IsrExit,
    Begin(Addr),
    End(Addr),
    Marker,
    /// Of the instrumentation subsystem.
    FunctionEntry,
    FunctionExit,
    Other,
}

/// All interrupts are one: events don't tell which.
const SOME_INTERRUPT: Irq = Irq(0);

/// So far a step back is one, and no turn of the 32 bits.
const STEP_BACK_NS: u64 = 1 << 30;

/// What a processor's number is called, in packets or events: by the several proposals for more than one.
const PROCESSOR: [&str; 3] = ["cpu", "cpu_id", "core_id"];

/// What the kernel calls threads that have no name (yet).
const NAMELESS: &str = "unknown";

impl Zephyr {
    /// What the events of this metadata are; `None` if it is not Zephyr's.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let mut functions = Vec::new();
        let streams = metadata.streams.iter();
        let rules: Vec<Vec<Rule>> = streams
            .map(|stream| {
                let events = stream.events.iter();
                events
                    .map(|class| rule(class, &stream.events, &mut functions))
                    .collect()
            })
            .collect();
        let known = |rule| rules.iter().flatten().any(|found| *found == rule);
        // Switches alone others may have, too, by these names; not a program's entries.
        let tracing = known(Rule::SwitchedIn) && known(Rule::SwitchedOut);
        (tracing && (known(Rule::IsrEnter) || known(Rule::FunctionEntry))).then(|| Self {
            rules,
            functions,
            clock: match metadata.clocks.first() {
                Some(clock) => clock.clone(),
                // Without a clock the numbers are nanoseconds.
                None => Clock::new("", 1_000_000_000),
            },
            ticks: HashMap::new(),
            running: HashMap::new(),
            threads: HashMap::new(),
            interrupt_named: false,
            processor: processor_names(metadata),
        })
    }

    /// Tells what is known before the events are read.
    pub(crate) fn describe(&self, info: &mut TraceInfo) {
        for function in &self.functions {
            if !info.functions.contains(function) {
                info.functions.push(function.clone());
            }
        }
        info.functions.sort_by_key(|function| function.address);
    }

    /// When a record of a stream happened, in nanoseconds from the clock's origin.
    pub(crate) fn time_ns(&mut self, record: &kymo_ctf::Event<'_>, stream: usize) -> Option<i64> {
        let header = record.field_of(Scope::EventHeader, "timestamp");
        let Some(Value::Integer { value, class, .. }) = header else {
            // The instrumentation's records have the time among their fields.
            let time = number(record, "timestamp").and_then(|time| i64::try_from(time).ok());
            return time.or_else(|| record.time_ns());
        };
        // Packets tell what is above the bits.
        if class.size >= 64 || record.packet().begin_ns().is_some() {
            return record.time_ns();
        }
        let turn = 1_i64 << class.size;
        let value = i64::try_from(value.as_u64()?).ok()?;
        let last = *self.ticks.entry(stream).or_insert(value);
        let forward = (value - last).rem_euclid(turn);
        let back = turn - forward;
        let limit = u128::from(STEP_BACK_NS) * u128::from(self.clock.frequency) / 1_000_000_000;
        let now = if forward > 0 && (back.unsigned_abs() as u128) <= limit {
            // Time does not begin before 0.
            (last - back).max(0)
        } else {
            last.saturating_add(forward)
        };
        self.ticks.insert(stream, now);
        self.clock.nanoseconds(now.unsigned_abs())
    }

    /// What a record means.
    pub(crate) fn meanings(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        cpu: Option<Cpu>,
        out: &mut Vec<Meaning>,
    ) {
        let class = record.packet().info().stream_class;
        let rule = self.rules.get(class);
        let rule = rule.and_then(|events| events.get(record.class_index()));
        let rule = *rule.unwrap_or(&Rule::Other);
        let cpu = cpu.or_else(|| self.processor(record));
        let subject = number(record, "thread_id")
            .filter(|id| *id != 0)
            .map(ThreadId);
        let name = text(record, "name").filter(|_| subject.is_some());
        let name = name.or_else(|| text(record, "thread_name"));
        if let (Some(thread), Some(name)) = (subject, name)
            && rule != Rule::Other
        {
            self.name_thread(thread, &name, out);
        }
        let kind = self.kind(rule, record, subject, out);
        let kind = kind.unwrap_or(EventKind::Other);
        let thread = match rule {
            Rule::SwitchedIn | Rule::FunctionEntry | Rule::FunctionExit => {
                if let Some(thread) = subject {
                    self.running.insert(cpu, thread);
                }
                subject
            }
            Rule::SwitchedOut => {
                self.running.remove(&cpu);
                subject
            }
            _ => self.running.get(&cpu).copied(),
        };
        out.push(Meaning {
            cpu,
            ..Meaning::of(kind).in_thread(thread)
        });
    }

    /// The processor, where the packet or the record tells one.
    fn processor(&self, record: &kymo_ctf::Event<'_>) -> Option<Cpu> {
        let [of_packet, of_event] = self.processor;
        let cpu = of_packet.and_then(|name| record.packet().field(name)?.as_u64());
        let cpu = cpu.or_else(|| number(record, of_event?))?;
        u32::try_from(cpu).ok().map(Cpu)
    }

    /// The kind of a record; `None` if a field is missing that it needs, or there is none for it.
    fn kind(
        &mut self,
        rule: Rule,
        record: &kymo_ctf::Event<'_>,
        subject: Option<ThreadId>,
        out: &mut Vec<Meaning>,
    ) -> Option<EventKind> {
        let code = |address: u64, thumb: bool| Addr(address & !u64::from(thumb));
        let callee = || number(record, "callee").map(|callee| (callee, callee & 1 == 1));
        Some(match rule {
            Rule::SwitchedIn => EventKind::SwitchedIn,
            Rule::SwitchedOut => EventKind::SwitchedOut,
            Rule::Ready => EventKind::Ready { thread: subject? },
            Rule::IsrEnter => {
                if !self.interrupt_named {
                    self.interrupt_named = true;
                    out.push(Meaning::besides(EventKind::IsrName {
                        irq: SOME_INTERRUPT,
                        name: "interrupt".to_owned(),
                    }));
                }
                EventKind::IsrEnter {
                    irq: SOME_INTERRUPT,
                }
            }
            Rule::IsrExit => EventKind::IsrExit { irq: None },
            Rule::Begin(function) => EventKind::Enter {
                function,
                call_site: None,
            },
            Rule::End(function) => EventKind::Exit {
                function: Some(function),
            },
            Rule::Marker => EventKind::Marker {
                label: text(record, "name"),
                value: number(record, "arg0")?,
            },
            Rule::FunctionEntry => {
                let (callee, thumb) = callee()?;
                EventKind::Enter {
                    function: code(callee, thumb),
                    call_site: number(record, "caller").map(|caller| code(caller, thumb)),
                }
            }
            Rule::FunctionExit => EventKind::Exit {
                function: callee().map(|(callee, thumb)| code(callee, thumb)),
            },
            Rule::Thread | Rule::Other => return None,
        })
    }

    /// Tells a thread's name, if that is news.
    fn name_thread(&mut self, thread: ThreadId, name: &str, out: &mut Vec<Meaning>) {
        let known = self.threads.get(&thread).map(String::as_str);
        let nameless = name.is_empty() || (name == NAMELESS && known.is_some());
        if nameless || known == Some(name) {
            return;
        }
        self.threads.insert(thread, name.to_owned());
        out.push(Meaning::besides(EventKind::ThreadName {
            thread,
            name: name.to_owned(),
        }));
    }
}

/// What the events of a class are, among all of their stream.
fn rule(class: &EventClass, all: &[EventClass], functions: &mut Vec<Function>) -> Rule {
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
        Rule::Begin(stand_in(call, functions))
    } else if let Some(call) = name.strip_suffix("_exit")
        && paired(call, "_enter")
    {
        Rule::End(stand_in(call, functions))
    } else {
        Rule::Other
    }
}

/// The stand-in for the address of what a pair of events is a call of.
fn stand_in(call: &str, functions: &mut Vec<Function>) -> Addr {
    if let Some(known) = functions.iter().find(|function| function.name == call) {
        return known.address;
    }
    let address = Addr::stand_in(u32::try_from(functions.len()).unwrap_or(u32::MAX));
    functions.push(Function {
        address,
        name: call.to_owned(),
    });
    address
}

/// What the processor's number is called in packets, and what in events; `None` where they have none.
fn processor_names(metadata: &Metadata) -> [Option<&'static str>; 2] {
    let named = |all: &[&StructClass]| {
        let mut names = PROCESSOR.into_iter();
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

/// A number of the payload.
fn number(record: &kymo_ctf::Event<'_>, name: &str) -> Option<u64> {
    record.field_of(Scope::EventFields, name)?.as_u64()
}

/// A text of the payload.
fn text(record: &kymo_ctf::Event<'_>, name: &str) -> Option<String> {
    let value = record.field_of(Scope::EventFields, name)?;
    Some(value.text()?.into_owned())
}
