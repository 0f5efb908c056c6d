//! Source of a recording's events, in order of time.
//!
//! If all sources have timestamps, they are merged by those. Without timestamps, the order of events on different cores
//! is unknown. The sources then follow one another, and time continues through all of them. Functions that are open at
//! the end of a source are closed, as when recording is switched off.

mod cores;
mod message;
mod order;
mod threads;
mod totals;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::Receiver;

use kymo_coresight::calls::{Edge, Entered, Lost, Place, Step};
use kymo_coresight::clock::{Measure, UNKNOWN};
use kymo_coresight::element::Unsynced;
use kymo_coresight::exception::Exceptions;
use kymo_event::{
    Addr, Batch, ClockGap, Cpu, Duration, Event, EventKind, EventRef, Field, FunctionId, Gap,
    InterruptId, Irq, RecordingCause, Row, RowKind, SpaceId, StreamId, StreamInfo, ThreadId, Time,
    TimeUnit, TraceInfo, Value, Wanted,
};

use super::follow::Follow;
use super::input::Input;
use super::meaning::{Doubts, about_units, add, clock, concurrent, name_of, unit};
use super::names::Names;
use super::program::UNKNOWN_PATH;
use super::software::is_software;
use super::unit::{Chunk, End, Item, What, Work};
use crate::{ReadError, Source};
use cores::mark_cores_twice;

/// Hardware-trace recording.
pub(super) struct CoreSightSource {
    info: TraceInfo,
    readers: Vec<Reader>,
    names: Names,
    /// Functions that represent code that is not followed, in a recording whose times are instructions, and whether it
    /// is known how many ran there.
    nameless: BTreeMap<FunctionId, bool>,
    follow: Follow,
    /// Reader that acted last on each CPU.
    acting: HashMap<Cpu, usize>,
    steps: Vec<Step>,
    /// Whether sources follow one another.
    is_serial: bool,
    /// Threads that ran on several sources without a known order.
    unordered: BTreeSet<u32>,
    /// Start time of the current source, if they follow one another.
    base: i64,
    latest: Option<i64>,
    /// Time of events before all times of the trace.
    first: i64,
    total: End,
    doubts: Doubts,
    is_reported: bool,
    /// Whether events have names.
    has_names: bool,
}

/// Reading state of one source.
struct Reader {
    stream: StreamId,
    cpu: Option<Cpu>,
    exceptions: Option<Exceptions>,
    state: State,
    items: VecDeque<Item>,
    /// Number of elements of other sources that preceded the next one, which waits for them.
    ahead: usize,
    /// Functions by the source's numbers.
    functions: Vec<FunctionId>,
    /// Shared numbers of code without symbols, by the source's numbers.
    unknown: Vec<u32>,
    thread: Option<ThreadId>,
    /// Whether the thread represents a task that no context names.
    is_task: bool,
    /// Whether the last time of the source was passed, so that later ones are extrapolated.
    is_extrapolated: bool,
    /// Whether the thread may run elsewhere before and after this run: the order is unknown.
    is_unordered: bool,
    /// Whether its thread runs on another core now, or not at all.
    is_left: bool,
    /// Thread to which the kernel's records have switched the core, before the trace does; `Some(None)` for none.
    announced: Option<Option<u32>>,
    /// Namespace of exception names.
    space: SpaceId,
    /// Active interrupts, if no thread is known.
    interrupts: Vec<InterruptId>,
    /// Whether the running function has to be reported, because something is missing before.
    is_behind_gap: bool,
    /// Whether instructions of the same core are traced, which have its exceptions. Those of the DWT are then only
    /// markers.
    has_exceptions: bool,
    /// Whether it has its own times although the others have none. All of its events get the same time.
    is_timeless: bool,
}

enum State {
    Waiting(Box<Work>),
    Reading(Receiver<Chunk>),
    Done,
}

