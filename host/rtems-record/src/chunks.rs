//! Detection of items of version 9 that the target overwrote while it sent their chunk.
//!
//! A target of version 9 (`_Record_Drain` in `cpukit/libtrace/record/record.c` of RTEMS 5) frees the items of a ring
//! before it sends them from the ring. Items recorded meanwhile can overwrite items that are not sent yet: the stream
//! then has the newer item twice, and the older one is lost. The counts of the next chunk of the same processor show
//! which items may have been overwritten. An item is lost if it equals the item that replaced it, which the later chunk
//! has in its own slot. If the later chunk no longer has that item, an item is lost if its time is later than that of
//! the item behind it.
//!
//! Therefore chunks wait until the target has passed their processor again. They are taken in the order of the stream.

use std::collections::VecDeque;

use crate::EventId;

/// Bits of the counter in an item.
const TIME_MASK: u32 = (1 << 22) - 1;

/// Largest number of items in all waiting chunks.
const ROOM: usize = 1 << 21;

/// Item as it is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// First word: 22 bits of time, 10 bits of event number.
    pub time_event: u32,
    pub data: u64,
}

impl Item {
    /// Returns the 22 bits of its time, if its event has one.
    fn time(&self) -> Option<u32> {
        let event = EventId::of_number((self.time_event & 0x3FF) as u16, 9);
        event.has_time().then_some(self.time_event >> 10)
    }

    /// Returns whether it is later than `time`, by less than half a wraparound.
    fn is_behind(&self, time: Option<u32>) -> bool {
        let times = self.time().zip(time);
        times.is_some_and(|(own, time)| time.wrapping_sub(own) & TIME_MASK > TIME_MASK / 2)
    }
}

/// Position up to which a processor's ring was read. Counts of items since the start, which wrap around at 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ring {
    pub tail: u32,
    head: Option<u32>,
}

impl Ring {
    /// Advances to `head`, and returns the number of items that had been overwritten by then.
    pub fn lost_before(&mut self, head: u32, size: u32) -> u64 {
        let last = self.head.replace(head);
        let skipped = last.map_or(0, |last| self.tail.wrapping_sub(last));
        // A difference of half the range or more is a step back: the target has restarted.
        let skipped = if skipped < 1 << 31 { skipped } else { 0 };
        let content = head.wrapping_sub(self.tail);
        // A ring holds one item less than its size.
        let overwritten = content.saturating_sub(size.saturating_sub(1));
        u64::from(overwritten) + u64::from(skipped)
    }
}

/// Items of a processor that were sent together, with the items that describe them.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub cpu: usize,
    /// Offset of its first item in the stream.
    pub offset: u64,
    pub items: Vec<Item>,
    /// Number of items in front of those of the ring.
    before: usize,
    /// Start of the part of the ring that was read. Counts of items since the start, which wrap around at 2^32.
    tail: u32,
    /// End of that part.
    head: Option<u32>,
    /// Round of the chunk. A round ends when the processor's number does not increase from one chunk to the next.
    round: u64,
}

impl Chunk {
    /// Returns the number of its first item from a ring of this size, unless its counts do not match its items.
    fn first(&self, ring: u32) -> Option<u32> {
        let head = self.head?;
        // A ring holds one item less than its size. If the counts exceed that, the oldest items were overwritten.
        let content = head.wrapping_sub(self.tail).min(ring.saturating_sub(1));
        let items = self.items.len().checked_sub(self.before)?;
        (usize::try_from(content) == Ok(items)).then(|| head.wrapping_sub(content))
    }

    /// Returns the item with this number.
    fn item(&self, number: u32, ring: u32) -> Option<Item> {
        let place = number.wrapping_sub(self.first(ring)?);
        let place = usize::try_from(place).ok()?.checked_add(self.before)?;
        self.items.get(place).copied()
    }

    /// Returns how many of its first items may have been overwritten before `next` of the same processor was read.
    fn in_doubt(&self, next: &Self, ring: u32) -> u32 {
        let (Some(first), Some(head), Some(end)) = (self.first(ring), self.head, next.head) else {
            return 0;
        };
        let content = head.wrapping_sub(first);
        let free = ring.saturating_sub(1).saturating_sub(content);
        let recorded = end.wrapping_sub(head);
        // A difference of half the range or more is a step back: the target has restarted.
        match recorded < 1 << 31 {
            true => recorded.saturating_sub(free).min(content),
            false => 0,
        }
    }
}

/// Waiting chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    queue: VecDeque<Chunk>,
    /// Number of items in a ring.
    ring: u32,
    round: u64,
    /// Number of items in all chunks.
    items: usize,
}

impl Chunks {
    pub fn set_ring(&mut self, items: u64) {
        self.ring = u32::try_from(items).unwrap_or(u32::MAX);
    }

    /// Returns whether no chunk waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes all chunks.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.items = 0;
    }

    /// Begins a chunk of a processor.
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

    /// Adds an item to the newest chunk. Returns `false` if there is no space for more: the chunks must then be
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

    /// Finds the next chunk of the same processor as the chunk at `place`.
    fn next(&self, place: usize) -> Option<usize> {
        let cpu = self.queue.get(place)?.cpu;
        let mut behind = self.queue.iter().enumerate().skip(place + 1);
        behind.find(|(_, it)| it.cpu == cpu).map(|(next, _)| next)
    }

    /// Returns how many items of the chunk at `place` are in doubt; `None` if that depends on later items of the
    /// stream.
    fn doubt(&self, place: usize, ended: bool) -> Option<u32> {
        let (chunk, last) = (self.queue.get(place)?, self.queue.back()?);
        if chunk.head.is_none() && place + 1 < self.queue.len() {
            return Some(0);
        }
        if let Some(next) = self.next(place).and_then(|next| self.queue.get(next)) {
            let is_reported = next.head.is_some() || !std::ptr::eq(next, last) || ended;
            return is_reported.then(|| chunk.in_doubt(next, self.ring));
        }
        // The target has passed the processor again, and the ring had no new items.
        let passed = (last.round, last.cpu) > (chunk.round + 1, chunk.cpu);
        (passed || ended).then_some(0)
    }

    /// Takes the next chunk if its lost items are known, and returns them as flags. If the stream has `ended`, takes
    /// every chunk.
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

    /// Returns which items of the first chunk are lost. `doubt` is the number of its items in doubt.
    fn lost(&self, doubt: u32, ended: bool) -> Option<Vec<bool>> {
        let chunk = self.queue.front()?;
        let next = self.next(0)?;
        // The next chunk has to be complete, and its own doubt known.
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
        // From the last one backwards, with the time of the next item that was not overwritten.
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
