//! Conversion of records to events.

mod about;
mod ahead;
mod arguments;
mod blocks;
mod threads;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use kymo_event::{
    Addr, Batch, ClockGap, Cpu, Duration, Event, EventKind, EventRef, Field, Gap, InterruptKind,
    Irq, Quantity, Row, RowKind, Space, SpaceId, StreamId, ThreadId, Tid, Time, TraceInfo, Value,
    Wanted,
};
use kymo_rtems_record::{EventId, EventNames, Format, Record};

use super::inputs::Inputs;
use super::meaning::{self, Means};
use super::names;
use crate::reused::Threads;
use crate::{OpenError, OpenOptions, ReadError, Source};

/// Smallest step back of the target's uptime that is reported, in nanoseconds. Smaller ones are within the accuracy of
/// a processor's clock reads.
const STEP_BACK_NS: u64 = 1_000;

/// RTEMS recording.
pub(super) struct RecordSource {
    info: TraceInfo,
    name: String,
    inputs: Inputs,
    records: Vec<Record>,
    /// Index of the next record.
    next: usize,
    ended: bool,
    /// Meanings by event number.
    means: Vec<Means>,
    names: Option<Arc<EventNames>>,
    /// Current dump, and the others that have begun.
    dump: Dump,
    others: Vec<Dump>,
    /// Namespace of functions, which all dumps share.
    space: SpaceId,
    /// Mask for code addresses, without the Thumb bit.
    code_mask: u64,
    wanted: Wanted,
    /// Damage events, which precede the next record.
    ready: VecDeque<Event>,
    latest: Time,
    /// Number of locks with their own name.
    locks: usize,
    reused: Threads,
    /// Processors whose records have begun.
    begun: ahead::Begun,
    /// Number of gaps in a live recording behind which the thread is unknown.
    unseen: u64,
    failure: Option<ReadError>,
}

/// Dump: the recording of a target from one start to the next.
#[derive(Debug)]
struct Dump {
    number: u16,
    version: u32,
    format: Format,
    /// Namespace of its threads, interrupts and processors.
    machine: SpaceId,
    cpus: Vec<Processor>,
    /// Allocated memory of the network stack, as far as the trace records it.
    uma: blocks::Uma,
}

/// State of a processor at one time.
#[derive(Debug)]
struct Processor {
    stream: StreamId,
    thread: Option<ThreadId>,
    /// Thread behind a gap. It counts from the first record that has its own time.
    behind: Option<ThreadId>,
    block: Option<Block>,
    /// Thread that was just created, and what was read of its name.
    created: Option<(ThreadId, Vec<u8>)>,
}

/// Incomplete block of memory.
#[derive(Debug, Default)]
struct Block {
    address: Option<u64>,
    length: Option<u64>,
    bytes: Vec<u8>,
    time: Time,
    event: Option<EventId>,
}

impl RecordSource {
    /// Reads until the target is described.
    ///
    /// # Errors
    /// [`OpenError`] if the input does not describe it.
    pub fn new(path: &Path, mut inputs: Inputs, options: &OpenOptions) -> Result<Self, OpenError> {
        inputs.begin().map_err(|error| OpenError::Io {
            path: path.to_owned(),
            source: error.source,
        })?;
        let faults = inputs.take_faults();
        if !inputs.is_described() {
            return Err(match faults.into_iter().next() {
                Some((_, fault)) => OpenError::Record {
                    path: path.to_owned(),
                    offset: fault.offset,
                    message: fault.to_string(),
                },
                None => OpenError::Empty {
                    path: path.to_owned(),
                },
            });
        }
        let described = (0..inputs.dumps()).filter_map(|dump| inputs.header(dump));
        let mut described = described.filter(|header| header.frequency != 0);
        let header = described.next().cloned().unwrap_or_default();
        let mut info = TraceInfo {
            format: super::FORMAT.to_owned(),
            clock_hz: Some(header.frequency),
            ..TraceInfo::default()
        };
        // Each dump is a machine of its own, but all have the same program.
        let name = match inputs.dumps() {
            0 | 1 => String::new(),
            _ => "program".to_owned(),
        };
        let space = info.identities.add_space(Space {
            name,
            ..Space::default()
        });
        let means = meaning::table(&mut info.identities, space);
        let name = path.file_name().unwrap_or(path.as_os_str());
        let mut source = Self {
            info,
            name: name.to_string_lossy().into_owned(),
            inputs,
            records: Vec::new(),
            next: 0,
            ended: false,
            means,
            names: options.event_names.clone(),
            dump: Dump {
                number: u16::MAX,
                version: header.version,
                format: header.format,
                machine: space,
                cpus: Vec::new(),
                uma: blocks::Uma::default(),
            },
            others: Vec::new(),
            space,
            code_mask: if header.arch.eq_ignore_ascii_case("arm") {
                !1
            } else {
                !0
            },
            wanted: options.wanted,
            ready: VecDeque::new(),
            latest: Time::default(),
            locks: 0,
            reused: Threads::default(),
            begun: ahead::Begun::default(),
            unseen: 0,
            failure: None,
        };
        source.describe(&header);
        for dump in 0..source.inputs.dumps().max(1) {
            source.switch_to(dump);
        }
        source.learn();
        for (dump, fault) in faults {
            source.damage(dump, &fault);
        }
        Ok(source)
    }