impl CoreSightSource {
    pub fn new(input: Input, wanted: Wanted) -> Self {
        let first = input.first_time();
        let mut info = TraceInfo {
            format: super::FORMAT.to_owned(),
            unit: unit(input.measure, input.conversion),
            clock: clock(input.measure, input.conversion),
            numbered_threads: true,
            has_processes: input.process_of.is_some(),
            settled_symbols: input.settled_symbols,
            ..TraceInfo::default()
        };
        for remark in input.remarks {
            add(&mut info, remark);
        }
        let is_serial = input.measure != Measure::Timestamps;
        let names = Names::new(input.build_ids, input.threads, input.process_of);
        let mut names = names
            .with_names(input.names)
            .with_concurrent(input.concurrent.clone());
        let space = names.first_space(&mut info);
        let mut readers = Vec::new();
        let units = input.units.iter();
        let units = about_units(units.map(|unit| (unit.name.as_str(), &unit.protocol)));
        for (index, unit) in (0u32..).zip(input.units) {
            let cpu = unit.cpu.map(Cpu);
            info.streams.push(StreamInfo {
                name: unit.name,
                space,
                cpu,
                trace_id: Some(unit.id),
                // Calls that a loss may have ended are tracked: each has its exit.
                marks_missing_exits: true,
                is_silent_behind: true,
                ..StreamInfo::default()
            });
            readers.push(Reader {
                stream: StreamId(index),
                cpu,
                exceptions: Exceptions::of(&unit.protocol),
                has_exceptions: false,
                is_timeless: is_serial && is_software(&unit.protocol),
                state: State::Waiting(Box::new(unit.work)),
                items: VecDeque::new(),
                ahead: 0,
                functions: Vec::new(),
                unknown: Vec::new(),
                thread: None,
                is_task: false,
                is_unordered: false,
                is_extrapolated: false,
                is_left: false,
                announced: None,
                space,
                interrupts: Vec::new(),
                is_behind_gap: false,
            });
        }
        mark_cores_twice(&mut readers, is_serial, &mut info);
        info.about
            .push(("times".to_owned(), input.measure.about().to_owned()));
        if !units.is_empty() {
            info.about.push(("trace units".to_owned(), units));
        }
        if input.origin > 0 && input.measure == Measure::Timestamps && input.conversion.is_none() {
            let origin = input.origin;
            let about =
                format!("timestamps are beyond what times can be: {origin} was taken off them");
            info.about.push(("clock".to_owned(), about));
        }
        let mut follow = Follow::new(
            readers.len(),
            info.has_processes && !is_serial,
            input.thread_begins,
        );
        if info.has_processes && is_serial {
            follow = follow.without_order();
        }
        if !info.has_processes {
            follow = follow.with_tasks();
        }
        info.remarks.extend(concurrent(&input.concurrent));
        follow = follow.with_concurrent(input.concurrent);
        Self {
            info,
            readers,
            names,
            nameless: BTreeMap::new(),
            follow,
            acting: HashMap::new(),
            steps: Vec::new(),
            is_serial,
            unordered: input.unordered,
            base: 0,
            latest: None,
            first,
            total: End::default(),
            doubts: Doubts::default(),
            is_reported: false,
            has_names: wanted >= Wanted::Everything,
        }
    }

    /// Returns the time of a source's next element. Reads chunks if necessary.
    fn peek(&mut self, index: usize) -> Option<i64> {
        let reader = self.readers.get_mut(index)?;
        loop {
            if let Some(item) = reader.items.front() {
                return Some(item.time);
            }
            let chunks = match std::mem::replace(&mut reader.state, State::Done) {
                State::Waiting(work) => work.start(),
                State::Reading(chunks) => chunks,
                State::Done => return None,
            };
            let chunk = chunks.recv().ok()?;
            for definition in &chunk.functions {
                let function = self.names.function(definition, &mut self.info);
                if definition.address.is_none() && self.info.unit == TimeUnit::Instructions {
                    let is_counted = definition.name.as_deref() == Some(UNKNOWN_PATH);
                    self.nameless.insert(function, is_counted);
                }
                reader.functions.push(function);
            }
            let unknown = chunk.unknown.into_iter();
            reader
                .unknown
                .extend(unknown.map(|it| self.follow.unknown(it)));
            reader.items.extend(chunk.items);
            match chunk.end {
                Some(end) => {
                    if let Some(stream) = self.info.streams.get_mut(index) {
                        stream.counts = Some(end.counts);
                    }
                    self.total.add(end);
                }
                None => reader.state = State::Reading(chunks),
            }
        }
    }

