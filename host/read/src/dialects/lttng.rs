//! What LTTng's events mean: of the kernel, and of functions that `liblttng-ust-cyg-profile` records.
//!
//! Kernel: `sched_switch` is a switch from one thread to another, and tells both names; what wakes a
//! thread, forks it or changes its program is told too, interrupts are `irq_handler_*`, `softirq_*` and the
//! vectors of x86, and every system call is a call of the thread that makes it. Which thread runs on a processor
//! follows from the switches. The idle thread (0, one for each processor) is no thread here: its
//! processor has nothing to do.
//!
//! User space: the thread is in the context `vtid`, if the recording has that context; CTF 1.8 writes it
//! `_vtid`, as does who wants to please tools of that time in CTF 2. Functions are `addr` of
//! `lttng_ust_cyg_profile:func_entry` and its like; the `_fast` exit names none, and leaves the innermost.
//!
//! Names and fields are those of lttng-modules 2.0 to 2.14 and lttng-ust 2.0 to 2.16. The system calls of
//! old tracers go by other names: `sys_open` with one `exit_syscall` for all (before 2.3), and
//! `sys_enter` with a number (2.0-pre).

use std::collections::HashMap;

use kymo_ctf::metadata::{EventClass, Metadata, Scope};
use kymo_ctf::{Message, Projection, Trace};
use kymo_event::{Addr, Cpu, EventKind, Function, Irq, ThreadId, TraceInfo};

use super::{Meaning, env_text};

/// What is known of a trace by LTTng.
pub(crate) struct Lttng {
    /// What the contexts say of the thread: its number, by any of its names, then what it is called.
    contexts: Projection,
    /// By stream class and place in it.
    rules: Vec<Vec<Rule>>,
    /// The system calls, as functions of which the name is known.
    functions: Vec<Function>,
    /// The thread that runs on each processor, once a switch has told; `None` when it is idle.
    running: HashMap<Cpu, Option<ThreadId>>,
    threads: HashMap<ThreadId, String>,
    interrupts: HashMap<Irq, String>,
}

/// What the events of one class are.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Switch,
    Wakeup,
    Fork,
    /// A thread's name is in these fields.
    Name {
        thread: &'static str,
        name: &'static str,
    },
    IrqEntry,
    IrqExit,
    /// An interrupt of another kind begins, of this name if its number does not tell.
    KindEntry(Kind, Option<String>),
    KindExit(Kind),
    SyscallEntry(Addr),
    SyscallExit(Option<Addr>),
    /// The number of the system call is in the field `id`.
    NumberedEntry,
    NumberedExit,
    FunctionEntry,
    FunctionExit,
    Other,
}

/// What else interrupts a thread; each kind has numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Softirq,
    Vector,
}

impl Kind {
    const fn first(self) -> u32 {
        match self {
            Self::Softirq => 1 << 16,
            Self::Vector => 2 << 16,
        }
    }

    const fn field(self) -> &'static str {
        match self {
            Self::Softirq => "vec",
            Self::Vector => "vector",
        }
    }
}

/// The names of softirqs by number (`include/linux/interrupt.h`).
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// What the contexts call the number of a thread, and its name.
const NUMBERS: [&str; 4] = ["vtid", "_vtid", "tid", "_tid"];
const NAMES: [&str; 2] = ["procname", "_procname"];

/// How many numbers of system calls get a name where the trace has numbers alone.
const NUMBERED: u32 = 1024;

impl Lttng {
    /// What the events of a trace are; `None` if it is not LTTng's and has no event of these names.
    pub(crate) fn of(trace: &Trace) -> Option<Self> {
        let metadata: &Metadata = trace.metadata();
        let mut functions = Functions::default();
        let streams = metadata.streams.iter();
        let rules: Vec<Vec<Rule>> = streams
            .map(|stream| {
                let mut events = stream.events.iter();
                let old = events.any(|class| class.name == "exit_syscall");
                let events = stream.events.iter();
                events
                    .map(|class| rule(class, old, &mut functions))
                    .collect()
            })
            .collect();
        let tracer = env_text(metadata, "tracer_name").unwrap_or("");
        let is_known = rules.iter().flatten().any(|rule| *rule != Rule::Other);
        let contexts = NUMBERS.into_iter().chain(NAMES).flat_map(|name| {
            let scopes = [Scope::StreamEventContext, Scope::EventContext];
            scopes.map(|scope| (scope, name))
        });
        (is_known || tracer.starts_with("lttng")).then(|| Self {
            contexts: Projection::of_scopes(trace.plan(), contexts),
            rules,
            functions: functions.list,
            running: HashMap::new(),
            threads: HashMap::new(),
            interrupts: HashMap::new(),
        })
    }

