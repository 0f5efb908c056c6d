//! Meanings of packets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use kymo_event::{
    Addr, Batch, Cpu, Event, EventKind, EventRef, Field, FunctionId, Gap, Identities,
    InterruptKind, Irq, RecordingCause, Row, RowKind, SpaceId, Stack, StreamId, ThreadId, Tid,
    Time, TraceInfo, Value, Wanted,
};
use kymo_systemview::describe::{self, Fact};
use kymo_systemview::{Ids, Packet, Text};

use super::counters::Heaps;
use super::descriptions::{self, Descriptions};
use super::{fields, print};
use crate::OpenOptions;

/// Time and stream of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) time: Time,
    pub(super) stream: StreamId,
    /// Index of the core's state.
    pub(super) core: usize,
    pub(super) cpu: Cpu,
    /// Second core of its stream, which losses affect as well.
    pub(super) other: Option<usize>,
}

/// State of a core.
#[derive(Clone, Debug, Default)]
struct Core {
    running: Option<ThreadId>,
    /// Whether no thread runs, if that is known.
    is_idle: bool,
    /// Whether the running thread is no longer ready, and will give up the processor.
    gives_up: bool,
    /// Active interrupt handlers.
    interrupts: Vec<u32>,
    /// Active functions of software timers.
    timers: Vec<FunctionId>,
    recording: bool,
    last: Time,
}

/// The threads that had the number of a task, one after the other.
#[derive(Clone, Debug, Default)]
struct Task {
    threads: Vec<ThreadId>,
    /// Index of the current one.
    current: usize,
    /// Whether the current one has run or has ended.
    was_there: bool,
}

/// Largest nesting depth of interrupt handlers, and of timers.
const NESTED: usize = 64;

/// State from the packets so far.
pub(super) struct Meaning {
    wanted: Wanted,
    space: SpaceId,
    pub(super) descriptions: Descriptions,
    /// Path next to which description files are searched.
    path: Option<PathBuf>,
    pub(super) names: Names,
    /// Whether code is Thumb: bit 0 of an address is not part of it.
    thumb: bool,
    cores: Vec<Core>,
    tasks: BTreeMap<u32, Task>,
    /// Total number of dropped packets in the last overflow packet.
    dropped: u32,
    /// Calls whose end is recorded.
    ended_calls: HashSet<u32>,
    pub(super) heaps: Heaps,
    /// Whether an unregistered value was sampled.
    pub(super) unregistered: bool,
}

/// Names of numbers.
#[derive(Default)]
pub(super) struct Names {
    pub(super) ids: Ids,
    pub(super) markers: HashMap<u32, String>,
    pub(super) resources: HashMap<u32, String>,
    /// Name and type of registered values.
    pub(super) data: HashMap<u32, (String, u32)>,
}

/// Returns the text of a packet.
pub(super) fn text(text: Text<'_>) -> String {
    String::from_utf8_lossy(text.0).into_owned()
}

impl Meaning {
    pub(super) fn new(
        space: SpaceId,
        streams: usize,
        path: Option<&Path>,
        options: &OpenOptions,
    ) -> Self {
        let mut descriptions = Descriptions::default();
        for file in &options.descriptions {
            // The command line has checked that they are readable.
            if let Ok(text) = std::fs::read(file) {
                descriptions.add_file(&String::from_utf8_lossy(&text));
            }
        }
        let is_searched = options.descriptions.is_empty();
        Self {
            wanted: options.wanted,
            space,
            descriptions,
            path: path.filter(|_| is_searched).map(Path::to_owned),
            names: Names::default(),
            thumb: false,
            cores: vec![Core::default(); streams.max(1)],
            tasks: BTreeMap::new(),
            dropped: 0,
            ended_calls: HashSet::new(),
            heaps: Heaps::default(),
            unregistered: false,
        }
    }

    /// Examines a packet before events are created.
    pub(super) fn survey(&mut self, packet: &Packet<'_>) {
        if let Packet::EndCall { id, .. } = packet {
            self.ended_calls.insert(*id);
        }
    }

    /// Begins at the first packet again, with the facts of all packets so far.
    pub(super) fn begin(&mut self) {
        for task in self.tasks.values_mut() {
            (task.current, task.was_there) = (0, false);
        }
    }

    /// The thread that has the number of a task.
    fn thread(&mut self, identities: &mut Identities, task: u32) -> ThreadId {
        let (space, tid) = (self.space, Tid(self.names.ids.address(task).into()));
        let task = self.tasks.entry(task).or_default();
        // Earlier ones may have had no packet that names them.
        while task.threads.len() <= task.current {
            task.threads.push(match task.threads.len() {
                0 => identities.thread(space, tid),
                _ => identities.new_thread(space, tid),
            });
        }
        let thread = task.threads.get(task.current);
        thread.copied().unwrap_or_default()
    }