    fn take(&mut self, index: usize, batch: &mut Batch) {
        let Some(reader) = self.readers.get_mut(index) else {
            return;
        };
        let Some(item) = reader.items.pop_front() else {
            return;
        };
        let own = if reader.is_timeless { 0 } else { item.time };
        let time = self.base.saturating_add(own);
        // The time before the first timestamp is unknown.
        let time = match self.latest {
            _ if item.time != UNKNOWN => time.max(self.latest.unwrap_or(i64::MIN)),
            _ => self.latest.unwrap_or(self.first),
        };
        let is_first = self.latest.replace(time).is_none();
        let time = Time(time);
        if let Some(stream) = self.info.streams.get_mut(index) {
            if stream.start.is_none() && self.is_serial && !is_first {
                let kind = EventKind::Recording {
                    on: true,
                    cause: RecordingCause::Unknown,
                };
                batch.push_event(reader.event(time, kind, false));
            }
            stream.start.get_or_insert(time);
            stream.end = Some(time);
        }
        match &item.what {
            What::Edge(edge) => self.threads_move(index, edge, time, batch),
            What::Runs(Some(thread)) => self.leaves_others(index, *thread, time, batch),
            _ => {}
        }
        let is_only = self.is_only_core();
        let Some(reader) = self.readers.get_mut(index) else {
            return;
        };
        let mut at = At {
            reader,
            info: &mut self.info,
            names: &mut self.names,
            nameless: &self.nameless,
            unordered: &self.unordered,
            doubts: &mut self.doubts,
            batch,
            time,
            offset: item.offset,
            has_names: self.has_names,
        };
        match item.what {
            What::Edge(edge) => {
                let mut steps = std::mem::take(&mut self.steps);
                let known = (&*at.reader.functions, &*at.reader.unknown);
                let named = (&mut *at.names, &mut *at.info);
                let is_thread = matches!(edge, Edge::Thread { .. });
                let place = match &edge {
                    Edge::Arrive(at) => Some(at.place),
                    _ => None,
                };
                if let Edge::TraceOn = edge {
                    self.follow.begins(index, time.0, &mut steps);
                }
                self.follow.steps(index, edge, known, named, &mut steps);
                if is_thread {
                    self.follow.begins(index, time.0, &mut steps);
                }
                let is_start = matches!(place, Some(Place::Function { is_start: true, .. }));
                match steps.first() {
                    Some(Step::Reset) => at.reset(&steps, is_only),
                    _ => steps.iter().for_each(|step| at.step(*step, is_start)),
                }
                steps.clear();
                self.steps = steps;
                if place.is_some()
                    && at.reader.is_behind_gap
                    && let Some(function) = self.follow.function(index)
                {
                    at.runs(function);
                }
            }
            What::Mismatch(address, file) => {
                at.doubts.not_fitting += 1;
                let file = file.map_or_else(String::new, |file| format!(" of {file}"));
                let message = format!("the code at {address:#x}{file} does not fit the trace");
                at.damage(0, message);
            }
            What::Message(message) => at.message(message),
            What::Event(number) => {
                let number =
                    number.map(|number| Field::new("number", Value::Unsigned(number.into())));
                at.named("trace_event", number.into_iter().collect());
            }
            What::Value(level, value) => {
                let label = Some(format!("EL{level}"));
                at.push(EventKind::Marker { label, value });
            }
            What::Transaction(turn) => {
                let turn = format!("{turn:?}").to_lowercase();
                at.named("transaction", vec![Field::new("turn", turn)]);
            }
            What::Data(address, value) => {
                let fields = [("address", address), ("value", value)].into_iter();
                let fields = fields.filter_map(|(name, number)| {
                    Some(Field::new(name, Value::Unsigned(number?.into())))
                });
                at.named("data", fields.collect());
            }
            What::DataSuppressed => at.named("data_suppressed", Vec::new()),
            What::Pause => at.lost(Lost::Paused),
            What::Restart => at.restart(),
            What::Runs(thread) => at.cpu_runs(thread),
            What::LastTime => at.last_time(),
            What::StepBack => at.uncertain_clock(),
            What::End if self.is_serial => {
                let kind = EventKind::Recording {
                    on: false,
                    cause: RecordingCause::Unknown,
                };
                at.push_made(kind);
                at.reader.interrupts.clear();
                self.base = time.0;
            }
            What::End => at.batch.push_event(Event {
                name: "end".into(),
                ..at.reader.event(at.time, EventKind::Other, false)
            }),
        }
    }
}

/// Context for adding the events of an element.
struct At<'a> {
    reader: &'a mut Reader,
    info: &'a mut TraceInfo,
    names: &'a mut Names,
    nameless: &'a BTreeMap<FunctionId, bool>,
    unordered: &'a BTreeSet<u32>,
    doubts: &'a mut Doubts,
    batch: &'a mut Batch,
    time: Time,
    offset: u64,
    has_names: bool,
}

impl Reader {
    fn event(&self, time: Time, kind: EventKind, record: bool) -> Event {
        Event {
            time,
            stream: self.stream,
            cpu: self.cpu,
            thread: self.thread,
            kind,
            named: false,
            record,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        }
    }
}

