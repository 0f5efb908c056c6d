//! Items of one processor: rings beside the event stream, under the same gate and clock.

use core::cell::Cell;

use super::{Single, SinglePort};
use crate::config::{Config, START_ON};
use crate::encode::Driver;
use crate::hot::Hot;
use crate::items::{Item, Moment, Ring, Work};

/// How often room is looked for before items are given up.
const TRIES: u32 = 64;

impl<P: SinglePort + 'static> Single<P> {
    /// Produces items that share one time and stay together: no other item of the ring comes between
    /// them, and they are in one packet. Interrupts are masked while they are put down, and for each
    /// thing that must be done before.
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
        if !self.is_allowed(hot) {
            return;
        }
        let admitted = Ring::<P>::admits(items);
        if !self.try_to_produce(hot, ring, items, admitted) {
            self.produce_with_room(hot, config, ring, items, admitted);
        }
    }

    #[inline(always)]
    fn try_to_produce(&self, hot: &Hot, ring: &Ring<P>, items: &[Item], admitted: bool) -> bool {
        admitted && hot.gate.open() && ring.has_memory() && self.put(hot, ring, items)
    }

    /// The same where room has to be made. A counter that does not count up is far from its last time whenever
    /// it is read: then the items are lost in the end.
    #[cold]
    #[inline(never)]
    fn produce_with_room(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: &[Item],
        admitted: bool,
    ) {
        for _ in 0..TRIES {
            if !self.make_room(hot, config, ring, items.len(), admitted)
                || self.try_to_produce(hot, ring, items, admitted)
            {
                return;
            }
        }
        self.masked(|| {
            self.clock.doubt();
            ring.lose(items.len());
        });
    }

    /// Puts items that are admitted down in a ring that has memory, if that takes nothing first.
    #[inline(always)]
    fn put(&self, hot: &Hot, ring: &Ring<P>, items: &[Item]) -> bool {
        if !P::PUTS_ITEMS {
            let put = |now| ring.put_near(now as u32, items);
            return self.steps(hot).attempt(put);
        }
        let time = Cell::new(0);
        let Ok(was) = self.come_to_clock(hot, &time) else {
            return false;
        };
        let counter = match was {
            Some(_) => time.as_ptr().cast_const(),
            None => hot.cursor.counter.get(),
        };
        // SAFETY: the counter is there, and the ring may hold so many.
        let done = unsafe { P::put_items(ring, counter, items) };
        self.leave_clock(was);
        done
    }

    /// Does one thing so that so many items will find room, if they are admitted; false if they are not to be recorded. They are
    /// counted if there is no room, or if only a reader, or the want of a clock, is in the way.
    #[cold]
    #[inline(never)]
    fn make_room(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        ring: &'static Ring<P>,
        items: usize,
        admitted: bool,
    ) -> bool {
        let gate = &hot.gate;
        if !self.wake(hot, config) {
            return false;
        }
        if !self.can_mask(hot) {
            ring.lose(items);
            return false;
        }
        let Some(was) = self.come_in() else {
            return false;
        };
        let state = gate.state();
        let listed = ring.is_listed();
        if !listed && !state.fresh() && self.list(ring) {
            self.go_out(was);
            return true;
        }
        let admitted = admitted && state.open() && listed;
        let mut then = 0;
        if admitted {
            then = self.now();
            if self.clock.doubtful() {
                self.tell_gap(then);
            }
        } else if state.on() && state.enabled() || state.fresh() && config.flags & START_ON != 0 {
            ring.lose(items);
        }
        self.go_out(was);
        if !admitted {
            return false;
        }
        let moment = self.moment();
        let was = self.port.mask();
        let mut room = true;
        // A reader may have come meanwhile.
        if let Some(now) = self.low_time(&hot.cursor)
            && gate.open()
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

    /// Takes a ring into the list, when it is first used; false if it has no memory.
    #[inline(never)]
    fn list(&self, ring: &'static Ring<P>) -> bool {
        let usable = ring.usable();
        if usable {
            self.rings.add(ring);
            ring.set_mode(self.writer.stream().mode());
        }
        usable
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
