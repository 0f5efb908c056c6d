//! Parallel decoding of the streams of a buffer, and of parts of one stream.
//!
//! A trace unit periodically emits all state that a decoder needs, so a worker can start in the middle of a stream. It
//! does not count trace until its decoder has the state of one that started at the beginning. A worker that reaches the
//! start of the next part compares its state with that of the next part's worker. If both are equal, down to the last
//! address of the address history, all later results are equal too, and the sum of the parts' counts is the count of
//! the whole. If they differ (the trace unit emitted less than it could), the worker continues through the next part,
//! whose counts are dropped. So the result never depends on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Counts;
use super::counter::Counter;
use crate::flow::{EtmV4Options, Flow};
use crate::frames::{Segment, Stream};
use crate::input::Buffer;
use crate::listing::PacketDecoder;
use crate::memory::Memory;
use crate::selection::{Selection, Tracker};
use crate::source::{Protocol, Source};

/// Division of the work into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Maximum number of threads.
    pub threads: usize,
    /// Minimum size of a part in bytes.
    pub least: usize,
}

impl Cut {
    /// Default for this number of threads. Parts are long enough that the repeated discovery of blocks does not matter.
    pub fn of(threads: usize) -> Self {
        Cut {
            threads,
            least: 256 << 10,
        }
    }
}

/// Number of packets after a synchronization within which all state was emitted again.
const SETTLING: u64 = 192;

/// Number of packets after which a part begins even without a timestamp, and an unsynchronized part is abandoned.
const LONGEST_SETTLING: u64 = 2048;

/// Stream with its source and code.
#[derive(Clone, Copy)]
struct Work<'a> {
    /// Index of the source.
    index: usize,
    source: &'a Source,
    code: &'a Memory,
    stream: &'a Stream<'a>,
    options: EtmV4Options,
    selection: &'a Selection,
    buffer: &'a Buffer,
}

/// Decoder state of one thread in a stream.
struct Worker<'a> {
    work: Work<'a>,
    /// Current segment, and those that follow.
    segment: Segment,
    segments: std::vec::IntoIter<Segment>,
    decoder: PacketDecoder<'a>,
    flow: Flow<&'a Memory>,
    counter: Counter<'a>,
}

impl<'a> Work<'a> {
    /// Creates a worker at a position of the stream: its first byte, or a synchronization.
    fn worker(self, at: usize) -> Worker<'a> {
        let mut segments = self.stream.segments().collect::<Vec<_>>().into_iter();
        let is_there = |segment: &Segment| at == 0 || segment.end > at;
        let segment = segments.by_ref().find(is_there);
        let mut segment = segment.unwrap_or(Segment {
            start: 0,
            end: self.stream.bytes.len(),
            session: None,
            lost_before: None,
            goes_on: false,
        });
        let tracker = Tracker::new(
            &self.source.protocol,
            self.buffer,
            self.selection,
            self.index,
        );
        let mut counter = Counter::new(tracker);
        let mut flow = Flow::new(&self.source.protocol, self.options, self.code);
        if at > 0 {
            segment.start = at;
            segment.goes_on = false;
        }
        flow.begin(&segment, &mut counter);
        Worker {
            work: self,
            decoder: self.decoder(&segment),
            segment,
            segments,
            flow,
            counter,
        }
    }

    fn decoder(&self, segment: &Segment) -> PacketDecoder<'a> {
        let bytes = self.stream.bytes.get(..segment.end).unwrap_or_default();
        PacketDecoder::new(&self.source.protocol, bytes, segment.start)
    }

    /// Start positions of workers such that none has less than `least` bytes.
    fn cuts(&self, least: usize) -> Vec<usize> {
        let zeros = match self.source.protocol {
            Protocol::EtmV4(_) => 11,
            Protocol::EtmV3(_) | Protocol::Ptm(_) => 5,
            Protocol::Stm(_) | Protocol::Itm(_) => return Vec::new(),
        };
        let bytes = &self.stream.bytes;
        let least = least.max(1);
        let mut cuts = Vec::new();
        let mut from = least;
        while from + least <= bytes.len() {
            let Some(at) = synchronization(&bytes[from..], zeros) else {
                break;
            };
            cuts.push(from + at);
            from += at + least;
        }
        cuts
    }
}

/// First run of this many zeros followed by 0x80. In the middle of a packet it is no synchronization: then no worker's
/// state equals that of the one that starts there.
fn synchronization(bytes: &[u8], zeros: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes.get(from..)?.iter().position(|byte| *byte == 0x80) {
        let end = from + at;
        let start = end.saturating_sub(zeros);
        if end >= zeros && bytes[start..end].iter().all(|byte| *byte == 0) {
            return Some(start);
        }
        from = end + 1;
    }
    None
}

/// Start of a part: a worker without counts, and a copy of its state for the comparison.
struct Beginning<'a> {
    worker: Worker<'a>,
    likeness: Worker<'a>,
}

impl<'a> Worker<'a> {
    /// Position of the next packet.
    fn position(&self) -> usize {
        self.decoder.next_start().unwrap_or(usize::MAX)
    }

