//! Items of one processor: rings beside the event stream, under the same gate and clock.

use super::{Single, SinglePort};
use crate::config::{Config, START_ON};
use crate::gate::Gate;
use crate::hot::Hot;
use crate::identity::mode;
use crate::items::{Item, Moment, Ring, Work};

/// Who may come between while items are produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Anybody: interrupts are masked for the items.
    Open,
    /// Nobody: the caller has masked interrupts.
    Critical,
    /// Nobody who uses this ring: it belongs to one level of interrupts. Interrupts are masked only
    /// to read the clock.
    Own,
}

impl<P: SinglePort + 'static> Single<P> {
    /// Produces items that share one time and stay together ([`Ring::produce`]).
    #[inline(always)]
    pub fn produce(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        section: Section,
        items: &[Item],
    ) {
        let near =
            ring.may_be_near(items.len()) && self.near(hot, |now| ring.produce_near(now, items));
        if !near {
            self.produce_far(hot, config, ring, section, items);
        }
    }

    /// The same of one item.
    #[inline(always)]
    pub fn produce_one(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        section: Section,
        item: Item,
    ) {
        let near = ring.may_be_near(1) && self.near(hot, |now| ring.produce_one_near(now, item));
        if !near {
            self.produce_far(hot, config, ring, section, &[item]);
        }
    }

    /// Does something with the low half of the time, masked; false if there is more to be done first.
    ///
    /// If an interrupt turns recording off before the clock is read, the item is recorded: what it
    /// tells of happened before. A ring that is sealed or cleared has no room.
    #[inline(always)]
    fn near(&self, hot: &Hot, produce: impl FnOnce(u32) -> bool) -> bool {
        let counter = hot.cursor.counter.get();
        if counter.is_null() || !hot.gate.open() {
            return false;
        }
        let was = self.port.mask();
        // SAFETY: the counter is there.
        let done = produce(unsafe { self.port.read(counter) });
        self.port.unmask(was);
        done
    }

    /// The same in any case.
    #[cold]
    #[inline(never)]
    fn produce_far(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        section: Section,
        items: &[Item],
    ) {
        if !hot.gate.open() && !self.wakes(hot, config) {
            return;
        }
        let record = || {
            if let Some(now) = self.item_time(&hot.gate, config, ring, items.len()) {
                ring.produce(now, items, || self.moment());
            }
        };
        match section {
            Section::Open => {
                let was = self.port.mask();
                self.inside(record);
                self.port.unmask(was);
            }
            Section::Critical => {
                self.inside(record);
            }
            Section::Own => {
                let now = self.masked(|| self.item_time(&hot.gate, config, ring, items.len()));
                if let Some(Some(now)) = now {
                    ring.produce(now, items, || self.moment());
                }
            }
        }
    }

    /// A producer in assembly stored an item at the end of a packet of `ring`
    /// ([`Ring::landed`]). If it takes a `counter` for the clock that is not, its items are lost.
    pub fn landed(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        counter: Option<*const u32>,
    ) {
        let trusted = counter.is_none_or(|counter| counter == hot.cursor.counter.get());
        if hot.gate.open() && trusted && ring.is_filling() {
            return ring.land(self.moment());
        }
        if !self.wake(hot, config) {
            return;
        }
        self.masked(|| {
            self.know(config, ring);
            let state = hot.gate.state();
            let trusted = counter.is_none_or(|counter| counter == hot.cursor.counter.get());
            let wanted = if hot.gate.open() && !trusted {
                Some(false)
            } else if hot.gate.open() {
                Some(true)
            } else {
                (state.on() && state.enabled() && state.frozen()).then_some(false)
            };
            ring.landed(self.now(), wanted, self.moment());
        });
    }

    /// Whether a closed gate may open by itself, or events are counted although it is closed.
    #[cold]
    pub(super) fn wakes(&'static self, hot: &'static Hot, config: &'static Config) -> bool {
        if !self.wake(hot, config) {
            return false;
        }
        let state = hot.gate.state();
        hot.gate.open() || state.frozen() || state.fresh()
    }

    /// The time of items, if they are to be recorded; else they are counted, where only a reader or
    /// the want of a clock is in the way.
    #[inline(always)]
    fn item_time(
        &self,
        gate: &Gate,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: usize,
    ) -> Option<u64> {
        self.know(config, ring);
        if gate.open() {
            return self.time(gate);
        }
        let state = gate.state();
        let held = state.on() && state.enabled() && state.frozen();
        if held || (state.fresh() && config.flags & START_ON != 0) {
            ring.lose(items);
        }
        None
    }

    /// Takes a ring into the list when it is first used.
    #[inline(always)]
    fn know(&self, config: &Config, ring: &'static Ring<P>) {
        if self.rings.add(ring) {
            let stream = self.writer.stream();
            ring.set_mode(match self.config.get() {
                Some(_) => stream.mode(),
                None => mode(config),
            });
        }
    }

    /// What a packet of items says of the moment at which it is begun.
    fn moment(&self) -> Moment {
        let stream = self.writer.stream();
        Moment {
            isr_depth: stream.isr_depth.get(),
            thread: stream.thread(),
            flags: 0,
        }
    }

    /// Has producers in assembly come by, because the gate is not as it was.
    pub(super) fn hold_items(&self) {
        self.rings.work(Work::Hold, || self.now());
    }
}
