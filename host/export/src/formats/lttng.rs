//! A CTF 1.8 trace of the shape of LTTng's kernel traces: for Trace Compass, lttnganalyses and other tools that know those.
//!
//! What a kernel does, whatever kernel it was, goes by the names that such tools look for:
//!
//! | event | becomes |
//! |---|---|
//! | a thread loses its processor, another one gets it | `sched_switch` |
//! | a thread can go on | `sched_wakeup` |
//! | an interrupt handler | `irq_handler_entry`, `irq_handler_exit`; `softirq_*` |
//! | a call that has a name and no address (`write`, `k_sem_take`) | `syscall_entry_*`, `syscall_exit_*` |
//! | a function at an address, a span of time with a name | `func_entry`, `func_exit` |
//! | lost events | `events_discarded` of packets |
//! | anything else | itself, by its name with its fields |
//!
//! A stream is a file `stream_N`, and there is none that holds nothing. Idle threads are thread 0, as on Linux. A thread's
//! state when it loses its processor is in no source here: it is 0, runnable.

mod about;
mod classes;
mod packets;
mod syscalls;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use kymo_analysis::calls::Callee;
use kymo_event::{
    Batch, Cpu, Event, EventKind, Field, FunctionId, Gap, InterruptId, InterruptKind, StreamId,
    ThreadId, Time, TraceInfo, Value, Wanted,
};

use self::about::{clock, environment, is_idle};
use self::classes::{Classes, FieldOf, Type, identifier};
use self::packets::Stream;
use crate::Summary;
use crate::format::{Context, Destination, Format, Shape, Sink, Takes};
use crate::listing::whole;
use crate::names::Names;

/// A trace like those of LTTng's kernel tracer.
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

/// What a thread's priority is where nothing tells it: that of Linux's ordinary threads.
const PRIORITY: i32 = 20;

/// Numbers of threads whose own do not fit begin here.
const NUMBERED: i32 = 1 << 20;

fn open<'a>(
    _: &TraceInfo,
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
    Ok(Box::new(Lttng {
        context,
        directory,
        names: Names::new(context),
        classes: Classes::default(),
        base: None,
        streams: BTreeMap::new(),
        tids: Vec::new(),
        taken: HashSet::new(),
        next_tid: NUMBERED,
        priorities: HashMap::new(),
        payload: Vec::new(),
        held: 0,
        left_out: 0,
    }))
}

/// The sink.
struct Lttng<'a> {
    context: Context<'a>,
    directory: &'a Path,
    names: Names<'a>,
    classes: Classes,
    /// The time of tick 0, once there was an event.
    base: Option<Time>,
    streams: BTreeMap<(StreamId, u32), Processor>,
    /// The numbers of threads, by [`ThreadId`].
    tids: Vec<Option<i32>>,
    taken: HashSet<i32>,
    next_tid: i32,
    priorities: HashMap<ThreadId, i32>,
    payload: Vec<u8>,
    held: u64,
    left_out: u64,
}

/// A stream, and what happens on its processor.
struct Processor {
    stream: Stream,
    cpu: u32,
    /// Who runs.
    thread: Option<ThreadId>,
    /// Who lost the processor last, and when, if nobody is known to have got it.
    out: Option<(u64, Option<ThreadId>)>,
    interrupts: Vec<InterruptId>,
}

/// A thread in an event: number, priority, name.
struct Actor {
    tid: i32,
    priority: i32,
    comm: [u8; 16],
}

/// The values of an event's fields, as they are added.
struct Record<'a> {
    fields: Vec<FieldOf>,
    bytes: &'a mut Vec<u8>,
}

impl Record<'_> {
    fn name(&mut self, name: &str, of_type: Type) {
        self.fields.push((name.to_owned(), of_type));
    }

    fn int32(&mut self, name: &str, value: i32) {
        self.name(name, Type::Int32);
        self.bytes.extend(value.to_le_bytes());
    }

    fn long(&mut self, name: &str, of_type: Type, value: u64) {
        self.name(name, of_type);
        self.bytes.extend(value.to_le_bytes());
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name, Type::Text);
        self.bytes.extend(text.bytes().filter(|byte| *byte != 0));
        self.bytes.push(0);
    }

    fn comm(&mut self, name: &str, comm: [u8; 16]) {
        self.name(name, Type::Comm);
        self.bytes.extend(comm);
    }

    /// A number as a field of a system call.
    fn number(&mut self, name: &str, of_type: Type, value: u64) {
        match of_type {
            Type::Int32 | Type::Uint32 => {
                self.name(name, of_type);
                self.bytes.extend((value as u32).to_le_bytes());
            }
            Type::Text | Type::Comm => self.text(name, &format!("{value:#x}")),
            Type::Int64 | Type::Uint64 | Type::Hex64 => self.long(name, of_type, value),
        }
    }

    /// A field of the source.
    fn field(&mut self, field: &Field) {
        let name = identifier(&field.name);
        // Two of one name can't be told apart.
        if self.fields.iter().any(|(known, _)| *known == name) {
            return;
        }
        match &field.value {
            Value::Unsigned(value) => self.long(&name, Type::Uint64, *value),
            Value::Hex(value) => self.long(&name, Type::Hex64, *value),
            Value::Signed(value) => self.long(&name, Type::Int64, *value as u64),
            Value::Text(text) => self.text(&name, text),
            other => self.text(&name, &other.to_string()),
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
        for mut processor in std::mem::take(&mut self.streams).into_values() {
            self.end_out(info, &mut processor)?;
            processor.stream.finish()?;
        }
        let environment = environment(info, self.context);
        let text = self.classes.metadata(&environment, &clock(info, self.base));
        fs::write(self.directory.join("metadata"), text)?;
        summary.held += self.held;
        summary.left_out += self.left_out;
        Ok(())
    }
}

