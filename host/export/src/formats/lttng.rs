//! A CTF 1.8 trace in the format of LTTng's kernel traces, for Trace Compass, lttnganalyses and other tools that
//! support those.
//!
//! Kernel events of any source get the names that such tools expect:
//!
//! | event | becomes |
//! |---|---|
//! | a thread loses its processor, another one gets it | `sched_switch` |
//! | a thread can go on | `sched_wakeup` |
//! | an interrupt handler | `irq_handler_entry`, `irq_handler_exit`; `softirq_*` |
//! | a call that has a name and no address (`write`, `k_sem_take`) | `syscall_entry_*`, `syscall_exit_*` |
//! | a function at an address or of ftrace's, a span of time with a name | `func_entry`, `func_exit` |
//! | lost events | `events_discarded` of packets |
//! | anything else | itself, by its name with its fields |
//!
//! Each stream is a file `stream_N`; empty ones have none. Idle threads are thread 0, as on Linux.
//! `prev_state` of a switch is the source's value if it has one (Linux). Otherwise a later event determines it: a
//! thread that is woken before it runs again was blocked (`TASK_INTERRUPTIBLE`), one that runs again without a wakeup
//! was preempted (0, runnable). The field is written as 0 and updated at the wakeup. In a trace without wakeups, and
//! after losses, it remains 0.

mod about;
mod classes;
mod kept;
mod machines;
mod packets;
mod record;
mod sched;
mod syscalls;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use kymo_analysis::calls::Callee;
use kymo_analysis::titles;
use kymo_event::{
    Batch, Cpu, Event, EventKind, Field, FunctionId, Gap, InterruptId, InterruptKind, StreamId,
    ThreadId, Time, TraceInfo, Value, Wanted,
};

use self::about::{clock, environment, uuid};
use self::classes::{Classes, Env, FieldOf, Type};
use self::kept::KEPT;
use self::machines::Machines;
use self::packets::{Position, Stream, Uuid};
use self::record::Record;
use self::sched::{Left, NUMBERED, number, state};
use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::listing::whole;
use crate::names::{NameId, Names};

/// A trace in the format of LTTng's kernel tracer.
pub static FORMAT: Format = Format {
    name: "lttng",
    extensions: &[],
    about: "a CTF 1.8 directory like LTTng's kernel traces: for Trace Compass and lttnganalyses",
    shape: Shape::Directory,
    binary: true,
    wanted: Wanted::Everything,
    takes: Takes::Events { in_order: true },
    names_program: true,
    merges_threads: false,
    open,
};

fn open<'a>(
    info: &TraceInfo,
    context: Context<'a>,
    destination: Destination<'a>,
) -> io::Result<Box<dyn Sink + 'a>> {
    let directory = destination.directory()?;
    fs::create_dir_all(directory)?;
    if fs::read_dir(directory)?.next().is_some() {
        return Err(io::Error::new(
            io::ErrorKind::DirectoryNotEmpty,
            "the directory holds something, which would become part of the trace",
        ));
    }
    let directory = directory.to_path_buf();
    Ok(match info.has_machines() {
        true => Box::new(Machines::new(context, directory)),
        false => Box::new(Lttng::new(context, directory)),
    })
}

/// The sink.
struct Lttng<'a> {
    context: Context<'a>,
    directory: PathBuf,
    /// The machine's name, if the trace has several.
    host: Option<String>,
    names: Names<'a>,
    classes: Classes,
    /// The time of tick 0, once there has been an event.
    base: Option<Time>,
    /// Known with the first event.
    uuid: Uuid,
    /// In the order of their first events. The entry of a processor is empty while one of its events is written.
    processors: Vec<Option<Box<Processor>>>,
    /// Index of each processor, and the last one that was looked up.
    places: HashMap<Key, usize>,
    recent: Option<(Key, usize)>,
    /// Functions, by the numbers of their names.
    calls: Vec<Option<Rc<Call>>>,
    /// Buffer for the fields of an event.
    fields: Vec<FieldOf>,
    /// The numbers of threads, by [`ThreadId`].
    tids: Vec<Option<i32>>,
    taken: HashSet<i32>,
    next_tid: i32,
    priorities: HashMap<ThreadId, i32>,
    /// The thread that each processor's source names before any switch; `Err` from the first switch on.
    first_threads: HashMap<u32, Result<ThreadId, ()>>,
    /// Whether the source has a thread named as idle.
    has_idle_threads: bool,
    /// Number of threads checked for that; 0 after names have changed.
    threads_looked_at: usize,
    /// Positions of the states of threads that lost their processor, and have not got one or been woken since.
    waiting: HashMap<ThreadId, StateAt>,
    /// Positions of the states of woken threads, which have to be updated.
    woken: Vec<StateAt>,
    /// Whether the source records wakeups.
    has_wakeups: bool,
    payload: Vec<u8>,
    held: u64,
    left_out: u64,
    /// Events that carry names and facts.
    renamed: u64,
    /// Fields that LTTng's events don't have.
    fields_left_out: u64,
}

