//! Selection of a part of a trace, by threads and instruction counts.
//!
//! Elements have neither: a context changes the current thread, and a range adds a number of instructions. A
//! [`Tracker`] follows both through the elements of one source. [`within`] converts a time window to instruction
//! counts.

mod concurrent;
mod times;

pub use concurrent::{concurrent, contexts};
pub use times::within;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::element::Element;
use crate::input::Buffer;
use crate::listing::PacketDecoder;
use crate::memory::{Memory, Schedule, thread_in};
use crate::source::Protocol;

/// Selected part of a buffer's trace. Defaults to everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these threads, by their numbers.
    pub threads: Option<BTreeSet<u32>>,
    /// Only these instructions of each source, by its index, counted from the beginning of its stream. A range that
    /// contains any of them is selected as a whole.
    pub instructions: Option<Vec<Range<u64>>>,
}

/// Whether the running thread is known anywhere in the trace of a buffer's source, given by its index.
pub fn has_threads(buffer: &Buffer, source: usize) -> bool {
    let Some(protocol) = buffer.sources.get(source).map(|it| it.protocol) else {
        return false;
    };
    let code = buffer.code.get(source);
    let schedule = code.and_then(Memory::schedule).map(Schedule::bytes);
    if buffer.thread.is_some() || schedule.is_some_and(|(bytes, unknown)| unknown < bytes) {
        return true;
    }
    let mut streams = buffer.streams().filter(|(known, _)| *known == source);
    schedule.is_none()
        && streams.any(|(_, stream)| {
            let mut packets = stream.segments().flat_map(|segment| {
                let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
                PacketDecoder::new(&protocol, bytes, segment.start)
            });
            packets.any(|packet| thread_in(&protocol, &packet).is_some())
        })
}

/// Threads in the trace of a buffer's source, by context IDs or the kernel's switches.
pub fn threads(buffer: &Buffer, source: usize) -> BTreeSet<u32> {
    let Some(protocol) = buffer.sources.get(source).map(|it| it.protocol) else {
        return BTreeSet::new();
    };
    if let Some(thread) = buffer.thread {
        return BTreeSet::from([thread]);
    }
    let code = buffer.code.get(source);
    if let Some(schedule) = code.and_then(Memory::schedule) {
        return schedule.threads().collect();
    }
    let (mut threads, mut last) = (BTreeSet::new(), None);
    for (_, stream) in buffer.streams().filter(|(known, _)| *known == source) {
        for segment in stream.segments() {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            for packet in PacketDecoder::new(&protocol, bytes, segment.start) {
                let thread = thread_in(&protocol, &packet);
                if thread.is_some() && thread != last {
                    threads.extend(thread);
                    last = thread;
                }
            }
        }
    }
    threads
}

/// Tracks thread, time and instruction count through the elements of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracker<'a> {
    protocol: Protocol,
    threads: Option<&'a BTreeSet<u32>>,
    instructions: Option<Range<u64>>,
    /// The only thread traced, if the recording is of one thread.
    only: Option<u32>,
    /// Threads of its stream, if the trace does not name them.
    schedule: Option<&'a Schedule>,
    thread: Option<u32>,
    time: Option<u64>,
    /// Number of instructions so far, if counted.
    seen: u64,
    is_thread_selected: bool,
    is_selected: bool,
}

impl<'a> Tracker<'a> {
    /// Creates the tracker of a source, given by its index in the buffer.
    pub fn new(
        protocol: &Protocol,
        buffer: &'a Buffer,
        selection: &'a Selection,
        source: usize,
    ) -> Self {
        let code = buffer.code.get(source);
        let instructions = selection.instructions.as_ref();
        let mut tracker = Tracker {
            protocol: *protocol,
            threads: selection.threads.as_ref(),
            instructions: instructions.map(|all| all.get(source).cloned().unwrap_or_default()),
            only: buffer.thread,
            schedule: code.and_then(Memory::schedule),
            thread: None,
            time: None,
            seen: 0,
            is_thread_selected: true,
            is_selected: true,
        };
        tracker.select();
        tracker
    }

    /// Follows the next element, of the packet at a position of the stream. Returns whether the thread changed.
    #[inline]
    pub fn take(&mut self, at: usize, element: &Element) -> bool {
        let before = self.thread();
        if let Some(schedule) = self.schedule {
            self.thread = schedule.at(at);
            if self.thread != before {
                self.select();
            }
        }
        match element {
            Element::Context(context) if self.schedule.is_none() => {
                self.thread = self.protocol.thread_of(context);
                self.select();
            }
            Element::Timestamp { value, .. } => {
                self.time = Some(*value);
                self.place();
            }
            Element::Range(range) => {
                self.execute(range.count);
            }
            Element::RangeWithoutPath { count, .. } => {
                self.execute(*count);
            }
            _ => self.place(),
        }
        self.thread() != before
    }

    /// Adds executed instructions. Returns whether they are selected.
    #[inline]
    pub fn execute(&mut self, count: u32) -> bool {
        if let Some(chosen) = &self.instructions {
            let first = self.seen;
            self.seen += u64::from(count);
            let is_among = first < chosen.end && self.seen > chosen.start;
            self.is_selected = self.is_thread_selected && is_among;
        }
        self.is_selected
    }

    /// Whether instructions are counted, because some of them are selected.
    #[inline]
    pub fn counts_instructions(&self) -> bool {
        self.instructions.is_some()
    }

    /// Selected instructions of the range last given to [`execute`](Self::execute), as indexes in the range.
    pub fn part_of(&self, count: u32) -> Range<u64> {
        let first = self.seen - u64::from(count).min(self.seen);
        match &self.instructions {
            Some(chosen) => {
                let end = chosen.end.min(self.seen).max(first) - first;
                (chosen.start.max(first) - first).min(end)..end
            }
            None => 0..u64::from(count),
        }
    }

    fn select(&mut self) {
        let is_chosen = |threads: &&BTreeSet<u32>| {
            let thread = self.thread();
            thread.is_some_and(|thread| threads.contains(&thread))
        };
        self.is_thread_selected = self.threads.as_ref().is_none_or(is_chosen);
        self.place();
    }

    /// Updates whether elements before the next instruction are selected.
    fn place(&mut self) {
        let chosen = self.instructions.as_ref();
        self.is_selected =
            self.is_thread_selected && chosen.is_none_or(|it| it.contains(&self.seen));
    }

    /// Whether the next elements are selected.
    #[inline]
    pub fn is_selected(&self) -> bool {
        self.is_selected
    }

    /// Current thread.
    pub fn thread(&self) -> Option<u32> {
        self.only.or(self.thread)
    }

    /// Last timestamp.
    pub fn time(&self) -> Option<u64> {
        self.time
    }
}
