//! Conversion of records of a trace.dat, or of raw pages, to events.

mod calls;
mod marks;
mod missing;
mod names;
mod survey;
mod switches;

use std::borrow::Cow;
use std::sync::Arc;

use kymo_event::{
    Batch, Caller, Cpu, Damage, EventKind, Field, FunctionId, Gap, InterruptKind, Moment, Row,
    RowKind, StreamId, StreamInfo, ThreadId, Time, TimeUnit, TraceInfo, WallClock, Wanted,
};
use kymo_ftrace::{EventFormat, Lost, Place, Record, Records, Step, Trace};

use self::survey::{Kinds, remarks, second_file};
use super::Beginnings;
use super::fields;
use super::marks::{Marks, power};
use super::meaning::{self, Meaning};
use super::numbered_calls::{NumberedCalls, Syscall};
use super::output::{self, Out, Output, Reported};
use super::stacks::{Stacks, Task};
use crate::bytes::Bytes;
use crate::linux::SOFTIRQS;
use crate::{OpenOptions, ReadError, Source};

/// Source of a trace's records.
pub(super) struct DatSource {
    info: TraceInfo,
    reader: Reader,
    records: Records,
    bytes: Bytes,
}

/// All state but the records.
struct Reader {
    trace: Arc<Trace>,
    meanings: Arc<[Option<Meaning>]>,
    output: Output,
    wanted: Wanted,
    /// Whether system calls are converted to calls. They are not if functions are traced, because some functions
    /// contain the start of a system call and others its end.
    calls: bool,
    /// Time of the last record of each CPU buffer.
    last: Vec<Option<Time>>,
    /// Time of the last record of all.
    before: Time,
    /// Latest time of each CPU buffer before its time stepped back.
    latest: Vec<Option<Time>>,
    /// Kinds that have only beginnings.
    alone: Beginnings,
    /// Whether calls are recorded as exits only.
    exits_alone: bool,
    /// Whether records have timestamps of the clock that the kernel uses for the times of calls.
    is_local: bool,
    /// Open calls with their recorded depths.
    stacks: Stacks,
    /// System calls with two records each.
    numbered_calls: NumberedCalls<Task>,
    /// Spans of programs.
    marks: Marks,
    ended: bool,
}

fn event_id(trace: &Trace, data: &[u8]) -> Option<usize> {
    Some(trace.order.number(data.get(..2)?) as usize)
}

impl DatSource {
    pub(super) fn new(trace: Trace, bytes: Bytes, options: &OpenOptions) -> Self {
        let meanings = meaning::meanings(&trace.formats);
        let kinds = Kinds::of(&trace, &meanings, &bytes);
        let exits_alone = kinds.exits > 0 && kinds.entries == 0;
        let session = trace.session();
        let mut info = TraceInfo {
            format: super::FORMAT.to_owned(),
            numbered_threads: true,
            idle_is_no_thread: true,
            unit: match trace.has_nanoseconds() {
                true => TimeUnit::Nanoseconds,
                false => TimeUnit::Ticks,
            },
            clock: trace.kernel_clock().map(str::to_owned),
            session: session.filter(|it| !it.1).map(|it| it.0),
            moved_to_session: session.filter(|it| it.1).map(|it| it.0),
            wall_clock: WallClock::new(trace.options.dated.then_some(Moment {
                time: Time(0),
                unix_ns: 0,
            })),
            ..TraceInfo::default()
        };
        let comms = trace.comms.iter().map(|(pid, comm)| (pid, comm.to_owned()));
        let comms = comms.collect();
        let name = &trace.options.uname;
        let mut output = Output::new(&mut info.identities, name, comms, exits_alone);
        if options.wanted == Wanted::Records {
            output.stay();
        }
        if !exits_alone && kinds.is_local() {
            output.hold();
        }
        let without_switches = exits_alone && kinds.switches == 0;
        if without_switches {
            output.infer_no_switches();
        }
        let mut numbered_calls = NumberedCalls::default();
        numbered_calls.learn_all(
            &kinds.names,
            |pid| Task::new(pid, 0),
            |name| info.identities.function_named(output.space, name),
        );
        let records = Records::new(&trace, &bytes);
        for (buffer, cpu) in records.cpu_buffers() {
            let buffer = trace.buffers.get(buffer).map_or("", |it| it.name.as_str());
            info.streams.push(StreamInfo {
                name: match buffer {
                    "" => format!("cpu{cpu}"),
                    buffer => format!("{buffer}/cpu{cpu}"),
                },
                space: output.space,
                cpu: Some(Cpu(cpu)),
                whole_calls: exits_alone || kinds.functions > 0,
                marks_missing_exits: kinds.entries > 0,
                without_switches,
                ..StreamInfo::default()
            });
        }
        for error in &trace.damage {
            info.add_damage(Damage {
                stream: "metadata".to_owned(),
                offset: error.offset,
                message: error.to_string(),
            });
        }
        info.remarks = remarks(&trace, &kinds);
        info.remarks
            .extend(trace.next_file(&bytes).map(second_file));
        let last = vec![None; info.streams.len()];
        let latest = vec![None; info.streams.len()];
        Self {
            info,
            reader: Reader {
                trace: Arc::new(trace),
                meanings: meanings.into(),
                output,
                wanted: options.wanted,
                calls: kinds.entries == 0 && kinds.exits == 0 && !kinds.beginnings().calls,
                alone: kinds.beginnings(),
                last,
                before: Time(i64::MIN),
                latest,
                exits_alone,
                is_local: kinds.is_local(),
                stacks: Stacks::default(),
                numbered_calls,
                marks: Marks::beside(kinds.has_calls()),
                ended: false,
            },
            records,
            bytes,
        }
    }
}

