//! Placement of processors without an uptime pair, from the times of other processors.
//!
//! All processors read one counter, so the 22 bits of an item give its time up to whole wraparounds. The order of the
//! stream resolves those: a chunk was read from its ring after all records in chunks before it had been recorded. Items
//! are placed as late as that allows, from the last one backwards. This is too late for a processor that recorded
//! nothing for longer than a wraparound, and nothing in the stream shows that; so the records are marked.

use super::clock::Moment;
use super::{Held, State, TIME_MASK, Timeline, in_order, passed};
use crate::EventId;

/// Wraparound of the counter, in ticks.
const WRAPAROUND: i64 = TIME_MASK as i64 + 1;

impl Timeline {
    /// Gives times to the held records of a processor that has no pair.
    pub(super) fn place(&mut self, number: usize) {
        let Some(cpu) = self.cpus.get_mut(number) else {
            return;
        };
        if cpu.state != State::Held {
            return;
        }
        let held = std::mem::take(&mut cpu.held);
        cpu.held_span = None;
        let chunks = std::mem::take(&mut cpu.chunks);
        let before = std::mem::replace(&mut self.current, number);
        let last = held.iter().rposition(|item| item.event.has_time());
        match last {
            Some(last) => self.place_held(&held, &chunks, last),
            // No held record has a time, so none determines the state of the clock.
            None => self.place_untimed(&held),
        }
        self.current = before;
    }

    fn place_untimed(&mut self, held: &[Held]) {
        let known = self.cpus.iter().filter_map(|cpu| cpu.queue.first_time());
        let first = known.min().unwrap_or(0);
        let is_live = self.is_live;
        if let Some(cpu) = self.cpus.get_mut(self.current)
            && cpu.last.is_none()
            && !held.is_empty()
        {
            // In live mode, earlier records have been output.
            let given = if is_live {
                cpu.queue.fetched_at()
            } else {
                first
            };
            cpu.last = Some(first.max(given));
        }
        for item in held {
            self.push(item.event, item.data, item.is_item);
        }
    }

    fn place_held(&mut self, held: &[Held], chunks: &[(usize, u64)], last: usize) {
        let scale = self.scale;
        let wraparound = scale.ns(WRAPAROUND.unsigned_abs()).max(1);
        // A later read of a ring has records of the time since the read before.
        let slack = wraparound / 8;
        // Other processors' chunks of the same round, or the one before.
        let within = self.cpus.len() as u64;
        // The processor's own times from before a loss are no bound for the records behind it.
        let own = self.cpus.get(self.current).and_then(|cpu| cpu.last);
        let is_later = |time: i64| own.is_none_or(|own| time > own);
        let about = |chunk: u64| {
            let about = self.bounds.about(chunk, within);
            about.filter(|about| is_later(*about))
        };
        let of_last = chunks.iter().find(|(end, _)| last < *end);
        let latest = of_last.and_then(|(_, chunk)| about(*chunk));
        let mut time = self.time_of_last(held, last, latest, slack);
        let mut times = vec![0_i64; held.len()];
        let mut next = held
            .get(last)
            .map_or((0, EventId::UPTIME_LOW), |item| (item.time, item.event));
        let mut ends = chunks.iter().rev().peekable();
        // Time at which the item's chunk was read, until the chunk's last item has a time.
        let mut read_at = None;
        // Backwards from the last item: the ticks between each item and the next.
        for (place, item) in held.iter().enumerate().rev() {
            while let Some((_, chunk)) = ends.next_if(|(end, _)| *end > place) {
                read_at = about(*chunk);
            }
            if item.event.has_time() && place <= last {
                let ticks = passed(item.time, next.0, next.1, self.most_ahead);
                time = time.after(ticks.saturating_neg(), &scale);
                next = (item.time, item.event);
                if let Some(latest) = read_at.take() {
                    let latest = latest.saturating_add(slack);
                    let earlier = not_behind(time, latest, wraparound, &scale);
                    if own.is_none_or(|own| earlier.floor() >= own) {
                        time = earlier;
                    }
                }
            }
            if let Some(own) = times.get_mut(place) {
                *own = time.round();
            }
        }
        self.give(held, &times, last);
        for (end, chunk) in chunks {
            let last = end.checked_sub(1).and_then(|last| times.get(last));
            if let Some(last) = last {
                self.bounds.raise(*chunk, *last);
            }
        }
    }

