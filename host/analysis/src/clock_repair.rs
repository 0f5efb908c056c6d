//! Repairs the times of clocks that stepped back.
//!
//! Some clocks run ahead for a while and step back. That of Zephyr on a Cortex-M does, when its timer is read between
//! its interrupt and its announcement, by up to two thirds of a second in a capture of a quarter. Events in between
//! are recorded too late, calls in which the clock went ahead are too long, and a file format whose time must not
//! decrease can't hold the events after the step at their true times.
//!
//! A clock jumps ahead at once and then keeps its pace. So the latest stretch between two events that is as long as
//! the step contains the jump, and everything from there up to the step was recorded too late by that amount. (If it
//! went ahead in two or three parts, these are the longest stretch, and the latest one that is as long as the rest.)
//! [`ClockRepair`] subtracts this, and holds back the latest [`WINDOW`] events to do so.
//!
//! Nothing is lost: a moved event has its recorded time ([`RECORDED`]), and the [`Gap::TimeBackward`] at the step has
//! how many events were moved and how far ([`MOVED`], [`MOVED_BY`]). A step whose jump is older than the held-back
//! events, or lies before the trace, changes nothing and is counted.

use std::collections::{HashMap, VecDeque};

use kymo_event::{Batch, Duration, Event, EventKind, Field, Gap, StreamId, Time, Value};

/// Number of events held back. Clocks run ahead for some hundreds of events.
pub const WINDOW: usize = 1024;

/// Field of a moved event: the recorded time, in nanoseconds.
pub const RECORDED: &str = "recorded_ns";

/// Field of a [`Gap::TimeBackward`]: the number of moved events before it, for each part in which the clock had gone
/// ahead.
pub const MOVED: &str = "moved_events";

/// Field of a [`Gap::TimeBackward`]: how far each of them was moved, in nanoseconds.
pub const MOVED_BY: &str = "moved_ns";

/// Maximum number of parts in which a clock goes ahead before it steps back.
const PARTS: usize = 3;

/// Repairs the times of events in a stream.
#[derive(Debug, Default)]
pub struct ClockRepair {
    /// The latest events, repaired so far.
    waiting: VecDeque<Event>,
    /// The time of the last event of each stream that was passed on.
    given: HashMap<StreamId, Time>,
    counts: ClockRepairCounts,
}

/// Counters of the repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockRepairCounts {
    /// Steps back whose events were repaired.
    pub steps: u64,
    /// Number of moved events; one that was moved twice counts twice.
    pub moved: u64,
    /// The sum of the repaired steps: time that did not pass.
    pub taken: Duration,
    /// Steps back for which the jump ahead was not found.
    pub unexplained: u64,
}

/// The recorded time of an event, if it was moved.
pub fn recorded(event: &Event) -> Option<Time> {
    let field = event.fields.iter().find(|field| field.name == RECORDED)?;
    match field.value {
        Value::Signed(time) => Some(Time(time)),
        _ => None,
    }
}

/// Keeps the recorded time of an event before it is moved.
fn note_recorded(event: &mut Event) {
    if recorded(event).is_none() {
        event.fields.push(Field::new(RECORDED, event.time.0));
    }
}

impl ClockRepair {
    /// The counters so far.
    pub const fn counts(&self) -> &ClockRepairCounts {
        &self.counts
    }

    /// Processes the next events, and adds those to `out` that can't change any more.
    pub fn take(&mut self, events: &Batch, out: &mut Batch) {
        for event in events.iter() {
            let mut event = event.to_event();
            if let EventKind::Gap(Gap::TimeBackward { by }) = event.kind {
                self.step_back(&mut event, by);
            }
            self.waiting.push_back(event);
            while self.waiting.len() > WINDOW {
                self.give(out);
            }
        }
    }

    /// Adds the remaining events to `out`.
    pub fn finish(&mut self, out: &mut Batch) {
        while !self.waiting.is_empty() {
            self.give(out);
        }
    }

