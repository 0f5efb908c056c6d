//! Merge of the records of all CPUs and buffers of a trace, in order of time.

use crate::Error;
use crate::cursor::{CpuCursor, Next, Record};
use crate::dat::Trace;
use crate::page::Lost;

/// Result of [`Records::next`].
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A record.
    Record(Record<'a>),
    /// Events are missing between the last record of this CPU and the next.
    Lost(Lost),
    /// Bytes of this CPU that could not be read, and their number. Reading continues behind them.
    Damage(&'a Error, u64),
}

/// Iterator over the records of several CPUs, merged by time. At equal times the earlier buffer, then the lower CPU,
/// comes first.
///
/// The trace and the file are passed to each call, so that the iterator does not own them.
#[derive(Debug)]
pub struct Records {
    cpu_buffers: Vec<CpuBuffer>,
    /// Index of the CPU buffer whose record is current.
    current: usize,
    /// Key of the second CPU buffer: records of `current` come first up to this time.
    limit: Option<(u64, usize)>,
    /// Whether the next step of `current` has not been read yet.
    stale: bool,
    ended: bool,
    /// The note that was returned last.
    noted: Next,
}

#[derive(Debug)]
struct CpuBuffer {
    buffer: usize,
    cursor: CpuCursor,
    /// Losses and damage in front of the current record. They are returned before it.
    notes: std::collections::VecDeque<Next>,
    /// Time of the current record in nanoseconds; `None` behind the last.
    time: Option<u64>,
}

/// Largest number of notes that one CPU buffer keeps. A damaged file has one per page.
const NOTES: usize = 16;

impl CpuBuffer {
    fn advance(&mut self, trace: &Trace, file: &[u8]) {
        loop {
            match self.cursor.advance(file) {
                Next::Record => {
                    let ticks = self.cursor.ticks();
                    self.time = Some(trace.timing.nanoseconds(ticks, self.cursor.cpu()));
                    return;
                }
                Next::End => {
                    self.time = None;
                    return;
                }
                note => {
                    self.notes.push_back(note);
                    if self.notes.len() >= NOTES {
                        // Continues when these have been taken.
                        return;
                    }
                }
            }
        }
    }
}

/// Origin of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the CPU buffer: the CPUs of the first buffer, then those of the next.
    pub cpu_buffer: usize,
    /// Index of the buffer.
    pub buffer: usize,
    /// The CPU.
    pub cpu: u32,
    /// Time of the record in nanoseconds. For losses and damage, the time of the record behind them; 0 if there is
    /// none.
    pub time: u64,
}

impl Records {
    /// Creates an iterator over all records of a trace.
    pub fn new(trace: &Trace, file: &[u8]) -> Self {
        let mut cpu_buffers = Vec::new();
        for (buffer, found) in trace.buffers.iter().enumerate() {
            for data in &found.cpus {
                let cursor = CpuCursor::new(*data, trace.layout, found.page_size);
                let mut cpu_buffer = CpuBuffer {
                    buffer,
                    cursor,
                    notes: std::collections::VecDeque::new(),
                    time: None,
                };
                cpu_buffer.advance(trace, file);
                cpu_buffers.push(cpu_buffer);
            }
        }
        let mut records = Self {
            ended: cpu_buffers.is_empty(),
            cpu_buffers,
            current: 0,
            limit: None,
            stale: false,
            noted: Next::End,
        };
        records.choose();
        records
    }

    /// Returns the buffer index and the CPU of each CPU buffer.
    pub fn cpu_buffers(&self) -> impl Iterator<Item = (usize, u32)> {
        self.cpu_buffers
            .iter()
            .map(|cpu_buffer| (cpu_buffer.buffer, cpu_buffer.cursor.cpu()))
    }

    /// Finds the CPU buffer with the next step, and the time up to which it stays the next.
    fn choose(&mut self) {
        // Notes come first: they belong directly behind the record before them.
        if let Some(place) = self
            .cpu_buffers
            .iter()
            .position(|cpu_buffer| !cpu_buffer.notes.is_empty())
        {
            self.current = place;
            self.limit = None;
            return;
        }
        let (mut first, mut second) = (None, None);
        for (place, cpu_buffer) in self.cpu_buffers.iter().enumerate() {
            let Some(time) = cpu_buffer.time else {
                continue;
            };
            let key = (time, place);
            if first.is_none_or(|first| key < first) {
                second = first;
                first = Some(key);
            } else if second.is_none_or(|second| key < second) {
                second = Some(key);
            }
        }
        match first {
            Some((_, place)) => {
                self.current = place;
                self.limit = second;
            }
            None => self.ended = true,
        }
    }

