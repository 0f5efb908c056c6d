//! How often code ran, by straight runs and branches: hot spots, coverage and profiles without an event for each
//! instruction or range.
//!
//! Each stream is decoded for itself, so streams are worked on at the same time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::doubts::Doubts;
use crate::element::{Element, Last, Range};
use crate::flow::{AddressHash, Block, EtmV4Options, Flow, Sink};
use crate::frames::Stream;
use crate::input::Buffer;
use crate::instruction::Class;
use crate::isa::Isa;
use crate::memory::View;
use crate::selection::{Selection, Tracker};

/// What ran, of one stream or of several.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Ranges of instructions.
    pub ranges: u64,
    /// Instructions.
    pub instructions: u64,
    /// Instructions of which only the number is known.
    pub without_path: u64,
    /// Exceptions.
    pub exceptions: u64,
    /// Distinct runs, by thread and address.
    pub runs: Vec<Run>,
    /// Branches taken to where only the trace told, by thread and addresses. Those of direct branches are in the runs.
    pub jumps: Vec<Jump>,
    /// What was not followed, and what does not fit.
    pub doubts: Doubts,
}

/// A straight run of instructions, and how often it executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The thread, if known.
    pub thread: Option<u32>,
    /// What was in memory.
    pub view: View,
    /// Address of the first instruction.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// The last instruction.
    pub last: Last,
    /// Where it leads, if it is a direct branch.
    pub target: Option<u64>,
    /// How often it executed.
    pub executions: u64,
    /// How often its last instruction, if a branch, was taken.
    pub taken: u64,
}

impl Run {
    fn key(&self) -> (Option<u32>, View, u64, u64, Isa, u32) {
        let Run {
            thread,
            view,
            start,
            end,
            isa,
            count,
            ..
        } = *self;
        (thread, view, start, end, isa, count)
    }

    /// Address of the last instruction.
    pub fn last_address(&self) -> u64 {
        self.end.wrapping_sub(u64::from(self.last.size))
    }

    /// Whether the last instruction is a branch.
    pub fn is_branch(&self) -> bool {
        matches!(self.last.class, Class::Branch | Class::Indirect)
    }
}

/// A branch that was taken, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The thread, if known.
    pub thread: Option<u32>,
    /// What was in memory.
    pub view: View,
    /// Address of the branch.
    pub from: u64,
    /// Where it went; 0 if the trace does not say, because it ends or stops there.
    pub to: u64,
    /// How often.
    pub count: u64,
}

impl Counts {
    /// Adds what another stream ran.
    pub fn add(&mut self, other: Counts) {
        self.packets += other.packets;
        self.ranges += other.ranges;
        self.instructions += other.instructions;
        self.without_path += other.without_path;
        self.exceptions += other.exceptions;
        self.doubts.add(other.doubts);
        self.runs.extend(other.runs);
        self.runs.sort_unstable_by_key(Run::key);
        self.runs.dedup_by(|next, run| {
            let is_same = run.key() == next.key();
            if is_same {
                run.executions += next.executions;
                run.taken += next.taken;
                run.target = run.target.or(next.target);
            }
            is_same
        });
        self.jumps.extend(other.jumps);
        self.jumps.sort_unstable();
        self.jumps.dedup_by(|next, jump| {
            let key = |jump: &Jump| (jump.thread, jump.view, jump.from, jump.to);
            let is_same = key(jump) == key(next);
            if is_same {
                jump.count += next.count;
            }
            is_same
        });
    }
}

/// Executions of a block by what its last instruction did.
#[derive(Clone, Copy, Debug, Default)]
struct Executions {
    taken: u64,
    not_taken: u64,
}

/// What one thread ran of one stream.
#[derive(Debug, Default)]
struct Thread {
    number: Option<u32>,
    /// By block.
    blocks: HashMap<u64, Executions, AddressHash>,
    /// Ranges that are no block: up to exceptions, of counted instructions.
    others: HashMap<(View, u64, u64), Run>,
    jumps: HashMap<(View, u64, u64), u64, AddressHash>,
}

