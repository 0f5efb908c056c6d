//! Decoding of one trace source on a separate thread.
//!
//! Sources are independent. Each is decoded ahead by a few chunks, and the merge takes chunks in order of time. A chunk
//! carries the definitions of everything that it names for the first time.

mod off_cpu;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use kymo_coresight::Protocol;
use kymo_coresight::calls::{Edge, Edges};
use kymo_coresight::clock::{Clock, Measure, Placed};
use kymo_coresight::doubts::Doubts;
use kymo_coresight::element::{Element, Transaction, Unsynced};
use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::Offsets;
use kymo_coresight::input::Buffer;
use kymo_coresight::memory::{Memory, View};
use kymo_coresight::perf::{Missing, TimeConversion};
use kymo_coresight::remarks::{self, Remark};
use kymo_event::TraceCounts;

use super::program::{Binaries, Code, Definition, NO_THREAD, Threads, Unknown};
use super::software::{self, Message};
use off_cpu::OffCpu;

/// Number of chunks that are decoded ahead.
const AHEAD: usize = 4;

/// Number of elements in a chunk.
const CHUNK: usize = 4096;

/// Element of a source.
#[derive(Debug)]
pub(super) enum What {
    /// Execution may have reached another function.
    Edge(Edge),
    /// The code of this file at an address is not the code that ran.
    Mismatch(u64, Option<String>),
    /// The trace unit detected a configured event; `None` is the trigger.
    Event(Option<u8>),
    /// Software wrote a value into the trace, at this exception level.
    Value(u8, u64),
    /// Event of a transaction.
    Transaction(Transaction),
    /// A load or store: its address and its value, as far as they are traced.
    Data(Option<u32>, Option<u32>),
    /// The trace unit omitted loads and stores.
    DataSuppressed,
    /// Message of an STM or ITM.
    Message(Message),
    /// The trace unit is off from here to the next element.
    Pause,
    /// Like `Pause`, but nothing else is missing: the unit was off while its trace was read, or the thread did not run.
    Restart,
    /// The CPU switches to this thread, or to none of the recording, according to the kernel.
    Runs(Option<u32>),
    /// Last time that the source has. Later times are extrapolated.
    LastTime,
    /// The timestamps went back: times continue at the previous rate.
    StepBack,
    /// The source ends.
    End,
}

/// Element with its time and offset.
#[derive(Debug)]
pub(super) struct Item {
    pub time: i64,
    /// Times of the trace before and after it: its own time lies between them.
    pub bounds: (i64, i64),
    /// Offset in the buffer.
    pub offset: u64,
    pub what: What,
}

impl End {
    /// Adds the totals of another source.
    pub fn add(&mut self, other: End) {
        self.counts.add(&other.counts);
        self.remarks.extend(other.remarks);
        if other.widest > self.widest {
            (self.widest, self.is_widest_by_cycles) = (other.widest, other.is_widest_by_cycles);
        }
        self.backward += other.backward;
        self.of_any = self.of_any.max(other.of_any);
        self.timeless += other.timeless;
        self.brief += other.brief;
    }
}

/// Part of a source's elements.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// New functions, in order of their numbers.
    pub functions: Vec<Definition>,
    /// New code without symbols, likewise.
    pub unknown: Vec<Unknown>,
    pub items: Vec<Item>,
    /// Totals of the source, in its last chunk.
    pub end: Option<End>,
}

/// Totals of a source.
#[derive(Clone, Debug, Default)]
pub(super) struct End {
    /// Counts of its trace.
    pub counts: TraceCounts,
    /// Remarks on untracked and mismatching code, with the buffer's number.
    pub remarks: Vec<(usize, Remark)>,
    /// Longest interval between two times of the trace.
    pub widest: u64,
    /// Whether cycle counts spread the events in it.
    pub is_widest_by_cycles: bool,
    pub backward: u64,
    /// Number of processes with memory, if the running one was not always known.
    pub of_any: usize,
    /// Streams of messages without timestamps.
    pub timeless: u64,
    /// Sources of instructions with fewer than two timestamps, if others have more.
    pub brief: u64,
}

