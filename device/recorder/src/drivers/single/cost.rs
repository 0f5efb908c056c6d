//! Measures the recording overhead on one processor ([`crate::cost`]).
//!
//! It is measured when there is a clock, and again whenever hooks begin to take another path. Interrupts are masked for
//! two hooks at a time. A profile table counts the measured calls, so it is cleared afterwards; therefore with a table
//! nothing is measured once anything has been recorded.

use kymo_wire::cost::Sums;
use kymo_wire::event::MetadataType;

use super::{Single, SinglePort};
use crate::cost::{Bench, Hooks, NO_HOOKS, measure};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::{Cursor, Hot};
use crate::profile::Profile;

/// The recorder under measurement.
struct Here<'a, P: 'static> {
    single: &'a Single<P>,
    hot: &'a Hot,
}

impl<P: SinglePort + 'static> Bench for Here<'_, P> {
    type Target = P;
    type Tally = Sums;

    #[inline(always)]
    fn stream(&self) -> &Stream<P> {
        self.single.writer.stream()
    }

    #[inline(always)]
    fn cursor(&self) -> &Cursor {
        &self.hot.cursor
    }

    #[inline(always)]
    fn hooks(&self) -> &'static Hooks {
        self.single.port.hooks().unwrap_or(&NO_HOOKS)
    }

    #[inline(always)]
    fn gate(&self) -> &Gate {
        &self.hot.gate
    }

    /// Reads the clock with the guard set, because the program's own function may be instrumented. (Not by
    /// [`Single::now`], which takes longer when a hook has recorded since. The recorder's clock was read before, and
    /// can't fall behind in so short a time.)
    #[inline(always)]
    fn clock(&self) -> u64 {
        self.single.inside.set(true);
        let now = self.single.advance();
        self.single.inside.set(false);
        now
    }

    #[inline(always)]
    fn mask_interrupts(&self) -> usize {
        self.single.port.mask()
    }

    #[inline(always)]
    fn unmask_interrupts(&self, was: usize) {
        self.single.port.unmask(was);
    }
}

impl<P: SinglePort> Single<P> {
    /// Measures the recording overhead and adds it to the metadata, if that has not been done yet and is possible.
    #[cold]
    #[inline(never)]
    pub(super) fn measure(&'static self, hot: &'static Hot) {
        // Interrupts may call this too, and must not start it again.
        let way = self.writer.way();
        if self.port.hooks().is_none() || self.measured.replace(way) == way {
            return;
        }
        let profile = self.writer.profile();
        let state = hot.gate.state();
        let usable = state.usable() && !self.inside.get();
        if !usable
            || !self.metadata.has_room_for_costs()
            || profile.is_some() && state.was_ever_on()
        {
            return self.measured.set(0);
        }
        // The table handles the measured calls as if they were recorded.
        if let Some(profile) = profile {
            profile.record(0, true);
        }
        let here = Here { single: self, hot };
        // (These entries have no time.)
        let report = |text: &[u8]| self.metadata.add(MetadataType::Measured, 0, 0, text);
        // Read before, because the measured events would look like switches that the program reports.
        let switches = self.writer.reports_switches();
        measure(here, switches, report, || self.measured.set(0));
        // (Addresses from scratch, because no register could keep them.)
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        if this.writer.profile().is_some_and(Profile::pause) {
            this.wipe(&hot.gate);
        }
    }
}