/// Key of a stream: one for each stream of the source, or one per processor if the source's streams are per thread.
type Key = (StreamId, u32);

/// Position of a `prev_state`: index of the processor, and position in its stream.
type StateAt = (usize, Position);

/// A function in the form in which its calls are written.
struct Call {
    name: String,
    /// Names of its entry and its exit, if it is a system call.
    syscall: Option<[String; 2]>,
}

/// A stream, and the state of its processor.
struct Processor {
    place: usize,
    stream: Stream,
    cpu: u32,
    /// The running thread.
    thread: Option<ThreadId>,
    /// Whether the source has recorded a switch, in any of the processor's streams.
    has_switched: bool,
    /// The last thread that lost the processor, while its successor is unknown.
    out: Option<Left>,
    interrupts: Vec<InterruptId>,
}

impl<'a> Lttng<'a> {
    fn new(context: Context<'a>, directory: PathBuf) -> Self {
        Self {
            context,
            directory,
            host: None,
            names: Names::new(context),
            classes: Classes::default(),
            base: None,
            uuid: Uuid::default(),
            processors: Vec::new(),
            places: HashMap::new(),
            recent: None,
            calls: Vec::new(),
            fields: Vec::new(),
            tids: Vec::new(),
            taken: HashSet::new(),
            next_tid: NUMBERED,
            priorities: HashMap::new(),
            first_threads: HashMap::new(),
            has_idle_threads: false,
            threads_looked_at: 0,
            waiting: HashMap::new(),
            woken: Vec::new(),
            has_wakeups: false,
            payload: Vec::new(),
            held: 0,
            left_out: 0,
            renamed: 0,
            fields_left_out: 0,
        }
    }
}

impl Sink for Lttng<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for seen in batch.iter() {
            self.event(info, &whole(seen))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        for place in 0..self.processors.len() {
            if let Some(mut processor) = self.take(place) {
                self.end_out(info, &mut processor)?;
                self.give_back(processor);
            }
        }
        if self.has_wakeups {
            // They are still waiting.
            let waiting = std::mem::take(&mut self.waiting);
            self.woken.extend(waiting.into_values());
        }
        self.set_states()?;
        for processor in std::mem::take(&mut self.processors).into_iter().flatten() {
            processor.stream.finish()?;
        }
        let mut environment = environment(info, self.context, self.host.as_deref());
        let facts = crate::cut::facts(info, summary.cut).into_iter();
        environment.extend(facts.map(|(name, ns)| (name, Env::Text(ns))));
        let clock = clock(info, self.base);
        let text = self.classes.metadata(self.uuid, &environment, &clock);
        fs::write(self.directory.join("metadata"), text)?;
        summary.held += self.held;
        summary.left_out += self.left_out;
        summary.names += self.renamed;
        summary.fields_left_out += self.fields_left_out;
        Ok(())
    }
}