    /// Stores the facts in a packet about the whole recording.
    pub(super) fn learn(&mut self, packet: &Packet<'_>, info: &mut TraceInfo) {
        let identities = &mut info.identities;
        match *packet {
            Packet::TaskStartExec { task } | Packet::TaskTerminate { task } => {
                self.tasks.entry(task).or_default().was_there = true;
            }
            Packet::TaskCreate { task } => {
                let task = self.tasks.entry(task).or_default();
                task.current += usize::from(std::mem::take(&mut task.was_there));
            }
            Packet::Init {
                frequency,
                cpu_frequency,
                ids,
            } => {
                self.names.ids = ids;
                info.clock_hz = Some(frequency.into());
                about(info, "cpu clock", &format!("{cpu_frequency} Hz"));
            }
            Packet::SystemDescription { text } => {
                let text = self::text(text);
                for fact in describe::system(&text) {
                    match fact {
                        Fact::Application(name) => about(info, "system", name),
                        Fact::Device(name) => about(info, "device", name),
                        Fact::Core(name) => {
                            self.thumb = name.starts_with("Cortex");
                            about(info, "processor", name);
                        }
                        Fact::System(name) => {
                            about(info, "os", name);
                            self.describe(name);
                        }
                        Fact::Interrupt(irq, name) => {
                            let kind = InterruptKind::Hard;
                            let id = info.identities.interrupt(self.space, kind, Irq(irq));
                            info.identities.name_interrupt(id, name);
                        }
                        Fact::Other(key, value) => about(info, key, value),
                        _ => {}
                    }
                }
            }
            Packet::TaskInfo {
                task,
                priority,
                name,
            } => {
                let thread = self.thread(identities, task);
                if !name.0.is_empty() {
                    identities.name_thread(thread, &text(name));
                }
                identities.set_priority(thread, priority.into());
            }
            Packet::StackInfo {
                task,
                base,
                size,
                usage,
            } => {
                let thread = self.thread(identities, task);
                let stack = Stack {
                    base: Addr(base.into()),
                    bytes: size.into(),
                    used: (usage > 0).then_some(usage.into()),
                };
                identities.set_stack(thread, stack);
            }
            Packet::ModuleDescription { offset, text, .. } => {
                self.descriptions.add_module(offset, &self::text(text));
            }
            Packet::NameResource { resource, name } => {
                self.names.resources.insert(resource, text(name));
            }
            Packet::NameMarker { id, name } => {
                self.names.markers.insert(id, text(name));
            }
            Packet::RegisterData { id, name, rest } => {
                let kind = kymo_systemview::Varints::new(rest).next().unwrap_or(0);
                self.names.data.insert(id, (text(name), kind));
            }
            _ => {}
        }
    }

    /// Reads the descriptions of an operating system next to the input.
    fn describe(&mut self, system: &str) {
        let Some(path) = self.path.take() else {
            return;
        };
        for file in descriptions::beside(&path, system) {
            if let Ok(text) = std::fs::read(file) {
                self.descriptions.add_file(&String::from_utf8_lossy(&text));
            }
        }
    }

    /// Adds a gap.
    pub(super) fn gap(&mut self, at: At, gap: Gap, batch: &mut Batch) {
        let mut lose = |core: usize| {
            let core = self.cores.get_mut(core)?;
            core.interrupts.clear();
            core.timers.clear();
            // The lost packets may include switches.
            core.is_idle = false;
            Some((core.last, core.running.take()))
        };
        let (mut last, mut running) = lose(at.core).unwrap_or((at.time, None));
        if let Some((of_other, _)) = at.other.and_then(lose) {
            (last, running) = (last.max(of_other), None);
        }
        batch.push_event(Event {
            time: last,
            stream: at.stream,
            cpu: at.other.is_none().then_some(at.cpu),
            thread: running,
            kind: EventKind::Gap(gap),
            named: false,
            record: false,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        });
    }

