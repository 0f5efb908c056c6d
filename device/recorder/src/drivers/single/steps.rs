//! Recording steps on one processor: interrupts are masked separately for each step.

use core::cell::Cell;

use super::{Single, SinglePort};
use crate::encode::{Driver, Found, Need};
use crate::hot::{Cursor, Hot, low};
use crate::sync::add;
use kymo_wire::event::EventId;

/// More bytes than a [`ClockGap`](EventId::ClockGap) needs.
const GAP: u32 = 24;

/// Driver for one event.
pub(super) struct Steps<'a, P: 'static> {
    pub single: &'a Single<P>,
    pub hot: &'a Hot,
    /// The thread that `current_thread` returned for this event. If another thread preempts it here and records, the
    /// event is started again.
    pub thread: Cell<Option<usize>>,
}

impl<P: SinglePort + 'static> Steps<'_, P> {
    /// Whether the event can still be recorded as started, with interrupts masked.
    #[inline(always)]
    fn is_current(&self) -> bool {
        self.thread
            .get()
            .is_none_or(|thread| thread == self.single.writer.stream().thread())
    }
}

impl<P: SinglePort + 'static> Single<P> {
    /// The low bits of the time, with interrupts masked; `None` if this is a hook within a hook, or if a gap must be
    /// recorded first.
    #[inline(always)]
    pub(super) fn low_time(&self, cursor: &Cursor) -> Option<usize> {
        let counter = cursor.counter.get();
        if counter.is_null() {
            self.other_time()
        } else if P::GUARDED {
            // SAFETY: the counter exists.
            self.inside_quietly(|| unsafe { self.port.read(counter) } as usize)
        } else {
            // SAFETY: as above.
            Some(unsafe { self.port.read(counter) } as usize)
        }
    }

    /// The same where the clock is not a counter that is read at its address.
    #[inline(never)]
    fn other_time(&self) -> Option<usize> {
        let now = self.inside_quietly(|| self.now())?;
        (!self.clock.doubtful()).then_some(low::<P>(now))
    }

    /// Where the clock is not a counter that is read at its address, masks interrupts and stores the time in `time`.
    /// Returns the state for [`leave_clock`](Self::leave_clock). Fails if this is a hook within a hook, or if a gap
    /// must be recorded first.
    #[inline(always)]
    pub(super) fn come_to_clock(&self, hot: &Hot, time: &Cell<u32>) -> Result<Option<usize>, ()> {
        if hot.cursor.counter.get().is_null() {
            self.hold_clock(time).map(Some).ok_or(())
        } else {
            Ok(None)
        }
    }

    #[cold]
    #[inline(never)]
    fn hold_clock(&self, time: &Cell<u32>) -> Option<usize> {
        let was = self.port.mask();
        let Some(now) = self.other_time() else {
            self.port.unmask(was);
            return None;
        };
        time.set(now as u32);
        Some(was)
    }

    /// Restores interrupts after [`come_to_clock`](Self::come_to_clock).
    #[inline(always)]
    pub(super) fn leave_clock(&self, was: Option<usize>) {
        if let Some(was) = was {
            self.port.unmask(was);
        }
    }

    /// Runs `inside` with the guard set, with interrupts masked; `None`, without counting, if the guard was set
    /// already.
    #[inline(always)]
    fn inside_quietly<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        if self.inside.get() {
            return None;
        }
        self.inside.set(true);
        let result = inside();
        self.inside.set(false);
        Some(result)
    }

    /// Makes room for a record, with interrupts masked.
    #[inline(always)]
    fn room_inside(&self, hot: &Hot, mut need: Need) -> Found {
        let now = self.now();
        if self.clock.doubtful() {
            need.bytes += GAP;
        }
        let found = self.writer.stream().make_room(need, now);
        if self.clock.doubtful() && hot.cursor.limit() != 0 {
            self.put_gap(&hot.cursor, now);
        }
        found
    }

    /// Marks in the trace that the clock is uncertain before `now`, if there is room; otherwise the next event makes
    /// room.
    #[cold]
    #[inline(never)]
    fn put_gap(&self, cursor: &Cursor, now: u64) {
        let stream = self.writer.stream();
        if stream.put(
            cursor,
            low::<P>(now),
            EventId::ClockGap,
            self.clock.gap(),
            0,
        ) {
            self.clock.take_gap();
        } else {
            cursor.close();
        }
    }
}

impl<P: SinglePort + 'static> Driver for Steps<'_, P> {
    const READS_AGAIN: bool = true;

    #[inline(always)]
    fn attempt(&self, put: impl FnOnce(usize) -> bool) -> bool {
        let was = self.single.port.mask();
        let done = self.is_current()
            && match self.single.low_time(&self.hot.cursor) {
                Some(now) => put(now),
                None => false,
            };
        self.single.port.unmask(was);
        done
    }

    #[inline(never)]
    fn room(&self, need: Need) -> Found {
        let Self { single, hot, .. } = self;
        if !single.can_mask(hot) {
            return Found::Shut;
        }
        let was = single.port.mask();
        let found = match hot.gate.open() && self.is_current() {
            true => single.inside_quietly(|| single.room_inside(hot, need)),
            false => None,
        };
        single.port.unmask(was);
        #[cfg(feature = "sums")]
        single.sum_packets();
        found.unwrap_or(Found::Shut)
    }

    #[inline(always)]
    fn apart<R>(&self, work: impl FnOnce() -> R) -> R {
        let was = self.single.port.mask();
        let result = work();
        self.single.port.unmask(was);
        result
    }

    #[inline(always)]
    fn expect_thread(&self, thread: usize) {
        self.thread.set(Some(thread));
    }

    #[cold]
    fn refuse(&self, function: usize) {
        self.single.refuse_inner(function);
        add(&self.single.refused, 1);
    }

    #[cold]
    fn doubt(&self) {
        self.single.clock.doubt();
    }

    fn now(&self) -> u64 {
        self.single
            .inside_quietly(|| self.single.now())
            .unwrap_or(0)
    }
}