    fn give(&mut self, out: &mut Batch) {
        let Some(event) = self.waiting.pop_front() else {
            return;
        };
        if !matches!(event.kind, EventKind::Gap(_)) {
            self.given.insert(event.stream, event.time);
        }
        out.push_event(event);
    }

    /// Handles a step back: moves the events that were recorded while the clock was ahead.
    fn step_back(&mut self, gap: &mut Event, by: Duration) {
        let step = i64::try_from(by.0).unwrap_or(i64::MAX);
        let Some(parts) = self.ahead_since(gap.stream, step) else {
            self.counts.unexplained += 1;
            return;
        };
        let (mut events, mut times) = (Vec::new(), Vec::new());
        for (first, part) in parts {
            let moved = self.move_back(gap.stream, first, part);
            events.push(Value::Unsigned(moved));
            times.push(Value::Signed(part));
            self.counts.moved += moved;
        }
        note_recorded(gap);
        gap.time = Time(gap.time.0.saturating_sub(step));
        gap.fields.push(Field::new(MOVED, Value::List(events)));
        gap.fields.push(Field::new(MOVED_BY, Value::List(times)));
        self.counts.steps += 1;
        self.counts.taken += by;
    }

    /// Moves all held-back events of a stream from index `first` on. Returns their number.
    fn move_back(&mut self, stream: StreamId, first: usize, by: i64) -> u64 {
        let mut moved = 0;
        let waiting = self.waiting.iter_mut().skip(first);
        for event in waiting.filter(|event| event.stream == stream) {
            moved += u64::from(!matches!(event.kind, EventKind::Gap(_)));
            note_recorded(event);
            event.time = Time(event.time.0.saturating_sub(by));
        }
        moved
    }

    /// Where a stream's clock went ahead by as much as it steps back, latest first: for each part, the first event
    /// after it and the length. `None` if unknown.
    fn ahead_since(&self, stream: StreamId, step: i64) -> Option<Vec<(usize, i64)>> {
        let mut stretches = self.stretches(stream);
        let mut parts = Vec::new();
        let mut rest = step;
        while rest > 0 {
            if parts.len() == PARTS {
                return None;
            }
            let enough = stretches.iter().find(|(_, passed)| *passed >= rest);
            let longest = || stretches.iter().max_by_key(|(_, passed)| *passed);
            let (first, passed) = *enough.or_else(longest)?;
            if passed < rest.div_euclid(2).max(1) {
                return None;
            }
            parts.push((first, passed.min(rest)));
            rest -= passed.min(rest);
            stretches.retain(|(index, _)| *index != first);
        }
        Some(parts)
    }

    /// The time that passed before each held-back event of a stream, latest first.
    fn stretches(&self, stream: StreamId) -> Vec<(usize, i64)> {
        let mut before = self.given.get(&stream).copied();
        let mut stretches = Vec::new();
        for (index, event) in self.waiting.iter().enumerate() {
            if event.stream == stream && !matches!(event.kind, EventKind::Gap(_)) {
                let passed = before.map(|before| event.time.0.saturating_sub(before.0));
                stretches.extend(passed.map(|passed| (index, passed)));
                before = Some(event.time);
            }
        }
        stretches.reverse();
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(stream: u32, time: i64) -> Event {
        Event {
            time: Time(time),
            stream: StreamId(stream),
            cpu: None,
            thread: None,
            kind: EventKind::Other,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        }
    }

    /// What a source gives of such times, one stream: a gap before each step back.
    fn source(times: &[i64]) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let mut last = None;
        for time in times {
            if let Some(by) = last.and_then(|last: i64| u64::try_from(last - time).ok())
                && by > 0
            {
                events.push(Event {
                    kind: EventKind::Gap(Gap::TimeBackward { by: Duration(by) }),
                    ..event(0, last.unwrap_or_default())
                });
            }
            last = Some(*time);
            events.push(event(0, *time));
        }
        events
    }

