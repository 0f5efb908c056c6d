//! Converts events to records, and updates the stream's state.

use kymo_wire::event::{EventId, Form};

use super::record::need_of;
use super::{Alone, Depth, Driver, Found, Need, Record, Seen, Stream, Tries};
use crate::event::{Parts, Parts64, turns_recording_on};
use crate::hot::{Cursor, is_counted, low};
use crate::{Event, Target};

impl<T: Target> Stream<T> {
    /// Records any event at `now`, where no other context can interrupt.
    pub fn record(&self, now: u64, event: Event) {
        let alone = Alone::at(self, now);
        let usual = match event {
            Event::Enter(function) => self.enter(&alone, function, 0, |_| ()),
            Event::EnterFrom { function, caller } => self.enter(&alone, function, caller, |_| ()),
            Event::Exit(function) => self.exit(&alone, function, |_| ()),
            _ => match event.parts::<T>() {
                Ok(parts) => Err(parts),
                Err(long) => return self.record_parts64(&alone, long),
            },
        };
        if let Err(parts) = usual {
            self.other(&alone, parts, |_| (), || ());
        }
    }

    /// Records an event with a long number, where no other context can interrupt.
    pub(crate) fn record_parts64(&self, alone: &Alone<'_, T>, (id, first, second): Parts64) {
        self.place(id, alone.now(), first, second as usize);
    }

    /// Records that a function was entered, from the call site `caller` unless that is 0. Calls `also` with the time
    /// (truncated by [`low`]) in the step that records it, or after the event was discarded. Returns true when done,
    /// false if the driver has stopped recording. If no short entry fits, returns the parts that the caller has to
    /// [record](Self::other) instead.
    #[inline(always)]
    pub(crate) fn enter<D: Driver>(
        &self,
        driver: &D,
        function: usize,
        caller: usize,
        also: impl Fn(usize),
    ) -> Result<bool, Parts> {
        let Some(cursor) = self.cursor() else {
            self.nowhere();
            return Ok(true);
        };
        let shape = T::LAYOUT.shape;
        let number = cursor.number::<T>(function);
        let fits = |bits: u32| number as u64 >> bits == 0;
        let (id, first) = match caller {
            0 if fits(shape.function_bits(Form::EnterLong)) => {
                let need = Need {
                    bytes: shape.bytes(Form::EnterLong) as u32,
                    bits: shape.time_bits(Form::EnterLong),
                    depth: Depth::More,
                };
                // SAFETY: the cursor is ours, whose limit leaves room for a record, and the driver
                // keeps others away.
                let put = |now| unsafe {
                    let done = cursor.enter_below::<T>(cursor.limit(), now, number);
                    if done {
                        also(now);
                    }
                    done
                };
                let mut tries = Tries::default();
                while !tries.are_over::<D>() {
                    if driver.attempt(put) {
                        return Ok(true);
                    }
                    if let Some(done) = self.make_way(driver, cursor, need, &also) {
                        return Ok(done);
                    }
                }
                (EventId::EnterFar, function)
            }
            0 => (EventId::EnterFar, function),
            _ if fits(shape.named_bits()) => (EventId::EnterFrom, number),
            _ => (EventId::EnterFarFrom, function),
        };
        Err((id, first, caller))
    }