/// Stream of a buffer, and its source.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub buffer: Arc<Buffer>,
    /// Number of the buffer in the input.
    pub number: usize,
    /// Index of the stream in the buffer.
    pub stream: usize,
    /// Index of its source in the buffer.
    pub source: usize,
}

/// Returns the process of a thread.
pub(super) type ProcessOf = dyn Fn(u32) -> u32 + Send + Sync;

/// Input of a decoding thread.
pub(super) struct Work {
    /// Parts in order of time.
    pub parts: Vec<Part>,
    pub measure: Measure,
    /// Offset that is subtracted from timestamps.
    pub origin: u64,
    pub conversion: Option<TimeConversion>,
    pub binaries: Arc<Binaries>,
    /// Thread of the whole trace.
    pub thread: Option<u32>,
    /// Whether the trace has thread numbers. They are all 0 if the kernel does not write them.
    pub reports_threads: bool,
    /// Returns the process of each thread, if the trace is of processes.
    pub process_of: Option<Arc<ProcessOf>>,
    /// Files that the input lacks.
    pub absent: Arc<Vec<Missing>>,
    pub options: EtmV4Options,
}

impl Work {
    /// Decodes on a separate thread. Chunks arrive until the source ends.
    pub fn start(self) -> Receiver<Chunk> {
        let (sender, receiver) = sync_channel(AHEAD);
        thread::spawn(move || self.run(sender));
        receiver
    }

    fn threads(&self, part: &Part) -> Option<Threads> {
        let source = part.buffer.sources.get(part.source)?;
        Some(Threads {
            protocol: source.protocol,
            always: self.thread,
            scheduled: (!self.reports_threads).then_some(None),
        })
    }

    /// Returns the context switches of the CPU, if the times of elements are those of the kernel.
    fn off_cpu(&self) -> OffCpu {
        let parts = self.parts.iter();
        let mut code = parts.filter_map(|part| part.buffer.code.get(part.source));
        let ends = code.clone().filter_map(Memory::end);
        match code.next() {
            Some(first) if self.measure == Measure::Timestamps && self.thread.is_none() => {
                OffCpu::new(first.switches(), ends.max().unwrap_or_default())
            }
            _ => OffCpu::default(),
        }
    }

    fn run(&self, sender: SyncSender<Chunk>) {
        let none = Memory::default();
        let mut state = State {
            clock: Clock::new(self.measure, self.conversion, self.origin),
            placed: Vec::new(),
            chunk: Chunk::default(),
            off_cpu: self.off_cpu(),
            sender,
            is_closed: false,
        };
        let source = self.parts.first();
        let source = source.and_then(|part| part.buffer.sources.get(part.source));
        state.clock.restarts_at_timestamps =
            source.is_some_and(|source| matches!(source.protocol, Protocol::Ptm(_)));
        let mut code = Code::new(&none, &self.binaries, self.process_of.as_deref());
        code.threads = self.parts.first().and_then(|part| self.threads(part));
        let mut edges = Edges::new(&mut code);
        if edges.thread() != NO_THREAD {
            // The whole trace is of one thread, which no packet names.
            let thread = edges.thread();
            let began = What::Edge(Edge::Thread { thread });
            state.clock.push(0, (0, began), &mut state.placed);
        }
        let (mut counts, mut remarks) = (TraceCounts::default(), Vec::new());
        let mut timeless = 0;
        for (index, part) in self.parts.iter().enumerate() {
            let (Some(stream), Some(source), Some(memory)) = (
                part.buffer.frames.streams.get(part.stream),
                part.buffer.sources.get(part.source),
                part.buffer.code.get(part.source),
            ) else {
                continue;
            };
            let mut output = Output {
                state,
                measure: self.measure,
                offsets: stream.offsets(),
                memory: Some(memory),
                view: View::default(),
            };
            let goes_on = index > 0 && stream.follows_another();
            if index > 0 {
                let why = if goes_on { What::Restart } else { What::Pause };
                output.pause(edges.instructions(), 0, Some(why));
            }
            let mut doubts = Doubts::default();
            if software::is_software(&source.protocol) {
                let times = software::read(&source.protocol, stream, &mut output, &mut counts);
                timeless = timeless.max(u64::from(times == software::Times::None));
            } else {
                code.enter(memory, self.threads(part));
                // Blocks have other numbers in each part.
                edges.forget_code();
                let mut flow = Flow::new(&source.protocol, self.options, memory);
                let mut follower = Follower {
                    edges: &mut edges,
                    code: &mut code,
                    output: &mut output,
                    doubts: &mut doubts,
                    counts: &mut counts,
                    goes_on,
                };
                let packets = flow.run_stream(&source.protocol, stream, &mut follower);
                counts.packets += packets;
            }
            doubts.locate(stream);
            doubts.messages(&source.protocol, stream);
            let found = remarks::of_doubts(&doubts, &part.buffer, part.source, &self.absent);
            remarks.extend(found.into_iter().map(|remark| (part.number, remark)));
            state = output.state;
        }
        state
            .clock
            .push(edges.instructions(), (0, What::End), &mut state.placed);
        state.finish(
            (code.new, code.new_unknown),
            End {
                counts,
                remarks,
                of_any: code.of_any,
                timeless,
                ..End::default()
            },
        );
    }
}

