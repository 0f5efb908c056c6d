//! How often code ran, by straight runs: hot spots without an event for each instruction or range.
//!
//! Each stream is decoded for itself, so streams are worked on at the same time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::element::{Element, Range};
use crate::flow::{EtmV4Options, Flow, Sink};
use crate::frames::{Stream, TraceId};
use crate::input::Buffer;
use crate::listing::PacketDecoder;
use crate::memory::Images;
use crate::source::Source;

/// What ran, of one stream or of several.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Ranges of instructions.
    pub ranges: u64,
    /// Instructions.
    pub instructions: u64,
    /// Exceptions.
    pub exceptions: u64,
    /// Times that execution went where no image has the code.
    pub not_accessible: u64,
    /// Times that nothing was known any more: overflows, bad packets, code that does not fit the trace.
    pub lost_sync: u64,
    /// Distinct runs, by address.
    pub runs: Vec<Run>,
}

/// A straight run of instructions, and how often it executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Address of the first instruction.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// How often it executed.
    pub executions: u64,
}

impl Counts {
    /// Adds what another stream ran.
    pub fn add(&mut self, other: Counts) {
        self.packets += other.packets;
        self.ranges += other.ranges;
        self.instructions += other.instructions;
        self.exceptions += other.exceptions;
        self.not_accessible += other.not_accessible;
        self.lost_sync += other.lost_sync;
        self.runs.extend(other.runs);
        self.runs.sort_unstable();
        self.runs.dedup_by(|next, run| {
            let is_same = (run.start, run.end, run.count) == (next.start, next.end, next.count);
            if is_same {
                run.executions += next.executions;
            }
            is_same
        });
    }
}

/// Counts elements.
#[derive(Default)]
struct Counter {
    counts: Counts,
    /// Executions of each block.
    blocks: Vec<u64>,
    /// Executions of ranges that are no block: up to exceptions, of single instructions.
    others: HashMap<(u64, u64), (u32, u64)>,
}

impl Sink for Counter {
    #[inline]
    fn element(&mut self, _: usize, element: Element) {
        match element {
            Element::Range(range) => self.range(&range),
            Element::Exception { .. } => self.counts.exceptions += 1,
            Element::NotAccessible { .. } => self.counts.not_accessible += 1,
            Element::NoSync(_) => self.counts.lost_sync += 1,
            _ => {}
        }
    }
}

impl Counter {
    #[inline]
    fn range(&mut self, range: &Range) {
        self.counts.ranges += 1;
        self.counts.instructions += u64::from(range.count);
        match range.block {
            Some(block) => {
                let block = block as usize;
                if block >= self.blocks.len() {
                    self.blocks.resize(block + 1, 0);
                }
                self.blocks[block] += 1;
            }
            None => {
                let entry = self
                    .others
                    .entry((range.start, range.end))
                    .or_insert((range.count, 0));
                entry.1 += 1;
            }
        }
    }
}

/// Counts what one stream ran.
pub fn of_stream(
    source: &Source,
    stream: &Stream<'_>,
    code: &Images,
    options: EtmV4Options,
) -> Counts {
    let mut counter = Counter::default();
    let mut flow = Flow::new(&source.protocol, options, code);
    let mut start = 0;
    let ends = stream.resets.iter().copied().chain([stream.bytes.len()]);
    for end in ends {
        if start > 0 {
            flow.reset();
        }
        let bytes = stream.bytes.get(..end).unwrap_or_default();
        counter.counts.packets += flow.run(
            PacketDecoder::new(&source.protocol, bytes, start),
            &mut counter,
        );
        start = end;
    }
    flow.finish(&mut counter);
    // A decoder that has just begun is no loss.
    counter.counts.lost_sync = counter.counts.lost_sync.saturating_sub(1);
    let mut runs: Vec<Run> = Vec::new();
    if let Some(blocks) = flow.blocks() {
        for (block, executions) in blocks.all().iter().zip(&counter.blocks) {
            if *executions > 0 {
                let executions = *executions;
                runs.push(Run {
                    start: block.start,
                    end: block.end,
                    count: block.count,
                    executions,
                });
            }
        }
    }
    runs.extend(
        counter
            .others
            .iter()
            .map(|((start, end), (count, executions))| Run {
                start: *start,
                end: *end,
                count: *count,
                executions: *executions,
            }),
    );
    let mut counts = Counts::default();
    counts.add(Counts {
        runs,
        ..counter.counts
    });
    counts
}

/// Counts what each source of a buffer ran, on at most `threads` threads. In the order of the streams.
pub fn of_buffer(buffer: &Buffer, options: EtmV4Options, threads: usize) -> Vec<(usize, Counts)> {
    let streams = &buffer.frames.streams;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(stream) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
            let source = match stream.id {
                TraceId::NONE => Some(0),
                id => buffer.sources.iter().position(|source| source.id == id),
            };
            let Some(index) = source else { continue };
            let (Some(source), Some(code)) = (buffer.sources.get(index), buffer.code.get(index))
            else {
                continue;
            };
            let counts = of_stream(source, stream, code, options);
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