impl Lttng<'_> {
    /// Whether idle threads run on processors without work. If not, a processor without a thread is idle; otherwise the
    /// scheduler runs from the record of one thread's switch to that of the next.
    fn idles_in_threads(&mut self, info: &TraceInfo) -> bool {
        let threads = info.identities.threads();
        if self.threads_looked_at != threads.len() {
            self.threads_looked_at = threads.len();
            let mut ids = (0..).map(ThreadId).take(threads.len());
            self.has_idle_threads = ids.any(|id| info.identities.is_idle(id));
        }
        self.has_idle_threads
    }

    fn event(&mut self, info: &TraceInfo, event: &Event) -> io::Result<()> {
        let of_stream = info.stream(event.stream).and_then(|stream| stream.cpu);
        let cpu = event.cpu.or(of_stream).unwrap_or(Cpu(0)).0;
        // Streams of threads are merged by processor.
        let key = match of_stream {
            Some(_) => (event.stream, cpu),
            None => (StreamId(u32::MAX), cpu),
        };
        if self.base.is_none() {
            self.uuid = uuid(info, event);
        }
        let base = *self.base.get_or_insert(event.time.min(Time(0)));
        let place = self.place(key);
        let Some(mut processor) = self.take(place) else {
            return Ok(());
        };
        let ticks = match event.time.since(base) {
            Some(distance) if distance.0 >= processor.stream.last => distance.0,
            _ => {
                self.held += 1;
                processor.stream.last
            }
        };
        let result = self.on(info, event, ticks, &mut processor);
        self.give_back(processor);
        result.and_then(|()| self.set_states())
    }

    /// The index of a processor, which is created if missing.
    fn place(&mut self, key: Key) -> usize {
        if let Some((_, place)) = self.recent.filter(|(recent, _)| *recent == key) {
            return place;
        }
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => {
                let (place, cpu) = (self.processors.len(), key.1);
                let path = self.directory.join(format!("stream_{place}"));
                self.processors.push(Some(Box::new(Processor {
                    place,
                    stream: Stream::new(path, self.uuid, place as u64, cpu),
                    cpu,
                    thread: None,
                    has_switched: false,
                    out: None,
                    interrupts: Vec::new(),
                })));
                self.places.insert(key, place);
                place
            }
        };
        self.recent = Some((key, place));
        place
    }

    /// Takes a processor out, until [`give_back`](Self::give_back).
    fn take(&mut self, place: usize) -> Option<Box<Processor>> {
        self.processors.get_mut(place)?.take()
    }

    fn give_back(&mut self, processor: Box<Processor>) {
        if let Some(room) = self.processors.get_mut(processor.place) {
            *room = Some(processor);
        }
    }

    /// An event of a processor.
    fn on(
        &mut self,
        info: &TraceInfo,
        event: &Event,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        if let Some(left) = &processor.out
            && ticks > left.ticks
            && (event.kind != EventKind::SwitchedIn
                || !left.recorded
                || !self.idles_in_threads(info))
        {
            self.end_out(info, processor)?;
        }
        self.first_thread(info, event, ticks, processor)?;
        let is_of_lttng = matches!(
            event.kind,
            EventKind::SwitchedOut
                | EventKind::SwitchedIn
                | EventKind::Ready { .. }
                | EventKind::IsrEnter { .. }
                | EventKind::IsrExit { .. }
        );
        if is_of_lttng && event.record {
            self.leave_out(event, |name| KEPT.contains(&name));
        }
        match &event.kind {
            EventKind::SwitchedOut => {
                self.end_out(info, processor)?;
                let thread = event.thread.or(processor.thread);
                self.learn_priority(thread, event, "prev_prio");
                processor.out = Some(Left {
                    ticks,
                    thread,
                    recorded: event.record,
                    state: state(event),
                });
                processor.thread = None;
                Ok(())
            }
            EventKind::SwitchedIn => {
                let mut before = processor.out.take().unwrap_or(Left {
                    ticks,
                    thread: None,
                    recorded: false,
                    state: None,
                });
                // One record of Linux contains both.
                before.state = before.state.or_else(|| state(event));
                self.learn_priority(before.thread, event, "prev_prio");
                self.learn_priority(event.thread, event, "next_prio");
                processor.thread = event.thread;
                self.switch(info, &before, event.thread, ticks, processor)
            }
            EventKind::Ready { thread } => {
                self.learn_priority(Some(*thread), event, "prio");
                let target = number(event, "target_cpu");
                self.has_wakeups = true;
                self.woken.extend(self.waiting.remove(thread));
                self.wakeup(info, *thread, target, ticks, processor)
            }
            EventKind::IsrEnter { irq } => {
                processor.interrupts.push(*irq);
                self.interrupt(info, *irq, true, ticks, processor)
            }
            EventKind::IsrExit { irq } => {
                let open = processor.interrupts.pop();
                match irq.or(open) {
                    Some(irq) => self.interrupt(info, irq, false, ticks, processor),
                    None => self.other(event, ticks, processor),
                }
            }
            EventKind::Enter { function, .. } => {
                self.call(info, event, Some(*function), true, ticks, processor)
            }
            EventKind::Exit { function } => {
                self.call(info, event, *function, false, ticks, processor)
            }
            EventKind::Context { priority, .. } => {
                if let Some(thread) = event.thread {
                    self.priorities.insert(thread, *priority);
                }
                self.other(event, ticks, processor)
            }
            EventKind::Marker { label, value } => {
                let label = label.as_deref().unwrap_or("");
                self.marker(event, label, (*value).into(), ticks, processor)
            }
            EventKind::Counter { .. } if !event.record => Ok(()),
            EventKind::Counter { name, value, .. } => {
                self.marker(event, name, Value::from(*value), ticks, processor)
            }
            EventKind::Gap(gap) => self.gap(gap, ticks, processor),
            // Facts that apply to the whole trace are in the metadata.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } | EventKind::Fact => {
                self.renamed += u64::from(event.record);
                self.threads_looked_at = 0;
                Ok(())
            }
            _ => self.other(event, ticks, processor),
        }
    }

    fn write(
        &mut self,
        name: &str,
        ticks: u64,
        processor: &mut Processor,
        fill: impl FnOnce(&mut Record<'_>),
    ) -> io::Result<()> {
        self.payload.clear();
        self.fields.clear();
        fill(&mut Record {
            fields: &mut self.fields,
            bytes: &mut self.payload,
        });
        let id = self.classes.number(name, &self.fields);
        let payload = &self.payload;
        processor
            .stream
            .event(id, ticks, |bytes| bytes.extend_from_slice(payload))
    }

    fn interrupt(
        &mut self,
        info: &TraceInfo,
        irq: InterruptId,
        begins: bool,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let known = info.identities.interrupts().get(irq.0 as usize);
        let number = known.map_or(0, |known| known.irq.0) as i32;
        let is_soft = known.is_some_and(|known| known.kind == InterruptKind::Soft);
        match (is_soft, begins) {
            (true, true) => self.write("softirq_entry", ticks, processor, |record| {
                record.number("vec", Type::Uint32, number as u64);
            }),
            (true, false) => self.write("softirq_exit", ticks, processor, |record| {
                record.number("vec", Type::Uint32, number as u64);
            }),
            (false, true) => self.write("irq_handler_entry", ticks, processor, |record| {
                record.int32("irq", number);
                record.text("name", &titles::interrupt(&info.identities, irq));
            }),
            (false, false) => self.write("irq_handler_exit", ticks, processor, |record| {
                record.int32("irq", number);
                record.int32("ret", 1);
            }),
        }
    }

    fn call(
        &mut self,
        info: &TraceInfo,
        event: &Event,
        function: Option<FunctionId>,
        begins: bool,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let known = function.and_then(|function| info.identities.function(function));
        let address = known.and_then(|known| known.address);
        let Some(function) = function else {
            self.leave_out(event, |name| KEPT.contains(&name));
            return self.write("func_exit", ticks, processor, |_| {});
        };
        let id = self.names.id(info, Callee::Function(function));
        let call = self.known_call(id, address.is_some() || syscalls::is_graph(info, event));
        let Some([entry, exit]) = &call.syscall else {
            let event_name = if begins { "func_entry" } else { "func_exit" };
            self.leave_out(event, |name| KEPT.contains(&name));
            return self.write(event_name, ticks, processor, |record| {
                if let Some(address) = address {
                    record.long("addr", Type::Hex64, address.0);
                }
                record.text("name", &call.name);
            });
        };
        if !begins {
            let own = number(event, "ret").map(i64::cast_unsigned);
            let value = syscalls::argument(event, "return", 0).or(own);
            self.leave_out(event, |name| {
                name == "return0" || name == syscalls::NUMBER || KEPT.contains(&name)
            });
            return self.write(exit, ticks, processor, |record| {
                if let Some(value) = value.or_else(|| syscalls::unknown(&call.name, "ret")) {
                    record.long("ret", Type::Int64, value);
                }
            });
        }
        let is_linux = event.fields.iter().any(|it| it.name == syscalls::NUMBER);
        if !is_linux {
            let known = syscalls::fields(&call.name).map_or(usize::MAX, <[_]>::len);
            self.leave_out(event, |field| match field.strip_prefix("arg") {
                Some(number) => number.parse().is_ok_and(|number: usize| number < known),
                None => KEPT.contains(&field),
            });
        }
        self.write(entry, ticks, processor, |record| {
            // Linux names the fields itself, as LTTng does.
            if is_linux {
                return syscalls::own_fields(event).for_each(|field| record.own_field(field));
            }
            if let Some(fields) = syscalls::fields(&call.name) {
                for (place, (field, of_type)) in fields.iter().enumerate() {
                    let value = syscalls::argument(event, "arg", place);
                    if let Some(value) = value.or_else(|| syscalls::unknown(&call.name, field)) {
                        record.number(*field, *of_type, value);
                    }
                }
                return;
            }
            for field in event.fields.iter().filter(|it| it.name.starts_with("arg")) {
                record.field(field);
            }
        })
    }

    /// The written form of calls with this name.
    fn known_call(&mut self, id: NameId, has_address: bool) -> Rc<Call> {
        if self.calls.len() <= id.index() {
            self.calls.resize(id.index() + 1, None);
        }
        let name = self.names.get(id);
        let is_syscall = !has_address && syscalls::is_call(name);
        let known = self.calls.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(known) = known.filter(|it| it.syscall.is_some() == is_syscall) {
            return Rc::clone(known);
        }
        let call = Rc::new(Call {
            name: name.to_owned(),
            syscall: is_syscall
                .then(|| ["entry", "exit"].map(|kind| format!("syscall_{kind}_{name}"))),
        });
        if let Some(room) = self.calls.get_mut(id.index()) {
            *room = Some(Rc::clone(&call));
        }
        call
    }

    fn marker(
        &mut self,
        event: &Event,
        label: &str,
        value: Value,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let is_unnamed = event.name.is_empty();
        let name = if is_unnamed { "marker" } else { &event.name };
        self.write(name, ticks, processor, |record| {
            for field in &event.fields {
                record.field(field);
            }
            record.field(&Field::new("label", label));
            record.field(&Field::new("value", value));
        })
    }

    /// An event for which tools for Linux have no name.
    fn other(&mut self, event: &Event, ticks: u64, processor: &mut Processor) -> io::Result<()> {
        if event.name.is_empty() {
            self.left_out += u64::from(event.record);
            return Ok(());
        }
        let is_sched = event.name.starts_with("sched_");
        self.write(&event.name, ticks, processor, |record| {
            for field in &event.fields {
                match sched::tid_field(&field.name).filter(|_| is_sched) {
                    Some(name) => {
                        record.field(&Field::new(name, field.value.clone()));
                        // The only event that has both.
                        if event.name == "sched_process_fork" {
                            record.field(field);
                        }
                    }
                    None => record.field(field),
                }
            }
        })
    }

    fn gap(&mut self, gap: &Gap, ticks: u64, processor: &mut Processor) -> io::Result<()> {
        if gap.is_loss() && !matches!(gap, Gap::Overwritten { .. }) {
            processor.thread = None;
            self.first_threads
                .retain(|cpu, it| *cpu != processor.cpu || it.is_err());
            processor.interrupts.clear();
            // A wakeup may be among the lost events.
            self.waiting.clear();
            // A loss that another stream has counted, or that is not counted, is reported as at least one event.
            let lost = gap.lost_events().unwrap_or(1).max(1);
            processor.stream.lose(lost, ticks)?;
            if matches!(gap, Gap::Discarded { events: Some(_) }) {
                return Ok(());
            }
        }
        self.write("kymo_gap", ticks, processor, |record| {
            record.text("kind", gap.name());
            record.text("message", &gap.to_string());
        })
    }
}
