//! What recording costs on one processor ([`crate::cost`]).
//!
//! It is measured when there is a clock, and again whenever hooks begin to take another way.
//! Interrupts are masked for two hooks at a time. A table would keep what is measured, so it is
//! emptied after that; therefore where there is one nothing is measured once anything has been
//! recorded.

use kymo_wire::cost::Sums;
use kymo_wire::event::MetadataType;

use super::{Single, SinglePort};
use crate::cost::{Bench, Hooks, NO_HOOKS, measure};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::{Cursor, Hot};
use crate::profile::Profile;

/// Where it is measured.
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

    /// (Not [`Single::now`], which takes longer when a hook has recorded since. The recorder's clock
    /// was read before, and does not fall behind in so short a time.) Inside, for the program's own function may
    /// be instrumented.
    #[inline(always)]
    fn clock(&self) -> u64 {
        self.single.inside.set(true);
        let now = self.single.advance();
        self.single.inside.set(false);
        now
    }

    #[inline(always)]
    fn hold(&self) -> usize {
        self.single.port.mask()
    }

    #[inline(always)]
    fn let_go(&self, was: usize) {
        self.single.port.unmask(was);
    }
}

impl<P: SinglePort> Single<P> {
    /// Measures what recording costs and tells it in the metadata, if that has not been done yet and
    /// can be.
    #[cold]
    #[inline(never)]
    pub(super) fn measure(&'static self, hot: &'static Hot) {
        // Interrupts may come here too, and must not begin it again.
        let way = self.writer.way();
        if self.port.hooks().is_none() || self.measured.replace(way) == way {
            return;
        }
        let profile = self.writer.profile();
        let state = hot.gate.state();
        let usable = state.usable() && !self.inside.get();
        if !usable || !self.metadata.has_room_for_costs() || profile.is_some() && state.turned() {
            return self.measured.set(0);
        }
        // It takes what is measured as if it had been recorded.
        if let Some(profile) = profile {
            profile.record(0, true);
        }
        let here = Here { single: self, hot };
        // (It happens at no moment.)
        let tell = |text: &[u8]| self.metadata.add(MetadataType::Measured, 0, 0, text);
        // A program that does not tell of switches would seem to do so by now.
        let switches = self.writer.is_told();
        measure(here, switches, tell, || self.measured.set(0));
        // (All from the beginning: there is no register to keep it in.)
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        if this.writer.profile().is_some_and(Profile::pause) {
            this.wipe(&hot.gate);
        }
    }
}