    /// Tells what is known before the events are read.
    pub(crate) fn describe(&self, trace: &Trace, info: &mut TraceInfo) {
        info.text_base = info.text_base.or_else(|| self.text_base(trace));
        info.numbered_threads = true;
        for function in &self.functions {
            if !info.functions.contains(function) {
                info.functions.push(function.clone());
            }
        }
        info.functions.sort_by_key(|function| function.address);
    }

    /// Where the first program was loaded of which a trace tells functions' addresses: `bin_info`, which
    /// every process records when its recording begins.
    pub(crate) fn text_base(&self, trace: &Trace) -> Option<Addr> {
        let mut rules = self.rules.iter().flatten();
        if !rules.any(|rule| *rule == Rule::FunctionEntry) {
            return None;
        }
        // It stands at the beginning, if at all.
        const BEGINNING: usize = 100_000;
        let mut messages = trace.messages().ok()?;
        for _ in 0..BEGINNING {
            let Message::Event(record) = messages.next_message().ok()??.1 else {
                continue;
            };
            let is_program = |path: &str| {
                let file = path.rsplit('/').next().unwrap_or(path);
                file.starts_with(|c: char| c != '[') && !file.contains(".so")
            };
            if record.name() == "lttng_ust_statedump:bin_info"
                && text(&record, "path").is_some_and(|path| is_program(&path))
            {
                return number(&record, "baddr").map(Addr);
            }
        }
        None
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
        let rule = rule.cloned().unwrap_or(Rule::Other);
        let mut contexts = [None; 2 * (NUMBERS.len() + NAMES.len())];
        record.project(&self.contexts, &mut contexts);
        let (numbers, names) = contexts.split_at(2 * NUMBERS.len());
        let procname = names.iter().flatten().next();
        let procname = procname.and_then(kymo_ctf::Value::text);
        // Of both scopes that may have a field of this name the outer one counts.
        let mut numbers = numbers
            .chunks(2)
            .filter_map(|of| of.iter().flatten().next());
        let context = numbers.find_map(kymo_ctf::Value::as_u64);
        let running = || *cpu.and_then(|cpu| self.running.get(&cpu))?;
        let thread = match context {
            Some(tid) => thread(tid),
            None => running(),
        };
        if let (Some(thread), Some(name)) = (thread, procname) {
            Self::name_thread(&mut self.threads, thread, &name, out);
        }
        if rule == Rule::Switch {
            return self.switch(record, cpu, out);
        }
        let kind = self.kind(&rule, record, thread, out);
        out.push(Meaning::of(kind.unwrap_or(EventKind::Other)).in_thread(thread));
    }

