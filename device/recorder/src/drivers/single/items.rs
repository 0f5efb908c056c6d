//! Items on one processor: rings beside the event stream, with the same gate and clock.

use core::cell::Cell;

use super::{Single, SinglePort};
use crate::config::{Config, START_ON};
use crate::encode::Driver;
use crate::hot::Hot;
use crate::items::{Item, PacketContext, Ring, Work};

/// Number of attempts to make room before items are lost.
const TRIES: u32 = 64;

impl<P: SinglePort + 'static> Single<P> {
    /// Produces items that share one time and stay together: within one packet, with no other item of the ring in
    /// between. Interrupts are masked while they are stored, and separately for each step that must be done before.
    ///
    /// If an interrupt turns recording off before the clock is read, the items are recorded: the event that they
    /// describe happened before. A ring that is sealed or cleared has no room.
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

    /// The same where room must be made. A counter that does not count up is far from its last time whenever it is
    /// read: then the items are finally lost.
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

    /// Stores admitted items in a ring that has memory, if nothing has to be done first.
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
        // SAFETY: the counter exists, and the ring may hold so many.
        let done = unsafe { P::put_items(ring, counter, items) };
        self.leave_clock(was);
        done
    }

    /// Makes one change towards room for `items` items, if they are admitted; returns false if they are not to be
    /// recorded. Counts them as lost if there is no room, or if only a reader or the lack of a clock prevents
    /// recording.
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
                self.record_gap(then);
            }
        } else if state.on() && state.enabled() || state.fresh() && config.flags & START_ON != 0 {
            ring.lose(items);
        }
        self.go_out(was);
        if !admitted {
            return false;
        }
        let context = self.context();
        let was = self.port.mask();
        let mut room = true;
        // A reader may have frozen the ring meanwhile.
        if let Some(now) = self.low_time(&hot.cursor)
            && gate.open()
        {
            let ago = (now as u32).wrapping_sub(then as u32);
            room = ring.make_room(then.wrapping_add(ago.into()), items, context);
            if !room {
                ring.lose(items);
            }
        }
        self.port.unmask(was);
        room
    }

    /// Adds a ring to the list at its first use; returns false if it has no memory.
    #[inline(never)]
    fn list(&self, ring: &'static Ring<P>) -> bool {
        let usable = ring.usable();
        if usable {
            self.rings.add(ring);
            ring.set_mode(self.writer.stream().mode());
        }
        usable
    }

    /// Handles an item that a producer in assembly stored in the sentinel slot of `ring`. If the producer takes a
    /// `counter` for the clock that is not the clock, the item is lost.
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

    /// The context for the header of a packet of items.
    fn context(&self) -> PacketContext {
        let stream = self.writer.stream();
        PacketContext {
            isr_depth: stream.isr_depth.get(),
            thread: stream.thread(),
            flags: 0,
        }
    }

    /// Closes the rings of producers in assembly, because the gate has changed: so they reach the recorder.
    pub(super) fn hold_items(&self) {
        self.rings.work(Work::Hold, || self.now());
    }
}
