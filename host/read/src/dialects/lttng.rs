//! Meanings of LTTng's events: of the kernel, and of functions recorded by `liblttng-ust-cyg-profile`.
//!
//! Kernel: `sched_switch` is a switch from one thread to another and names both. Wakeups, forks and program changes of
//! threads are recorded, too. Interrupts are `irq_handler_*`, `softirq_*` and the x86 vectors. Each system call is a
//! call of its thread. The thread that runs on a processor follows from the switches. The idle thread (0, one per
//! processor) is not treated as a thread: its processor is idle.
//!
//! User space: the thread is in the context `vtid`, if the recording has that context. CTF 1.8 writes it as `_vtid`, as
//! do CTF 2 writers that keep compatibility. Functions are in `addr` of `lttng_ust_cyg_profile:func_entry` and similar
//! events. The `_fast` exit has no function and leaves the innermost one.
//!
//! Names and fields are those of lttng-modules 2.0 to 2.14 and lttng-ust 2.0 to 2.16. Old tracers have other names for
//! system calls: `sys_open` with one `exit_syscall` for all (before 2.3), and `sys_enter` with a number (2.0-pre).

mod lives;
mod processes;
mod rules;

use std::sync::Arc;

use crate::linux::SOFTIRQS;
use kymo_ctf::metadata::{Metadata, Scope};
use kymo_ctf::{Events, Projected, Projection, Trace};
use kymo_event::{
    Addr, Cpu, Duration, EventKind, FunctionId, Gap, Identities, InterruptId, InterruptKind, Row,
    RowKind, SpaceId, SpaceKind, ThreadId, Time, TraceInfo,
};

use super::same_context::SameContext;
use super::straight::{self, Call, Common};
use super::{Sink, Spaces, env_number, env_text};
use processes::{File, Processes};
use rules::{Means, NAMES, PIDS, Rule, TIDS, context, vector};

/// State of an LTTng trace.
pub(crate) struct Lttng {
    spaces: Spaces,
    /// Rules by stream class and index in it.
    rules: Vec<Arc<[Rule]>>,
    /// Which of them are entries and exits of functions whose thread is in the stream's event context.
    calls: Arc<[Vec<Option<Call>>]>,
    /// Fields of the contexts: [`TID`], [`PID`].
    places: Projection,
    /// Numbers that the rules need from the payload: [`FIRST`], [`SECOND`].
    numbers: Arc<Projection>,
    /// Texts that the rules need: [`OWN_NAME`], [`NAME`], [`OTHER_NAME`].
    texts: Projection,
    /// System calls.
    functions: Vec<FunctionId>,
    /// System calls that the trace identifies by number, as far as they have occurred.
    numbered: Vec<Option<FunctionId>>,
    processes: Processes,
    /// Process of the whole trace, if each process has its own.
    process: Option<u64>,
    /// Whether the trace records thread switches.
    has_switches: bool,
    /// Thread that runs on each CPU, once a switch has recorded it; `Some(None)` when it is idle.
    running: Vec<Option<Option<ThreadId>>>,
    /// Last system call entered on each CPU whose thread is unknown, and its time.
    entered: Vec<Option<(FunctionId, Time)>>,
    /// Thread and process in the context of each stream's last event.
    contexts: Vec<SameContext<Who>>,
}

/// Indices of fields in [`Lttng::places`]: the thread and its process in the contexts.
const TID: usize = 0;
const PID: usize = 1;

/// Indices of fields in [`Lttng::numbers`].
const FIRST: usize = 0;
const SECOND: usize = 1;

/// Indices of fields in [`Lttng::texts`]: the thread's name in the contexts, and the names in the payload.
const OWN_NAME: usize = 0;
const NAME: usize = 1;
const OTHER_NAME: usize = 2;

/// Thread and process of an event, as far as its context has them.
#[derive(Clone, Copy, Debug, Default)]
struct Who {
    thread: Option<ThreadId>,
    /// It is the idle thread, which is not treated as a thread.
    is_idle: bool,
    /// Process id.
    process: Option<u64>,
    /// Address space of the process, once it was needed.
    space: Option<SpaceId>,
    /// Count of [renames](Identities::renamed) at the time when the thread had the name in the context.
    renamed: u64,
}