/// Counts elements.
struct Counter<'a> {
    tracker: Tracker<'a>,
    counts: Counts,
    threads: Vec<Thread>,
    /// Their places in `threads`, by number.
    by_number: HashMap<Option<u32>, usize>,
    /// The one that runs, in `threads`.
    thread: usize,
    /// What it executed since it runs, by block, and the blocks that it did. A vector for each thread would take memory by
    /// the square of the trace.
    blocks: Vec<Executions>,
    touched: Vec<u32>,
    /// Address of a branch that was taken, until it is known where to.
    branch: Option<u64>,
}

impl<'a> Counter<'a> {
    fn new(tracker: Tracker<'a>) -> Self {
        let number = tracker.thread();
        Counter {
            tracker,
            counts: Counts::default(),
            threads: vec![Thread {
                number,
                ..Thread::default()
            }],
            by_number: HashMap::from([(number, 0)]),
            thread: 0,
            blocks: Vec::new(),
            touched: Vec::new(),
            branch: None,
        }
    }

    /// Gives the thread that ran so far what it executed.
    fn settle(&mut self) {
        let known = &mut self.threads[self.thread].blocks;
        for block in self.touched.drain(..) {
            let executions = std::mem::take(&mut self.blocks[block as usize]);
            let sum = known.entry(u64::from(block)).or_default();
            sum.taken += executions.taken;
            sum.not_taken += executions.not_taken;
        }
    }

    fn other_thread(&mut self) {
        self.settle();
        let number = self.tracker.thread();
        let next = self.threads.len();
        self.thread = *self.by_number.entry(number).or_insert(next);
        if self.thread == next {
            self.threads.push(Thread {
                number,
                ..Thread::default()
            });
        }
    }

    /// A branch led here.
    #[inline]
    fn arrive(&mut self, to: u64) {
        if let Some(from) = self.branch.take() {
            *self.threads[self.thread]
                .jumps
                .entry((self.counts.doubts.view, from, to))
                .or_default() += 1;
        }
    }

    /// A block executed. How many ranges and instructions that makes is worked out at the end.
    #[inline]
    fn execution(&mut self, id: u32, end: u64, last: Last, is_taken: bool) {
        let index = id as usize;
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Executions::default());
        }
        let executions = &mut self.blocks[index];
        if executions.taken + executions.not_taken == 0 {
            self.touched.push(id);
        }
        if is_taken {
            executions.taken += 1;
            if last.class == Class::Indirect {
                self.branch = Some(end.wrapping_sub(u64::from(last.size)));
            }
        } else {
            executions.not_taken += 1;
        }
    }

    /// A range that is no block.
    fn other(&mut self, range: &Range) {
        self.counts.ranges += 1;
        self.counts.instructions += u64::from(range.count);
        if range.is_taken && matches!(range.last.class, Class::Branch | Class::Indirect) {
            self.branch = Some(range.end.wrapping_sub(u64::from(range.last.size)));
        }
        let view = self.counts.doubts.view;
        let thread = &mut self.threads[self.thread];
        let run = Run {
            thread: thread.number,
            view,
            start: range.start,
            end: range.end,
            count: range.count,
            isa: range.isa,
            last: range.last,
            target: None,
            executions: 0,
            taken: 0,
        };
        let key = (view, range.start, range.end);
        let run = thread.others.entry(key).or_insert(run);
        run.executions += 1;
        run.taken += u64::from(range.is_taken && run.is_branch());
    }

    /// Adds up what the threads ran; `blocks` are those of the flow.
    fn finish(mut self, blocks: &[Block]) -> Counts {
        self.settle();
        let mut runs: Vec<Run> = Vec::new();
        for thread in self.threads {
            for (index, executions) in &thread.blocks {
                let Some(block) = blocks.get(*index as usize) else {
                    continue;
                };
                let all = executions.taken + executions.not_taken;
                self.counts.ranges += all;
                self.counts.instructions += all * u64::from(block.count);
                let class = block.last.class;
                let is_branch = matches!(class, Class::Branch | Class::Indirect);
                runs.push(Run {
                    thread: thread.number,
                    view: block.view,
                    start: block.start,
                    end: block.end,
                    count: block.count,
                    isa: block.isa,
                    last: block.last,
                    target: (class == Class::Branch).then_some(block.target),
                    executions: all,
                    taken: if is_branch { executions.taken } else { 0 },
                });
            }
            runs.extend(thread.others.into_values());
            let jumps = thread.jumps.into_iter();
            self.counts
                .jumps
                .extend(jumps.map(|((view, from, to), count)| Jump {
                    thread: thread.number,
                    view,
                    from,
                    to,
                    count,
                }));
        }
        // Blocks of several memory spaces can be at one address: they are added up.
        let mut counts = Counts::default();
        self.counts.runs = runs;
        counts.add(self.counts);
        counts
    }
}