    /// The kind of a record that is no switch; `None` if a field is missing that it needs. What else
    /// follows goes to `out`.
    fn kind(
        &mut self,
        rule: &Rule,
        record: &kymo_ctf::Event<'_>,
        running: Option<ThreadId>,
        out: &mut Vec<Meaning>,
    ) -> Option<EventKind> {
        let irq = |number: u64| u32::try_from(number).ok().map(Irq);
        Some(match rule {
            Rule::Switch | Rule::Other => return None,
            Rule::Wakeup => {
                let thread = thread(number(record, "tid")?)?;
                if let Some(name) = text(record, "comm") {
                    Self::name_thread(&mut self.threads, thread, &name, out);
                }
                EventKind::Ready { thread }
            }
            Rule::Fork => {
                let child = thread(number(record, "child_tid")?)?;
                Self::name_thread(&mut self.threads, child, &text(record, "child_comm")?, out);
                return None;
            }
            Rule::Name {
                thread: field,
                name,
            } => {
                let named = thread(number(record, field)?)?;
                let name = text(record, name)?;
                // What executes is told by its path, and threads are called by its last part.
                let name = name.rsplit('/').next().unwrap_or(&name);
                Self::name_thread(&mut self.threads, named, name, out);
                return None;
            }
            Rule::IrqEntry => {
                let irq = irq(number(record, "irq")?)?;
                if let Some(name) = text(record, "name") {
                    self.name_handler(irq, name, out);
                }
                EventKind::IsrEnter { irq }
            }
            Rule::IrqExit => EventKind::IsrExit {
                irq: number(record, "irq").and_then(irq),
            },
            Rule::KindEntry(kind, name) => {
                let number = u32::try_from(number(record, kind.field())?).ok()?;
                let irq = Irq(kind.first().checked_add(number)?);
                let name = name.clone().or_else(|| softirq(number));
                if let Some(name) = name {
                    self.name_interrupt(irq, name, out);
                }
                EventKind::IsrEnter { irq }
            }
            Rule::KindExit(kind) => {
                let number = u32::try_from(number(record, kind.field())?).ok()?;
                EventKind::IsrExit {
                    irq: Some(Irq(kind.first().checked_add(number)?)),
                }
            }
            // (Of an idle processor it can only be that the thread is not known yet.)
            Rule::SyscallEntry(function) => EventKind::Enter {
                function: *function,
                call_site: None,
            },
            Rule::SyscallExit(function) => EventKind::Exit {
                function: *function,
            },
            Rule::NumberedEntry => EventKind::Enter {
                function: numbered(number(record, "id")?)?,
                call_site: None,
            },
            Rule::NumberedExit => EventKind::Exit {
                function: number(record, "id").and_then(numbered),
            },
            Rule::FunctionEntry => EventKind::Enter {
                function: Addr(number(record, "addr")?),
                call_site: number(record, "call_site").map(Addr),
            },
            Rule::FunctionExit => EventKind::Exit {
                function: number(record, "addr").map(Addr),
            },
        })
        .filter(|kind| running.is_some() || !matches!(kind, EventKind::Exit { .. }))
    }

    fn switch(&mut self, record: &kymo_ctf::Event<'_>, cpu: Option<Cpu>, out: &mut Vec<Meaning>) {
        let side = |tid, comm| {
            let thread = number(record, tid).and_then(thread);
            (thread, text(record, comm))
        };
        let (previous, previous_name) = side("prev_tid", "prev_comm");
        let (next, next_name) = side("next_tid", "next_comm");
        for (thread, name) in [(previous, previous_name), (next, next_name)] {
            if let (Some(thread), Some(name)) = (thread, name) {
                Self::name_thread(&mut self.threads, thread, &name, out);
            }
        }
        if let Some(cpu) = cpu {
            self.running.insert(cpu, next);
        }
        let left = Meaning::of(EventKind::SwitchedOut).in_thread(previous);
        match (previous, next) {
            (Some(_), Some(_)) => {
                out.push(Meaning {
                    is_record: false,
                    ..left
                });
                out.push(Meaning::of(EventKind::SwitchedIn).in_thread(next));
            }
            (Some(_), None) => out.push(left),
            (None, Some(_)) => out.push(Meaning::of(EventKind::SwitchedIn).in_thread(next)),
            (None, None) => out.push(Meaning::of(EventKind::Other)),
        }
    }

    /// Tells a thread's name, if that is news.
    fn name_thread(
        threads: &mut HashMap<ThreadId, String>,
        thread: ThreadId,
        name: &str,
        out: &mut Vec<Meaning>,
    ) {
        if name.is_empty() || threads.get(&thread).is_some_and(|known| known == name) {
            return;
        }
        threads.insert(thread, name.to_owned());
        out.push(Meaning::besides(EventKind::ThreadName {
            thread,
            name: name.to_owned(),
        }));
    }

    /// Tells the name of a device that interrupts: several may share a line, and each has its handler.
    fn name_handler(&mut self, irq: Irq, name: String, out: &mut Vec<Meaning>) {
        match self.interrupts.get(&irq) {
            Some(known) if known.split(", ").any(|known| known == name) => {}
            Some(known) => self.name_interrupt(irq, format!("{known}, {name}"), out),
            None => self.name_interrupt(irq, name, out),
        }
    }

    /// Tells an interrupt's name, if that is news.
    fn name_interrupt(&mut self, irq: Irq, name: String, out: &mut Vec<Meaning>) {
        if self.interrupts.get(&irq) == Some(&name) {
            return;
        }
        self.interrupts.insert(irq, name.clone());
        out.push(Meaning::besides(EventKind::IsrName { irq, name }));
    }
}