impl Lttng<'_> {
    fn event(&mut self, info: &TraceInfo, event: &Event) -> io::Result<()> {
        let of_stream = info.stream(event.stream).and_then(|stream| stream.cpu);
        let cpu = event.cpu.or(of_stream).unwrap_or(Cpu(0)).0;
        // Streams of threads are put together by processor.
        let key = match of_stream {
            Some(_) => (event.stream, cpu),
            None => (StreamId(u32::MAX), cpu),
        };
        let base = *self.base.get_or_insert(event.time.min(Time(0)));
        let mut processor = match self.streams.remove(&key) {
            Some(processor) => processor,
            None => {
                let number = self.streams.len();
                Processor {
                    stream: Stream::new(
                        self.directory.join(format!("stream_{number}")),
                        number as u64,
                        cpu,
                    ),
                    cpu,
                    thread: None,
                    out: None,
                    interrupts: Vec::new(),
                }
            }
        };
        let ticks = match event.time.since(base) {
            Some(distance) if distance.0 >= processor.stream.last => distance.0,
            _ => {
                self.held += 1;
                processor.stream.last
            }
        };
        let result = self.on(info, event, ticks, &mut processor);
        self.streams.insert(key, processor);
        result
    }

    /// An event of a processor.
    fn on(
        &mut self,
        info: &TraceInfo,
        event: &Event,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        if let Some((time, _)) = processor.out
            && ticks > time
            && event.kind != EventKind::SwitchedIn
        {
            self.end_out(info, processor)?;
        }
        match &event.kind {
            EventKind::SwitchedOut => {
                self.end_out(info, processor)?;
                processor.out = Some((ticks, event.thread.or(processor.thread)));
                processor.thread = None;
                Ok(())
            }
            EventKind::SwitchedIn => {
                let before = processor.out.take().and_then(|(_, thread)| thread);
                processor.thread = event.thread;
                self.switch(info, (before, event.thread), ticks, processor)
            }
            EventKind::Ready { thread } => self.wakeup(info, *thread, ticks, processor),
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
                self.marker(event, label.as_deref(), *value, ticks, processor)
            }
            EventKind::Gap(gap) => self.gap(gap, ticks, processor),
            // What is known once is in the metadata.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } | EventKind::Fact => Ok(()),
            _ => self.other(event, ticks, processor),
        }
    }

    /// Nobody got the processor that a thread lost.
    fn end_out(&mut self, info: &TraceInfo, processor: &mut Processor) -> io::Result<()> {
        match processor.out.take() {
            Some((time, thread)) => {
                let time = time.max(processor.stream.last);
                self.switch(info, (thread, None), time, processor)
            }
            None => Ok(()),
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
        let mut record = Record {
            fields: Vec::new(),
            bytes: &mut self.payload,
        };
        fill(&mut record);
        let id = self.classes.number(name, &record.fields);
        let payload = &self.payload;
        processor
            .stream
            .event(id, ticks, |bytes| bytes.extend_from_slice(payload))
    }

    fn switch(
        &mut self,
        info: &TraceInfo,
        (before, next): (Option<ThreadId>, Option<ThreadId>),
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let cpu = processor.cpu;
        let (before, next) = (self.actor(info, before, cpu), self.actor(info, next, cpu));
        self.write("sched_switch", ticks, processor, |record| {
            record.comm("prev_comm", before.comm);
            record.int32("prev_tid", before.tid);
            record.int32("prev_prio", before.priority);
            record.long("prev_state", Type::Int64, 0);
            record.comm("next_comm", next.comm);
            record.int32("next_tid", next.tid);
            record.int32("next_prio", next.priority);
        })
    }

    fn wakeup(
        &mut self,
        info: &TraceInfo,
        thread: ThreadId,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let actor = self.actor(info, Some(thread), processor.cpu);
        if actor.tid == 0 {
            // An idle thread needs nobody to wake it.
            return Ok(());
        }
        let cpu = processor.cpu as i32;
        self.write("sched_wakeup", ticks, processor, |record| {
            record.comm("comm", actor.comm);
            record.int32("tid", actor.tid);
            record.int32("prio", actor.priority);
            record.int32("target_cpu", cpu);
        })
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
        let name = info.identities.interrupt_name(irq).unwrap_or("");
        match (is_soft, begins) {
            (true, true) => self.write("softirq_entry", ticks, processor, |record| {
                record.number("vec", Type::Uint32, number as u64);
            }),
            (true, false) => self.write("softirq_exit", ticks, processor, |record| {
                record.number("vec", Type::Uint32, number as u64);
            }),
            (false, true) => self.write("irq_handler_entry", ticks, processor, |record| {
                record.int32("irq", number);
                record.text("name", name);
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
            return self.write("func_exit", ticks, processor, |_| {});
        };
        let name = self.names.name(info, Callee::Function(function)).to_owned();
        let argument = |kind: &str, place: usize| {
            let wanted = format!("{kind}{place}");
            let mut fields = event.fields.iter();
            fields.find_map(|field| match field.value {
                Value::Hex(value) | Value::Unsigned(value) if field.name == wanted => Some(value),
                _ => None,
            })
        };
        if address.is_some() || !syscalls::is_call(&name) {
            let event_name = if begins { "func_entry" } else { "func_exit" };
            return self.write(event_name, ticks, processor, |record| {
                if let Some(address) = address {
                    record.long("addr", Type::Hex64, address.0);
                }
                record.text("name", &name);
            });
        }
        if !begins {
            let value = argument("return", 0).unwrap_or(0);
            return self.write(
                &format!("syscall_exit_{name}"),
                ticks,
                processor,
                |record| {
                    record.long("ret", Type::Int64, value);
                },
            );
        }
        self.write(
            &format!("syscall_entry_{name}"),
            ticks,
            processor,
            |record| {
                if let Some(fields) = syscalls::fields(&name) {
                    for (place, (field, of_type)) in fields.iter().enumerate() {
                        let value = argument("arg", place).unwrap_or(0);
                        record.number(field, *of_type, value);
                    }
                    return;
                }
                for field in event.fields.iter().filter(|it| it.name.starts_with("arg")) {
                    record.field(field);
                }
            },
        )
    }

    fn marker(
        &mut self,
        event: &Event,
        label: Option<&str>,
        value: u64,
        ticks: u64,
        processor: &mut Processor,
    ) -> io::Result<()> {
        let name = if event.name.is_empty() {
            "marker"
        } else {
            &event.name
        };
        self.write(name, ticks, processor, |record| {
            for field in &event.fields {
                record.field(field);
            }
            record.field(&Field::new("label", label.unwrap_or("")));
            record.field(&Field::new("value", value));
        })
    }

    /// An event that tools of Linux have no name for.
    fn other(&mut self, event: &Event, ticks: u64, processor: &mut Processor) -> io::Result<()> {
        if event.name.is_empty() {
            self.left_out += u64::from(event.record);
            return Ok(());
        }
        self.write(&event.name, ticks, processor, |record| {
            for field in &event.fields {
                record.field(field);
            }
        })
    }

    fn gap(&mut self, gap: &Gap, ticks: u64, processor: &mut Processor) -> io::Result<()> {
        if let Gap::Discarded {
            events: Some(events),
        } = gap
        {
            processor.thread = None;
            processor.interrupts.clear();
            return processor.stream.lose(*events);
        }
        self.write("kymo_gap", ticks, processor, |record| {
            record.text("kind", gap.name());
            record.text("message", &gap.to_string());
        })
    }

    /// A thread as events name it; nobody is the idle thread of the processor.
    fn actor(&mut self, info: &TraceInfo, thread: Option<ThreadId>, cpu: u32) -> Actor {
        let name = thread.and_then(|thread| info.identities.thread_name(thread));
        let is_idle = thread.is_none() || name.is_some_and(is_idle);
        let own = match (name, thread) {
            (Some(name), _) => name.to_owned(),
            (None, Some(thread)) => format!("{:#x}", info.identities.tid(thread).0),
            (None, None) => format!("swapper/{cpu}"),
        };
        let mut comm = [0; 16];
        // With a zero at its end, and no part of a character.
        let mut length = own.len().min(15);
        while !own.is_char_boundary(length) {
            length -= 1;
        }
        for (place, byte) in comm.iter_mut().zip(own.as_bytes().iter().take(length)) {
            *place = *byte;
        }
        let tid = match thread.filter(|_| !is_idle) {
            Some(thread) => self.tid(info, thread),
            None => 0,
        };
        let priority = thread.and_then(|thread| self.priorities.get(&thread));
        Actor {
            tid,
            priority: priority.copied().unwrap_or(PRIORITY),
            comm,
        }
    }

    /// The number of a thread: its own, if that fits and is nobody else's.
    fn tid(&mut self, info: &TraceInfo, thread: ThreadId) -> i32 {
        let place = thread.0 as usize;
        if let Some(Some(known)) = self.tids.get(place) {
            return *known;
        }
        let own = i32::try_from(info.identities.tid(thread).0).ok();
        let own = own.filter(|own| *own > 0 && self.taken.insert(*own));
        let tid = own.unwrap_or_else(|| {
            while !self.taken.insert(self.next_tid) {
                self.next_tid = self.next_tid.saturating_add(1);
            }
            self.next_tid
        });
        if self.tids.len() <= place {
            self.tids.resize(place + 1, None);
        }
        if let Some(room) = self.tids.get_mut(place) {
            *room = Some(tid);
        }
        tid
    }
}
