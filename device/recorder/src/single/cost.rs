//! What recording costs on one processor ([`crate::cost`]).
//!
//! It is measured when there is a clock, and again whenever hooks begin to take another way.
//! Interrupts are masked for two hooks at a time. A table would keep what is measured, so it is
//! emptied after that; therefore where there is one nothing is measured once anything has been
//! recorded.

use super::{Single, SinglePort};
use crate::cost::{Bench, COSTS, Probe, Sum};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::Hot;

/// Where it is measured.
struct Here<'a, P: 'static> {
    single: &'a Single<P>,
    gate: &'a Gate,
}

impl<P: SinglePort + 'static> Bench for Here<'_, P> {
    type Target = P;
    type Tally = Sum;

    #[inline(always)]
    fn stream(&self) -> &Stream<P> {
        self.single.writer.stream()
    }

    #[inline(always)]
    fn gate(&self) -> &Gate {
        self.gate
    }

    /// (Not [`Single::now`], which takes longer when a hook has recorded since. The recorder's clock
    /// was read before, and does not fall behind in so short a time.)
    #[inline(always)]
    fn clock(&self) -> u64 {
        self.single.advance()
    }

    #[inline(always)]
    fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let was = self.single.port.mask();
        let result = work();
        self.single.port.unmask(was);
        result
    }
}

impl<P: SinglePort> Single<P> {
    /// Measures what recording costs and tells it in the metadata, if that has not been done yet and
    /// can be.
    #[cold]
    #[inline(never)]
    pub(super) fn measure(&'static self, hot: &'static Hot) {
        let way = self.writer.way();
        if self.measured.get() == way {
            return;
        }
        let gate = &hot.gate;
        let profile = self.writer.profile();
        let state = gate.state();
        let usable = state.usable() && (!profile.exists() || !state.turned());
        let Some(hooks) = self.port.hooks().filter(|_| usable) else {
            return;
        };
        // Interrupts may come here too, and must not begin it again.
        let before = self.masked(|| {
            self.now();
            self.measured.replace(way)
        });
        if before.is_none_or(|before| before == way) {
            return;
        }
        let Some(mut probe) = Probe::new(Here { single: self, gate }) else {
            self.measured.set(0);
            return;
        };
        if profile.exists() {
            self.masked(|| profile.record(self.now(), true));
        }
        let told = self.metadata.has_room_for_costs(COSTS);
        // A program that does not tell of switches would seem to do so by now.
        let switches = self.writer.is_told();
        let thread = switches.then(|| self.writer.stream().thread());
        probe.run(hooks, &hot.cursor, thread, |costs, known| {
            if told {
                self.metadata.costs(self.outer_now(), costs, known);
            }
        });
        if profile.exists() && profile.pause() {
            self.wipe(gate);
        }
    }
}
