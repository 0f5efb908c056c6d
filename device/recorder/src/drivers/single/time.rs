//! The time of events on one processor.

use kymo_wire::event::EventId;

use super::{Single, SinglePort};
use crate::gate::Gate;

impl<P: SinglePort + 'static> Single<P> {
    /// The time of an event to be recorded, with the guard set; `None` if an interrupt has closed the gate since it was
    /// checked.
    #[inline(always)]
    pub(super) fn time(&self, gate: &Gate) -> Option<u64> {
        if !gate.open() {
            self.refuse(gate.state());
            return None;
        }
        let now = self.now();
        if self.clock.doubtful() {
            self.record_gap(now);
        }
        Some(now)
    }

    /// The time, with the guard set. The fast path reads the counter without updating the clock, so this first catches
    /// up.
    #[inline(never)]
    pub(super) fn now(&self) -> u64 {
        self.clock.catch_up(self.writer.stream().last());
        self.advance()
    }

    /// [`now`](Self::now), if the clock is up to date with all records.
    #[inline(never)]
    pub(super) fn advance(&self) -> u64 {
        self.clock.advance(self.counter())
    }

    /// The time, for callers without the guard; 0 if the guard is set already.
    #[inline(never)]
    pub(super) fn outer_now(&self) -> u64 {
        let Some(was) = self.come_in() else {
            return 0;
        };
        let now = self.now();
        self.go_out(was);
        now
    }

    /// Marks in the trace that the clock is uncertain before `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn record_gap(&self, now: u64) {
        let ticks = self.clock.take_gap();
        self.writer.stream().place(EventId::ClockGap, now, ticks, 0);
    }
}