    /// Returns the next step; `None` behind the last. `trace` and `file` must be those that the iterator was created
    /// with.
    #[inline(always)]
    pub fn next<'a>(&'a mut self, trace: &Trace, file: &'a [u8]) -> Option<(Place, Step<'a>)> {
        if !self.follows(trace, file) {
            return self.next_slowly(trace, file);
        }
        let cpu_buffer = self.cpu_buffers.get(self.current)?;
        Some((
            self.place(cpu_buffer),
            Step::Record(cpu_buffer.cursor.record(file)),
        ))
    }

    /// Passes the records that follow the last result of [`next`](Self::next) to `take`, while they are on one page,
    /// are next in order of time, and `take` returns `true`. Callers can keep the state that records of one CPU share.
    /// [`next`](Self::next) returns everything else.
    #[inline(always)]
    pub fn run(
        &mut self,
        trace: &Trace,
        file: &[u8],
        mut take: impl FnMut(Place, &Record<'_>) -> bool,
    ) {
        let (current, limit) = (self.current, self.limit);
        let (true, Some(cpu_buffer)) = (self.stale, self.cpu_buffers.get_mut(current)) else {
            return;
        };
        let (buffer, cpu) = (cpu_buffer.buffer, cpu_buffer.cursor.cpu());
        let (mut last, mut is_next) = (cpu_buffer.time, true);
        cpu_buffer.cursor.run(file, |record| {
            let time = trace.timing.nanoseconds(record.ticks, cpu);
            last = Some(time);
            is_next = limit.is_none_or(|limit| (time, current) < limit);
            let place = Place {
                cpu_buffer: current,
                buffer,
                cpu,
                time,
            };
            is_next && take(place, &record)
        });
        cpu_buffer.time = last;
        if !is_next {
            self.stale = false;
            self.choose();
        }
    }

    /// Advances to the next record of the current CPU buffer. Returns `true` if it is the next of all, as nearly all
    /// are. Otherwise the next CPU buffer is chosen, unless the entry needs [`next_slowly`](Self::next_slowly).
    #[inline(always)]
    fn follows(&mut self, trace: &Trace, file: &[u8]) -> bool {
        let current = self.current;
        let (true, Some(cpu_buffer)) = (self.stale, self.cpu_buffers.get_mut(current)) else {
            return false;
        };
        if !cpu_buffer.cursor.step(file) {
            return false;
        }
        let ticks = cpu_buffer.cursor.ticks();
        let time = trace.timing.nanoseconds(ticks, cpu_buffer.cursor.cpu());
        cpu_buffer.time = Some(time);
        if self.limit.is_none_or(|limit| (time, current) < limit) {
            return true;
        }
        self.stale = false;
        self.choose();
        false
    }

    #[inline(never)]
    fn next_slowly<'a>(&'a mut self, trace: &Trace, file: &'a [u8]) -> Option<(Place, Step<'a>)> {
        if self.stale {
            self.stale = false;
            let current = self.current;
            if let Some(cpu_buffer) = self.cpu_buffers.get_mut(current) {
                cpu_buffer.advance(trace, file);
                let key = cpu_buffer.time.map(|time| (time, current));
                let is_first = match (key, self.limit) {
                    (Some(key), Some(limit)) => key < limit,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                if !is_first || !cpu_buffer.notes.is_empty() {
                    self.choose();
                }
            }
        }
        if self.ended {
            return None;
        }
        if self.cpu_buffers.get(self.current)?.notes.is_empty() {
            self.stale = true;
            let cpu_buffer = self.cpu_buffers.get(self.current)?;
            return Some((
                self.place(cpu_buffer),
                Step::Record(cpu_buffer.cursor.record(file)),
            ));
        }
        self.note(trace, file)
    }

    #[inline(always)]
    const fn place(&self, cpu_buffer: &CpuBuffer) -> Place {
        Place {
            cpu_buffer: self.current,
            buffer: cpu_buffer.buffer,
            cpu: cpu_buffer.cursor.cpu(),
            time: match cpu_buffer.time {
                Some(time) => time,
                None => 0,
            },
        }
    }

    #[cold]
    fn note<'a>(&'a mut self, trace: &Trace, file: &[u8]) -> Option<(Place, Step<'a>)> {
        let place = self.place(self.cpu_buffers.get(self.current)?);
        let cpu_buffer = self.cpu_buffers.get_mut(self.current)?;
        let full = cpu_buffer.notes.len() >= NOTES;
        let note = cpu_buffer.notes.pop_front()?;
        if full {
            cpu_buffer.advance(trace, file);
        }
        if cpu_buffer.notes.is_empty() {
            self.choose();
        }
        self.noted = note;
        let step = match &self.noted {
            Next::Lost(lost) => Step::Lost(*lost),
            Next::Damage(error, bytes) => Step::Damage(error, *bytes),
            Next::Record | Next::End => return None,
        };
        Some((place, step))
    }
}