    /// Adds the events of a packet.
    pub(super) fn packet(
        &mut self,
        at: At,
        packet: &Packet<'_>,
        identities: &mut Identities,
        batch: &mut Batch,
    ) {
        if let Packet::Overflow { total } = *packet {
            // A restarted target counts from 0 again.
            let lost = total.checked_sub(self.dropped).unwrap_or(total);
            self.dropped = total;
            let events = Some(lost.into());
            self.gap(at, Gap::Discarded { events }, batch);
        }
        let counter = self.counter(packet);
        let space = self.space;
        let thread = match *packet {
            Packet::TaskStartExec { task }
            | Packet::TaskStartReady { task }
            | Packet::TaskStopReady { task, .. }
            | Packet::TaskInfo { task, .. } => self.thread(identities, task),
            // Of no use below.
            _ => ThreadId::default(),
        };
        let mut core = self
            .cores
            .get_mut(at.core)
            .map(std::mem::take)
            .unwrap_or_default();
        core.last = at.time;
        let mut out = Out {
            batch,
            wanted: self.wanted,
            at,
            thread: core.running,
            packet,
            of: self,
            identities,
        };
        match *packet {
            Packet::TaskStartExec { .. } => {
                if core.running == Some(thread) {
                    out.other();
                } else {
                    if core.running.is_some() {
                        out.add_row(RowKind::SwitchedOut);
                    }
                    (core.running, core.is_idle) = (Some(thread), false);
                    core.gives_up = false;
                    out.thread = core.running;
                    out.common(Row::new(RowKind::SwitchedIn, at.time, at.stream));
                }
            }
            Packet::TaskStopExec | Packet::Idle if !core.is_idle => {
                (core.running, core.is_idle) = (None, true);
                out.common(Row::new(RowKind::SwitchedOut, at.time, at.stream));
            }
            Packet::TaskStartReady { .. } => {
                core.gives_up &= core.running != Some(thread);
                out.rare(EventKind::Ready { thread });
            }
            Packet::TaskStopReady { .. } => {
                core.gives_up |= core.running == Some(thread);
                out.other();
            }
            Packet::TaskInfo { name, .. } if !name.0.is_empty() => {
                let name = text(name);
                out.rare(EventKind::ThreadName { thread, name });
            }
            Packet::IsrEnter { irq } => {
                if core.interrupts.len() < NESTED {
                    core.interrupts.push(irq);
                }
                let irq = out
                    .identities
                    .interrupt(space, InterruptKind::Hard, Irq(irq));
                let row = Row::new(RowKind::IsrEnter, at.time, at.stream);
                out.common(row.interrupt(Some(irq)));
            }
            Packet::IsrExit | Packet::IsrToScheduler => {
                let irq = core.interrupts.pop();
                let irq = irq.map(|irq| {
                    out.identities
                        .interrupt(space, InterruptKind::Hard, Irq(irq))
                });
                let row = Row::new(RowKind::IsrExit, at.time, at.stream);
                out.common(row.interrupt(irq));
                // The scheduler has the processor until a thread starts or the core becomes idle.
                let to_scheduler = *packet == Packet::IsrToScheduler && core.interrupts.is_empty();
                if to_scheduler && std::mem::take(&mut core.gives_up) {
                    out.add_row(RowKind::SwitchedOut);
                    (core.running, core.is_idle) = (None, false);
                }
            }
            Packet::TraceStart | Packet::TraceStop => {
                let on = *packet == Packet::TraceStart;
                if core.recording == on {
                    out.other();
                } else {
                    core.recording = on;
                    let cause = RecordingCause::Command;
                    out.rare(EventKind::Recording { on, cause });
                }
            }
            Packet::TimerEnter { timer } => {
                let name = out.of.names.resources.get(&timer);
                let name = match name {
                    Some(name) => format!("timer {name}"),
                    None => format!("timer {:#x}", out.of.names.ids.address(timer)),
                };
                let function = out.identities.function_named(space, &name);
                if core.timers.len() < NESTED {
                    core.timers.push(function);
                }
                out.function(RowKind::Enter, Some(function), 0);
            }
            Packet::TimerExit => {
                let function = core.timers.pop();
                out.function(RowKind::Exit, function, 0);
            }
            Packet::MarkStart { id } | Packet::MarkStop { id } | Packet::Mark { id } => {
                let verb = match packet {
                    Packet::MarkStart { .. } => " start",
                    Packet::MarkStop { .. } => " stop",
                    _ => "",
                };
                let label = match out.of.names.markers.get(&id) {
                    Some(name) => format!("{name}{verb}"),
                    None => format!("user event {id}{verb}"),
                };
                let label = Some(label);
                let value = id.into();
                out.rare(EventKind::Marker { label, value });
            }
            Packet::Print {
                format,
                options,
                count,
                ..
            } => {
                let format = text(format);
                let label = print::rendered(&format, count, packet.values());
                let (label, value) = (Some(label), (options & 15).into());
                out.rare(EventKind::Marker { label, value });
            }
            Packet::Init { .. }
            | Packet::SystemDescription { .. }
            | Packet::ModuleCount { .. }
            | Packet::ModuleDescription { .. }
            | Packet::NameResource { .. }
            | Packet::NameMarker { .. }
            | Packet::RegisterData { .. } => out.rare(EventKind::Fact),
            Packet::EndCall { id, .. } if out.of.ended_calls.contains(&id) => {
                let function = out.of.call(id, out.identities);
                out.function(RowKind::Exit, Some(function), 0);
            }
            Packet::Event { id, .. } => match out.of.traced(id, packet) {
                Some((kind, function, call_site)) => {
                    let function = out.identities.function_at(space, Addr(function));
                    out.function(kind, Some(function), call_site);
                }
                None if out.of.ended_calls.contains(&id) => {
                    let function = out.of.call(id, out.identities);
                    out.function(RowKind::Enter, Some(function), 0);
                }
                None => out.counter_or_other(counter),
            },
            _ => out.counter_or_other(counter),
        }
        if let Some(place) = self.cores.get_mut(at.core) {
            *place = core;
        }
    }