    fn clock_repair(events: Vec<Event>) -> (Vec<Event>, ClockRepairCounts) {
        let mut clock_repair = ClockRepair::default();
        let mut all = Vec::new();
        let (mut given, mut out) = (Batch::default(), Batch::default());
        for event in events {
            given.clear();
            given.push_event(event);
            clock_repair.take(&given, &mut out);
        }
        clock_repair.finish(&mut out);
        all.extend(out.iter().map(|event| event.to_event()));
        (all, *clock_repair.counts())
    }

    #[test]
    fn what_was_recorded_while_the_clock_was_ahead_is_moved_and_says_so() {
        // The clock goes ahead by 1000 and steps back by 990; in between by 50, and back. Then it goes
        // ahead by 300 and by 600, and steps back by both.
        let times = [
            10, 20, 1030, 1040, 1095, 1045, 1050, 60, 70, 370, 380, 980, 985, 90, 100,
        ];
        let (events, counts) = clock_repair(source(&times));
        let shown: Vec<_> = events.iter().map(|event| event.time.0).collect();
        assert_eq!(
            shown,
            [
                10, 20, 40, 50, 55, 55, 55, 60, 60, 60, 70, 75, 85, 85, 90, 90, 90, 100
            ]
        );
        assert_eq!(
            counts,
            ClockRepairCounts {
                steps: 3,
                moved: 1 + 5 + 2 + 4,
                taken: Duration(50 + 990 + 895),
                unexplained: 0,
            }
        );
        let of_all = events
            .iter()
            .filter(|event| !matches!(event.kind, EventKind::Gap(_)));
        let recorded: Vec<_> = of_all
            .map(|event| recorded(event).unwrap_or(event.time).0)
            .collect();
        assert_eq!(recorded, times);
        // From the gaps alone, the last first, the same follows.
        let mut back = events.clone();
        for at in (0..back.len()).rev() {
            let list = |name: &str| {
                let field = back[at].fields.iter().find(|field| field.name == name);
                match field.map(|field| &field.value) {
                    Some(Value::List(list)) => list.clone(),
                    _ => Vec::new(),
                }
            };
            for (moved, by) in list(MOVED).iter().zip(&list(MOVED_BY)).rev() {
                let (Value::Unsigned(moved), Value::Signed(by)) = (moved, by) else {
                    panic!("{moved} {by}");
                };
                let events = back[..at].iter_mut().rev();
                let events = events.filter(|event| !matches!(event.kind, EventKind::Gap(_)));
                for event in events.take(*moved as usize) {
                    event.time.0 += by;
                }
            }
        }
        back.retain(|event| !matches!(event.kind, EventKind::Gap(_)));
        let back: Vec<_> = back.iter().map(|event| event.time.0).collect();
        assert_eq!(back, times);
    }

    #[test]
    fn a_step_without_a_beginning_changes_nothing() {
        let (events, counts) = clock_repair(source(&[500, 510, 20, 30]));
        let shown: Vec<_> = events.iter().map(|event| event.time.0).collect();
        assert_eq!(shown, [500, 510, 510, 20, 30]);
        assert_eq!((counts.unexplained, counts.moved), (1, 0));
        // It went ahead longer ago than is remembered.
        let ahead = (0..2 * WINDOW as i64).map(|n| 5_000 + n);
        let times: Vec<_> = [10].into_iter().chain(ahead).chain([20]).collect();
        let (events, counts) = clock_repair(source(&times));
        assert_eq!(events.last().unwrap().time, Time(20));
        assert_eq!((counts.unexplained, counts.moved), (1, 0));
    }

    #[test]
    fn another_stream_is_left_alone() {
        let mut events = source(&[10, 1020, 1030, 40]);
        events.insert(2, event(1, 1_025));
        let (events, _) = clock_repair(events);
        let shown: Vec<_> = events.iter().map(|event| event.time.0).collect();
        assert_eq!(shown, [10, 30, 1_025, 40, 40, 40]);
    }
}