    /// Takes over the thread names from the readers.
    fn learn(&mut self) {
        for (dump, name) in self.inputs.take_names() {
            self.switch_to(dump);
            let machine = self.dump.machine;
            // The records name threads that are created, where they are.
            if !name.is_created {
                let identities = &mut self.info.identities;
                let thread = identities.thread(machine, Tid(name.id));
                names::name(identities, thread, name.id, &name.name);
            }
        }
    }

    fn event(&self, kind: EventKind, time: Time) -> Event {
        Event {
            time,
            stream: StreamId(0),
            cpu: None,
            thread: None,
            kind,
            named: false,
            record: true,
            stamp: None,
            name: Cow::Borrowed(""),
            fields: Vec::new(),
        }
    }

    /// Reads more records. Returns whether there may be any.
    fn read_more(&mut self) -> bool {
        // Keeps records that wait for items behind them.
        self.records.drain(..self.next.min(self.records.len()));
        self.next = 0;
        if self.ended {
            self.name_last();
            return false;
        }
        match self.read_ahead() {
            Ok(true) => {}
            Ok(false) => {
                self.ended = true;
                self.remark();
            }
            Err(error) => {
                self.ended = true;
                self.failure = Some(ReadError::Io {
                    stream: self.name.clone(),
                    offset: error.offset,
                    source: error.source,
                });
            }
        }
        self.learn();
        true
    }

    /// Adds the events of the next record.
    fn record(&mut self, batch: &mut Batch) {
        let Some(record) = self.records.get(self.next).copied() else {
            return;
        };
        if self.dump.number != record.dump {
            self.switch_to(record.dump);
        }
        let time = Time(record.time);
        self.latest = self.latest.max(time);
        let number = usize::from(record.cpu);
        let Some(cpu) = self.dump.cpus.get_mut(number) else {
            self.next += 1;
            return;
        };
        let stream = cpu.stream;
        let mut is_first = false;
        if let Some(stream) = self.info.streams.get_mut(stream.0 as usize) {
            is_first = stream.start.is_none();
            stream.start.get_or_insert(time);
            stream.end = Some(time);
        }
        if is_first && !ahead::decides(&record) {
            let thread = self.thread_behind(&record);
            if let Some(cpu) = self.dump.cpus.get_mut(number) {
                cpu.thread = thread;
            }
        }
        let means = self.means.get(usize::from(record.event.0)).copied();
        let means = means.unwrap_or(Means::Other);
        // What follows a block determines its end.
        let in_block = self
            .dump
            .cpus
            .get(number)
            .is_some_and(|cpu| cpu.block.is_some());
        if in_block
            && !matches!(
                means,
                Means::BlockAddress | Means::BlockLength | Means::BlockWord
            )
        {
            self.end_block(number, batch);
        }
        if !record.is_item {
            self.made(&record, stream, batch);
            self.next += 1;
            return;
        }
        self.item(&record, means, (number, stream), batch);
        self.next += 1;
    }

    /// Handles an event that the reader inserted.
    fn made(&mut self, record: &Record, stream: StreamId, batch: &mut Batch) {
        let gap = match record.event {
            EventId::UNRELIABLE_TIME => Gap::Clock(ClockGap {
                at_least: Duration(0),
            }),
            EventId::TIME_ADJUSTMENT if record.data >= STEP_BACK_NS => Gap::TimeBackward {
                by: Duration(record.data),
            },
            EventId::PER_CPU_OVERFLOW => {
                // Names behind the loss may be another thread's.
                self.name_created(record, usize::from(record.cpu));
                let thread = self.thread_behind(record);
                if let Some(cpu) = self.dump.cpus.get_mut(usize::from(record.cpu)) {
                    (cpu.thread, cpu.behind) = (None, thread);
                    cpu.block = None;
                }
                // A target counts in 32 bits: larger numbers come from damage.
                let is_count = u32::try_from(record.data).is_ok();
                Gap::Discarded {
                    events: is_count.then_some(record.data),
                }
            }
            _ => return,
        };
        let event = Event {
            stream,
            cpu: Some(Cpu(record.cpu.into())),
            record: false,
            stamp: None,
            ..self.event(EventKind::Gap(gap), Time(record.time))
        };
        batch.push_event(event);
    }