impl At<'_> {
    fn row(&mut self, kind: RowKind, change: impl FnOnce(Row) -> Row) {
        let row = Row::new(kind, self.time, self.reader.stream);
        let row = change(row.at(self.reader.cpu, self.reader.thread));
        if !self.has_names {
            self.batch.push(row);
            return;
        }
        let identities = &self.info.identities;
        let is_interrupt = matches!(kind, RowKind::IsrEnter | RowKind::IsrExit);
        let irq = row.of_interrupt().filter(|_| is_interrupt);
        let irq = irq.map(|irq| identities.irq(irq));
        let fields = irq.map(|Irq(number)| Field::new("irq", Value::Unsigned(number.into())));
        let event = Event {
            name: name_of(kind).into(),
            fields: fields.into_iter().collect(),
            ..EventRef {
                row: &row,
                event: None,
            }
            .to_event()
        };
        self.batch.push_both(&row, event);
    }

    /// Reports the running function after a gap.
    fn runs(&mut self, function: FunctionId) {
        self.reader.is_behind_gap = false;
        self.row(RowKind::Other, |row| {
            let mut row = row.function(Some(function));
            row.record = false;
            row
        });
    }

    fn push(&mut self, kind: EventKind) {
        self.batch
            .push_event(self.reader.event(self.time, kind, true));
    }

    /// Marks the durations of all open calls as uncertain.
    fn uncertain_clock(&mut self) {
        let at_least = Duration(0);
        self.push_made(EventKind::Gap(Gap::Clock(ClockGap { at_least })));
    }

    /// Adds an event that has no record of its own.
    fn push_made(&mut self, kind: EventKind) {
        self.batch
            .push_event(self.reader.event(self.time, kind, false));
    }

    fn named(&mut self, name: &'static str, fields: Vec<Field>) {
        self.batch.push_event(Event {
            name: name.into(),
            fields,
            ..self.reader.event(self.time, EventKind::Other, true)
        });
    }

    /// Adds the events of a step. `is_start` means that execution is at the start of a function.
    fn step(&mut self, step: Step, is_start: bool) {
        match step {
            Step::Enter {
                function,
                return_address,
                how,
            } => {
                let function = FunctionId(function);
                let site = Addr(return_address.unwrap_or_default());
                let found = match self.nameless.get(&function) {
                    Some(is_counted) => !is_counted,
                    None => how == Entered::Found && !is_start,
                };
                self.row(RowKind::Enter, |row| {
                    row.function(Some(function)).word(site).found(found)
                });
            }
            Step::Exit {
                function, is_left, ..
            } => {
                let function = Some(FunctionId(function));
                self.row(RowKind::Exit, |row| {
                    let mut row = row.function(function).left(is_left);
                    row.named = true;
                    row
                });
            }
            Step::Exception { number } => self.exception(number, true),
            Step::ExceptionEnd { number } => self.exception(number, false),
            Step::Thread { thread } => self.switch(thread),
            Step::Stack { number, is_certain } => self.task(number, is_certain),
            Step::TraceOn => self.named("trace_on", Vec::new()),
            Step::Lost(why) => self.lost(why),
            // It arrives with its file.
            Step::Mismatch { .. } => {}
            // It is the first of its edge.
            Step::Reset => {}
        }
    }

    fn lost(&mut self, why: Lost) {
        let gap = match why {
            Lost::Unsynced(Unsynced::Init | Unsynced::Reset | Unsynced::EndOfTrace) => return,
            Lost::Overflow
            | Lost::Unsynced(
                Unsynced::Overflow
                | Unsynced::Discard
                | Unsynced::Truncated
                | Unsynced::Partial
                | Unsynced::Collision,
            ) => {
                self.doubts.lost += 1;
                Gap::LostPackets { packets: None }
            }
            Lost::Unsynced(Unsynced::BadPacket) => {
                self.doubts.lost += 1;
                return self.damage(0, "expected a packet of the source".to_owned());
            }
            Lost::Unsynced(Unsynced::BadImage(_) | Unsynced::BadOpcode(_)) => {
                self.doubts.not_fitting += 1;
                return self.damage(0, "the code does not fit the trace".to_owned());
            }
            // Execution is at a known address, and the function that represents missing code is entered and exited.
            Lost::NoCode(address) => {
                self.doubts.not_followed += 1;
                let address = vec![Field::new("address", Value::Hex(address))];
                return self.named("no_code", address);
            }
            Lost::Paused => {
                self.doubts.paused += 1;
                Gap::Discarded { events: None }
            }
            Lost::NoAddress | Lost::NoPath(_) => {
                self.doubts.lost += 1;
                Gap::Discarded { events: None }
            }
        };
        self.reader.is_behind_gap = true;
        self.push_made(EventKind::Gap(gap));
    }

    /// Adds a gap for damage. Remarks about all damage follow at the end.
    fn damage(&mut self, bytes: u64, message: String) {
        self.reader.is_behind_gap = true;
        self.push_made(EventKind::Gap(Gap::Damage {
            offset: self.offset,
            bytes: Some(bytes),
            message,
        }));
    }
}

impl Source for CoreSightSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while !batch.is_full() {
            match self.first() {
                Some(index) => self.take(index, batch),
                None => {
                    self.tell();
                    break;
                }
            }
        }
        Ok(!batch.is_empty())
    }
}