    /// Returns the function that represents an operating-system call.
    fn call(&self, id: u32, identities: &mut Identities) -> FunctionId {
        identities.function_named(self.space, &fields::event_name(self, id))
    }

    /// Returns the contents of a function-tracing event: the function and the call site.
    fn traced(&self, id: u32, packet: &Packet<'_>) -> Option<(RowKind, u64, u64)> {
        let kind = match Some(id) {
            id if id == self.descriptions.enter => RowKind::Enter,
            id if id == self.descriptions.exit => RowKind::Exit,
            _ => return None,
        };
        let mut values = packet.values();
        let function = u64::from(values.next()?);
        let call_site = values.next().unwrap_or(0).into();
        let mask = if self.thumb { !1 } else { !0 };
        Some((kind, function & mask, call_site))
    }
}

/// Adds a property of the target, unless it is known.
fn about(info: &mut TraceInfo, what: &str, value: &str) {
    if !info.about.iter().any(|(known, _)| known == what) && info.about.len() < NESTED {
        info.about.push((what.to_owned(), value.to_owned()));
    }
}

/// Context for adding the events of a packet.
struct Out<'a, 'p> {
    batch: &'a mut Batch,
    wanted: Wanted,
    at: At,
    thread: Option<ThreadId>,
    packet: &'a Packet<'p>,
    of: &'a Meaning,
    identities: &'a mut Identities,
}

impl Out<'_, '_> {
    /// Adds a row that follows from the packet.
    fn add_row(&mut self, kind: RowKind) {
        let mut row = Row::new(kind, self.at.time, self.at.stream);
        row.record = false;
        self.batch.push(row.at(Some(self.at.cpu), self.thread));
    }

    fn counter_or_other(&mut self, counter: Option<EventKind>) {
        match counter {
            Some(counter) => self.rare(counter),
            None => self.other(),
        }
    }

    /// Adds the packet with a common meaning.
    fn common(&mut self, row: Row) {
        let row = row.at(Some(self.at.cpu), self.thread);
        match self.wanted {
            Wanted::Everything | Wanted::Records => self.detailed(row),
            _ => self.batch.push(row),
        }
    }

    /// Adds the packet without a known meaning.
    fn other(&mut self) {
        let row = Row::new(RowKind::Other, self.at.time, self.at.stream);
        let row = row.at(Some(self.at.cpu), self.thread);
        match self.wanted {
            Wanted::Meaning => self.batch.push(row),
            _ => self.detailed(row),
        }
    }

    fn function(&mut self, kind: RowKind, function: Option<FunctionId>, call_site: u64) {
        let row = Row::new(kind, self.at.time, self.at.stream).function(function);
        let mut row = row.word(Addr(if kind == RowKind::Enter { call_site } else { 0 }));
        row.named = kind == RowKind::Exit && function.is_some();
        self.common(row);
    }

    fn detailed(&mut self, row: Row) {
        let event = EventRef {
            row: &row,
            event: None,
        };
        let event = Event {
            name: fields::name(self.of, self.packet).into(),
            fields: self.fields(),
            ..event.to_event()
        };
        self.batch.push_event(event);
    }

    fn rare(&mut self, kind: EventKind) {
        let wanted = self.wanted > Wanted::Meaning;
        let event = Event {
            time: self.at.time,
            stream: self.at.stream,
            cpu: Some(self.at.cpu),
            thread: self.thread,
            kind,
            named: false,
            record: true,
            stamp: None,
            name: match wanted {
                true => fields::name(self.of, self.packet).into(),
                false => "".into(),
            },
            fields: if wanted { self.fields() } else { Vec::new() },
        };
        self.batch.push_event(event);
    }

    fn fields(&self) -> Vec<Field> {
        let task = |task: u32| {
            let tid = Tid(self.of.names.ids.address(task).into());
            // The thread's own name is shown next to it.
            Value::Hex(tid.0)
        };
        fields::of(self.of, self.packet, &task)
    }
}
