//! Conversion of 22-bit counter values to nanoseconds of uptime, for each processor.
//!
//! A pair of uptime items gives the uptime for one counter value. From there, counter differences are summed in 64 bits
//! and multiplied in 128 bits, so no distance overflows and only the result is rounded. Records in front of the first
//! pair, and behind lost ones, are held until a pair arrives. Their times are then computed backwards from it.

mod bounds;
mod clock;
mod place;

use crate::merge::Queue;
use crate::{EventId, Record, Statistics};
use bounds::Bounds;
use clock::{Clock, Moment, Scale};

/// Bits of the counter in an item.
const TIME_MASK: u32 = (1 << 22) - 1;

/// Largest step back of a slow counter, in ticks. SPARC's counter, which is composed of a timer and its interrupt, can
/// go back. A step back within this limit cannot be a gap of almost a whole wraparound, because the uptime item, which
/// is recorded once per wraparound, would end that gap. A fast counter wraps around in gaps of all lengths, and is a
/// register that only counts up.
const MOST_BACK: u32 = 1 << 16;

/// Largest frequency of a slow counter in Hz.
const SLOW: u64 = 4_000_000;

/// Returns the ticks from one item to the next. More than `most` ticks mean that the counter went back, and yield a
/// negative number.
#[inline]
fn passed(from: u32, to: u32, event: EventId, most: u32) -> i64 {
    let ticks = to.wrapping_sub(from) & TIME_MASK;
    match ticks > most && event != EventId::UPTIME_LOW {
        true => i64::from(ticks) - i64::from(TIME_MASK) - 1,
        false => i64::from(ticks),
    }
}

/// Minimum of the limit for waiting records of all processors, for small rings.
const LEAST_WAITING: u64 = 1 << 20;

/// Maximum of that limit, for any size of the rings: 24 bytes each.
const MOST_WAITING: u64 = 1 << 23;

/// Longest wait for a processor without uptime in live mode, in nanoseconds; at least two wraparounds. A target records
/// each processor's uptime once per wraparound.
const MOST_HELD_NS: i64 = 1_000_000_000;

/// Record that waits for a time.
#[derive(Clone, Copy, Debug)]
struct Held {
    data: u64,
    time: u32,
    event: EventId,
    is_item: bool,
}

impl Held {
    /// Returns whether the reader inserted it to mark a loss.
    fn is_loss(&self) -> bool {
        !self.is_item && self.event == EventId::PER_CPU_OVERFLOW
    }
}

/// Sorts held records into the order in which they get their times. A loss ends with the first record behind it that
/// has a time. An item without a time gets the time of the record in front of the loss, so it precedes the loss.
fn in_order<T>(held: impl IntoIterator<Item = (Held, T)>) -> Vec<(Held, T)> {
    let mut ordered = Vec::new();
    let mut losses = Vec::new();
    for (held, beside) in held {
        if held.is_loss() {
            losses.push((held, beside));
            continue;
        }
        if !held.is_item || held.event.has_time() {
            ordered.append(&mut losses);
        }
        ordered.push((held, beside));
    }
    ordered.append(&mut losses);
    ordered
}

/// State of a processor's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Unknown since the start or the last loss: its items are held.
    Held,
    /// Set by an uptime pair of the processor itself.
    Synchronized,
    /// Derived from the times of other processors.
    Estimated,
}

/// State of a processor.
#[derive(Debug)]
struct Cpu {
    state: State,
    clock: Clock,
    /// Low word of an uptime and its counter value, while the high word is missing.
    low: Option<(u32, u64)>,
    held: Vec<Held>,
    /// Counter value of the last held record that has one, and the number of ticks that they span.
    held_span: Option<(u32, u64)>,
    /// Latest time of all processors when the first held record arrived.
    held_since: i64,
    /// End of each chunk in `held`, and the number of that chunk.
    chunks: Vec<(usize, u64)>,
    /// Time of its last record.
    last: Option<i64>,
    /// Time of its last record when its last chunk ended.
    last_chunk: Option<i64>,
    /// Whether times do not advance because the uptime went back.
    adjusting: bool,
    queue: Queue,
}