/// Elements in progress: they get a time, then they are sent in chunks.
struct State {
    clock: Clock<(u64, What)>,
    placed: Vec<Placed<(u64, What)>>,
    chunk: Chunk,
    off_cpu: OffCpu,
    sender: SyncSender<Chunk>,
    /// Whether the receiver is gone.
    is_closed: bool,
}

impl State {
    fn take(&mut self) {
        if self.clock.backward > 0 {
            self.off_cpu.disable();
        }
        for placed in self.placed.drain(..) {
            let item = Item {
                time: placed.time,
                bounds: (placed.earliest, placed.latest),
                offset: placed.what.0,
                what: placed.what.1,
            };
            self.off_cpu.add(item, &mut self.chunk.items);
        }
    }

    fn send(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        if !self.is_closed {
            self.is_closed = self.sender.send(chunk).is_err();
        }
    }

    fn finish(mut self, (functions, unknown): (Vec<Definition>, Vec<Unknown>), end: End) {
        let last_time = (0, What::LastTime);
        self.clock.finish(Some(last_time), &mut self.placed);
        self.take();
        self.chunk.functions.extend(functions);
        self.chunk.unknown.extend(unknown);
        let executed = end.counts.instructions > 0;
        let is_brief = self.clock.measure() == Measure::Timestamps && self.clock.times < 2;
        self.chunk.end = Some(End {
            brief: u64::from(executed && is_brief),
            widest: self.clock.widest,
            is_widest_by_cycles: self.clock.is_widest_by_cycles,
            backward: self.clock.backward,
            ..end
        });
        self.send();
    }
}

/// Output for the elements of a part.
pub(super) struct Output<'a> {
    state: State,
    measure: Measure,
    offsets: Offsets<'a>,
    memory: Option<&'a Memory>,
    view: View,
}

impl Output<'_> {
    /// Returns the file that contains an address.
    fn file_at(&self, address: u64) -> Option<String> {
        self.memory?.name_at(self.view, address).map(str::to_owned)
    }

    /// Adds an element after this number of instructions, from the packet at a position of the stream.
    pub fn push(&mut self, instructions: u64, at: usize, what: What) {
        let offset = self.offsets.of(at);
        let State { clock, placed, .. } = &mut self.state;
        clock.push(instructions, (offset, what), placed);
    }

    /// Adds a timestamp, and the cycles since the last count.
    pub fn timestamp(&mut self, instructions: u64, at: usize, ticks: u64, cycles: Option<u32>) {
        let State { clock, placed, .. } = &mut self.state;
        let before = clock.backward;
        clock.timestamp_with_cycles(instructions, ticks, cycles, placed);
        if clock.backward > before {
            self.push(instructions, at, What::StepBack);
        }
    }

    /// Notes that nothing is traced from here to the next element. With timestamps, adds `why` as an element.
    fn pause(&mut self, instructions: u64, at: usize, why: Option<What>) {
        if self.measure == Measure::Timestamps {
            if let Some(why) = why {
                self.push(instructions, at, why);
            }
            let State { clock, placed, .. } = &mut self.state;
            clock.pause(placed);
        }
    }

    /// Sends the elements that have their time, once there are enough.
    pub fn flush(&mut self, code: Option<&mut Code<'_>>) {
        if self.state.placed.len() >= CHUNK {
            if let Some(code) = code {
                self.state.chunk.functions.append(&mut code.new);
                self.state.chunk.unknown.append(&mut code.new_unknown);
            }
            self.state.take();
            self.state.send();
        }
    }
}

