//! The records of all CPUs and buffers of a trace in the order of time.

use crate::Error;
use crate::cursor::{CpuCursor, Next, Record};
use crate::dat::Trace;
use crate::page::Lost;

/// What comes next in a trace.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A record.
    Record(Record<'a>),
    /// Events are missing here, behind the last record of this CPU.
    Lost(Lost),
    /// Bytes of this CPU could not be read, so many. What follows them is read.
    Damage(&'a Error, u64),
}

/// Records of several CPUs, merged by time. At one time the earlier buffer and the lower CPU come first.
///
/// What it reads is given to each call, so that it need not own it.
#[derive(Debug)]
pub struct Records {
    lanes: Vec<Lane>,
    /// The one whose record is at hand.
    current: usize,
    /// The record at hand of `current` comes before all others up to this time.
    limit: Option<(u64, usize)>,
    /// A lane whose next step is not known yet.
    stale: bool,
    ended: bool,
    /// The note that was given last.
    noted: Next,
}

#[derive(Debug)]
struct Lane {
    buffer: usize,
    cursor: CpuCursor,
    /// Losses and damage before the record at hand, which come first.
    notes: std::collections::VecDeque<Next>,
    /// Its record's time in nanoseconds; `None` behind the last.
    time: Option<u64>,
}

/// Notes that are kept of one lane; a damaged file has one a page.
const NOTES: usize = 16;

impl Lane {
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
                        // The rest comes when these have been taken.
                        return;
                    }
                }
            }
        }
    }
}

/// Where a step comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the lane: those of the first buffer's CPUs, then those of the next.
    pub lane: usize,
    /// The number of the buffer.
    pub buffer: usize,
    /// The CPU.
    pub cpu: u32,
    /// The time of the record, in nanoseconds. Of losses and damage, that of the record behind them; 0 if there is none.
    pub time: u64,
}

impl Records {
    /// All records of a trace.
    pub fn new(trace: &Trace, file: &[u8]) -> Self {
        let mut lanes = Vec::new();
        for (buffer, found) in trace.buffers.iter().enumerate() {
            for data in &found.cpus {
                let cursor = CpuCursor::new(*data, trace.layout, found.page_size);
                let mut lane = Lane {
                    buffer,
                    cursor,
                    notes: std::collections::VecDeque::new(),
                    time: None,
                };
                lane.advance(trace, file);
                lanes.push(lane);
            }
        }
        let mut records = Self {
            ended: lanes.is_empty(),
            lanes,
            current: 0,
            limit: None,
            stale: false,
            noted: Next::End,
        };
        records.choose();
        records
    }

    /// The lanes: buffer and CPU of each.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, u32)> {
        self.lanes
            .iter()
            .map(|lane| (lane.buffer, lane.cursor.cpu()))
    }

    /// Finds the lane whose step is next, and up to which time it stays so.
    fn choose(&mut self) {
        // Notes come at once: they belong right behind the record before.
        if let Some(place) = self.lanes.iter().position(|lane| !lane.notes.is_empty()) {
            self.current = place;
            self.limit = None;
            return;
        }
        let (mut first, mut second) = (None, None);
        for (place, lane) in self.lanes.iter().enumerate() {
            let Some(time) = lane.time else { continue };
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

    /// The next step; `None` behind the last. `trace` and `file` are those that it was made with.
    #[inline(always)]
    pub fn next<'a>(&'a mut self, trace: &Trace, file: &'a [u8]) -> Option<(Place, Step<'a>)> {
        if !self.follows(trace, file) {
            return self.next_slowly(trace, file);
        }
        let lane = self.lanes.get(self.current)?;
        Some((self.place(lane), Step::Record(lane.cursor.record(file))))
    }

    /// Gives the records that follow the one that [`next`](Self::next) gave last to `take`, as far as they are the next of
    /// all, on one page, and `take` says to go on: what records of one CPU share is at hand then. [`next`](Self::next) has
    /// what follows, and whatever is no such record.
    #[inline(always)]
    pub fn run(
        &mut self,
        trace: &Trace,
        file: &[u8],
        mut take: impl FnMut(Place, &Record<'_>) -> bool,
    ) {
        let (current, limit) = (self.current, self.limit);
        let (true, Some(lane)) = (self.stale, self.lanes.get_mut(current)) else {
            return;
        };
        let (buffer, cpu) = (lane.buffer, lane.cursor.cpu());
        let (mut last, mut is_next) = (lane.time, true);
        lane.cursor.run(file, |record| {
            let time = trace.timing.nanoseconds(record.ticks, cpu);
            last = Some(time);
            is_next = limit.is_none_or(|limit| (time, current) < limit);
            let place = Place {
                lane: current,
                buffer,
                cpu,
                time,
            };
            is_next && take(place, &record)
        });
        lane.time = last;
        if !is_next {
            self.stale = false;
            self.choose();
        }
    }

    /// Goes on to the next record of the lane at hand, if that is the next of all, as nearly all are. Else it is known
    /// of that lane what is next.
    #[inline(always)]
    fn follows(&mut self, trace: &Trace, file: &[u8]) -> bool {
        let current = self.current;
        let (true, Some(lane)) = (self.stale, self.lanes.get_mut(current)) else {
            return false;
        };
        if !lane.cursor.step(file) {
            return false;
        }
        let ticks = lane.cursor.ticks();
        let time = trace.timing.nanoseconds(ticks, lane.cursor.cpu());
        lane.time = Some(time);
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
            if let Some(lane) = self.lanes.get_mut(current) {
                lane.advance(trace, file);
                let key = lane.time.map(|time| (time, current));
                let is_first = match (key, self.limit) {
                    (Some(key), Some(limit)) => key < limit,
                    (Some(_), None) => true,
                    (None, _) => false,
                };
                if !is_first || !lane.notes.is_empty() {
                    self.choose();
                }
            }
        }
        if self.ended {
            return None;
        }
        if self.lanes.get(self.current)?.notes.is_empty() {
            self.stale = true;
            let lane = self.lanes.get(self.current)?;
            return Some((self.place(lane), Step::Record(lane.cursor.record(file))));
        }
        self.note(trace, file)
    }

    #[inline(always)]
    const fn place(&self, lane: &Lane) -> Place {
        Place {
            lane: self.current,
            buffer: lane.buffer,
            cpu: lane.cursor.cpu(),
            time: match lane.time {
                Some(time) => time,
                None => 0,
            },
        }
    }

    #[cold]
    fn note<'a>(&'a mut self, trace: &Trace, file: &[u8]) -> Option<(Place, Step<'a>)> {
        let place = self.place(self.lanes.get(self.current)?);
        let lane = self.lanes.get_mut(self.current)?;
        let full = lane.notes.len() >= NOTES;
        let note = lane.notes.pop_front()?;
        if full {
            lane.advance(trace, file);
        }
        if lane.notes.is_empty() {
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
