//! Chunks of version 9, and which of their items the target has overwritten while it sent them.
//!
//! A target of version 9 (`_Record_Drain` in `cpukit/libtrace/record/record.c` of RTEMS 5) gives the items of a ring free
//! first and sends them from their place then. What it records meanwhile can take the place of an item that was not
//! sent yet: the stream then has the newer item twice, and the older one is lost. The counts of the next chunk of the
//! same processor tell which items of a chunk can have been hit. An item was hit if it is the one that took its place,
//! which that chunk has at its own place; where it does not have it any more, an item was hit if it is from later than
//! the one behind it.
//!
//! So chunks wait until the target has passed their processor again, in the order in which they came.

use std::collections::VecDeque;

use crate::EventId;

/// The bits of the counter in an item.
const TIME_MASK: u32 = (1 << 22) - 1;

/// Items of all chunks that wait at most.
const ROOM: usize = 1 << 21;

/// An item as it stands in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its first word: 22 bits of time, 10 of the event.
    pub time_event: u32,
    pub data: u64,
}

impl Item {
    /// The 22 bits of its time, if its event has one.
    fn time(&self) -> Option<u32> {
        let event = EventId::of_number((self.time_event & 0x3FF) as u16, 9);
        event.has_time().then_some(self.time_event >> 10)
    }

    /// Whether it is from later than `time`, by less than half a wraparound.
    fn is_behind(&self, time: Option<u32>) -> bool {
        let times = self.time().zip(time);
        times.is_some_and(|(own, time)| time.wrapping_sub(own) & TIME_MASK > TIME_MASK / 2)
    }
}

/// Up to where the ring of a processor was read: counts of items since the start, that go round at 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ring {
    pub tail: u32,
    head: Option<u32>,
}

impl Ring {
    /// The ring is read up to `head`: how many items had been overwritten by then.
    pub fn lost_before(&mut self, head: u32, size: u32) -> u64 {
        let last = self.head.replace(head);
        let skipped = last.map_or(0, |last| self.tail.wrapping_sub(last));
        // Half of all counts is a step back: the target has begun again.
        let skipped = if skipped < 1 << 31 { skipped } else { 0 };
        let content = head.wrapping_sub(self.tail);
        // A ring holds one item less than its size.
        let overwritten = content.saturating_sub(size.saturating_sub(1));
        u64::from(overwritten) + u64::from(skipped)
    }
}

/// The items of a processor that were sent at once, with those that say so.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub cpu: usize,
    /// Where its first item is in the stream.
    pub offset: u64,
    pub items: Vec<Item>,
    /// How many of them stand before those of the ring.
    before: usize,
    /// Counts of items since the start, which go round at 2^32: the ring was read from here ...
    tail: u32,
    /// ... to there.
    head: Option<u32>,
    /// How often the target had come to processor 0, or one with a lower number than the one before.
    round: u64,
}

impl Chunk {
    /// The number of its first item from a ring of so many, unless its counts do not fit its items.
    fn first(&self, ring: u32) -> Option<u32> {
        let head = self.head?;
        // A ring holds one item less than its size; of what it was to hold besides, the oldest were overwritten.
        let content = head.wrapping_sub(self.tail).min(ring.saturating_sub(1));
        let items = self.items.len().checked_sub(self.before)?;
        (usize::try_from(content) == Ok(items)).then(|| head.wrapping_sub(content))
    }

    /// The item with this number.
    fn item(&self, number: u32, ring: u32) -> Option<Item> {
        let place = number.wrapping_sub(self.first(ring)?);
        let place = usize::try_from(place).ok()?.checked_add(self.before)?;
        self.items.get(place).copied()
    }

    /// How many of its first items can have been overwritten before `next` of the same processor was read.
    fn in_doubt(&self, next: &Self, ring: u32) -> u32 {
        let (Some(first), Some(head), Some(end)) = (self.first(ring), self.head, next.head) else {
            return 0;
        };
        let content = head.wrapping_sub(first);
        let free = ring.saturating_sub(1).saturating_sub(content);
        let recorded = end.wrapping_sub(head);
        // Half of all counts is a step back: the target has begun again.
        match recorded < 1 << 31 {
            true => recorded.saturating_sub(free).min(content),
            false => 0,
        }
    }
}

/// The chunks that wait.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    queue: VecDeque<Chunk>,
    /// Items in a ring.
    ring: u32,
    round: u64,
    /// Items of all chunks.
    items: usize,
}

impl Chunks {
    pub fn set_ring(&mut self, items: u64) {
        self.ring = u32::try_from(items).unwrap_or(u32::MAX);
    }