/// Largest number of system calls that get a name in a trace that has only numbers.
const NUMBERED: usize = 1024;

/// Largest number of CPUs whose threads are tracked. (Linux can be built for 8192.)
const MOST_CPUS: usize = 1 << 13;

/// Projection of no field.
const NOTHING: (Scope, &str) = (Scope::EventFields, "");

/// Returns which events of a stream class are entries and exits whose thread is in the stream's event context.
fn calls_of(rules: &[Rule]) -> Vec<Option<Call>> {
    let call = |rule: &Rule| match rule.meaning {
        _ if !rule.by_context => None,
        Means::FunctionEntry => Some(Call::Enter),
        Means::FunctionExit => Some(Call::Exit),
        _ => None,
    };
    rules.iter().map(call).collect()
}

impl Lttng {
    /// Determines the rules of a trace; `None` if it is neither from LTTng nor has events with these names.
    pub(crate) fn of(trace: &Trace, spaces: Spaces, identities: &mut Identities) -> Option<Self> {
        let metadata: &Metadata = trace.metadata();
        let (rules, calls) = rules::of(metadata);
        let all = || {
            rules
                .iter()
                .flat_map(|rules| rules.iter())
                .map(|rule| rule.meaning)
        };
        let tracer = env_text(metadata, "tracer_name").unwrap_or("");
        let is_known = all().any(|it| !matches!(it, Means::Other | Means::Object(_)));
        let has_calls = all().any(|it| it == Means::FunctionEntry);
        if !is_known && !tracer.starts_with("lttng") {
            return None;
        }
        let class = |stream: usize, event: usize| metadata.streams.get(stream)?.events.get(event);
        let meaning = |stream: usize, event: usize| rules.get(stream)?.get(event);
        let payload = |name| (Scope::EventFields, name);
        let numbers = Projection::of_classes(trace.plan(), |stream, event| {
            let rule = meaning(stream, event).zip(class(stream, event));
            let names = rule.map_or([""; 2], |(rule, class)| rule.meaning.numbers(class));
            names.map(payload)
        });
        let places = Projection::of_classes(trace.plan(), |stream, event| {
            let names = [&TIDS[..], &PIDS[..]];
            names.map(|names| context(metadata, (stream, event), names).unwrap_or(NOTHING))
        });
        let texts = Projection::of_classes(trace.plan(), |stream, event| {
            let texts = meaning(stream, event).zip(class(stream, event));
            let [first, second] = texts.map_or([""; 2], |(rule, class)| rule.meaning.texts(class));
            [
                context(metadata, (stream, event), &NAMES).unwrap_or(NOTHING),
                payload(first),
                payload(second),
            ]
        });
        Some(Self {
            spaces,
            places,
            numbers: Arc::new(numbers),
            texts,
            functions: calls
                .iter()
                .map(|call| identities.function_named(spaces.code, call))
                .collect(),
            numbered: vec![None; NUMBERED],
            processes: Processes::new(spaces.code, has_calls),
            process: env_number(metadata, "vpid"),
            has_switches: rules::reports_switches(&rules),
            running: Vec::new(),
            entered: Vec::new(),
            contexts: Vec::new(),
            calls: rules.iter().map(|rules| calls_of(rules)).collect(),
            rules,
        })
    }

    /// Returns whether the trace records thread switches.
    pub(crate) const fn tells_switches(&self) -> bool {
        self.has_switches
    }

    /// Returns whether a stream class records thread switches.
    pub(crate) fn class_tells_switches(&self, class: usize) -> bool {
        let rules = self.rules.get(class..=class);
        rules.is_some_and(rules::reports_switches)
    }

