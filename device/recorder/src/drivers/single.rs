//! Driver for one processor whose interrupts can be masked.
//!
//! It has one stream. A hook masks interrupts while it reads the clock, checks and stores, so that events are in the
//! order of their times and no interrupt finds a half-written record. Threads and interrupt handlers record in the same
//! way, and neither prevents the other from recording.
//!
//! Masking does not stop a hook within a hook: the program's own clock function is instrumented, or a fault or NMI
//! preempts. Such a hook is refused and counted. (Hooks in assembly can't detect it: where they are used, an NMI
//! handler must not be instrumented.)
//!
//! A reader needs no lock: it freezes the gate. No hook is in progress while interrupts are not masked, so the buffers
//! don't change from then on.

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
mod sums;
mod time;

pub use commands::Request;
use listening::Listen;
pub use port::SinglePort;
use steps::Steps;

/// The recorder without its [`Hot`], which is in `.data`: this is in `.bss`.
#[derive(Debug)]
pub struct Single<P: 'static> {
    /// Whether the recorder is running, in this context or a preempted one: the guard against hooks within hooks.
    inside: Cell<bool>,
    /// Why it is not set up: a [`Fault`] as a number, or 0.
    fault: Cell<u8>,
    /// Whether the trigger turns recording on only once.
    once: Cell<bool>,
    /// The [path](Writer::way) whose overhead has been measured, or is being measured; 0: none.
    #[cfg(feature = "cost")]
    measured: Cell<u8>,
    port: P,
    /// Number of hooks within hooks.
    refused: AtomicU32,
    /// How many of these the stream's count of losses includes.
    refused_reported: Cell<u32>,
    /// The function of the last hook within a hook; 0: none, or unknown. If the recorder is not set up, the invalid
    /// value of its configuration.
    culprit: Cell<usize>,
    /// Duration mode, if the program includes it.
    #[cfg(feature = "duration")]
    duration: Cell<Option<&'static crate::duration::Control>>,
    /// In duration mode, the time at which recording was turned off; 0 while it is on.
    #[cfg(feature = "duration")]
    duration_off: crate::bits64::Cell64,
    /// Whether the calls that were open at that time have been recorded.
    #[cfg(feature = "duration")]
    open_recorded: Cell<bool>,
    /// The checksums of packets.
    #[cfg(feature = "sums")]
    sums: crate::sums::Progress,
    /// The link's handler of ticks. None until the program calls a function of the link: so a program without the link
    /// contains none of its code and memory.
    listening: Cell<Option<Listen<P>>>,
    /// The rings of items that have been used.
    rings: Rings<P>,
    writer: Writer<P>,
    clock: Clock,
    metadata: Metadata<P>,
}

// SAFETY: all cells are accessed only with interrupts masked, or by a reader while the gate is frozen, or (those of the
// table) by the context that paused it, or before the gate first opens; there is one processor.
unsafe impl<P> Sync for Single<P> {}

