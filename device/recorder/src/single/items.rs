//! Items of one processor: rings beside the event stream, under the same gate and clock.

use super::{Single, SinglePort};
use crate::config::{Config, START_ON};
use crate::encode::Driver;
use crate::hot::Hot;
use crate::items::{Item, Moment, Ring, Work};

impl<P: SinglePort + 'static> Single<P> {
    /// Produces items that share one time and stay together: no other item of the ring comes between
    /// them, and they are in one packet. Interrupts are masked while they are put down, and for each
    /// [thing](Ring::make_room) that must be done before.
    ///
    /// If an interrupt turns recording off before the clock is read, the items are recorded: what they
    /// tell of happened before. A ring that is sealed or cleared has no room.
    #[inline(never)]
    pub fn produce(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: &[Item],
    ) {
        loop {
            let done = hot.gate.open() && ring.may_hold(items.len()) && self.put(hot, ring, items);
            if done || !self.make_room(hot, config, ring, items.len()) {
                return;
            }
        }
    }

    /// Puts items down that the ring may hold, if that takes nothing first.
    #[inline(always)]
    fn put(&self, hot: &Hot, ring: &Ring<P>, items: &[Item]) -> bool {
        let counter = hot.cursor.counter.get();
        if !P::PUTS_ITEMS {
            let put = |now| ring.put_near(now as u32, items);
            self.steps(hot).attempt(put)
        } else if counter.is_null() {
            self.put_with_clock(hot, ring, items)
        } else {
            // SAFETY: the counter is there, and the ring may hold so many.
            unsafe { P::put_items(ring, counter, items) }
        }
    }

    /// The same where the time is not a counter's that is read at an address.
    #[cold]
    #[inline(never)]
    fn put_with_clock(&self, hot: &Hot, ring: &Ring<P>, items: &[Item]) -> bool {
        self.steps(hot).attempt(|now| {
            let now = now as u32;
            // SAFETY: the time is there to be read, and the ring may hold so many.
            unsafe { P::put_items(ring, &raw const now, items) }
        })
    }

    /// Does one thing so that so many items will find room, or counts them; false if they are not to be
    /// recorded.
    #[cold]
    #[inline(never)]
    fn make_room(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: usize,
    ) -> bool {
        let usual = hot.gate.open() && ring.is_listed() && ring.may_hold(items);
        if !usual || self.clock.doubtful() {
            return self.admit(hot, config, ring, items);
        }
        let Some(was) = self.come_in() else {
            return false;
        };
        let then = self.now();
        self.go_out(was);
        let moment = self.moment();
        let was = self.port.mask();
        let mut room = true;
        // A reader may have come meanwhile.
        if let Some(now) = self.low_time(&hot.cursor)
            && hot.gate.open()
        {
            let ago = (now as u32).wrapping_sub(then as u32);
            room = ring.make_room(then.wrapping_add(ago.into()), items, moment);
            if !room {
                ring.lose(items);
            }
        }
        self.port.unmask(was);
        room
    }

    /// Sees to what is not usual, before there is room: takes a ring into the list when it is first
    /// used, and counts items where only a reader, or the want of a clock, is in the way. False if they
    /// are not to be recorded.
    #[inline(never)]
    fn admit(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: usize,
    ) -> bool {
        let gate = &hot.gate;
        if !gate.open() && !self.wakes(hot, config) {
            return false;
        }
        let admitted = self.masked(|| {
            let state = gate.state();
            let possible = ring.usable() && (1..=Ring::<P>::CAPACITY).contains(&items);
            if !state.fresh() && ring.usable() && self.rings.add(ring) {
                ring.set_mode(self.writer.stream().mode());
            }
            if state.open() && possible {
                let now = self.now();
                if self.clock.doubtful() {
                    self.tell_gap(now);
                }
                return true;
            }
            let held = state.on() && state.enabled() && state.frozen();
            if state.open() || held || (state.fresh() && config.flags & START_ON != 0) {
                ring.lose(items);
            }
            false
        });
        admitted == Some(true)
    }

    /// A producer in assembly came to the end of a packet of `ring` with this item. If it takes a
    /// `counter` for the clock that is not, its items are lost.
    pub fn landed(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        item: Item,
        counter: Option<*const u32>,
    ) {
        ring.set_blind();
        if !self.wake(hot, config) {
            return;
        }
        let trusted = counter.is_none_or(|counter| counter == hot.cursor.counter.get());
        if trusted || !hot.gate.open() {
            self.produce(hot, config, ring, &[item]);
        } else {
            self.masked(|| ring.lose(1));
        }
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