    /// Whether no chunk has begun that was not taken.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.items = 0;
    }

    /// A chunk of a processor begins.
    pub fn begin(&mut self, cpu: usize, offset: u64) {
        if self.queue.back().is_none_or(|last| cpu <= last.cpu) {
            self.round += 1;
        }
        self.queue.push_back(Chunk {
            cpu,
            offset,
            items: Vec::new(),
            before: 0,
            tail: 0,
            head: None,
            round: self.round,
        });
    }

    /// Adds an item to the chunk that has begun. `false` if there is no room for more: then chunks have to be
    /// [taken](Self::take) as if the stream had ended.
    pub fn push(&mut self, event: EventId, item: Item) -> bool {
        if let Some(chunk) = self.queue.back_mut() {
            chunk.items.push(item);
            match event {
                EventId::PER_CPU_TAIL if chunk.head.is_none() => chunk.tail = item.data as u32,
                EventId::PER_CPU_HEAD if chunk.head.is_none() => {
                    chunk.head = Some(item.data as u32);
                    chunk.before = chunk.items.len();
                }
                _ => {}
            }
        }
        self.items += 1;
        self.items < ROOM
    }

    /// The next chunk of the processor of the one at a place.
    fn next(&self, place: usize) -> Option<usize> {
        let cpu = self.queue.get(place)?.cpu;
        let mut behind = self.queue.iter().enumerate().skip(place + 1);
        behind.find(|(_, it)| it.cpu == cpu).map(|(next, _)| next)
    }

    /// How many items of the chunk at a place are in doubt; `None` if more of the stream has to tell.
    fn doubt(&self, place: usize, ended: bool) -> Option<u32> {
        let (chunk, last) = (self.queue.get(place)?, self.queue.back()?);
        if chunk.head.is_none() && place + 1 < self.queue.len() {
            return Some(0);
        }
        if let Some(next) = self.next(place).and_then(|next| self.queue.get(next)) {
            let is_told = next.head.is_some() || !std::ptr::eq(next, last) || ended;
            return is_told.then(|| chunk.in_doubt(next, self.ring));
        }
        // The target has passed the processor again, and there was nothing new.
        let passed = (last.round, last.cpu) > (chunk.round + 1, chunk.cpu);
        (passed || ended).then_some(0)
    }

    /// Takes the next chunk whose items are known, with which of them are lost; if the stream has `ended`, each in turn.
    pub fn take(&mut self, ended: bool) -> Option<(Chunk, Vec<bool>)> {
        if self.queue.len() < 2 && !ended {
            return None;
        }
        let doubt = self.doubt(0, ended)?;
        let lost = match doubt {
            0 => Vec::new(),
            _ => self.lost(doubt, ended)?,
        };
        let chunk = self.queue.pop_front()?;
        self.items = self.items.saturating_sub(chunk.items.len());
        Some((chunk, lost))
    }

    /// Which items of the first chunk are lost, of which so many are in doubt.
    fn lost(&self, doubt: u32, ended: bool) -> Option<Vec<bool>> {
        let chunk = self.queue.front()?;
        let next = self.next(0)?;
        // It has to be whole, and its own doubt known.
        let of_next = self.doubt(next, ended)?;
        let behind = self.next(next);
        if !ended && behind.is_some_and(|behind| behind + 1 == self.queue.len()) {
            return None;
        }
        let (next, behind) = (
            self.queue.get(next)?,
            behind.and_then(|it| self.queue.get(it)),
        );
        let first = chunk.first(self.ring)?;
        let places = usize::try_from(doubt).ok()?.checked_add(chunk.before)?;
        let mut lost = vec![false; places];
        // From the last one on, with the time of the item behind that is no newer one.
        let certain = chunk
            .items
            .get(places)
            .or_else(|| next.items.get(next.before));
        let mut time = certain.and_then(|item| item.time());
        for (place, lost) in (0..doubt).zip(lost.iter_mut().skip(chunk.before)).rev() {
            let number = first.wrapping_add(place);
            let newer = number.wrapping_add(self.ring);
            let in_next = next.first(self.ring).map(|first| newer.wrapping_sub(first));
            let other = match in_next {
                Some(place) if place < of_next => None,
                _ => next
                    .item(newer, self.ring)
                    .or_else(|| behind?.item(newer, self.ring)),
            };
            let sent = chunk.item(number, self.ring)?;
            *lost = match other {
                Some(other) => other == sent,
                None => sent.is_behind(time),
            };
            if !*lost && let Some(own) = sent.time() {
                time = Some(own);
            }
        }
        Some(lost)
    }
}