impl<P: SinglePort + 'static> Single<P> {
    /// Locations for readers of memory.
    pub const KEPT: Kept = Kept {
        rings: (offset_of!(Self, rings) + Rings::<P>::FIRST_OFFSET) as u32,
        ring_next: Ring::<P>::NEXT_OFFSET as u16,
        discarded: (offset_of!(Self, writer) + Writer::<P>::DISCARDED_OFFSET) as u32,
        table: Writer::<P>::table_place(offset_of!(Self, writer)),
        ..Kept::HOT
    };

    /// Offset of the writer.
    pub const WRITER_OFFSET: usize = offset_of!(Self, writer);

    /// A recorder that is not set up. All zero if the port is.
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
            refused_reported: Cell::new(0),
            culprit: Cell::new(0),
            #[cfg(feature = "duration")]
            duration: Cell::new(None),
            #[cfg(feature = "duration")]
            duration_off: crate::bits64::Cell64::new(0),
            #[cfg(feature = "duration")]
            open_recorded: Cell::new(false),
            #[cfg(feature = "sums")]
            sums: crate::sums::Progress::new(),
        }
    }

    /// Hook for the entry of a function, called from `caller`, or its exit. The address has no Thumb bit
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

    /// Usual case of [`call`](Self::call) when the gate's word is open, as in the assembly hooks. A function of its
    /// own, so that a hook that is off saves no registers; one instance for each edge, so that it need not test which.
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
            // SAFETY: the counter exists, and the cursor is that of our stream, where there is memory below its end; no
            // other hook is running.
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

    /// Continues where the usual case failed. (A function of its own, so that the usual case saves few registers.)
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

    /// Records a call when the gate's word is open: the slow path, to which hooks leave all unusual cases.
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

    /// Usual case of a call with a profile table when the gate's word is open, for portable hooks and for calls that
    /// the assembly hooks leave. Returns false in all other cases.
    #[inline(always)]
    pub fn tabled_call<const EXIT: bool>(&self, hot: &Hot, function: usize) -> bool {
        // (So that the addresses are not materialized while interrupts are masked.)
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        let cursor = &hot.cursor;
        if !this.writer.is_tabled(function) || function == hot.gate.stopper() {
            return false;
        }
        let was = this.port.mask();
        // SAFETY: the cursor is that of our stream, whose counter exists; it is closed when the gate is.
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

    /// Gives another function's slot to the last function entered, if the full table has asked for one.
    pub fn replace(&self, hot: &Hot) {
        self.writer.replace(&self.steps(hot));
    }

    /// Stores the function of a hook within a hook.
    #[cold]
    #[inline(never)]
    fn refuse_inner(&self, function: usize) {
        self.culprit.set(function);
    }

    /// Handles a call while the gate is closed, and records it if that opens the gate.
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

    /// Begins the next packet, if a full one is the only reason why hooks can't record. Returns true if they can try
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

    /// The same when the cursor is [full](crate::hot::Cursor::is_full), with interrupts masked as far as that was
    /// possible. If it fails, everything takes the slow path.
    #[inline(always)]
    pub fn change_packet_masked(&self, hot: &Hot) -> bool {
        let (this, hot) = (P::somewhere(self), P::somewhere(hot));
        let counter = hot.cursor.counter.get();
        // (If masking had no effect, the slow path reports it.)
        // (With checksums the slow path changes packets.)
        if this.is_summed() || counter.is_null() || !this.port.is_masked() || this.inside.get() {
            hot.cursor.close();
            return false;
        }
        // SAFETY: the counter exists.
        let now = unsafe { this.port.read(counter) };
        let stream = this.writer.stream();
        stream.change_full(&hot.cursor, low::<P>(now.into()))
    }

    /// Hook for any other event.
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
                    self.record_wall_clock(hot, uncertainty, |_| ns);
                }
            }
            _ if self.record_direct(hot, event) => {}
            _ => {
                if let Ok(parts) = event.parts::<P>() {
                    self.hook_event(hot, config, parts);
                }
            }
        }
    }

    /// Records the wall-clock time, which is `at` for the record's own time. This is the longest record, for which
    /// interrupts are masked longer than for any other. Returns whether it was recorded.
    pub(crate) fn record_wall_clock(
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

    /// Hook for any other event in [parts](Event::parts), except for the wall-clock time.
    #[inline(always)]
    pub fn hook_event(&'static self, hot: &'static Hot, config: &'static Config, parts: Parts) {
        if !self.is_allowed(hot) {
            return;
        }
        while !(hot.gate.open() && self.writer.other(&self.steps(hot), parts)) {
            if !self.closed(hot, config, parts.0, parts.1, hot.gate.site(0)) {
                return;
            }
        }
    }

    /// The driver for recording one event.
    #[inline(always)]
    fn steps<'a>(&'a self, hot: &'a Hot) -> Steps<'a, P> {
        Steps {
            single: self,
            hot,
            thread: Cell::new(None),
        }
    }

    /// Runs `inside` with interrupts masked and the guard set; `None` if the guard was set already.
    #[inline(always)]
    fn masked<R>(&self, inside: impl FnOnce() -> R) -> Option<R> {
        let was = self.come_in()?;
        let result = inside();
        self.go_out(was);
        Some(result)
    }

    /// Enters the recorder: masks interrupts and sets the guard. Returns the state for [`go_out`](Self::go_out), or
    /// `None` if the guard was set already, which is counted.
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

    /// Leaves the recorder after [`come_in`](Self::come_in).
    #[inline(never)]
    fn go_out(&self, was: usize) {
        self.inside.set(false);
        self.port.unmask(was);
    }

    /// Counts an event that is not recorded as lost, if only a reader prevented recording.
    #[cold]
    fn refuse(&self, state: State) {
        if state.on() && state.enabled() && state.frozen() {
            self.lose();
        }
    }

    /// Counts events that the caller could not record, if recording is on.
    pub fn lose_unrecorded(&self, hot: &Hot, events: u32) {
        let (state, stream) = (hot.gate.state(), self.writer.stream());
        stream.add_discarded(if state.on() && state.enabled() {
            events
        } else {
            0
        });
    }

    /// Counts a lost event, with the guard set: the buffers were frozen, or there was no clock yet.
    #[cold]
    #[inline(never)]
    fn lose(&self) {
        self.writer.stream().add_discarded(1);
    }

    /// Handles an event, in [parts](Event::parts), while the gate is closed; returns whether it is open now, so that
    /// the event can be recorded.
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
            if !state.was_ever_on() && config.flags & START_ON != 0 {
                self.lose();
            }
            let on =
                state.enabled() && triggers && !state.on() && !state.spent() && site.triggers();
            if on {
                self.set_recording_inside(gate, true, Cause::Function);
            }
            // Also for the trigger itself, if a dump is being read.
            self.refuse(if on { gate.state() } else { state });
            // Also while a dump is being read, when the trace can't be marked.
            let call = enter || id == EventId::ExitFar;
            if call && state.enabled() && state.on() && function == gate.stopper() {
                let edge = if enter { Edge::Enter } else { Edge::Exit };
                let mut ends = false;
                self.writer
                    .with_queried_thread(|_| ends = self.writer.follow_stopper(edge, site));
                if ends {
                    self.set_recording_inside(gate, false, Cause::Function);
                }
            }
            gate.open()
        });
        open == Some(true)
    }

    /// [`set_recording_inside`](Self::set_recording_inside) from outside.
    #[inline(never)]
    fn set_recording_outside(&self, gate: &Gate, on: bool, cause: Cause) {
        self.masked(|| self.set_recording_inside(gate, on, cause));
    }

    /// Turns recording on or off, with the guard set, and marks it in the trace.
    fn set_recording_inside(&self, gate: &Gate, on: bool, cause: Cause) {
        let state = gate.state();
        if state.on() == on || state.fresh() || state.failed() {
            return;
        }
        let now = self.now();
        if on {
            self.writer.query_thread();
            #[cfg(feature = "duration")]
            self.restart_duration();
            // No recorded event lies before the uncertain time.
            self.clock.take_gap();
            #[cfg(feature = "conditions")]
            self.writer.forget_stopper();
        }
        if !state.frozen() {
            // This packet reports what was lost before.
            self.report_losses();
            if self.clock.doubtful() {
                self.record_gap(now);
            }
            self.writer.record_on_off(on, cause, now);
        }
        #[cfg(feature = "duration")]
        {
            self.duration_off.set(if on { 0 } else { now });
            self.open_recorded.set(false);
        }
        gate.set_recording(on, cause == Cause::Function && self.once.get());
        self.missed();
    }

    /// Handles a change of the gate, with interrupts masked: the next hooks take the slow path, and events may be
    /// missing before theirs.
    #[inline(never)]
    fn missed(&self) {
        self.writer.stream().miss();
        self.writer.doubt_stopper();
        self.hold_items();
    }

    /// Reads the counter, with the guard set: at the hooks' address, if they have one.
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

    /// The stream and table, for inspection while no context records.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// The processor's port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Adds the refused hooks to the stream's count of losses, so that its packets report them.
    fn report_losses(&self) {
        self.writer.stream().add_discarded(self.unreported());
        self.refused_reported.set(self.refused());
    }
}
