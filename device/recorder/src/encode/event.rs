//! Events to records: which ones, and what they do to what is known of the stream.

use core::cell::Cell;

use kymo_wire::event::{EventId, Form};

use super::{Alone, Depth, Driver, Found, Need, Record, Seen, Stream, Tries};
use crate::event::{Long, Parts, turns_on};
use crate::hot::{Cursor, low};
use crate::{Event, Target};

/// What came of a step.
enum Step {
    /// It is to be tried again.
    Again,
    /// It was recorded at this time (cut by [`low`]), or discarded for good.
    Done(usize),
    /// Nothing is to be recorded.
    Shut,
}

impl<T: Target> Stream<T> {
    /// Records any event at `now`, where nobody comes in between.
    pub fn record(&self, now: u64, event: Event) {
        let alone = Alone::at(self, now);
        let usual = match event {
            Event::Enter(function) => self.enter(&alone, function, 0, || ()),
            Event::EnterFrom { function, caller } => self.enter(&alone, function, caller, || ()),
            Event::Exit(function) => self.exit(&alone, function, || ()),
            _ => match event.parts::<T>() {
                Ok(parts) => Err(parts),
                Err(long) => return self.record_long(&alone, long),
            },
        };
        if let Err(parts) = usual {
            self.other(&alone, parts, true, || (), |_| (), || 0);
        }
    }

    /// Records what has a long number, where nobody comes in between.
    pub(crate) fn record_long(&self, alone: &Alone<'_, T>, (id, first, second): Long) {
        self.place(id, alone.now(), first, second as usize);
    }

