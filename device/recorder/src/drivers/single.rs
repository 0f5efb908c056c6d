//! The recorder of one processor whose interrupts can be masked.
//!
//! One stream; whoever records masks interrupts for as long as it takes to read the clock, check
//! and store, so that events stand in the order of their times and no interrupt finds a record
//! half written. Threads and interrupt handlers record alike, and none silences another.
//!
//! What masking does not stop is a hook from within a hook: the program's own clock function is
//! instrumented, or a fault or NMI preempts. That is refused and counted. (Hooks in assembly cannot see
//! that they are inside one: an NMI's handler must not be instrumented where they are used.)
//!
//! A reader needs no lock: it freezes the gate, and as nobody is inside while interrupts are not
//! masked, the buffers are still from then on.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::null;

use kymo_wire::event::{Cause, EventId, WordSize};

use crate::clock::Clock;
use crate::config::{Config, Kept, START_ON};
use crate::event::Parts;
use crate::gate::{Gate, Look, Site, State};
use crate::hot::{Hot, low};
use crate::items::{Ring, Rings};
use crate::metadata::Metadata;
use crate::sync::{AtomicU32, add};
use crate::{Edge, Event, Writer};

mod blocks;
mod commands;
mod console;
mod control;
#[cfg(feature = "cost")]
mod cost;
mod direct;
#[cfg(feature = "duration")]
mod duration;
mod figures;
mod items;
mod listening;
mod port;
mod setup;
mod steps;
mod stopper;

pub use commands::Wish;
use listening::Listen;
pub use port::SinglePort;
use steps::Steps;

/// The recorder, but for its [`Hot`]: that lies in `.data`, this in `.bss`.
#[derive(Debug)]
pub struct Single<P: 'static> {
    /// Somebody is inside.
    inside: Cell<bool>,
    /// Why it is not set up: a [`Fault`] as a number, or 0.
    fault: Cell<u8>,
    /// The trigger turns recording on once.
    once: Cell<bool>,
    /// The [way](Writer::way) of which the cost has been measured, or is being; 0: none.
    #[cfg(feature = "cost")]
    measured: Cell<u8>,
    port: P,
    /// Hooks from inside a hook.
    refused: AtomicU32,
    /// How many of them have been told to the stream.
    refused_told: Cell<u32>,
    /// The function that the last of them was for; 0: none, or not known. If the recorder is not set up, the
    /// value that is wrong.
    culprit: Cell<usize>,
    /// Duration mode, if the program has it.
    #[cfg(feature = "duration")]
    duration: Cell<Option<&'static crate::duration::Control>>,
    /// In duration mode, when recording was turned off; 0 while it is on.
    #[cfg(feature = "duration")]
    duration_off: crate::bits64::Cell64,
    /// What the link does at a tick. None before the program has called a function of the link's: so
    /// a program without one has none of its code and memory.
    listening: Cell<Option<Listen<P>>>,
    /// The rings of items that have been used.
    rings: Rings<P>,
    writer: Writer<P>,
    clock: Clock,
    metadata: Metadata<P>,
}

// SAFETY: all cells are touched only with interrupts masked, or by a reader while the gate is
// frozen, or (those of the table) by who paused it, or before the gate opens first; there is one
// processor.
unsafe impl<P> Sync for Single<P> {}