impl Sink for Counter<'_> {
    #[inline]
    fn block(&mut self, at: usize, id: u32, block: &Block, is_taken: bool) {
        if !self.tracker.is_selected() {
            return;
        }
        self.arrive(block.start);
        if is_taken && !block.has_no_opcode {
            self.counts.doubts.arrive(at, block.start);
            self.counts.doubts.reach(block.end);
        } else {
            self.counts.doubts.range(at, &block.range(id, is_taken));
        }
        self.execution(id, block.end, block.last, is_taken);
    }

    fn element(&mut self, at: usize, element: Element) {
        if let Element::Range(range) = &element {
            if self.tracker.is_selected() {
                self.arrive(range.start);
                self.counts.doubts.range(at, range);
                match range.block {
                    Some(id) => self.execution(id, range.end, range.last, range.is_taken),
                    None => self.other(range),
                }
            }
            return;
        }
        if self.tracker.take(&element) {
            self.other_thread();
        }
        if !self.tracker.is_selected() {
            self.branch = None;
            return;
        }
        match element {
            Element::RangeWithoutPath { start, count, .. } => {
                self.arrive(start);
                self.counts.without_path += u64::from(count);
            }
            Element::Exception {
                return_address,
                is_branch_target,
                ..
            } => {
                let to = return_address.filter(|_| is_branch_target);
                self.arrive(to.unwrap_or_default());
                self.counts.exceptions += 1;
            }
            Element::NotAccessible { address, .. } => self.arrive(address),
            Element::NoSync(_) | Element::TraceOn { .. } | Element::End(_) => self.arrive(0),
            _ => {}
        }
        self.counts.doubts.element(at, &element);
    }

    fn memory(&mut self, view: View) {
        self.counts.doubts.view = view;
    }
}

/// Counts what one stream of a buffer ran, of which `source` is the source. Nothing if there is no such source.
pub fn of_stream(
    buffer: &Buffer,
    source: usize,
    stream: &Stream<'_>,
    options: EtmV4Options,
    selection: &Selection,
) -> Counts {
    let (Some(source), Some(code)) = (buffer.sources.get(source), buffer.code.get(source)) else {
        return Counts::default();
    };
    let tracker = Tracker::new(&source.protocol, buffer.thread, selection);
    let mut counter = Counter::new(tracker);
    let mut flow = Flow::new(&source.protocol, options, code);
    let packets = flow.run_stream(&source.protocol, stream, &mut counter);
    counter.counts.packets = packets;
    let blocks = flow.blocks().map(|blocks| blocks.all());
    let mut counts = counter.finish(blocks.unwrap_or_default());
    counts.doubts.locate(stream);
    counts.doubts.messages(&source.protocol, stream);
    counts
}

/// Counts what each source of a buffer ran that `wants` chooses by its place, on at most `threads` threads. In the order
/// of the sources.
pub fn of_buffer(
    buffer: &Buffer,
    options: EtmV4Options,
    selection: &Selection,
    threads: usize,
    wants: impl Fn(usize) -> bool + Sync,
) -> Vec<(usize, Counts)> {
    let streams = &buffer.frames.streams;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(stream) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(index) = buffer.source_of(stream).filter(|index| wants(*index)) else {
                continue;
            };
            let counts = of_stream(buffer, index, stream, options, selection);
            if let Ok(mut done) = done.lock() {
                done.push((index, counts));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, streams.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut counts = done.into_inner().unwrap_or_default();
    counts.sort_by_key(|(index, _)| *index);
    counts
}
