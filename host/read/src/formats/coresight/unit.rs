//! One source of trace, decoded on a thread of its own.
//!
//! Sources are independent: each is decoded ahead, as far as a few chunks go, and the merge takes chunks in the
//! order of time. What a chunk names for the first time comes with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

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

/// Chunks that are decoded ahead.
const AHEAD: usize = 4;

/// Things of one chunk.
const CHUNK: usize = 4096;

/// Something that happened.
#[derive(Debug)]
pub(super) enum What {
    /// Execution may be in another function.
    Edge(Edge),
    /// The code at an address, of this file, is not what ran.
    Mismatch(u64, Option<String>),
    /// The trace unit saw an event of its configuration; `None` is the trigger.
    Event(Option<u8>),
    /// Software wrote a value into the trace, at this exception level.
    Value(u8, u64),
    /// A transaction.
    Transaction(Transaction),
    /// A load or store: its address and its value, as far as they are traced.
    Data(Option<u32>, Option<u32>),
    /// The trace unit left out loads and stores.
    DataSuppressed,
    /// Of an STM or ITM.
    Message(Message),
    /// The trace unit is off from here on, up to the next element.
    Pause,
    /// The same, and nothing else is missing: it was off while its trace was read, or the thread did not run.
    Restart,
    /// The last time that the source tells: those of what follows are extrapolated.
    LastTime,
    /// The timestamps went back: times go on at the rate before.
    StepBack,
    /// The source ends.
    End,
}

/// Something that happened, and where the trace says so.
#[derive(Debug)]
pub(super) struct Item {
    pub time: i64,
    /// The times of the trace before and behind it: it is no earlier and no later.
    pub bounds: (i64, i64),
    /// Offset in the buffer.
    pub offset: u64,
    pub what: What,
}

impl End {
    /// Adds what is known of another source.
    pub fn add(&mut self, other: End) {
        self.counts.add(&other.counts);
        self.remarks.extend(other.remarks);
        self.widest = self.widest.max(other.widest);
        self.backward += other.backward;
        self.of_any = self.of_any.max(other.of_any);
        self.timeless += other.timeless;
    }
}

/// Some of what a source tells.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Functions that are new, in the order of their numbers.
    pub functions: Vec<Definition>,
    /// The same of code without symbols.
    pub unknown: Vec<Unknown>,
    pub items: Vec<Item>,
    /// What is known of the source as a whole, with its last chunk.
    pub end: Option<End>,
}

/// What is known of a source once it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct End {
    /// What its trace has.
    pub counts: TraceCounts,
    /// What was not followed and what does not fit, with the number of the buffer.
    pub remarks: Vec<(usize, Remark)>,
    /// The longest time between two times of the trace.
    pub widest: u64,
    pub backward: u64,
    /// How many processes have memory, if it was not known which of them ran.
    pub of_any: usize,
    /// Streams of messages without timestamps.
    pub timeless: u64,
}

/// A stream of a buffer, and its source.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub buffer: Arc<Buffer>,
    /// The buffer's number in the input.
    pub number: usize,
    /// The stream of the buffer.
    pub stream: usize,
    /// Its source among those of the buffer.
    pub source: usize,
}

/// Gives the process of a thread.
pub(super) type ProcessOf = dyn Fn(u32) -> u32 + Send + Sync;

/// What a thread needs to decode a source.
pub(super) struct Work {
    /// In the order of time.
    pub parts: Vec<Part>,
    pub measure: Measure,
    /// What is taken off timestamps.
    pub origin: u64,
    pub conversion: Option<TimeConversion>,
    pub binaries: Arc<Binaries>,
    /// The thread that all of it is of.
    pub thread: Option<u32>,
    /// Whether numbers of threads in the trace are such; of a kernel that does not write them, all are 0.
    pub tells_threads: bool,
    /// The process of each thread, where the trace is of processes.
    pub process_of: Option<Arc<ProcessOf>>,
    /// Files that the input has not.
    pub absent: Arc<Vec<Missing>>,
    pub options: EtmV4Options,
}