/// Handler of a source's decoded elements.
struct Follower<'f, 'a, 'c> {
    edges: &'f mut Edges,
    code: &'f mut Code<'c>,
    output: &'f mut Output<'a>,
    doubts: &'f mut Doubts,
    counts: &'f mut TraceCounts,
    /// Whether the stream continues the part before it.
    goes_on: bool,
}

impl Sink for Follower<'_, '_, '_> {
    fn unknown_target(&mut self, at: usize) {
        self.element(at, Element::AddressUnknown);
    }

    #[inline]
    fn element(&mut self, at: usize, element: Element) {
        let Self {
            edges,
            code,
            output,
            doubts,
            counts,
            goes_on,
        } = self;
        let begins = matches!(element, Element::NoSync(Unsynced::Init));
        if output.state.is_closed || (*goes_on && begins) {
            return;
        }
        doubts.any(at, &element);
        counts.elements += 1;
        if let Element::Range(range) = &element {
            counts.ranges += 1;
            counts.instructions += u64::from(range.count);
        }
        let before = edges.instructions();
        if let Element::TraceOn { .. } = element {
            edges.pause(&element, &mut |edge| {
                output.push(before, at, What::Edge(edge))
            });
            output.state.clock.gap();
        }
        let scheduled = match element {
            Element::Range(_) => None,
            _ => code.memory.schedule().map(|schedule| schedule.at(at)),
        };
        if let (Some(_), Some(threads)) = (scheduled, &mut code.threads) {
            threads.scheduled = scheduled;
        }
        edges.element(&element, *code, &mut |edge| match edge {
            Edge::Mismatch { address, behind } => {
                let what = What::Mismatch(address, output.file_at(address));
                output.push(before + u64::from(behind), at, what);
            }
            edge => output.push(before, at, What::Edge(edge)),
        });
        if scheduled.is_some() {
            edges.look_for_thread(*code, &mut |edge| output.push(before, at, What::Edge(edge)));
        }
        let now = edges.instructions();
        let State { clock, placed, .. } = &mut output.state;
        clock.count(now, &element, placed);
        match element {
            // The time up to the next timestamp is spent waiting, so instructions do not take all of it.
            Element::Range(range)
                if output.measure == Measure::Timestamps && code.waits(&range) =>
            {
                output.state.clock.gap();
            }
            Element::Timestamp { value, cycles } => output.timestamp(now, at, value, cycles),
            Element::Event(number) => output.push(now, at, What::Event(number)),
            Element::Instrumentation { level, value } => {
                output.push(now, at, What::Value(level, value));
            }
            Element::Transaction(turn) => output.push(now, at, What::Transaction(turn)),
            Element::Data { address, value } => {
                output.push(now, at, What::Data(address, value));
            }
            Element::DataSuppressed => output.push(now, at, What::DataSuppressed),
            Element::NoSync(Unsynced::Init) => {}
            Element::NoSync(why) => {
                output.pause(now, at, (why == Unsynced::Reset).then_some(What::Pause));
            }
            _ => {}
        }
        output.flush(Some(code));
    }

    fn restart(&mut self, at: usize) {
        let instructions = self.edges.instructions();
        self.output.pause(instructions, at, Some(What::Restart));
    }

    fn memory(&mut self, view: View) {
        self.output.view = view;
        self.doubts.view = view;
        if self.code.see(view) {
            let (before, output) = (self.edges.instructions(), &mut *self.output);
            self.edges.replace(&mut |edge| {
                output.push(before, 0, What::Edge(edge));
            });
        }
    }
}