    /// Records that a function exited; as [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) fn exit<D: Driver>(
        &self,
        driver: &D,
        function: usize,
        also: impl Fn(usize),
    ) -> Result<bool, Parts> {
        let Some(cursor) = self.cursor() else {
            self.nowhere();
            return Ok(true);
        };
        let shape = T::LAYOUT.shape;
        let mut tries = Tries::default();
        while !tries.are_over::<D>() {
            let need = Need {
                bytes: shape.bytes(Form::ExitLong) as u32,
                bits: shape.time_bits(Form::ExitLong),
                depth: Depth::Less,
            };
            // SAFETY: as of an entry.
            let put = |now| unsafe {
                let done = cursor.exit_below::<T>(cursor.limit(), now);
                if done {
                    also(now);
                }
                done
            };
            if driver.attempt(put) {
                return Ok(true);
            }
            if !is_counted::<T>(cursor.depth.get()) {
                // Its entry is not in this packet.
                break;
            }
            if let Some(done) = self.make_way(driver, cursor, need, &also) {
                return Ok(done);
            }
        }
        let number = cursor.number::<T>(function);
        let (id, first) = match number as u64 >> shape.named_bits() {
            0 => (EventId::ExitNamed, number),
            _ => (EventId::ExitFar, function),
        };
        Err((id, first, 0))
    }

    /// Records an event of an id and two numbers ([`Event::parts`]). Calls `also` with the time (truncated by [`low`])
    /// in the step that records it, or `discarded` if there is no room. Returns true when done, false if the driver has
    /// stopped recording.
    #[inline(always)]
    pub(crate) fn other<D: Driver>(
        &self,
        driver: &D,
        (id, first, second): Parts,
        also: impl Fn(usize),
        discarded: impl FnOnce(),
    ) -> bool {
        let Some(cursor) = self.cursor() else {
            self.nowhere();
            return true;
        };
        let mut tries = Tries::default();
        while !tries.are_over::<D>() {
            // Where interrupts are masked only for the step, its bytes are prepared before.
            let seen = Seen::now(cursor);
            let (form, payload) = self.form(id, first);
            let record = Record::new::<T>(form, payload as u64, second);
            let depth = self.depth_of(id, first);
            let calls = depth.of::<T>(cursor);
            let put = |now| {
                // The form depends on the packet, and on the records before it.
                // SAFETY: the cursor is ours, whose limit leaves room for a record, and the driver keeps others
                // away.
                let done = seen.holds(cursor) && unsafe { record.store::<T>(cursor, now) };
                if done {
                    cursor.depth.set(calls);
                    also(now);
                }
                done
            };
            if driver.attempt(put) {
                return true;
            }
            match driver.room(need_of::<T>(form, depth)) {
                Found::Again => {}
                Found::Full => {
                    driver.apart(discarded);
                    return true;
                }
                Found::Shut => return false,
            }
        }
        // With a single reading of the clock, and in a form that is valid in any packet, because this may be the next
        // one.
        let form = match id {
            EventId::SwitchedOut => EventId::SwitchedOutNamed,
            EventId::IsrEnter => EventId::IsrEnterWide,
            EventId::IsrExit => EventId::IsrExitNamed,
            _ => id,
        };
        driver.apart(|| {
            driver.doubt();
            let now = driver.now();
            self.place(form, now, first as u64, second);
            self.depth_of(id, first).apply::<T>(cursor);
            also(low::<T>(now));
        });
        true
    }

    /// Records an id and two numbers in exactly this form at `now`, where no other context can interrupt; returns false
    /// if it is discarded.
    #[inline(never)]
    pub(crate) fn place(&self, id: EventId, now: u64, first: u64, second: usize) -> bool {
        let need = need_of::<T>(id, Depth::Stays);
        loop {
            let stored = self
                .cursor()
                .is_some_and(|cursor| self.put(cursor, low::<T>(now), id, first, second));
            if stored || self.make_room(need, now) != Found::Again {
                return stored;
            }
        }
    }

    /// Stores a record of this form at `now` (truncated by [`low`]), where no other context can interrupt, if there is
    /// room and the time is near.
    #[inline(never)]
    pub(crate) fn put(
        &self,
        cursor: &Cursor,
        now: usize,
        id: EventId,
        first: u64,
        second: usize,
    ) -> bool {
        // SAFETY: the cursor is ours, whose limit leaves room for a record.
        unsafe { Record::new::<T>(id, first, second).store::<T>(cursor, now) }
    }

    /// Makes room for an entry or exit: `None` to try again, else the result of the event.
    #[inline(always)]
    fn make_way(
        &self,
        driver: &impl Driver,
        cursor: &Cursor,
        need: Need,
        also: &impl Fn(usize),
    ) -> Option<bool> {
        match driver.room(need) {
            Found::Again => None,
            // The table counts discarded events all the same.
            Found::Full => {
                driver.apart(|| also(cursor.last.get()));
                Some(true)
            }
            Found::Shut => Some(false),
        }
    }

    /// Effect of a record on the count of calls.
    fn depth_of(&self, id: EventId, first: usize) -> Depth {
        match id {
            EventId::EnterFar | EventId::EnterFrom | EventId::EnterFarFrom => Depth::More,
            EventId::Context if first == self.thread() => Depth::Stays,
            EventId::Recording if !turns_recording_on::<T>(first) => Depth::Stays,
            EventId::ExitNamed
            | EventId::ExitFar
            | EventId::Context
            | EventId::SwitchedIn
            | EventId::SwitchedOut
            | EventId::Longjmp
            | EventId::Recording => Depth::Parts,
            _ => Depth::Stays,
        }
    }

    /// The form for a record at this point of the packet.
    #[inline(always)]
    fn form(&self, id: EventId, first: usize) -> (EventId, usize) {
        match id {
            EventId::SwitchedIn => match self.near(first) {
                Some(near) => (EventId::SwitchedInNear, near.into()),
                None => (id, first),
            },
            EventId::SwitchedOut if first == 0 || first != self.thread() => {
                (EventId::SwitchedOutNamed, first)
            }
            EventId::IsrEnter if first > 0xFF => (EventId::IsrEnterWide, first),
            // At 255 the counter is saturated.
            EventId::IsrExit
                if self.isr_depth.get() <= self.isr_before.get()
                    || self.isr_depth.get() == u8::MAX =>
            {
                (EventId::IsrExitNamed, first)
            }
            _ => (id, first),
        }
    }

    /// Distance of a thread from the one in the packet's header, in 32-bit words, if it fits 16 bits. A packet has been
    /// begun.
    #[inline(always)]
    pub(crate) fn near(&self, thread: usize) -> Option<u16> {
        let head = self.buffer.head_thread();
        let apart = thread.wrapping_sub(head) as isize;
        if head == 0 || apart & 3 != 0 {
            return None;
        }
        i16::try_from(apart >> 2).ok().map(|near| near as u16)
    }

    /// Marks that from here on a reader does not know the calls entered before.
    pub(crate) fn part(&self) {
        if let Some(cursor) = self.cursor() {
            Depth::Parts.apply::<T>(cursor);
        }
    }

    /// Counts an event of a stream that has not been set up.
    #[cold]
    fn nowhere(&self) {
        self.add_discarded(1);
    }
}