    /// Decodes up to a position, or to the end.
    fn run_to(&mut self, position: usize) {
        loop {
            let packets = self
                .flow
                .run_to(&mut self.decoder, position, &mut self.counter);
            self.counter.counts.packets += packets;
            if self.position() >= position && position < self.segment.end {
                return;
            }
            let Some(next) = self.segments.next() else {
                return;
            };
            self.segment = next;
            self.flow.begin(&next, &mut self.counter);
            self.decoder = self.work.decoder(&next);
        }
    }

    /// Decodes until all of the worker's state is from trace after its start. `None` if the segment or position `end`
    /// is reached before, or if the state stays incomplete for too long.
    fn settle(mut self, end: usize) -> Option<Beginning<'a>> {
        let has_timestamp = |decoder: &PacketDecoder<'_>| match decoder {
            PacketDecoder::EtmV4(decoder) => decoder.has_timestamp(),
            _ => true,
        };
        let needs_timestamp = match self.work.source.protocol {
            Protocol::EtmV4(config) => config.has_timestamps(),
            _ => false,
        };
        let mut packets = 0;
        while self.position() < end.min(self.segment.end) {
            let next = self.position() + 1;
            packets += self.flow.run_to(&mut self.decoder, next, &mut self.counter);
            let is_long = packets >= LONGEST_SETTLING;
            let has_all = !needs_timestamp || has_timestamp(&self.decoder);
            if !self.flow.is_under_way() {
                if is_long {
                    return None;
                }
            } else if packets >= SETTLING && (has_all || is_long) {
                self.counter = self.counter.emptied();
                let likeness = self.likeness();
                return Some(Beginning {
                    worker: self,
                    likeness,
                });
            }
        }
        None
    }

    /// Copy of the worker's state.
    fn likeness(&self) -> Worker<'a> {
        Worker {
            work: self.work,
            segment: self.segment,
            segments: self.segments.clone(),
            decoder: self.decoder.clone(),
            flow: self.flow.clone(),
            counter: self.counter.emptied(),
        }
    }

    /// Whether another worker decodes the following trace in the same way.
    fn is_like(&self, other: &Self) -> bool {
        self.segment.end == other.segment.end
            && self.decoder.is_like(&other.decoder)
            && self.flow.is_like(&other.flow)
            && self.counter.is_like(&other.counter)
    }

    /// Ends the worker. Returns its counts, and its flow for the blocks.
    fn finish(self) -> (Counts, Flow<&'a Memory>) {
        let mut counts = match self.flow.blocks() {
            Some(blocks) => self.counter.finish(blocks),
            None => self.counter.counts,
        };
        counts.doubts.locate(self.work.stream);
        (counts, self.flow)
    }

    /// Ends the worker at the end of the stream.
    fn finish_stream(mut self) -> Counts {
        self.flow.finish_stream(self.work.stream, &mut self.counter);
        let Work { source, stream, .. } = self.work;
        let (mut counts, _) = self.finish();
        counts.doubts.messages(&source.protocol, stream);
        counts
    }
}

/// Result of a part.
enum Done<'a> {
    /// Final counts: the part ends at the next one's start, or with the stream.
    Counts(Box<Counts>),
    /// Worker whose state differs from the next part's start.
    Open(Box<Worker<'a>>),
}

/// Parts of a stream.
struct Parts<'a> {
    work: Work<'a>,
    /// Workers not started yet.
    workers: Vec<Mutex<Option<Worker<'a>>>>,
    /// State of the second and later workers at their start.
    likenesses: Vec<Worker<'a>>,
    done: Vec<Mutex<Option<Done<'a>>>>,
}

impl<'a> Parts<'a> {
    fn new(work: Work<'a>, least: Option<usize>) -> Self {
        let cuts = least.map(|least| work.cuts(least)).unwrap_or_default();
        let mut workers = vec![work.worker(0)];
        let mut likenesses = Vec::new();
        for (number, at) in cuts.iter().enumerate() {
            let end = cuts.get(number + 1).copied().unwrap_or(usize::MAX);
            if let Some(begins) = work.worker(*at).settle(end) {
                workers.push(begins.worker);
                likenesses.push(begins.likeness);
            }
        }
        Parts {
            work,
            done: workers.iter().map(|_| Mutex::default()).collect(),
            workers: workers
                .into_iter()
                .map(|worker| Mutex::new(Some(worker)))
                .collect(),
            likenesses,
        }
    }

    /// Runs a worker to the start of the next part. `finished` is the flow of a part that the thread has finished, and
    /// then of this one.
    fn run(&self, number: usize, finished: &mut Option<Flow<&'a Memory>>) {
        let worker = self
            .workers
            .get(number)
            .and_then(|worker| worker.lock().ok()?.take());
        let Some(mut worker) = worker else { return };
        if let Some(finished) = finished.take() {
            worker.flow.adopt_blocks(finished);
        }
        let done = match self.likenesses.get(number) {
            None => {
                worker.run_to(usize::MAX);
                Done::Counts(Box::new(worker.finish_stream()))
            }
            Some(next) => {
                worker.run_to(next.position());
                if worker.is_like(next) {
                    let (counts, flow) = worker.finish();
                    *finished = Some(flow);
                    Done::Counts(Box::new(counts))
                } else {
                    Done::Open(Box::new(worker))
                }
            }
        };
        if let Some(place) = self.done.get(number)
            && let Ok(mut place) = place.lock()
        {
            *place = Some(done);
        }
    }