/// Converts nanoseconds to a time of the event model.
fn time(nanoseconds: u64) -> Time {
    Time(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
}

impl Source for DatSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        let Self {
            info,
            reader,
            records,
            bytes,
        } = self;
        let (trace, meanings) = (Arc::clone(&reader.trace), Arc::clone(&reader.meanings));
        reader.output.give_held(false, batch);
        while !batch.is_full() && !reader.ended {
            match records.next(&trace, bytes) {
                Some((place, Step::Record(record))) => {
                    reader.one_record(place, &record, &meanings, info, batch);
                    records.run(&trace, bytes, |place, record| {
                        reader.record(place, record, &meanings, info, batch);
                        !batch.is_full()
                    });
                }
                Some((place, Step::Lost(lost))) => reader.lost(place, lost, batch),
                Some((place, Step::Damage(error, bytes))) => {
                    let damage = (error.offset, bytes, error.to_string());
                    reader.damage(place, damage, info, batch);
                }
                None => reader.ended = true,
            }
        }
        let ends = reader.last.iter().zip(&reader.latest);
        for (stream, (last, latest)) in info.streams.iter_mut().zip(ends) {
            if stream.start.is_some() {
                stream.end = stream.end.max(*latest).max(*last);
            }
        }
        if reader.ended && !batch.is_full() {
            reader.output.settle(0, batch);
            reader.output.give_held(true, batch);
            reader.output.end(batch);
            reader.output.remark_cut(info);
        }
        Ok(!batch.is_empty())
    }
}

impl Reader {
    fn stream(place: Place) -> StreamId {
        StreamId(u32::try_from(place.cpu_buffer).unwrap_or(u32::MAX))
    }

    fn gap(&mut self, place: Place, gap: Gap, batch: &mut Batch) {
        let last = self.last.get(place.cpu_buffer).copied().flatten();
        let at = last.unwrap_or(time(place.time));
        let out = output::gap(gap, at, Self::stream(place), Some(Cpu(place.cpu)));
        self.output.put(out, batch);
    }

    fn lost(&mut self, place: Place, lost: Lost, batch: &mut Batch) {
        self.stacks
            .lost(self.last.get(place.cpu_buffer).copied().flatten());
        let events = match lost {
            Lost::Events(count) => Some(count),
            Lost::Unknown => None,
            Lost::Nothing => return,
        };
        self.gap(place, Gap::Discarded { events }, batch);
    }