    /// Handles an item of the stream.
    fn item(
        &mut self,
        record: &Record,
        means: Means,
        (number, stream): (usize, StreamId),
        batch: &mut Batch,
    ) {
        let (time, data) = (Time(record.time), record.data);
        let cpu = Some(Cpu(record.cpu.into()));
        let row = |kind| Row::new(kind, time, stream);
        let has_time = ![EventId::PROCESSOR, EventId::PER_CPU_OVERFLOW].contains(&record.event);
        let running = self.dump.cpus.get_mut(number).and_then(|cpu| {
            if let Some(thread) = cpu.behind.take_if(|_| has_time) {
                cpu.thread = Some(thread);
            }
            cpu.thread
        });
        self.name_created(record, number);
        let code = data & self.code_mask;
        match means {
            Means::Other | Means::Fact | Means::Code | Means::Argument | Means::Return => {
                let kind = match means {
                    Means::Fact => Some(EventKind::Fact),
                    _ => None,
                };
                self.rare(record, kind, (stream, running), batch);
            }
            Means::Time => self.common(record, row(RowKind::Time).at(cpu, running), batch),
            Means::Create | Means::Delete => {
                match means {
                    Means::Create => self.create(data, number),
                    _ => {
                        let (machine, identities) = (self.dump.machine, &mut self.info.identities);
                        self.reused.was_there(identities.thread(machine, Tid(data)));
                    }
                }
                self.rare(record, None, (stream, running), batch);
            }
            Means::SwitchOut => {
                // By the clocks of two processors, its successor may be there already.
                let tid = |thread: &ThreadId| self.info.identities.tid(*thread);
                let thread = running.filter(|thread| tid(thread) == Tid(data));
                let thread = thread.or_else(|| {
                    let identities = &mut self.info.identities;
                    Some(names::thread(identities, self.dump.machine, data))
                });
                thread.iter().for_each(|it| self.reused.was_there(*it));
                if let Some(cpu) = self.dump.cpus.get_mut(number) {
                    cpu.thread = None;
                }
                self.common(record, row(RowKind::SwitchedOut).at(cpu, thread), batch);
            }
            Means::SwitchIn => {
                let thread = Some(names::thread(
                    &mut self.info.identities,
                    self.dump.machine,
                    data,
                ));
                thread.iter().for_each(|it| self.reused.was_there(*it));
                if let Some(cpu) = self.dump.cpus.get_mut(number) {
                    cpu.thread = thread;
                }
                self.common(record, row(RowKind::SwitchedIn).at(cpu, thread), batch);
            }
            Means::IrqEntry | Means::IrqExit => {
                let irq = Irq(data as u32);
                let identities = &mut self.info.identities;
                let irq = identities.interrupt(self.dump.machine, InterruptKind::Hard, irq);
                let kind = match means {
                    Means::IrqEntry => RowKind::IsrEnter,
                    _ => RowKind::IsrExit,
                };
                self.common(
                    record,
                    row(kind).at(cpu, running).interrupt(Some(irq)),
                    batch,
                );
            }
            Means::Begin(function) => {
                let row = row(RowKind::Enter).at(cpu, running).word(Addr(code));
                self.common(record, row.function(Some(function)), batch);
            }
            Means::FunctionEntry => {
                let function = self.info.identities.function_at(self.space, Addr(code));
                let row = row(RowKind::Enter).at(cpu, running);
                self.common(record, row.function(Some(function)), batch);
            }
            Means::End(function) => {
                let row = row(RowKind::Exit).at(cpu, running);
                self.common(record, named(row.function(Some(function))), batch);
            }
            Means::FunctionExit => {
                let function = self.info.identities.function_at(self.space, Addr(code));
                let row = row(RowKind::Exit).at(cpu, running);
                self.common(record, named(row.function(Some(function))), batch);
            }
            Means::LockWait => {
                let wait = self.lock(data, "wait for");
                let row = row(RowKind::SpanBegin).at(cpu, running).per_cpu(true);
                self.common(record, row.function(Some(wait)), batch);
            }
            Means::LockHold => {
                let (waited, held) = (self.lock(data, "wait for"), self.lock(data, "hold"));
                let end = row(RowKind::SpanEnd).at(cpu, running).per_cpu(true);
                self.common(record, end.function(Some(waited)), batch);
                let mut begin = row(RowKind::SpanBegin).at(cpu, running);
                begin.record = false;
                batch.push(begin.function(Some(held)));
            }
            Means::LockRelease => {
                let held = self.lock(data, "hold");
                let row = row(RowKind::SpanEnd).at(cpu, running);
                self.common(record, row.function(Some(held)), batch);
            }
            Means::Mask(function) => {
                let row = row(RowKind::SpanBegin).at(cpu, running).per_cpu(true);
                self.common(record, row.function(Some(function)), batch);
            }
            Means::Unmask(function) => {
                let row = row(RowKind::SpanEnd).at(cpu, running).per_cpu(true);
                self.common(record, row.function(Some(function)), batch);
            }
            Means::Uma(by) => {
                let used = self.uma(record, by);
                let kind = used.map(|used| counter("UMA allocations", used.into()));
                self.rare(record, kind, (stream, running), batch);
            }
            Means::Size => {
                let kind = counter(record.event.name(10), data);
                self.rare(record, Some(kind), (stream, running), batch);
            }
            Means::Ready => {
                let thread = names::thread(&mut self.info.identities, self.dump.machine, data);
                let kind = EventKind::Ready { thread };
                self.rare(record, Some(kind), (stream, running), batch);
            }
            Means::Priority => {
                if let Some(thread) = running {
                    self.info.identities.set_priority(thread, data as i64);
                }
                let kind = running.map(|_| EventKind::Context {
                    priority: data as i32,
                    mode: 0,
                });
                self.rare(record, kind, (stream, running), batch);
            }
            Means::BlockAddress | Means::BlockLength | Means::BlockWord => {
                self.end_other_block(record, means, number, batch);
                self.rare(record, None, (stream, running), batch);
                self.block(record, means, number, batch);
            }
        }
    }