impl Work {
    /// Decodes on a thread of its own. Chunks come until the source ends.
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
            scheduled: (!self.tells_threads).then_some(None),
        })
    }

    fn run(&self, sender: SyncSender<Chunk>) {
        let none = Memory::default();
        let mut state = State {
            clock: Clock::new(self.measure, self.conversion, self.origin),
            placed: Vec::new(),
            chunk: Chunk::default(),
            sender,
            is_closed: false,
        };
        let mut code = Code::new(&none, &self.binaries, self.process_of.as_deref());
        code.threads = self.parts.first().and_then(|part| self.threads(part));
        let mut edges = Edges::new(&mut code);
        if edges.thread() != NO_THREAD {
            // The whole trace is of one thread, which no packet says.
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

/// Things on their way out: they get a time, then they leave in chunks.
struct State {
    clock: Clock<(u64, What)>,
    placed: Vec<Placed<(u64, What)>>,
    chunk: Chunk,
    sender: SyncSender<Chunk>,
    /// Nobody takes any more.
    is_closed: bool,
}

impl State {
    fn take(&mut self) {
        let items = self.placed.drain(..).map(|placed| Item {
            time: placed.time,
            bounds: (placed.earliest, placed.latest),
            offset: placed.what.0,
            what: placed.what.1,
        });
        self.chunk.items.extend(items);
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
        self.chunk.end = Some(End {
            widest: self.clock.widest,
            backward: self.clock.backward,
            ..end
        });
        self.send();
    }
}

/// Where the things of a part go.
pub(super) struct Output<'a> {
    state: State,
    measure: Measure,
    offsets: Offsets<'a>,
    memory: Option<&'a Memory>,
    view: View,
}

impl Output<'_> {
    /// The file that has an address.
    fn file_at(&self, address: u64) -> Option<String> {
        self.memory?.name_at(self.view, address).map(str::to_owned)
    }

    /// Something happened behind so many instructions, as the packet at a position of the stream says.
    pub fn push(&mut self, instructions: u64, at: usize, what: What) {
        let offset = self.offsets.of(at);
        let State { clock, placed, .. } = &mut self.state;
        clock.push(instructions, (offset, what), placed);
    }

    pub fn timestamp(&mut self, instructions: u64, at: usize, ticks: u64) {
        let State { clock, placed, .. } = &mut self.state;
        let before = clock.backward;
        clock.timestamp(instructions, ticks, placed);
        if clock.backward > before {
            self.push(instructions, at, What::StepBack);
        }
    }

    /// Nothing is traced from here on, up to the next element; what is to be said of that.
    fn pause(&mut self, instructions: u64, at: usize, why: Option<What>) {
        if self.measure == Measure::Timestamps {
            if let Some(why) = why {
                self.push(instructions, at, why);
            }
            let State { clock, placed, .. } = &mut self.state;
            clock.pause(placed);
        }
    }

    fn cycles(&mut self, instructions: u64, cycles: Option<u32>) {
        if let Some(cycles) = cycles {
            let State { clock, placed, .. } = &mut self.state;
            clock.cycles(instructions, cycles, placed);
        }
    }

    /// Hands on what has its time, if that is worth it.
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

/// Follows the elements of a source.
struct Follower<'f, 'a, 'c> {
    edges: &'f mut Edges,
    code: &'f mut Code<'c>,
    output: &'f mut Output<'a>,
    doubts: &'f mut Doubts,
    counts: &'f mut TraceCounts,
    /// Whether the stream goes on with what the part before it ended with.
    goes_on: bool,
}

impl Sink for Follower<'_, '_, '_> {
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
        edges.element(&element, *code, &mut |edge| {
            let what = match edge {
                Edge::Mismatch { address } => What::Mismatch(address, output.file_at(address)),
                edge => What::Edge(edge),
            };
            output.push(before, at, what);
        });
        if scheduled.is_some() {
            edges.look_for_thread(*code, &mut |edge| output.push(before, at, What::Edge(edge)));
        }
        let now = edges.instructions();
        match element {
            Element::Range(range) => {
                output.cycles(now, range.cycles);
                if output.measure == Measure::Timestamps && code.waits(&range) {
                    // Of the time up to the next one, instructions take what they do elsewhere.
                    output.state.clock.gap();
                }
            }
            Element::Cycles(cycles) => output.cycles(now, Some(cycles)),
            Element::TraceOn { cycles, .. } => output.cycles(now, cycles),
            Element::Context(context) => output.cycles(now, context.cycles),
            Element::Timestamp { value, cycles } => {
                output.timestamp(now, at, value);
                output.cycles(now, cycles);
            }
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