    /// Returns the time of the last held item. It was recorded before `latest`, if that is known.
    fn time_of_last(&self, held: &[Held], last: usize, latest: Option<i64>, slack: i64) -> Moment {
        let scale = self.scale;
        let wraparound = scale.ns(WRAPAROUND.unsigned_abs()).max(1);
        let own = self.cpus.get(self.current);
        let own = own.and_then(|cpu| cpu.last.map(|last| (last, cpu.clock)));
        if let (None, Some((_, clock))) = (latest, own) {
            // Only this processor knows a time: continues from there.
            let (mut ticks, mut seen) = (0_i64, clock.seen());
            for item in held.iter().filter(|item| item.event.has_time()) {
                ticks = ticks.saturating_add(passed(seen, item.time, item.event, self.most_ahead));
                seen = item.time;
            }
            return clock.moment(&scale).after(ticks, &scale);
        }
        let (reference, shown) = self.reference(held);
        let ahead = held.get(last).map_or(0, |item| {
            i64::from(item.time.wrapping_sub(shown) & TIME_MASK)
        });
        // If nothing determines the wraparound, chooses the nearest.
        let nearest = || reference.floor().saturating_add(wraparound / 2);
        let latest = latest.map_or_else(nearest, |latest| latest.saturating_add(slack));
        at_most(reference.after(ahead, &scale), latest, wraparound, &scale)
    }

    /// Queues held items with their times, and marks them.
    fn give(&mut self, held: &[Held], times: &[i64], last: usize) {
        let Some(cpu) = self.cpus.get_mut(self.current) else {
            return;
        };
        let first = times.first().copied().unwrap_or(0);
        cpu.last = Some(cpu.last.map_or(first, |last| last.max(first)));
        self.statistics.uncertain += held.iter().filter(|item| item.is_item).count() as u64;
        self.push(EventId::UNRELIABLE_TIME, 0, false);
        for (item, time) in in_order(held.iter().copied().zip(times)) {
            if item.event.has_time()
                && let Some(cpu) = self.cpus.get_mut(self.current)
            {
                cpu.last = Some(cpu.last.map_or(*time, |last| last.max(*time)));
            }
            self.push(item.event, item.data, item.is_item);
        }
        if let (Some(cpu), Some(item), Some(time)) = (
            self.cpus.get_mut(self.current),
            held.get(last),
            times.get(last),
        ) {
            cpu.clock.set(Moment::of_ns(*time), item.time);
            cpu.state = State::Estimated;
        }
    }

    /// Returns a known time and the counter value at that time.
    fn reference(&self, held: &[Held]) -> (Moment, u32) {
        let known = |state| {
            let cpus = self.cpus.iter().filter(move |cpu| cpu.state == state);
            // A processor that has lost records since then qualifies, too: its time in front of the loss was known.
            cpus.max_by_key(|cpu| cpu.last)
        };
        let lost = || {
            let cpus = self.cpus.iter().filter(|cpu| cpu.last.is_some());
            cpus.max_by_key(|cpu| cpu.last)
        };
        let cpu = known(State::Synchronized)
            .or_else(|| known(State::Estimated))
            .or_else(lost);
        match cpu {
            Some(cpu) => (cpu.clock.moment(&self.scale), cpu.clock.seen()),
            // No processor has a time: time begins with this one's first item.
            None => {
                let timed = held.iter().filter(|item| item.event.has_time());
                let (mut ticks, mut last) = (0_i64, None);
                for item in timed {
                    let before = last.replace(item.time).unwrap_or(item.time);
                    ticks = ticks.saturating_add(passed(
                        before,
                        item.time,
                        item.event,
                        self.most_ahead,
                    ));
                }
                let moment = Moment::default().after(ticks, &self.scale);
                (moment, last.unwrap_or(0))
            }
        }
    }
}

/// Returns the latest time up to `latest` that is a whole number of wraparounds away from `time`.
fn at_most(time: Moment, latest: i64, wraparound: i64, scale: &super::Scale) -> Moment {
    let distance = latest.saturating_sub(time.floor());
    let turns = distance.div_euclid(wraparound);
    time.after(turns.saturating_mul(WRAPAROUND), scale)
}

/// Like [`at_most`], but never later than `time`.
fn not_behind(time: Moment, latest: i64, wraparound: i64, scale: &super::Scale) -> Moment {
    if time.floor() <= latest {
        return time;
    }
    at_most(time, latest, wraparound, scale)
}
