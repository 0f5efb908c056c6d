//! Reports to stream and table that recording is turned on or off.

use kymo_wire::event::{Cause, EventId};

use super::{Served, Writer};
use crate::{Event, Target};

impl<T: Target> Writer<T> {
    /// Records that recording was turned on or off, at `now`, where no other context can interrupt. When turned on,
    /// also records the interrupts that are active already: the following events belong to them, not to the thread. A
    /// packet that begins with this record states in its header that no interrupt is active.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_on_off(&self, on: bool, cause: Cause, now: u64) {
        self.record_thread_change(on, now);
        let depth = self.stream.isr_depth.get();
        if on {
            self.stream.isr_depth.set(0);
        }
        if let Ok((id, first, second)) = (Event::Recording { on, cause }).parts::<T>() {
            self.stream.place(id, now, first as u64, second);
        }
        if !T::MIGRATES
            && self.profile.is_kept()
            && let Some(table) = self.profile.get()
        {
            table.record(now, on);
        }
        if on {
            self.stream.part();
            self.stream.forget_isrs();
            for level in 0..depth {
                self.begin_again(now, self.served.at(level).unwrap_or(Served::UNKNOWN));
            }
        }
    }

    /// Records the running thread if it has changed while recording was off: no switch record says so.
    #[cold]
    #[inline(never)]
    fn record_thread_change(&self, on: bool, now: u64) {
        let thread = self.stream.thread();
        if !on {
            self.off_thread.set(thread);
            self.was_off.set(true);
        } else if self.was_off.replace(false) && thread != 0 && thread != self.off_thread.get() {
            self.stream.place(EventId::Context, now, thread as u64, 0);
        }
    }

    /// Records that an interrupt is active which began earlier.
    fn begin_again(&self, now: u64, irq: u16) {
        let id = match u8::try_from(irq) {
            Ok(_) => EventId::IsrEnter,
            Err(_) => EventId::IsrEnterWide,
        };
        self.stream.place(id, now, irq.into(), 0);
        // (Where threads migrate, the table has caught up already.)
        if !T::MIGRATES
            && self.profile.is_kept()
            && let Some(table) = self.profile.get()
        {
            table.isr_enter(now);
        }
        let depth = &self.stream.isr_depth;
        depth.set(depth.get().saturating_add(1));
    }
}