    fn damage(
        &mut self,
        place: Place,
        (offset, bytes, message): (u64, u64, String),
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let stream = info.stream(Self::stream(place));
        let stream = stream.map_or_else(String::new, |stream| stream.name.clone());
        info.add_damage(Damage {
            stream,
            offset,
            message: message.clone(),
        });
        let gap = Gap::Damage {
            offset,
            bytes: Some(bytes),
            message,
        };
        self.gap(place, gap, batch);
    }

    /// Not inlined, because it is called rarely.
    #[inline(never)]
    fn one_record(
        &mut self,
        place: Place,
        record: &Record<'_>,
        meanings: &[Option<Meaning>],
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        self.record(place, record, meanings, info, batch);
    }

    #[inline(always)]
    fn record(
        &mut self,
        place: Place,
        record: &Record<'_>,
        meanings: &[Option<Meaning>],
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let at = time(place.time);
        let Some(before) = self.last.get(place.cpu_buffer).copied() else {
            return;
        };
        if before.is_none_or(|before| at < before) {
            self.began_or_stepped_back(place, at, before, info, batch);
        }
        if let Some(last) = self.last.get_mut(place.cpu_buffer) {
            *last = Some(at);
        }
        let data = record.data;
        let pid = data.get(4..8).map_or(0, |pid| self.trace.order.number(pid));
        let pid = (pid as u32).cast_signed();
        let at = At {
            place,
            time: at,
            before: std::mem::replace(&mut self.before, at),
            ticks: record.ticks,
            data,
            pid,
            thread: self.output.thread(pid, &mut info.identities),
        };
        let id = event_id(&self.trace, data);
        match id.and_then(|id| meanings.get(id)?.as_ref()) {
            Some(meaning) => self.meant(meaning, &at, info, batch),
            None => self.other(&at, batch),
        }
    }

    /// Handles the first record of a CPU buffer, or one whose time is before that of the last one.
    #[inline(never)]
    fn began_or_stepped_back(
        &mut self,
        place: Place,
        at: Time,
        before: Option<Time>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        if let Some(stream) = info.streams.get_mut(place.cpu_buffer)
            && stream.start.is_none()
        {
            stream.start = Some(at);
            return;
        }
        if let Some(latest) = self.latest.get_mut(place.cpu_buffer) {
            *latest = (*latest).max(before);
        }
        if let Some(by) = before.and_then(|before| before.since(at)) {
            info.steps_back = true;
            self.gap(place, Gap::TimeBackward { by }, batch);
        }
    }

    #[inline]
    fn field(&self, field: &kymo_ftrace::FieldFormat, data: &[u8]) -> u64 {
        self.trace.scope().field(field, data)
    }

    #[inline]
    fn function(&mut self, address: u64, info: &mut TraceInfo) -> FunctionId {
        let symbols = &self.trace.symbols;
        self.output
            .function_at(address, &mut info.identities, |address| {
                let symbol = symbols.find(address)?;
                Some((symbol.address, symbol.name))
            })
    }

    #[inline]
    fn meant(&mut self, meaning: &Meaning, at: &At<'_>, info: &mut TraceInfo, batch: &mut Batch) {
        match meaning {
            Meaning::Entry { func, depth } => {
                let function = self.function(self.field(func, at.data), info);
                let depth = self.field(depth, at.data);
                self.stacks.leave(at.task(), depth);
                self.put_missing(at, batch);
                let out = self.out(at.row(RowKind::Enter).function(Some(function)), at);
                let entry = self.output.put_entry(out, batch);
                self.stacks
                    .enter(at.task(), function, depth, (at.time, entry));
            }
            Meaning::Exit(exit) if self.exits_alone => self.whole_call(exit, at, info, batch),
            Meaning::Exit(exit) => self.exit(exit, at, info, batch),
            Meaning::Function { ip, parent } => {
                let function = self.function(self.field(ip, at.data), info);
                let site = parent.as_ref().map_or(0, |it| self.field(it, at.data));
                // An address without a symbol is in no known function.
                let symbol = self.trace.symbols.find(site);
                let offset = symbol.map(|symbol| site - symbol.address);
                let caller = offset.map(|offset| Caller {
                    function: self.function(site, info),
                    offset: u32::try_from(offset).unwrap_or(0),
                });
                let row = at.row(RowKind::Called).function(Some(function));
                self.row(row.called_by(caller), at, batch);
            }
            Meaning::Switch(switch) => self.switch(switch, at, info, batch),
            _ => self.rare(meaning, at, info, batch),
        }
    }