    /// Records that a function was entered, from the place `caller` if that is not 0. `ready` is called
    /// before that, and again until nobody recorded anything in between. Returns the time then (or when
    /// it was discarded), cut by [`low`]: most have no use for the [whole](Driver::whole) of it. `None` if
    /// the driver says that nothing is to be recorded. Or says as what else it is to be
    /// [recorded](Self::other).
    #[inline(always)]
    pub(crate) fn enter<D: Driver>(
        &self,
        driver: &D,
        function: usize,
        caller: usize,
        mut ready: impl FnMut(),
    ) -> Result<Option<usize>, Parts> {
        let Some(cursor) = self.cursor() else {
            return Ok(self.nowhere());
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
                let put = |now| unsafe { cursor.enter_below::<T>(cursor.limit(), now, number) };
                let mut tries = Tries::default();
                while !tries.are_over::<D>() {
                    let seen = Seen::now(cursor);
                    ready();
                    match self.step(driver, cursor, seen, need, put, &mut ready) {
                        Step::Again => {}
                        Step::Done(now) => return Ok(Some(now)),
                        Step::Shut => return Ok(None),
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

    /// Records that a function was left; as [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) fn exit<D: Driver>(
        &self,
        driver: &D,
        function: usize,
        mut ready: impl FnMut(),
    ) -> Result<Option<usize>, Parts> {
        let Some(cursor) = self.cursor() else {
            return Ok(self.nowhere());
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
            let put = |now| unsafe { cursor.exit_below::<T>(cursor.limit(), now) };
            let seen = Seen::now(cursor);
            ready();
            if cursor.depth.get() == 0 {
                // Its entry is not in this packet.
                break;
            }
            match self.step(driver, cursor, seen, need, put, &mut ready) {
                Step::Again => {}
                Step::Done(now) => return Ok(Some(now)),
                Step::Shut => return Ok(None),
            }
        }
        let number = cursor.number::<T>(function);
        let (id, first) = match number as u64 >> shape.named_bits() {
            0 => (EventId::ExitNamed, number),
            _ => (EventId::ExitFar, function),
        };
        Err((id, first, 0))
    }

    /// Records what has an id and two numbers ([`Event::parts`]), and does `also` in the same step, unless all is
    /// `plain`. Of what is discarded `discarded` returns the time. Else as [`enter`](Self::enter).
    #[inline(always)]
    pub(crate) fn other<D: Driver>(
        &self,
        driver: &D,
        (id, first, second): Parts,
        plain: bool,
        mut ready: impl FnMut(),
        also: impl Fn(usize),
        discarded: impl FnOnce() -> usize,
    ) -> Option<usize> {
        let Some(cursor) = self.cursor() else {
            return self.nowhere();
        };
        let depth = self.depth_of(id, first);
        let mut tries = Tries::default();
        while !tries.are_over::<D>() {
            let seen = Seen::now(cursor);
            ready();
            let (id, first) = self.form(id, first);
            let record = Record::new::<T>(id, first as u64, second);
            // Where interrupts are masked for the step alone nothing is left to be worked out in there.
            let need = || record.need::<T>(depth);
            let early = T::SINGLE.then(need);
            // It holds as long as nothing else is recorded.
            let calls = depth.of(cursor);
            let put = |now| {
                // SAFETY: the cursor is ours, whose limit leaves room for a record, and the driver
                // keeps others away.
                let done = unsafe { record.store::<T>(cursor, now) };
                if done {
                    cursor.depth.set(calls);
                    if !plain {
                        also(now);
                    }
                }
                done
            };
            let recorded = Self::attempt(driver, cursor, seen, put);
            if recorded.is_some() {
                return recorded;
            }
            match driver.room(early.unwrap_or_else(need)) {
                Found::Again => {}
                Found::Full => {
                    return Some(driver.apart(|| {
                        ready();
                        discarded()
                    }));
                }
                Found::Shut => return None,
            }
        }
        // By one reading of the clock alone.
        Some(driver.apart(|| {
            ready();
            driver.doubt();
            let now = driver.now();
            self.place(id, now, first as u64, second);
            depth.apply(cursor);
            also(low::<T>(now));
            low::<T>(now)
        }))
    }

    /// Records what has an id and two numbers, in this form, at `now`, where nobody comes in between;
    /// false if it is discarded.
    #[inline(never)]
    pub(crate) fn place(&self, id: EventId, now: u64, first: u64, second: usize) -> bool {
        let record = Record::new::<T>(id, first, second);
        let need = record.need::<T>(Depth::Stays);
        loop {
            let stored = self.cursor().is_some_and(|cursor| {
                // SAFETY: the cursor is ours, whose limit leaves room for a record.
                unsafe { record.store::<T>(cursor, low::<T>(now)) }
            });
            if stored || self.make_room(need, now) != Found::Again {
                return stored;
            }
        }
    }

    /// Tries to record by `put`, if nobody else has since the cursor's place and time were `seen`;
    /// else sees to room. Of what is discarded all is made `ready` again for the time that is returned.
    #[inline(always)]
    fn step(
        &self,
        driver: &impl Driver,
        cursor: &Cursor,
        seen: Seen,
        need: Need,
        put: impl Fn(usize) -> bool,
        ready: &mut impl FnMut(),
    ) -> Step {
        if let Some(now) = Self::attempt(driver, cursor, seen, put) {
            return Step::Done(now);
        }
        match driver.room(need) {
            Found::Again => Step::Again,
            // What was ready before an interrupt came does not go with a time after it.
            Found::Full => Step::Done(driver.apart(|| {
                ready();
                cursor.last.get()
            })),
            Found::Shut => Step::Shut,
        }
    }

    /// Tries to record by `put`, if nobody else has since the cursor's place and time were `seen`.
    /// Returns the time at which it was recorded, cut by [`low`].
    #[inline(always)]
    fn attempt(
        driver: &impl Driver,
        cursor: &Cursor,
        seen: Seen,
        put: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let time = Cell::new(0);
        let done = driver.attempt(|now| {
            time.set(now);
            // What was made ready depends on the packet, and on what was recorded in it.
            seen.holds(cursor) && put(now)
        });
        done.then(|| time.get())
    }

    /// What a record does to the count of calls.
    fn depth_of(&self, id: EventId, first: usize) -> Depth {
        match id {
            EventId::EnterFar | EventId::EnterFrom | EventId::EnterFarFrom => Depth::More,
            EventId::Context if first == self.thread() => Depth::Stays,
            EventId::Recording if !turns_on::<T>(first) => Depth::Stays,
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

    /// The form that a record takes at this moment.
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
            // At 255 it is not known how many there are.
            EventId::IsrExit
                if self.isr_depth.get() <= self.isr_before.get()
                    || self.isr_depth.get() == u8::MAX =>
            {
                (EventId::IsrExitNamed, first)
            }
            _ => (id, first),
        }
    }

    /// How far a thread is from the one in the packet's header, in words of 32 bits, if that can be told in
    /// 16 bits. The packet has been begun.
    #[inline(always)]
    pub(crate) fn near(&self, thread: usize) -> Option<u16> {
        let head = self.buffer.head_thread();
        let apart = thread.wrapping_sub(head) as isize;
        if head == 0 || apart & 3 != 0 {
            return None;
        }
        i16::try_from(apart >> 2).ok().map(|near| near as u16)
    }

    /// What was entered before is not the reader's to know from here on.
    pub(crate) fn part(&self) {
        if let Some(cursor) = self.cursor() {
            Depth::Parts.apply(cursor);
        }
    }

    /// An event of a stream that has not been set up.
    #[cold]
    fn nowhere(&self) -> Option<usize> {
        self.add_discarded(1);
        None
    }
}
