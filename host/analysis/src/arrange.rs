//! Puts events into the order that a replay or an export needs.
//!
//! - Events that were recorded while a clock was ahead are moved back ([`ClockRepair`]).
//! - A source may deliver the rows of one processor somewhat later than those of another: a kernel writes the entry
//!   of a call when an interrupt permits, with the time at which the call began. Where a trace is cut, events before
//!   the bound must come first, so events after it are held until no earlier one can arrive.

use kymo_event::{Batch, StreamId, Time, TraceInfo};

use crate::clock_repair::{ClockRepair, ClockRepairCounts};
use crate::replay::Window;

/// Maximum lateness of a row relative to rows of other streams, in nanoseconds.
const LATEST: i64 = 20_000_000;

/// Reorders events, batch by batch.
#[derive(Debug, Default)]
pub struct Arrange {
    repair_clock: bool,
    repair: Option<ClockRepair>,
    repaired: Batch,
    bounds: Bounds,
    arranged: Batch,
}

impl Arrange {
    /// Creates the stage for a part of a trace, with or without clock repair.
    pub fn new(window: Window, repair_clock: bool) -> Self {
        Self {
            repair_clock,
            bounds: Bounds::of(window),
            ..Self::default()
        }
    }

    /// Counters of the clock repair, if there was any.
    pub fn repaired(&self) -> Option<&ClockRepairCounts> {
        self.repair.as_ref().map(ClockRepair::counts)
    }

    /// Returns the next events in order: possibly fewer than were passed in, and including earlier ones.
    pub fn take<'b>(&'b mut self, info: &TraceInfo, batch: &'b Batch) -> &'b Batch {
        if self.repair_clock && info.steps_back {
            self.repair.get_or_insert_default();
        }
        let mut events = batch;
        if let Some(repair) = &mut self.repair {
            self.repaired.clear();
            repair.take(batch, &mut self.repaired);
            events = &self.repaired;
        }
        if self.bounds.are_ahead() {
            self.arranged.clear();
            self.bounds.take(info, events, &mut self.arranged);
            events = &self.arranged;
        }
        events
    }

    /// Returns the remaining events.
    pub fn finish(&mut self, info: &TraceInfo) -> Batch {
        let (mut repaired, mut rest) = (Batch::default(), Batch::default());
        if let Some(repair) = &mut self.repair {
            repair.finish(&mut repaired);
        }
        self.bounds.take(info, &repaired, &mut rest);
        self.bounds.finish(&mut rest);
        rest
    }
}

/// The bounds of a window that have not been passed yet.
#[derive(Debug, Default)]
struct Bounds {
    /// The first time after each bound, latest first.
    ahead: Vec<Time>,
    /// Events after the next bound, in their order.
    held: Batch,
    /// Their streams; the order within a stream is kept.
    streams: Vec<StreamId>,
}

impl Bounds {
    fn of(window: Window) -> Self {
        let behind = window.end.0.checked_add(1).map(Time);
        let begin = Some(window.begin).filter(|begin| *begin != Time(i64::MIN));
        Self {
            ahead: behind.into_iter().chain(begin).collect(),
            ..Self::default()
        }
    }

    const fn are_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn take(&mut self, info: &TraceInfo, batch: &Batch, out: &mut Batch) {
        for event in batch.iter() {
            let (time, stream) = (event.row.time, event.row.stream);
            let timeless = info.stream(stream).is_some_and(|stream| stream.timeless);
            let Some(bound) = self.ahead.last().copied().filter(|_| !timeless) else {
                out.push_ref(event);
                continue;
            };
            if time < bound && !self.streams.contains(&stream) {
                out.push_ref(event);
                continue;
            }
            self.held.push_ref(event);
            if !self.streams.contains(&stream) {
                self.streams.push(stream);
            }
            if time.0 >= bound.0.saturating_add(LATEST) {
                self.pass(info, out);
            }
        }
    }

    /// Passes the next bound, before which no more events can arrive.
    fn pass(&mut self, info: &TraceInfo, out: &mut Batch) {
        self.ahead.pop();
        self.streams.clear();
        let held = std::mem::take(&mut self.held);
        self.take(info, &held, out);
    }

    fn finish(&mut self, out: &mut Batch) {
        self.ahead.clear();
        for event in self.held.iter() {
            out.push_ref(event);
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{Row, RowKind};

    use super::*;

    #[test]
    fn what_lies_before_a_bound_comes_before_it() {
        let window = Window {
            begin: Time(100),
            end: Time(200),
        };
        let mut arrange = Arrange::new(window, true);
        let info = TraceInfo::default();
        // Of two streams, the second late at both bounds; the step back of the first is its own.
        let rows = [
            (90, 0),
            (110, 0),
            (95, 1),
            (99, 0),
            (120, 1),
            (205, 0),
            (190, 1),
            (LATEST + 300, 1),
            (10, 1),
        ];
        let mut times = Vec::new();
        for (time, stream) in rows {
            let mut one = Batch::default();
            one.push(Row::new(RowKind::Other, Time(time), StreamId(stream)));
            let given = arrange.take(&info, &one);
            times.extend(given.rows().iter().map(|row| row.time.0));
        }
        let rest = arrange.finish(&info);
        times.extend(rest.rows().iter().map(|row| row.time.0));
        let expected = [90, 95, 110, 99, 120, 190, 205, LATEST + 300, 10];
        assert_eq!(times, expected);
    }
}