    /// Handles records that are rarer than function calls.
    #[inline(never)]
    fn rare(&mut self, meaning: &Meaning, at: &At<'_>, info: &mut TraceInfo, batch: &mut Batch) {
        match meaning {
            Meaning::Wakeup { pid, comm } | Meaning::NewWakeup { pid, comm } => {
                let is_new = matches!(meaning, Meaning::NewWakeup { .. });
                let pid = self.pid(pid, at.data);
                if is_new {
                    self.woken(pid, at, info, batch);
                }
                self.name(pid, comm.as_ref(), at, info, batch);
                match self.output.thread(pid, &mut info.identities) {
                    Some(thread) => self.event(EventKind::Ready { thread }, at, batch),
                    None => self.other(at, batch),
                }
            }
            Meaning::Fork { pid, comm } => {
                let pid = self.pid(pid, at.data);
                self.created(pid, at, info, batch);
                self.name(pid, Some(comm), at, info, batch);
                self.other(at, batch);
            }
            Meaning::ThreadExit { pid, comm } => {
                let pid = self.pid(pid, at.data);
                self.name(pid, comm.as_ref(), at, info, batch);
                self.output.exits(pid, &mut info.identities);
                self.other(at, batch);
            }
            Meaning::Rename { pid, comm } => {
                let pid = pid.as_ref().map_or(at.pid, |pid| self.pid(pid, at.data));
                self.name(pid, Some(comm), at, info, batch);
                self.other(at, batch);
            }
            Meaning::Print => self.print(at, info, batch),
            Meaning::Power { event, state, cpu } => {
                let [state, cpu] = [state, cpu].map(|it| self.field(it, at.data) as u32);
                self.event(power(event, state.into(), cpu), at, batch);
            }
            Meaning::Exec { filename } => {
                let name = self.trace.scope().text(filename, at.data);
                // The kernel names the thread by the last part of the path, truncated to 15 bytes.
                let name = name.rsplit('/').next().unwrap_or_default();
                let name: String = name.chars().take(15).collect();
                self.rename(at.pid, &name, at, info, batch);
                self.other(at, batch);
            }
            Meaning::IrqEntry { .. } if self.alone.interrupts => self.other(at, batch),
            Meaning::KindEntry { kind, .. }
                if self.alone.softirqs && *kind == InterruptKind::Soft =>
            {
                self.other(at, batch);
            }
            Meaning::IrqEntry { irq, name } => {
                let irq = self.field(irq, at.data);
                let name = name
                    .as_ref()
                    .map(|it| self.trace.scope().text(it, at.data).into_owned());
                let interrupt =
                    self.interrupt(InterruptKind::Hard, irq, name.as_deref(), at, info, batch);
                self.row(at.row(RowKind::IsrEnter).interrupt(interrupt), at, batch);
            }
            Meaning::IrqExit { irq } => {
                let irq = self.field(irq, at.data);
                let interrupt = self.interrupt(InterruptKind::Hard, irq, None, at, info, batch);
                self.row(at.row(RowKind::IsrExit).interrupt(interrupt), at, batch);
            }
            Meaning::KindEntry { kind, number, name } => {
                let number = self.field(number, at.data);
                let softirq = || SOFTIRQS.get(usize::try_from(number).ok()?).copied();
                let name = match kind {
                    InterruptKind::Soft => softirq().map(|name| format!("softirq {name}")),
                    _ => Some(name.clone()),
                };
                let interrupt = self.interrupt(*kind, number, name.as_deref(), at, info, batch);
                self.row(at.row(RowKind::IsrEnter).interrupt(interrupt), at, batch);
            }
            Meaning::KindExit { kind, number } => {
                let number = self.field(number, at.data);
                let interrupt = self.interrupt(*kind, number, None, at, info, batch);
                self.row(at.row(RowKind::IsrExit).interrupt(interrupt), at, batch);
            }
            Meaning::CallEntry { name } if self.calls => {
                self.system_call_entry(Syscall::Named(name), at, info, batch);
            }
            Meaning::CallExit { name, child } if self.calls => {
                let returned = child.as_ref().map(|ret| self.field(ret, at.data));
                self.system_call_exit((Syscall::Named(name), returned), at, info, batch);
            }
            Meaning::NumberedEntry { id } if self.calls => {
                let number = self.pid(id, at.data);
                self.system_call_entry(Syscall::Numbered(number), at, info, batch);
            }
            Meaning::NumberedExit { id, ret } if self.calls => {
                let number = self.pid(id, at.data);
                let returned = ret.as_ref().map(|ret| self.field(ret, at.data));
                self.system_call_exit((Syscall::Numbered(number), returned), at, info, batch);
            }
            _ => self.other(at, batch),
        }
    }