impl<P: SinglePort + 'static> Single<P> {
    /// Where a reader of memory finds what it looks for.
    pub const KEPT: Kept = Kept {
        rings: (offset_of!(Self, rings) + Rings::<P>::FIRST_OFFSET) as u32,
        ring_next: Ring::<P>::NEXT_OFFSET as u16,
        discarded: (offset_of!(Self, writer) + Writer::<P>::DISCARDED_OFFSET) as u32,
        table: Writer::<P>::table_place(offset_of!(Self, writer)),
        ..Kept::HOT
    };

    /// Where the writer is, in bytes from the beginning.
    pub const WRITER_OFFSET: usize = offset_of!(Self, writer);

    /// Not set up. All zero if the port is.
    pub const fn new(port: P) -> Self {
        Self {
            port,
            writer: Writer::new(),
            clock: Clock::new(),
            metadata: Metadata::new(),
            rings: Rings::new(),
            listening: Cell::new(None),
            fault: Cell::new(0),
            once: Cell::new(false),
            inside: Cell::new(false),
            #[cfg(feature = "cost")]
            measured: Cell::new(0),
            refused: AtomicU32::new(0),
            refused_told: Cell::new(0),
            culprit: Cell::new(0),
            #[cfg(feature = "duration")]
            duration: Cell::new(None),
            #[cfg(feature = "duration")]
            duration_off: crate::bits64::Cell64::new(0),
        }
    }

    /// A function was entered, from the place `caller`, or left. It has no Thumb bit
    /// ([`code`](crate::gate::code)).
    #[inline(always)]
    pub fn call(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        match (hot.gate.look(), edge) {
            (Look::Open, Edge::Enter) => self.usual_call::<false>(hot, config, function, caller),
            (Look::Open, Edge::Exit) => self.usual_call::<true>(hot, config, function, caller),
            #[cfg(feature = "duration")]
            (Look::Duration(bits), _) => {
                self.duration_call(hot, edge, (function, hot.gate.site(caller)), bits);
            }
            (Look::Armed, Edge::Enter) if function == hot.gate.trigger() => {
                self.open_call(hot, config, edge, function, caller);
            }
            _ => {}
        }
    }

    /// [`call`](Self::call) through a gate that seems open, as hooks in assembly do it: what is usual.
    /// Apart from it so that a hook that is off does not save registers, and once for each kind so that
    /// this needs no look at it.
    #[inline(never)]
    fn usual_call<const EXIT: bool>(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        function: usize,
        caller: usize,
    ) {
        if !self.is_allowed(hot) {
            return;
        }
        let cursor = &hot.cursor;
        let was = self.port.mask();
        if cursor.is_open() && !self.inside.get() && function != hot.gate.stopper() {
            self.inside.set(true);
            // SAFETY: the counter is there, and the cursor is that of our stream, where there is
            // memory below its end; nobody else is inside.
            let done = unsafe {
                let now = low::<P>(self.port.read(cursor.counter.get()).into());
                if EXIT {
                    cursor.exit::<P>(now) || cursor.exit_named::<P>(now, function)
                } else {
                    cursor.enter::<P>(now, function)
                }
            };
            self.inside.set(false);
            if done {
                return self.port.unmask(was);
            }
        }
        self.port.unmask(was);
        self.unusual_call::<EXIT>(hot, config, function, caller);
    }

    /// The same where that was not all. (Apart from it, so that what is usual saves few registers.)
    #[cold]
    #[inline(never)]
    fn unusual_call<const EXIT: bool>(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        function: usize,
        caller: usize,
    ) {
        if self.change_packet(hot) {
            return self.usual_call::<EXIT>(hot, config, function, caller);
        }
        if !self.tabled_call::<EXIT>(hot, function) {
            let edge = if EXIT { Edge::Exit } else { Edge::Enter };
            self.open_call(hot, config, edge, function, caller);
        }
    }

    /// A call through a gate that seems open; and what hooks leave: everything that is not usual.
    #[inline(never)]
    pub fn open_call(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        #[cfg(feature = "duration")]
        if hot.gate.in_duration() && hot.gate.state().on() {
            return match edge {
                Edge::Enter => self.duration_enter(hot, function, hot.gate.site(caller)),
                Edge::Exit => self.duration_exit(hot, function, None),
            };
        }
        let done = hot.gate.open() && self.writer.call(&self.steps(hot), edge, function, caller);
        if !done {
            self.closed_call(hot, config, edge, function, caller);
        } else if function == hot.gate.stopper() {
            self.stop(hot, edge, hot.gate.site(caller));
        }
    }

    /// A call of which a table is kept, through a gate that seems open, as hooks that are not in assembly, or leave
    /// this, do it: what is usual. False if it is another one.
    #[inline(always)]
    pub fn tabled_call<const EXIT: bool>(&self, hot: &Hot, function: usize) -> bool {
        // (The address is not put together masked.)
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        let cursor = &hot.cursor;
        if !this.writer.is_tabled(function) || function == hot.gate.stopper() {
            return false;
        }
        let was = this.port.mask();
        // SAFETY: the cursor is that of our stream, whose counter is there; it is closed when the gate is.
        let done = !(P::GUARDED && this.inside.get())
            && unsafe {
                let now = low::<P>(this.port.read(cursor.counter.get()).into());
                this.writer.call_direct::<EXIT>(cursor, now, function)
            };
        this.port.unmask(was);
        if !EXIT {
            this.replace(hot);
        }
        done
    }

    /// Gives the function that was entered last another one's slot: the table wanted one for it.
    pub fn replace(&self, hot: &Hot) {
        self.writer.replace(&self.steps(hot));
    }

    /// Notes the function that a hook was called for from inside a hook.
    #[cold]
    #[inline(never)]
    fn refuse_inner(&self, function: usize) {
        self.culprit.set(function);
    }

    /// A call through a gate that is closed, as far as that stays so.
    #[cold]
    #[inline(never)]
    fn closed_call(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        let id = match edge {
            Edge::Enter => EventId::EnterFar,
            Edge::Exit => EventId::ExitFar,
        };
        if self.inside.get() {
            self.refuse_inner(function);
        }
        if self.closed(hot, config, id, function, hot.gate.site(caller)) {
            self.open_call(hot, config, edge, function, caller);
        }
    }

    /// Begins the next packet, if that is all that keeps hooks from recording: then that can be tried
    /// again.
    pub fn change_packet(&self, hot: &Hot) -> bool {
        if !hot.cursor.is_full() {
            return false;
        }
        let was = self.port.mask();
        let done = hot.cursor.is_full() && self.change_packet_masked(hot);
        self.port.unmask(was);
        done
    }

    /// The same where the cursor is [full](crate::hot::Cursor::is_full), with interrupts masked as far as that was
    /// possible. If it could not be done, everything takes the slow path.
    #[inline(always)]
    pub fn change_packet_masked(&self, hot: &Hot) -> bool {
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        let counter = hot.cursor.counter.get();
        // (Where the masking had no effect, the slow path says so.)
        if counter.is_null() || !this.port.is_masked() || this.inside.get() {
            hot.cursor.close();
            return false;
        }
        // SAFETY: the counter is there.
        let now = unsafe { this.port.read(counter) };
        let stream = this.writer.stream();
        stream.change_full(&hot.cursor, low::<P>(now.into()))
    }

    /// Anything else happened.
    #[inline(always)]
    pub fn hook(&'static self, hot: &'static Hot, config: &'static Config, event: Event) {
        if !self.is_allowed(hot) {
            return;
        }
        match event {
            Event::Enter(function) => self.open_call(hot, config, Edge::Enter, function, 0),
            Event::EnterFrom { function, caller } => {
                self.open_call(hot, config, Edge::Enter, function, caller);
            }
            Event::Exit(function) => self.open_call(hot, config, Edge::Exit, function, 0),
            Event::WallClock { ns, uncertainty } => {
                if self.wake(hot, config) {
                    self.tell_wall_clock(hot, uncertainty, |_| ns);
                }
            }
            _ if self.record_direct(hot, event) => {}
            _ => {
                if let Ok(parts) = event.parts::<P>() {
                    self.say(hot, config, parts);
                }
            }
        }
    }

    /// Records the time of the world, which is `at` when it is recorded: the longest record, for which interrupts
    /// are masked longer than for any other. Returns whether it could be.
    pub(crate) fn tell_wall_clock(
        &self,
        hot: &Hot,
        uncertainty: u32,
        at: impl FnOnce(u64) -> u64,
    ) -> bool {
        let recorded = self.masked(|| {
            let now = self.time(&hot.gate)?;
            let (id, uncertainty) = (EventId::WallClock, uncertainty as usize);
            self.writer.stream().place(id, now, at(now), uncertainty);
            Some(())
        });
        recorded.flatten().is_some()
    }

    /// Anything else happened, in [parts](Event::parts): but the time of the world.
    #[inline(always)]
    pub fn say(&'static self, hot: &'static Hot, config: &'static Config, parts: Parts) {
        if !self.is_allowed(hot) {
            return;
        }
        while !(hot.gate.open() && self.writer.other(&self.steps(hot), parts)) {
            if !self.closed(hot, config, parts.0, parts.1, hot.gate.site(0)) {
                return;
            }
        }
    }

    /// How events are recorded here.
    #[inline(always)]
    fn steps<'a>(&'a self, hot: &'a Hot) -> Steps<'a, P> {
        Steps {
            single: self,
            hot,
            thread: Cell::new(None),
        }
    }

    /// Runs `inside` with interrupts masked; `None` if this is already inside.
    #[inline(always)]
    fn masked<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let was = self.come_in()?;
        let result = inside();
        self.go_out(was);
        Some(result)
    }

    /// Masks interrupts and comes inside; returns what [`go_out`](Self::go_out) needs, or `None` if this
    /// is already inside, which is counted.
    #[inline(never)]
    fn come_in(&self) -> Option<usize> {
        let was = self.port.mask();
        if self.inside.replace(true) {
            add(&self.refused, 1);
            self.port.unmask(was);
            return None;
        }
        Some(was)
    }

    /// See [`come_in`](Self::come_in).
    #[inline(never)]
    fn go_out(&self, was: usize) {
        self.inside.set(false);
        self.port.unmask(was);
    }

    /// The time of an event that is to be recorded, inside; `None` if an interrupt closed the gate
    /// since it was looked at.
    #[inline(always)]
    fn time(&self, gate: &Gate) -> Option<u64> {
        if !gate.open() {
            self.refuse(gate.state());
            return None;
        }
        let now = self.now();
        if self.clock.doubtful() {
            self.tell_gap(now);
        }
        Some(now)
    }

    /// The time, inside. The fast path reads the counter without the clock's knowing.
    #[inline(never)]
    fn now(&self) -> u64 {
        self.clock.catch_up(self.writer.stream().last());
        self.advance()
    }

    /// [`now`](Self::now) where the clock knows of all records.
    #[inline(never)]
    fn advance(&self) -> u64 {
        self.clock.advance(self.counter())
    }

    /// The time, from outside; 0 if this is inside.
    #[inline(never)]
    fn outer_now(&self) -> u64 {
        let Some(was) = self.come_in() else {
            return 0;
        };
        let now = self.now();
        self.go_out(was);
        now
    }

    /// Marks in the trace that the clock is uncertain before `now`.
    #[cold]
    #[inline(never)]
    fn tell_gap(&self, now: u64) {
        let ticks = self.clock.take_gap();
        self.writer.stream().place(EventId::ClockGap, now, ticks, 0);
    }

    /// An event that is not recorded is lost if only a reader was in the way.
    #[cold]
    fn refuse(&self, state: State) {
        if state.on() && state.enabled() && state.frozen() {
            self.lose();
        }
    }

    /// Counts an event that is lost, inside: because the buffers were held still, or before there was a
    /// clock.
    #[cold]
    #[inline(never)]
    fn lose(&self) {
        self.writer.stream().add_discarded(1);
    }

    /// Something happened while the gate was closed, in [parts](Event::parts): whether it is open now, so
    /// that it can be recorded.
    #[cold]
    #[inline(never)]
    fn closed(
        &'static self,
        hot: &'static Hot,
        config: &'static Config,
        id: EventId,
        first: usize,
        site: Site,
    ) -> bool {
        let hot = P::somewhere(hot);
        let gate = &hot.gate;
        if !self.wake(hot, config) {
            return false;
        }
        let function = first;
        let enter = matches!(id, EventId::EnterFar | EventId::EnterFarFrom);
        let triggers = enter && function != 0 && function == gate.trigger();
        #[cfg(feature = "cost")]
        if triggers {
            self.measure(hot);
        }
        let open = self.masked(|| {
            let state = gate.state();
            if state.open() {
                return true;
            }
            self.writer.follow(id, first);
            // Before there is a clock, or while the recorder is being set up.
            if !state.turned() && config.flags & START_ON != 0 {
                self.lose();
            }
            let on =
                state.enabled() && triggers && !state.on() && !state.spent() && site.triggers();
            if on {
                self.turn_inside(gate, true, Cause::Function);
            }
            // A trigger itself, too, if a dump is being read.
            self.refuse(if on { gate.state() } else { state });
            // Also while a dump is being read, though it cannot be marked in the trace then.
            let call = enter || id == EventId::ExitFar;
            if call && state.enabled() && state.on() && function == gate.stopper() {
                let edge = if enter { Edge::Enter } else { Edge::Exit };
                if self.writer.follow_stopper(edge, site) {
                    self.turn_inside(gate, false, Cause::Function);
                }
            }
            gate.open()
        });
        open == Some(true)
    }

    /// [`turn_inside`](Self::turn_inside) from outside.
    #[inline(never)]
    fn turn_outside(&self, gate: &Gate, on: bool, cause: Cause) {
        self.masked(|| self.turn_inside(gate, on, cause));
    }

    /// Turns recording on or off, inside, and marks it in the trace.
    fn turn_inside(&self, gate: &Gate, on: bool, cause: Cause) {
        let state = gate.state();
        if state.on() == on || state.fresh() || state.failed() {
            return;
        }
        let now = self.now();
        if on {
            self.writer.ask_thread();
            #[cfg(feature = "duration")]
            self.restart_duration();
            // Nothing that is recorded spans the doubt of the time before.
            self.clock.take_gap();
        }
        if !state.frozen() {
            // What was lost before is told by this packet.
            self.settle();
            if self.clock.doubtful() {
                self.tell_gap(now);
            }
            self.writer.tell_recording(on, cause, now);
        }
        #[cfg(feature = "duration")]
        self.duration_off.set(if on { 0 } else { now });
        gate.turn(on, cause == Cause::Function && self.once.get());
        self.missed();
    }

    /// The gate is not as it was, masked: hooks come by, and events may be missing before what they record.
    #[inline(never)]
    fn missed(&self) {
        self.writer.stream().miss();
        self.writer.forget_stopper();
        self.hold_items();
    }

    /// Reads the counter, inside: where hooks read it, if they do.
    #[inline(always)]
    fn counter(&self) -> u32 {
        let cursor = self.writer.stream().cursor();
        let mut place = cursor.map_or(null(), |cursor| cursor.counter.get());
        let config = self.writer.config();
        if P::LAYOUT.word != WordSize::Bits32 {
            place = config.map_or(null(), |config| config.counter);
        }
        if !place.is_null() {
            // SAFETY: there is a counter that may be read at any time.
            return unsafe { self.port.read(place) };
        }
        match config.and_then(|config| config.clock) {
            // SAFETY: the program gives a function that may be called from any context.
            Some(clock) => unsafe { clock() },
            None => self.port.counter(),
        }
    }

    /// The stream and table, to be looked at while nobody records.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// The processor.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Tells the stream of hooks that were refused beside it, for its packets to say.
    fn settle(&self) {
        self.writer.stream().add_discarded(self.untold());
        self.refused_told.set(self.refused());
    }
}