/// Functions that have names and no addresses.
#[derive(Default)]
struct Functions {
    list: Vec<Function>,
}

impl Functions {
    /// The function of this name.
    fn named(&mut self, name: &str) -> Addr {
        if let Some(known) = self.list.iter().find(|function| function.name == name) {
            return known.address;
        }
        let index = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let address = Addr::stand_in(NUMBERED.saturating_add(index));
        self.list.push(Function {
            address,
            name: name.to_owned(),
        });
        address
    }

    /// Names for system calls of which the trace tells numbers.
    fn number(&mut self) {
        let named = |number: u32| Function {
            address: Addr::stand_in(number),
            name: format!("system call {number}"),
        };
        if !self.list.contains(&named(0)) {
            self.list.extend((0..NUMBERED).map(named));
        }
    }
}

/// What the softirq of this number is called.
fn softirq(number: u32) -> Option<String> {
    let name = SOFTIRQS.get(usize::try_from(number).ok()?)?;
    Some(format!("softirq {name}"))
}

/// The stand-in for the system call of this number.
fn numbered(number: u64) -> Option<Addr> {
    let number = u32::try_from(number).ok()?;
    (number < NUMBERED).then(|| Addr::stand_in(number))
}

/// What the events of a class are; `old`: its system calls are called as before LTTng 2.3.
fn rule(class: &EventClass, old: bool, functions: &mut Functions) -> Rule {
    let name = class.name.as_str();
    let has = |field| {
        let fields = class.fields.as_ref();
        fields.is_some_and(|fields| fields.member(field).is_some())
    };
    match name {
        "sched_switch" if has("next_tid") => return Rule::Switch,
        "sched_wakeup" | "sched_wakeup_new" if has("tid") => return Rule::Wakeup,
        "sched_process_fork" if has("child_tid") => return Rule::Fork,
        "sched_process_exec" if has("filename") => {
            return Rule::Name {
                thread: "tid",
                name: "filename",
            };
        }
        "lttng_statedump_process_state" if has("tid") => {
            return Rule::Name {
                thread: "tid",
                name: "name",
            };
        }
        "irq_handler_entry" if has("irq") => return Rule::IrqEntry,
        "irq_handler_exit" if has("irq") => return Rule::IrqExit,
        "softirq_entry" if has("vec") => return Rule::KindEntry(Kind::Softirq, None),
        "softirq_exit" if has("vec") => return Rule::KindExit(Kind::Softirq),
        "sys_enter" if has("id") => {
            functions.number();
            return Rule::NumberedEntry;
        }
        "sys_exit" if has("id") => return Rule::NumberedExit,
        "exit_syscall" => return Rule::SyscallExit(None),
        _ => {}
    }
    if let Some(kind) = name.strip_prefix("lttng_ust_cyg_profile") {
        return match kind.trim_start_matches("_fast") {
            ":func_entry" if has("addr") => Rule::FunctionEntry,
            ":func_exit" => Rule::FunctionExit,
            _ => Rule::Other,
        };
    }
    if let Some(vector) = name.strip_prefix("x86_irq_vectors_")
        && has("vector")
    {
        if let Some(vector) = vector.strip_suffix("_entry") {
            return Rule::KindEntry(Kind::Vector, Some(vector.to_owned()));
        }
        if vector.ends_with("_exit") {
            return Rule::KindExit(Kind::Vector);
        }
    }
    let (compat, name) = match name.strip_prefix("compat_") {
        Some(name) => (true, name),
        None => (false, name),
    };
    let mut call = |name: &str, compat: bool| {
        let bits = if compat { " (32 bits)" } else { "" };
        functions.named(&format!("{name}{bits}"))
    };
    if let Some(name) = name.strip_prefix("syscall_entry_") {
        Rule::SyscallEntry(call(name, compat))
    } else if let Some(name) = name.strip_prefix("syscall_exit_") {
        Rule::SyscallExit(Some(call(name, compat)))
    } else if let Some(name) = name.strip_prefix("sys_").filter(|_| old) {
        Rule::SyscallEntry(call(name, compat))
    } else {
        Rule::Other
    }
}

/// The thread of this number; 0 is nobody's.
fn thread(tid: u64) -> Option<ThreadId> {
    (tid != 0).then_some(ThreadId(tid))
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