    /// Returns a signed 32-bit field.
    fn pid(&self, field: &kymo_ftrace::FieldFormat, data: &[u8]) -> i32 {
        (self.field(field, data) as u32).cast_signed()
    }

    /// Returns the event's name and fields.
    fn details(&self, at: &At<'_>) -> (Cow<'static, str>, Vec<Field>) {
        let event: Option<&EventFormat> =
            event_id(&self.trace, at.data).and_then(|id| self.trace.formats.get(id as u16));
        match event {
            Some(event) => {
                let fields = fields::all(event, &self.trace.scope(), at.data, at.pid);
                (event.name.clone().into(), fields)
            }
            None => {
                let id = event_id(&self.trace, at.data).unwrap_or(0);
                let bytes = kymo_event::Value::Bytes(at.data.to_vec());
                (
                    format!("event {id}").into(),
                    vec![Field::new("data", bytes)],
                )
            }
        }
    }

    /// Adds a record whose meaning is this row.
    #[inline]
    fn row(&mut self, row: Row, at: &At<'_>, batch: &mut Batch) {
        let out = self.out(row, at);
        self.output.put(out, batch);
    }

    /// Returns the row, with the record's name and fields if those of all records are wanted.
    #[inline]
    fn out(&self, row: Row, at: &At<'_>) -> Out {
        let event = match self.wanted {
            Wanted::Everything | Wanted::Records => Some(self.reported(&row, at)),
            _ => None,
        };
        Out::new(row, Some(at.pid), event)
    }

    #[inline(never)]
    fn reported(&self, row: &Row, at: &At<'_>) -> Box<Reported> {
        let (name, fields) = self.details(at);
        let event = kymo_event::EventRef { row, event: None };
        Reported::record(event.kind(), name, fields, at.time)
    }

    /// Adds a record whose meaning no row can represent.
    fn event(&mut self, kind: EventKind, at: &At<'_>, batch: &mut Batch) {
        let (name, fields) = match self.wanted {
            Wanted::Meaning => ("".into(), Vec::new()),
            _ => self.details(at),
        };
        let reported = Reported::record(kind, name, fields, at.time);
        let out = Out::new(at.row(RowKind::Rare), Some(at.pid), Some(reported));
        self.output.put(out, batch);
    }

    /// Adds a record without a known meaning.
    #[inline(never)]
    fn other(&mut self, at: &At<'_>, batch: &mut Batch) {
        match self.wanted {
            Wanted::Meaning => self.output.put_row(at.row(RowKind::Other), at.pid, batch),
            _ => self.event(EventKind::Other, at, batch),
        }
    }
}

/// Time, origin and common fields of a record.
struct At<'a> {
    place: Place,
    time: Time,
    /// Time of the record before it, on any CPU.
    before: Time,
    ticks: u64,
    data: &'a [u8],
    pid: i32,
    thread: Option<ThreadId>,
}

impl At<'_> {
    /// Returns the task that the record's calls belong to.
    #[inline]
    fn task(&self) -> Task {
        Task::new(self.pid, self.place.cpu)
    }

    #[inline]
    fn row(&self, kind: RowKind) -> Row {
        let stream = Reader::stream(self.place);
        Row::new(kind, self.time, stream).at(Some(Cpu(self.place.cpu)), self.thread)
    }
}
