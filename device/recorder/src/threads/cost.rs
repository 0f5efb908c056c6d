//! What recording costs a thread ([`crate::cost`]); others of its process are taken to pay the same.

use kymo_wire::cost::Cost;

use super::{Lane, ThreadPort};
use crate::cost::{Bench, Hooks, Probe, Undisturbed};
use crate::encode::Stream;
use crate::gate::Gate;

/// Where it is measured.
struct Here<'a, P> {
    port: &'a P,
    lane: &'a Lane<P>,
    gate: &'a Gate,
}

impl<P: ThreadPort> Bench for Here<'_, P> {
    type Target = P;
    type Tally = Undisturbed;

    fn stream(&self) -> &Stream<P> {
        self.lane.writer.stream()
    }

    fn gate(&self) -> &Gate {
        self.gate
    }

    #[inline(never)]
    fn clock(&self) -> u64 {
        self.port.now()
    }

    fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

impl<P: ThreadPort> Lane<P> {
    /// Measures what recording costs the calling thread, whose lane it is, if the clock counts; gives
    /// `tell` two costs at a time, and whether the first has been told before.
    /// The gate stands open meanwhile, whatever it is: so the process has no other thread that records,
    /// no signal is delivered to this one, and it is not time for the
    /// [time of day](ThreadPort::wall_clock_due). Nothing has been recorded yet.
    pub fn measure(&self, port: &P, gate: &Gate, hooks: &Hooks, tell: impl Fn(&[Cost; 2], bool)) {
        // Else hooks would have much to catch up with.
        self.changes.set(gate.changes());
        let here = Here {
            port,
            lane: self,
            gate,
        };
        let Some(mut probe) = Probe::new(here) else {
            return;
        };
        let profile = self.writer.profile();
        if profile.exists() {
            profile.record(port.now(), true);
        }
        probe.run(hooks, &self.cursor, None, tell);
        if profile.exists() {
            let now = port.now();
            profile.record(now, false);
            profile.clear(now);
        }
    }
}