    /// Adds the properties that are known before the events are read.
    pub(crate) fn describe(&mut self, trace: &Trace, info: &mut TraceInfo) {
        info.numbered_threads = true;
        let domain = env_text(trace.metadata(), "domain");
        if let Some(space) = info.identities.space_mut(self.spaces.code) {
            space.kind = match domain {
                Some("ust") => SpaceKind::Process,
                _ => SpaceKind::Kernel,
            };
        }
        if let Some(remark) = rules::without_threads(trace.metadata(), &self.rules) {
            info.remarks.push(remark);
        }
        let base = self.look_ahead(trace, &mut info.identities);
        info.text_base = info.text_base.or(base);
    }

    /// Returns the thread of this number; `None` for 0.
    #[inline]
    fn thread(&self, tid: Option<u64>, sink: &mut Sink<'_>) -> Option<ThreadId> {
        let tid = tid.filter(|tid| *tid != 0)?;
        sink.thread(self.spaces.machine, tid)
    }

    /// Returns the system call of this number.
    fn numbered(&mut self, number: Option<u64>, sink: &mut Sink<'_>) -> Option<FunctionId> {
        let number = number?;
        let known = self.numbered.get_mut(usize::try_from(number).ok()?)?;
        let new = || {
            let name = format!("system call {number}");
            sink.identities.function_named(self.spaces.code, &name)
        };
        Some(*known.get_or_insert_with(new))
    }
}

impl Lttng {
    /// Passes the meanings of a run of records to `sink`.
    pub(super) fn records(&mut self, events: &Events<'_>, sink: &mut Sink<'_>) {
        let class = events.packet().info().stream_class;
        let rules = self.rules.get(class).cloned().unwrap_or_default();
        let numbers = Arc::clone(&self.numbers);
        let numbers = events.projected(&numbers);
        let calls = Arc::clone(&self.calls);
        let calls = calls.get(class).map_or(&[][..], Vec::as_slice);
        let mut events = events.iter();
        loop {
            let known = self.contexts.get(sink.index);
            if let Some((context, who)) = known.and_then(|known| known.last(class))
                && who.renamed == sink.identities.renamed()
                && let (Some(space), Some(_)) = (who.space, who.thread)
            {
                let common = Common {
                    context,
                    cpu: sink.cpu,
                    thread: who.thread,
                    space,
                };
                straight::take(&mut events, &numbers, common, sink, calls);
            }
            let Some(record) = events.next() else { return };
            let rule = rules.get(record.class_index()).unwrap_or(&Rule::OTHER);
            self.record(&record, (class, rule), &numbers, sink);
        }
    }