    /// Adds a record whose meaning is a row.
    fn common(&mut self, record: &Record, row: Row, batch: &mut Batch) {
        if self.wanted < Wanted::Everything {
            return batch.push(row);
        }
        let alone = EventRef {
            row: &row,
            event: None,
        };
        let mut event = alone.to_event();
        event.name = self.name_of(record.event);
        event.fields = self.fields(record);
        self.add_arguments(record, &mut event.fields);
        batch.push_event(event);
    }

    /// Adds a record whose meaning no row can represent, or that has no meaning.
    fn rare(
        &mut self,
        record: &Record,
        kind: Option<EventKind>,
        (stream, thread): (StreamId, Option<ThreadId>),
        batch: &mut Batch,
    ) {
        let (time, cpu) = (Time(record.time), Some(Cpu(record.cpu.into())));
        if kind.is_none() && self.wanted == Wanted::Meaning {
            return batch.push(Row::new(RowKind::Other, time, stream).at(cpu, thread));
        }
        let mut event = Event {
            stream,
            cpu,
            thread,
            ..self.event(kind.unwrap_or(EventKind::Other), time)
        };
        if self.wanted > Wanted::Meaning {
            event.name = self.name_of(record.event);
            event.fields = self.fields(record);
            if record.event == EventId::LINE || record.event == EventId::CALLER {
                self.add_arguments(record, &mut event.fields);
            }
        }
        batch.push_event(event);
    }

    fn name_of(&self, event: EventId) -> Cow<'static, str> {
        let given = self
            .names
            .as_ref()
            .and_then(|names| names.given(event, self.dump.version));
        match given {
            Some(name) => Cow::Owned(name.to_owned()),
            None => Cow::Borrowed(event.name(self.dump.version)),
        }
    }

    /// Returns the data of an item as a field. A code address gets the field name that symbols are resolved for.
    fn fields(&self, record: &Record) -> Vec<Field> {
        let means = self.means.get(usize::from(record.event.0));
        let name = match means {
            Some(
                Means::Code
                | Means::FunctionEntry
                | Means::FunctionExit
                | Means::Mask(_)
                | Means::Unmask(_),
            ) => crate::code::FIELD,
            _ => "data",
        };
        vec![Field::new(name, Value::Hex(record.data))]
    }
}

/// Marks an exit whose record names its function.
const fn named(mut row: Row) -> Row {
    row.named = true;
    row
}

/// Returns a new value of a counter.
fn counter(name: &str, value: u64) -> EventKind {
    EventKind::Counter {
        name: name.to_owned(),
        process: None,
        value: Quantity::Unsigned(value),
    }
}

impl Source for RecordSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        loop {
            let until = self.complete();
            while self.next < until && !batch.is_full() {
                self.record(batch);
            }
            if batch.is_full() {
                return Ok(true);
            }
            // Faults follow the records that were read before them.
            for (dump, fault) in self.inputs.take_faults() {
                self.damage(dump, &fault);
            }
            self.ready
                .drain(..)
                .for_each(|event| batch.push_event(event));
            if !batch.is_empty() {
                return Ok(true);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if !self.read_more() {
                let numbers = self.others.iter().map(|dump| dump.number);
                let numbers: Vec<u16> = numbers.chain([self.dump.number]).collect();
                for dump in numbers {
                    self.switch_to(dump);
                    for number in 0..self.dump.cpus.len() {
                        self.end_block(number, batch);
                    }
                }
                return Ok(!batch.is_empty());
            }
        }
    }
}
