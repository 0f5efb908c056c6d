//! Puts events into the order that a replay or an export needs, before either looks at them.
//!
//! - What was recorded while a clock was ahead is moved back ([`ClockRepair`]).
//! - A source may give the rows of one processor somewhat later than those of another: a kernel writes the entry of a
//!   call when an interrupt lets it, with the time at which the call began. Where a trace is cut, what belongs before the
//!   bound has to come first, so what lies behind is held until nothing before it can come any more.

use kymo_event::{Batch, StreamId, Time, TraceInfo};

use crate::clock_repair::{ClockRepair, ClockRepairCounts};
use crate::replay::Window;

/// No row comes later than one that is by so many nanoseconds behind it, but for rows of one stream.
const LATEST: i64 = 20_000_000;

/// Arranges events, batch by batch.
#[derive(Debug, Default)]
pub struct Arrange {
    repair_clock: bool,
    repair: Option<ClockRepair>,
    repaired: Batch,
    bounds: Bounds,
    arranged: Batch,
}

impl Arrange {
    /// For a part of a trace, with its clocks repaired or as they were.
    pub fn new(window: Window, repair_clock: bool) -> Self {
        Self {
            repair_clock,
            bounds: Bounds::of(window),
            ..Self::default()
        }
    }

    /// What is known of the repair, if there was any.
    pub fn repaired(&self) -> Option<&ClockRepairCounts> {
        self.repair.as_ref().map(ClockRepair::counts)
    }

    /// The next events as they are to be looked at: maybe fewer than came, and those that came before.
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

    /// The rest.
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
    /// The first times that lie behind, the latest first.
    ahead: Vec<Time>,
    /// Events behind the next bound, in their order.
    held: Batch,
    /// Their streams, whose order stays as it is.
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

    /// Nothing that lies before the next bound can come any more.
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