    /// Sums up the parts. Also returns the number of parts whose counts were used.
    fn join(mut self) -> (Counts, usize) {
        if let [only] = &mut self.done[..] {
            let done = only.get_mut().ok().and_then(Option::take);
            if let Some(Done::Counts(counts)) = done {
                return (*counts, 1);
            }
        }
        let mut counts = Counts::default();
        let mut parts = 0;
        let mut open: Option<Worker<'a>> = None;
        let likenesses = self.likenesses;
        for (number, done) in self.done.into_iter().enumerate() {
            let Some(done) = done.into_inner().ok().flatten() else {
                continue;
            };
            if let Some(worker) = &mut open {
                // The previous worker's state differs from this one's at its start, so it decodes this part itself.
                match likenesses.get(number) {
                    Some(next) => worker.run_to(next.position()),
                    None => worker.run_to(usize::MAX),
                }
                let is_over = match likenesses.get(number) {
                    Some(next) => worker.is_like(next),
                    None => false,
                };
                if is_over && let Some(worker) = open.take() {
                    counts.append(worker.finish().0);
                    parts += 1;
                }
                continue;
            }
            match done {
                Done::Counts(more) => {
                    counts.append(*more);
                    parts += 1;
                }
                Done::Open(worker) => open = Some(*worker),
            }
        }
        if let Some(worker) = open {
            counts.append(worker.finish_stream());
            parts += 1;
        }
        counts.merge();
        (counts, parts)
    }
}

/// Counts executions of each source of a buffer that `wants` selects by its index, on at most `threads` threads. The
/// result is in the order of the sources.
pub fn of_buffer(
    buffer: &Buffer,
    options: EtmV4Options,
    selection: &Selection,
    threads: usize,
    wants: impl Fn(usize) -> bool + Sync,
) -> Vec<(usize, Counts)> {
    let counted = of_buffer_cut(buffer, options, selection, Cut::of(threads), wants);
    let counts = counted.into_iter();
    counts.map(|(index, counts, _)| (index, counts)).collect()
}

/// Like [`of_buffer`], with an explicit division of the work. Also returns the number of parts of each source.
pub fn of_buffer_cut(
    buffer: &Buffer,
    options: EtmV4Options,
    selection: &Selection,
    cut: Cut,
    wants: impl Fn(usize) -> bool + Sync,
) -> Vec<(usize, Counts, usize)> {
    let streams = buffer.frames.streams.iter();
    let all = streams.filter_map(|stream| {
        let index = buffer.source_of(stream).filter(|index| wants(*index))?;
        Some(Work {
            index,
            source: buffer.sources.get(index)?,
            code: buffer.code.get(index)?,
            stream,
            options,
            selection,
            buffer,
        })
    });
    let all: Vec<Work<'_>> = all.collect();
    let threads = cut.threads.max(1);
    let bytes: usize = all.iter().map(|work| work.stream.bytes.len()).sum();
    // The same number of parts for each thread, because their lengths are about equal; up to three, because their
    // speeds are not.
    let most = (bytes / cut.least.max(1)).min(3 * threads);
    let most = if most > threads {
        most / threads * threads
    } else {
        most
    };
    // A selection by instruction counts needs the count at each part's start, so such a stream is not divided.
    let is_cut = threads > 1 && most > 1 && selection.instructions.is_none();
    let least = is_cut.then(|| bytes / most);
    let parts: Vec<Parts<'_>> = all
        .into_iter()
        .map(|work| Parts::new(work, least))
        .collect();
    // Longest first, so that no thread has to wait for one that began late.
    let mut order: Vec<(usize, usize, usize)> = Vec::new();
    for (stream, parts) in parts.iter().enumerate() {
        let ends = parts.likenesses.iter().map(Worker::position);
        let ends = ends.chain([parts.work.stream.bytes.len()]);
        let mut start = 0;
        for (number, end) in ends.enumerate() {
            order.push((end.saturating_sub(start), stream, number));
            start = end;
        }
    }
    order.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    let next = AtomicUsize::new(0);
    let work = || {
        // One flow for each stream.
        let mut finished: Vec<Option<Flow<&Memory>>> = parts.iter().map(|_| None).collect();
        while let Some((_, stream, number)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let (Some(parts), Some(finished)) = (parts.get(*stream), finished.get_mut(*stream)) {
                parts.run(*number, finished);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, order.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let mut counts: Vec<(usize, Counts, usize)> = parts
        .into_iter()
        .map(|parts| {
            let index = parts.work.index;
            let (counts, parts) = parts.join();
            (index, counts, parts)
        })
        .collect();
    counts.sort_by_key(|(index, ..)| *index);
    counts
}