/// Timeline of all processors of a dump.
pub(crate) struct Timeline {
    cpus: Vec<Cpu>,
    current: usize,
    scale: Scale,
    /// Largest number of ticks that count as forward.
    most_ahead: u32,
    /// Latest time of all synchronized processors.
    latest: i64,
    /// For each chunk since the oldest held one, the latest known time in it.
    bounds: Bounds,
    /// Largest number of waiting records.
    room: u64,
    /// Whether records wait for a [bounded time](MOST_HELD_NS) only.
    is_live: bool,
    dump: u16,
    statistics: Statistics,
    /// Items that arrived before the number of processors was known.
    early: Vec<(EventId, u64)>,
}

impl Timeline {
    pub fn new(dump: u16) -> Self {
        Self {
            cpus: Vec::new(),
            current: 0,
            scale: Scale::new(1),
            most_ahead: TIME_MASK,
            latest: i64::MIN,
            bounds: Bounds::default(),
            room: LEAST_WAITING,
            is_live: false,
            dump,
            statistics: Statistics::default(),
            early: Vec::new(),
        }
    }

    /// Returns the counts so far.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Sets live mode.
    pub const fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
    }

    pub fn set_frequency(&mut self, frequency: u64) {
        self.scale = Scale::new(frequency);
        self.most_ahead = match frequency <= SLOW {
            true => TIME_MASK - MOST_BACK,
            false => TIME_MASK,
        };
    }

    pub fn set_cpus(&mut self, cpus: u32) {
        self.cpus = (0..cpus)
            .map(|_| Cpu {
                state: State::Held,
                clock: Clock::default(),
                low: None,
                held: Vec::new(),
                held_span: None,
                held_since: i64::MIN,
                chunks: Vec::new(),
                last: None,
                last_chunk: None,
                adjusting: false,
                queue: Queue::default(),
            })
            .collect();
        for (event, data) in std::mem::take(&mut self.early) {
            self.untimed(event, data);
        }
    }

    /// Sets the number of items in a ring. This many of each processor can wait when a dump sends all rings.
    pub fn set_ring(&mut self, items: u64) {
        let all = items.saturating_mul(self.cpus.len() as u64 * 2);
        self.room = all.clamp(LEAST_WAITING, MOST_WAITING);
    }

    /// Handles an item with a time.
    #[inline]
    pub fn item(&mut self, time: u32, event: EventId, data: u64) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        if cpu.state == State::Held {
            let held = Held {
                data,
                time,
                event,
                is_item: true,
            };
            return self.hold(held);
        }
        let ticks = time.wrapping_sub(cpu.clock.seen()) & TIME_MASK;
        if ticks > self.most_ahead && event != EventId::UPTIME_LOW {
            cpu.clock.go_back(TIME_MASK + 1 - ticks, &self.scale);
        }
        let now = cpu.clock.advance(time, &self.scale);
        if let Some(last) = cpu.last
            && now < last
        {
            return self.put_back(now, last, event, data);
        }
        cpu.last = Some(now);
        cpu.adjusting = false;
        if cpu.state == State::Synchronized && now > self.latest {
            self.latest = now;
        }
        cpu.queue.push(Record {
            time: now,
            data,
            event,
            cpu: self.current as u8,
            dump: self.dump,
            is_item: true,
        });
    }

    /// Handles an item whose time would go back.
    #[cold]
    fn put_back(&mut self, now: i64, last: i64, event: EventId, data: u64) {
        let by = last.abs_diff(now);
        let statistics = &mut self.statistics;
        statistics.put_back += 1;
        statistics.put_back_most_ns = statistics.put_back_most_ns.max(by);
        let begins = self
            .cpus
            .get_mut(self.current)
            .is_some_and(|cpu| !std::mem::replace(&mut cpu.adjusting, true));
        if begins {
            self.push(EventId::TIME_ADJUSTMENT, by, false);
        }
        self.push(event, data, true);
    }

    /// Handles an item without a time.
    pub fn untimed(&mut self, event: EventId, data: u64) {
        self.now(event, data, true);
    }

    /// Handles an event at the processor's current time.
    fn now(&mut self, event: EventId, data: u64, is_item: bool) {
        match self.cpus.get(self.current) {
            None => self.early.push((event, data)),
            Some(cpu) if cpu.state == State::Held => self.hold(Held {
                data,
                time: 0,
                event,
                is_item,
            }),
            Some(_) => self.push(event, data, is_item),
        }
    }

    /// Queues a record with the time of the record before.
    fn push(&mut self, event: EventId, data: u64, is_item: bool) {
        let (dump, number) = (self.dump, self.current as u8);
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            let time = cpu.last.unwrap_or_else(|| cpu.clock.now(&self.scale));
            cpu.queue.push(Record {
                time,
                data,
                event,
                cpu: number,
                dump,
                is_item,
            });
        }
    }

    fn hold(&mut self, held: Held) {
        let latest = self.latest;
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            if cpu.held.is_empty() {
                (cpu.held_span, cpu.held_since) = (None, latest);
            }
            if held.event.has_time() {
                let (last, ticks) = cpu.held_span.unwrap_or((held.time, 0));
                let passed = passed(last, held.time, held.event, self.most_ahead);
                cpu.held_span = Some((held.time, ticks.saturating_add_signed(passed)));
            }
            cpu.held.push(held);
            if cpu.held.len() as u64 >= self.room {
                self.place(self.current);
            }
        }
    }

    /// Handles one of the two items of an uptime pair.
    pub fn uptime(&mut self, time: u32, event: EventId, data: u64) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        if event == EventId::UPTIME_LOW {
            cpu.low = Some((time, data));
        } else if let Some((_, low)) = cpu.low.take().filter(|(at, _)| *at == time) {
            let uptime = Moment::of_uptime(data, low);
            cpu.clock.set(uptime, time);
            let was_held = cpu.state == State::Held;
            cpu.state = State::Synchronized;
            self.statistics.pairs += 1;
            if was_held {
                self.place_before(uptime, time);
            }
        }
        self.item(time, event, data);
    }

    /// Computes the times of held records backwards from a pair.
    fn place_before(&mut self, uptime: Moment, time: u32) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        let held = std::mem::take(&mut cpu.held);
        cpu.held_span = None;
        let chunks = std::mem::take(&mut cpu.chunks);
        let (mut ticks, mut next) = (0_i64, (time, EventId::UPTIME_LOW));
        for item in held.iter().rev().filter(|item| item.event.has_time()) {
            ticks = ticks.saturating_add(passed(item.time, next.0, next.1, self.most_ahead));
            next = (item.time, item.event);
        }
        let first = uptime.after(ticks.saturating_neg(), &self.scale);
        cpu.clock.set(first, next.0);
        // Records without a time get that of the first one that has a time, but not one before the last output.
        let first = cpu.clock.now(&self.scale);
        cpu.last = Some(cpu.last.map_or(first, |last| last.max(first)));
        let mut ends = chunks.into_iter().peekable();
        let held = held.into_iter().map(|item| (item, ()));
        for (place, (item, ())) in in_order(held).into_iter().enumerate() {
            if item.event.has_time() {
                self.item(item.time, item.event, item.data);
            } else {
                self.push(item.event, item.data, item.is_item);
            }
            while let Some((_, chunk)) = ends.next_if(|(end, _)| *end == place + 1) {
                if let Some(last) = self.cpus.get(self.current).and_then(|cpu| cpu.last) {
                    self.bounds.raise(chunk, last);
                }
            }
        }
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            cpu.clock.set(uptime, time);
        }
    }

    /// Handles a loss: the times behind it are unknown until the next pair.
    pub fn overflow(&mut self, lost: u64, is_item: bool) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        cpu.low = None;
        self.statistics.lost = self.statistics.lost.saturating_add(lost);
        // The loss is at the last record in front of it, the target's item about it at the records behind it.
        self.now(EventId::PER_CPU_OVERFLOW, lost, false);
        if let Some(cpu) = self.cpus.get_mut(self.current) {
            cpu.state = State::Held;
        }
        if is_item {
            self.untimed(EventId::PER_CPU_OVERFLOW, lost);
        }
    }

    /// Notes the latest time of the chunk that has ended.
    fn end_chunk(&mut self) {
        let chunk = self.bounds.current();
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        match (cpu.state, cpu.last) {
            (State::Held, _) => cpu.chunks.push((cpu.held.len(), chunk)),
            (State::Synchronized, Some(last)) if cpu.last_chunk != cpu.last => {
                cpu.last_chunk = cpu.last;
                self.bounds.raise(chunk, last);
            }
            _ => {}
        }
    }

    /// Ends the chunk of a processor and begins one of another.
    pub fn switch_to(&mut self, next: usize, data: u64) {
        let latest = self.latest;
        self.end_chunk();
        if next != self.current {
            // If the same processor continues, its ring was not read to its end: its next items may be old.
            if let Some(cpu) = self.cpus.get_mut(self.current) {
                cpu.queue.fetched(latest);
            }
            let oldest = self.cpus.iter().filter_map(|cpu| cpu.chunks.first());
            let oldest = oldest.map(|(_, chunk)| *chunk).min();
            self.bounds.begin_chunk(oldest);
        }
        self.current = next;
        let wraparound = self.scale.ns(u64::from(TIME_MASK) + 1);
        if self.is_live {
            self.place_late(wraparound);
        }
        if let Some(cpu) = self.cpus.get_mut(next)
            && cpu.state == State::Estimated
        {
            // None of its records can be older than the last read of its ring.
            let now = cpu.clock.now(&self.scale);
            let behind = cpu.queue.fetched_at().saturating_sub(now);
            if wraparound > 0 && behind > wraparound {
                let turns = (behind / wraparound).unsigned_abs();
                cpu.clock
                    .skip(turns.saturating_mul(u64::from(TIME_MASK) + 1));
            }
        }
        self.untimed(EventId::PROCESSOR, data);
    }

    /// Places records that have been held for too long in live mode.
    fn place_late(&mut self, wraparound: i64) {
        let most = MOST_HELD_NS.max(wraparound.saturating_mul(2));
        for cpu in 0..self.cpus.len() {
            let latest = self.latest;
            let is_late = self.cpus.get_mut(cpu).is_some_and(|cpu| {
                // No processor had a time when the first of them arrived.
                cpu.held_since = if cpu.held_since == i64::MIN {
                    latest
                } else {
                    cpu.held_since
                };
                let since = latest.saturating_sub(cpu.held_since);
                let covered = cpu.held_span.map(|(_, ticks)| self.scale.ns(ticks));
                cpu.state == State::Held && covered.is_some_and(|it| it.max(since) > most)
            });
            if is_late {
                self.place(cpu);
            }
        }
    }

    /// Ends the stream: all records get a time.
    pub fn finish(&mut self) {
        if self.cpus.is_empty() {
            self.set_cpus(1);
        }
        self.end_chunk();
        self.place_all();
        for cpu in &mut self.cpus {
            cpu.queue.end();
        }
    }

    /// Places all held records without a pair. Processors with an earlier known time come first, because the others
    /// depend on them.
    fn place_all(&mut self) {
        for known in [true, false] {
            for cpu in 0..self.cpus.len() {
                if self.cpus.get(cpu).is_some_and(|it| it.last.is_some()) == known {
                    self.place(cpu);
                }
            }
        }
    }

    /// Places held records without a pair, if more records wait than the limit allows.
    fn make_room(&mut self) {
        self.place_all();
        for cpu in &mut self.cpus {
            cpu.queue.release();
        }
    }

    /// Moves the records whose order among all processors is known to `out`.
    pub fn drain(&mut self, out: &mut Vec<Record>) {
        let waiting: usize = self
            .cpus
            .iter()
            .map(|cpu| cpu.queue.len() + cpu.held.len())
            .sum();
        if waiting as u64 > self.room {
            self.make_room();
        }
        // If a processor holds no record with a time, it has been sent completely up to its last chunk.
        let is_live = self.is_live;
        let held = |cpu: &Cpu| {
            let waits = cpu.held_span.is_some() || !is_live;
            cpu.state == State::Held && waits && !cpu.queue.is_released()
        };
        let bounds = self.cpus.iter().map(|cpu| match held(cpu) {
            true => cpu.last.unwrap_or(i64::MIN),
            false => cpu.queue.bound(cpu.last),
        });
        let bound = match self.cpus.len() {
            1 => i64::MAX,
            _ => bounds.min().unwrap_or(i64::MAX),
        };
        crate::merge::merge(self.cpus.iter_mut().map(|cpu| &mut cpu.queue), bound, out);
    }
}