    fn record<'a>(
        &mut self,
        record: &kymo_ctf::Event<'a>,
        (class, rule): (usize, &Rule),
        numbers: &Projected<'a>,
        sink: &mut Sink<'_>,
    ) {
        sink.begin(record.time_ns());
        let meaning = rule.meaning;
        let context = numbers.stream_context(record).filter(|_| rule.by_context);
        let numbers = numbers.numbers::<2>(record);
        let numbers = [FIRST, SECOND].map(|place| numbers.unsigned(place));
        if meaning.is_of_lives() {
            self.live(meaning, record, numbers, sink);
        }
        let known = self.contexts.get(sink.index);
        let known = known.and_then(|known| known.get(class, context));
        let who = match known {
            Some(who) if who.renamed == sink.identities.renamed() && !rule.has_names => *who,
            _ => self.who(record, (class, rule), context, numbers, sink),
        };
        let thread = who.thread;
        if meaning == Means::Switch {
            return self.switch(record, numbers, sink);
        }
        let row = self.row(meaning, record, numbers, who, sink);
        match row {
            Some(row) => {
                sink.common(record, row.at(sink.cpu, thread));
                if matches!(meaning, Means::SignalReturn(_)) {
                    let ago = Duration(0);
                    sink.besides(EventKind::Gap(Gap::MissingExit { ago }), sink.cpu, thread);
                }
            }
            None if matches!(meaning, Means::Wakeup | Means::NewWakeup) => {
                match self.thread(numbers[FIRST], sink) {
                    Some(ready) => {
                        let kind = EventKind::Ready { thread: ready };
                        sink.rare(record, kind, (sink.cpu, thread), None);
                    }
                    None => sink.other(record, sink.cpu, thread),
                }
            }
            None => sink.other(record, sink.cpu, thread),
        }
    }

    /// Determines the thread and process of a record, and takes the names in it.
    #[inline(never)]
    fn who(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        (class, rule): (usize, &Rule),
        context: Option<&[u8]>,
        numbers: [Option<u64>; 2],
        sink: &mut Sink<'_>,
    ) -> Who {
        let places = record.numbers::<2>(&self.places);
        let process = places.unsigned(PID);
        let is_call = matches!(rule.meaning, Means::FunctionEntry | Means::FunctionExit);
        let known = match places.unsigned(TID) {
            Some(tid) => Some(self.thread_in(tid, process.or(self.process), sink)),
            // The first thread of a process has its number. It represents all threads if their context is missing.
            None if is_call && process.is_some() => Some(self.thread(process, sink)),
            None => {
                let running = |cpu: Cpu| *self.running.get(cpu.0 as usize)?;
                sink.cpu.and_then(running)
            }
        };
        let (thread, is_idle) = (known.flatten(), known == Some(None));
        if rule.has_names || rule.own_name.is_some() {
            self.names(rule, record, numbers, thread, sink);
        }
        let who = Who {
            thread,
            is_idle,
            process,
            space: is_call.then(|| self.processes.space(process, sink.identities)),
            renamed: sink.identities.renamed(),
        };
        if context.is_some() {
            if self.contexts.len() <= sink.index {
                self.contexts
                    .resize_with(sink.index + 1, SameContext::default);
            }
            if let Some(known) = self.contexts.get_mut(sink.index) {
                known.set(class, context, who);
            }
        }
        who
    }

    /// Returns the meaning of a record that a row can represent; `None` if it is something else or a field is missing.
    #[inline]
    fn row(
        &mut self,
        meaning: Means,
        record: &kymo_ctf::Event<'_>,
        [first, second]: [Option<u64>; 2],
        who: Who,
        sink: &mut Sink<'_>,
    ) -> Option<Row> {
        if let (Some(cpu), None, false) = (sink.cpu, who.thread, who.is_idle)
            && let Some(syscall) = self.syscall(meaning, first, sink)
        {
            return self.of_no_thread(cpu, syscall, sink);
        }
        let machine = self.spaces.machine;
        let call = |place: usize| self.functions.get(place).copied();
        // Without a known thread, an exit has nothing to leave.
        let exit = |sink: &mut Sink<'_>, function| {
            (who.thread.is_some() || who.is_idle).then_some(())?;
            Some(sink.row(RowKind::Exit).function(function))
        };
        let enter =
            |sink: &mut Sink<'_>, function| sink.row(RowKind::Enter).function(Some(function));
        Some(match meaning {
            Means::Switch
            | Means::Wakeup
            | Means::NewWakeup
            | Means::Name
            | Means::Fork
            | Means::ThreadExit
            | Means::Exec
            | Means::Other => {
                return None;
            }
            Means::IrqEntry => {
                let irq = sink.interrupt(machine, InterruptKind::Hard, first?)?;
                sink.row(RowKind::IsrEnter).interrupt(Some(irq))
            }
            Means::IrqExit => {
                let irq = first.and_then(|irq| sink.interrupt(machine, InterruptKind::Hard, irq));
                sink.row(RowKind::IsrExit).interrupt(irq)
            }
            Means::KindEntry(kind) => {
                let irq = sink.interrupt(machine, kind, first?)?;
                if sink.identities.interrupt_name(irq).is_none() {
                    name_kind(kind, irq, first?, record, sink);
                }
                sink.row(RowKind::IsrEnter).interrupt(Some(irq))
            }
            Means::KindExit(kind) => {
                let irq = sink.interrupt(machine, kind, first?)?;
                sink.row(RowKind::IsrExit).interrupt(Some(irq))
            }
            Means::SyscallEntry(place) | Means::SignalReturn(place) => enter(sink, call(place)?),
            Means::SpawnExit(_) if first == Some(0) => return None,
            Means::SpawnExit(place) => exit(sink, call(place))?,
            Means::SyscallExit(place) => exit(sink, place.and_then(call))?,
            Means::NumberedEntry => {
                let function = self.numbered(Some(first?), sink)?;
                enter(sink, function)
            }
            Means::NumberedExit => {
                let function = self.numbered(first, sink);
                exit(sink, function)?
            }
            Means::FunctionEntry => {
                let space = self.space(who, sink);
                let function = sink.function_at(space, Addr(first?))?;
                enter(sink, function).word(Addr(second.unwrap_or(0)))
            }
            Means::FunctionExit => {
                let space = self.space(who, sink);
                let function = first.and_then(|first| sink.function_at(space, Addr(first)));
                sink.row(RowKind::Exit).function(function)
            }
            Means::Object(object) => {
                let (process, time) = (who.process, Some(sink.time));
                if let Some(file) = File::of(record, [first, second], &self.texts) {
                    let processes = &mut self.processes;
                    if processes.load(object, process, time, &file, sink.identities) {
                        sink.forget_functions();
                    }
                }
                return None;
            }
            Means::BuildId => {
                let processes = &mut self.processes;
                processes.build_id(who.process, Addr(first?), record, sink.identities);
                return None;
            }
        })
    }

    /// Returns whether an event enters (`true`) or leaves a system call, and which; `None` for any other event.
    fn syscall(
        &mut self,
        meaning: Means,
        first: Option<u64>,
        sink: &mut Sink<'_>,
    ) -> Option<(bool, Option<FunctionId>)> {
        let call = |place: usize| self.functions.get(place).copied();
        match meaning {
            Means::SyscallEntry(place) | Means::SignalReturn(place) => Some((true, call(place))),
            Means::SyscallExit(place) => Some((false, place.and_then(call))),
            Means::SpawnExit(place) if first != Some(0) => Some((false, call(place))),
            Means::NumberedEntry => Some((true, self.numbered(first, sink))),
            Means::NumberedExit => Some((false, self.numbered(first, sink))),
            _ => None,
        }
    }

    /// Handles a system call of an unknown thread. It is a call if its exit is the next event of system calls on its
    /// CPU, and nothing otherwise, because threads may have switched in between.
    #[inline(never)]
    fn of_no_thread(
        &mut self,
        cpu: Cpu,
        (is_entry, function): (bool, Option<FunctionId>),
        sink: &mut Sink<'_>,
    ) -> Option<Row> {
        let place = usize::try_from(cpu.0).ok().filter(|it| *it < MOST_CPUS)?;
        if self.entered.len() <= place {
            self.entered.resize(place + 1, None);
        }
        let entered = self.entered.get_mut(place)?;
        if is_entry {
            *entered = function.map(|function| (function, sink.time));
            return None;
        }
        let (of, begin) = entered.take()?;
        let took = sink.time.0.checked_sub(begin.0)?;
        let row = sink.row(RowKind::Exit).function(Some(of));
        (function.is_none() || function == Some(of))
            .then(|| row.took(Duration(took.cast_unsigned())))
    }

    /// Returns the address space of a process.
    #[inline(always)]
    fn space(&mut self, who: Who, sink: &mut Sink<'_>) -> SpaceId {
        match who.space {
            Some(space) => space,
            None => self.processes.space(who.process, sink.identities),
        }
    }

    /// Takes the names in a record.
    #[inline(never)]
    fn names(
        &mut self,
        rule: &Rule,
        record: &kymo_ctf::Event<'_>,
        [first, second]: [Option<u64>; 2],
        thread: Option<ThreadId>,
        sink: &mut Sink<'_>,
    ) {
        let meaning = rule.meaning;
        let mut texts = [None; 3];
        record.project(&self.texts, &mut texts);
        let text = |place: usize| texts.get(place)?.as_ref()?.text();
        let name_of = |thread, place, sink: &mut Sink<'_>| {
            if let (Some(thread), Some(name)) = (thread, text(place)) {
                // A program is recorded by its path; the thread is named by the last part.
                let name = match meaning {
                    Means::Exec => name.rsplit('/').next().unwrap_or(&name),
                    _ => &name,
                };
                name_thread(thread, name, sink);
            }
        };
        name_of(thread, OWN_NAME, sink);
        match meaning {
            Means::Switch => {
                name_of(self.leaving(first, sink), NAME, sink);
                name_of(self.thread(second, sink), OTHER_NAME, sink);
            }
            Means::Wakeup
            | Means::NewWakeup
            | Means::Name
            | Means::Fork
            | Means::ThreadExit
            | Means::Exec => {
                let thread = self.thread(first, sink);
                name_of(thread, NAME, sink);
            }
            Means::IrqEntry => {
                let machine = self.spaces.machine;
                let irq = first.and_then(|irq| sink.interrupt(machine, InterruptKind::Hard, irq));
                if let (Some(irq), Some(name)) = (irq, text(NAME)) {
                    name_handler(irq, &name, sink);
                }
            }
            _ => {}
        }
    }

    fn switch(
        &mut self,
        record: &kymo_ctf::Event<'_>,
        [first, second]: [Option<u64>; 2],
        sink: &mut Sink<'_>,
    ) {
        let previous = self.leaving(first, sink);
        let next = self.thread(second, sink);
        let cpu = sink.cpu;
        if let Some(place) = cpu.map(|cpu| cpu.0 as usize).filter(|it| *it < MOST_CPUS) {
            if self.running.len() <= place {
                self.running.resize(place + 1, None);
            }
            if let Some(running) = self.running.get_mut(place) {
                *running = Some(next);
            }
            if let Some(entered) = self.entered.get_mut(place) {
                *entered = None;
            }
        }
        if [first, second] == [Some(0); 2] {
            // From one idle task to the same one, as our exports say that a CPU is idle from here on.
            return sink.common(record, sink.row(RowKind::SwitchedOut).at(cpu, None));
        }
        super::switch(record, (cpu, previous, next), sink);
    }
}

