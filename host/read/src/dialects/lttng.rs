//! What LTTng's events mean: of the kernel, and of functions that `liblttng-ust-cyg-profile` records.
//!
//! Kernel: `sched_switch` is a switch from one thread to another, and tells both names; what wakes a
//! thread, forks it or changes its program is recorded too, interrupts are `irq_handler_*`, `softirq_*` and the
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
use super::{Sink, Spaces, env_text};
use processes::{File, Processes};
use rules::{Means, NAMES, PIDS, Rule, TIDS, context, vector};

/// What is known of a trace by LTTng.
pub(crate) struct Lttng {
    spaces: Spaces,
    /// What the events are, by stream class and place in it.
    rules: Vec<Arc<[Rule]>>,
    /// Which of them are entries and exits of functions, of which the stream's event context tells the thread.
    calls: Arc<[Vec<Option<Call>>]>,
    /// What the contexts say: [`TID`], [`PID`].
    places: Projection,
    /// The numbers that rules need of the payload: [`FIRST`], [`SECOND`].
    numbers: Arc<Projection>,
    /// The texts that they need: [`OWN_NAME`], [`NAME`], [`OTHER_NAME`].
    texts: Projection,
    /// The system calls.
    functions: Vec<FunctionId>,
    /// The system calls of which the trace tells numbers, as far as they were met.
    numbered: Vec<Option<FunctionId>>,
    processes: Processes,
    /// The thread that runs on each CPU, once a switch has recorded it; `Some(None)` when it is idle.
    running: Vec<Option<Option<ThreadId>>>,
    /// The system call that was entered last on each CPU whose thread is not known, and when.
    entered: Vec<Option<(FunctionId, Time)>>,
    /// By stream: who its last event is of, as its context says.
    contexts: Vec<SameContext<Who>>,
}

/// The places of fields in [`Lttng::places`]: what the contexts say of the thread and its process.
const TID: usize = 0;
const PID: usize = 1;

/// The places of fields in [`Lttng::numbers`].
const FIRST: usize = 0;
const SECOND: usize = 1;

/// The same in [`Lttng::texts`]: the name of the thread in the contexts, and the names in the payload.
const OWN_NAME: usize = 0;
const NAME: usize = 1;
const OTHER_NAME: usize = 2;

/// Whom an event is of, as far as its context says.
#[derive(Clone, Copy, Debug, Default)]
struct Who {
    thread: Option<ThreadId>,
    /// It is the idle thread, which is no thread here.
    is_idle: bool,
    /// The number of the process.
    process: Option<u64>,
    /// Where the addresses of the process mean something, once that was asked for.
    space: Option<SpaceId>,
    /// How often threads had been [renamed](Identities::renamed) when the thread had the name in the context.
    renamed: u64,
}

/// How many numbers of system calls get a name where the trace has numbers alone.
const NUMBERED: usize = 1024;

/// CPUs whose threads are known. (Linux can be built for 8192.)
const MOST_CPUS: usize = 1 << 13;

/// Asks for nothing.
const NOTHING: (Scope, &str) = (Scope::EventFields, "");

/// Which events of a stream class are entries and exits, of which the stream's event context tells the thread.
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
    /// What the events of a trace are; `None` if it is not LTTng's and has no event of these names.
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
            running: Vec::new(),
            entered: Vec::new(),
            contexts: Vec::new(),
            calls: rules.iter().map(|rules| calls_of(rules)).collect(),
            rules,
        })
    }

    /// Whether the trace tells which thread has a processor.
    pub(crate) fn tells_switches(&self) -> bool {
        rules::tell_switches(&self.rules)
    }

    /// Tells what is known before the events are read.
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

    /// The thread of this number; 0 is nobody's.
    #[inline]
    fn thread(&self, tid: Option<u64>, sink: &mut Sink<'_>) -> Option<ThreadId> {
        let tid = tid.filter(|tid| *tid != 0)?;
        sink.thread(self.spaces.machine, tid)
    }

    /// The system call of this number.
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
    /// Gives what the records of a run mean to `sink`.
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
            None if meaning == Means::Wakeup => match self.thread(numbers[FIRST], sink) {
                Some(ready) => {
                    let kind = EventKind::Ready { thread: ready };
                    sink.rare(record, kind, (sink.cpu, thread), None);
                }
                None => sink.other(record, sink.cpu, thread),
            },
            None => sink.other(record, sink.cpu, thread),
        }
    }

    /// Looks who a record is of, and takes the names that it tells.
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
            Some(tid) => Some(self.thread(Some(tid), sink)),
            // The first thread of a process has its number: that stands for all where the context of threads is missing.
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

    /// What a record means that a row can say; `None` if it is something else, or lacks a field.
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
        // What was entered before the thread was known is left by nobody.
        let exit = |sink: &mut Sink<'_>, function| {
            (who.thread.is_some() || who.is_idle).then_some(())?;
            Some(sink.row(RowKind::Exit).function(function))
        };
        let enter =
            |sink: &mut Sink<'_>, function| sink.row(RowKind::Enter).function(Some(function));
        Some(match meaning {
            Means::Switch | Means::Wakeup | Means::Name | Means::Exec | Means::Other => {
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

    /// Whether an event enters a system call or leaves one, and which; `None` for any other event.
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

    /// A system call of a thread that is not known: a call if its exit is the next one of its CPU, and nothing if not, since
    /// threads may have changed between.
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

    /// Where the addresses of a process mean something.
    #[inline(always)]
    fn space(&mut self, who: Who, sink: &mut Sink<'_>) -> SpaceId {
        match who.space {
            Some(space) => space,
            None => self.processes.space(who.process, sink.identities),
        }
    }

    /// Takes the names that a record tells.
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
                // What executes is named by its path, and threads are called by its last part.
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
                for (number, name) in [(first, NAME), (second, OTHER_NAME)] {
                    let thread = self.thread(number, sink);
                    name_of(thread, name, sink);
                }
            }
            Means::Wakeup => {
                let thread = self.thread(first, sink);
                name_of(thread, NAME, sink);
            }
            Means::Name | Means::Exec => {
                let child = second.or(first);
                let thread = self.thread(child, sink);
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
        let previous = self.thread(first, sink);
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
        super::switch(record, (cpu, previous, next), sink);
    }
}

/// Tells a thread's name, if that is news.
fn name_thread(thread: ThreadId, name: &str, sink: &mut Sink<'_>) {
    if name.is_empty() || sink.identities.thread_name(thread) == Some(name) {
        return;
    }
    sink.identities.name_thread(thread, name);
    let name = name.to_owned();
    sink.besides(EventKind::ThreadName { thread, name }, sink.cpu, None);
}

/// Tells the name of a device that interrupts: several may share a line, and each has its handler.
fn name_handler(irq: InterruptId, name: &str, sink: &mut Sink<'_>) {
    let name = match sink.identities.interrupt_name(irq) {
        Some(known) if known == name || known.split(", ").any(|known| known == name) => return,
        Some(known) if known.len() > LONGEST_NAME => return,
        Some(known) => format!("{known}, {name}"),
        None => name.to_owned(),
    };
    name_interrupt(irq, name, sink);
}

/// Bytes after which an interrupt gets no further names of devices: no machine has so many on a line.
const LONGEST_NAME: usize = 1024;

/// Tells the name of an interrupt of another kind than a device's.
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

/// What the softirq of this number is called.
fn softirq(number: u64) -> Option<String> {
    let name = SOFTIRQS.get(usize::try_from(number).ok()?)?;
    Some(format!("softirq {name}"))
}