/// Records a thread's name, if it is new.
fn name_thread(thread: ThreadId, name: &str, sink: &mut Sink<'_>) {
    if name.is_empty() || sink.identities.thread_name(thread) == Some(name) {
        return;
    }
    sink.identities.name_thread(thread, name);
    let name = name.to_owned();
    sink.besides(EventKind::ThreadName { thread, name }, sink.cpu, None);
}

/// Records the name of an interrupting device. Several devices may share a line, each with its own handler.
fn name_handler(irq: InterruptId, name: &str, sink: &mut Sink<'_>) {
    let name = match sink.identities.interrupt_name(irq) {
        Some(known) if known == name || known.split(", ").any(|known| known == name) => return,
        Some(known) if known.len() > LONGEST_NAME => return,
        Some(known) => format!("{known}, {name}"),
        None => name.to_owned(),
    };
    name_interrupt(irq, name, sink);
}

/// Name length in bytes above which an interrupt gets no further device names. No machine has so many on one line.
const LONGEST_NAME: usize = 1024;

/// Records the name of an interrupt that is not a device's.
#[cold]
fn name_kind(
    kind: InterruptKind,
    irq: InterruptId,
    number: u64,
    record: &kymo_ctf::Event<'_>,
    sink: &mut Sink<'_>,
) {
    let name = match kind {
        InterruptKind::Soft => softirq(number),
        _ => vector(record.name()).map(str::to_owned),
    };
    if let Some(name) = name {
        name_interrupt(irq, name, sink);
    }
}

fn name_interrupt(irq: InterruptId, name: String, sink: &mut Sink<'_>) {
    sink.identities.name_interrupt(irq, &name);
    sink.besides(EventKind::IsrName { irq, name }, sink.cpu, None);
}

/// Returns the name of a softirq.
fn softirq(number: u64) -> Option<String> {
    let name = SOFTIRQS.get(usize::try_from(number).ok()?)?;
    Some(format!("softirq {name}"))
}
