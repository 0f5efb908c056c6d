//! Duration mode on several CPUs ([`crate::duration`]): each has its own structure, with shadow stacks for the threads
//! that run on it.
//!
//! A CPU works on its own structure, inside its CPU buffer. While a reader excludes it, it still tracks its calls, so
//! that open calls have the right times after the dump, but it records none: those that would have been recorded are
//! counted as lost. The reader accesses the stacks at the same time, so both take [`Calls::lock`].
//!
//! Calls belong to the CPU on which they began. If a thread continues on another CPU, their exits find no entry there.
//! The CPU on which they are open must not match a later exit with them: so a CPU to which a thread is switched
//! [marks](Control::mark_moved) the thread's stacks on all other CPUs, which then drop the calls in them. Both are
//! counted ([`Counts::unmatched`](crate::duration::Counts)).

use core::cell::Cell;

use kymo_wire::event::EventId;

use super::lock::Lock;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::bits64::Cell64;
use crate::config::Config;
use crate::duration::{Control, Ended, Frame, Settings, cpus_program};
use crate::encode::WholeCall;
use crate::gate::{Gate, State, code};
use crate::hot::{CODE_BIT, low};
use crate::identity::build_id_of;
use crate::sync::{Ordering, add};
use crate::{Edge, Event};

mod requests;
mod stops;

/// The structures of all CPUs: `kymo_cpu_duration_t`.
#[repr(C)]
#[derive(Debug)]
pub struct CpuDuration {
    /// The first CPU's structure, followed by the others'.
    pub controls: *mut Control,
    /// The frames of the first CPU's stacks, followed by the others'; null if the structures have their own.
    pub frames: *mut Frame,
    /// Number of CPUs with a structure.
    pub cpus: u32,
}

// SAFETY: it is constant, and what it points to belongs to one recorder (`give_duration`).
unsafe impl Sync for CpuDuration {}

/// Duration mode's part of a CPU buffer.
#[derive(Debug)]
pub(super) struct Calls {
    control: Cell<Option<&'static Control>>,
    /// Guards the stacks between a CPU that tracks calls while a reader excludes it, and the reader. Taken with
    /// interrupts masked.
    lock: Lock,
    /// Time of the last entry or exit. (The counter may be read some instructions early.)
    last: Cell64,
    /// [`Gate::generation`] when the stacks were last cleared.
    generation: Cell<u32>,
}

impl Calls {
    pub(super) const fn new() -> Self {
        Self {
            control: Cell::new(None),
            lock: Lock::new(),
            last: Cell64::new(0),
            generation: Cell::new(0),
        }
    }
}

impl<P: CpusPort> CpuBuffer<P> {
    /// The CPU's structure, if the program has duration mode.
    pub(super) fn duration(&self) -> Option<&'static Control> {
        self.calls.control.get()
    }

    /// Drops all open calls: calls entered before are not tracked.
    fn restart_calls(&self, control: &Control, generation: u32) {
        self.calls.generation.set(generation);
        control.drop_moved();
        control.reset(self.writer.stream().thread());
    }

    /// The time of an entry or exit, at least that of the last one.
    #[inline(always)]
    fn advance(&self, now: u64) -> u64 {
        let now = now.max(self.calls.last.get());
        self.calls.last.set(now);
        now
    }

    /// Records a call that ended at `ended`, or was still open at that time.
    #[cold]
    #[inline(never)]
    fn record_call(&self, call: &Ended, how: EventId, ended: u64, thread: usize) {
        let stream = self.writer.stream();
        // Something later may have been recorded: the end is moved, and the beginning preserved.
        let now = ended.max(stream.last());
        let later = now - ended;
        stream.place_call(
            now,
            &WholeCall {
                how,
                function: code(call.function),
                duration: call.duration + later,
                own: call.own + later,
                thread,
            },
        );
    }

    /// Records the calls that are open at `now`, and seals the stream. For a reader that excludes the CPU and holds
    /// [`Calls::lock`].
    fn record_open_calls(&self, generation: u32, now: u64) {
        // With another count, the calls are those of an earlier recording.
        let control = self
            .duration()
            .filter(|_| self.calls.generation.get() == generation);
        let Some(control) = control else {
            return;
        };
        control.drop_moved();
        let now = now.max(self.calls.last.get());
        let mut n = 0;
        while let Some(open) = control.open(n, now) {
            if let Some((thread, call)) = open
                && control.records(&call)
            {
                self.record_call(&call, EventId::CallOpen, now, thread);
            }
            n += 1;
        }
        self.writer.stream().seal_at(now);
    }
}

/// Tracks the calls of one CPU. One at a time: for the CPU inside its CPU buffer, or with [`Calls::lock`] held.
struct Follower<'a, P: 'static, const N: usize> {
    cpus: &'a Cpus<P, N>,
    gate: &'a Gate,
    cpu_buffer: &'a CpuBuffer<P>,
    control: &'a Control,
    /// Whether the stream may be written. Otherwise records are lost.
    records: bool,
}

impl<P: CpusPort, const N: usize> Follower<'_, P, N> {
    /// Selects the stack of the running thread.
    #[inline(always)]
    fn prepare(&self, now: u64) {
        let (cpu_buffer, generation) = (self.cpu_buffer, self.gate.generation());
        if cpu_buffer.calls.generation.get() != generation {
            cpu_buffer.restart_calls(self.control, generation);
        }
        let stream = cpu_buffer.writer.stream();
        if cpu_buffer.writer.queries_thread() && stream.isr_depth.get() == 0 {
            self.run(cpu_buffer.writer.query_thread(), now);
        }
    }

    /// Tracks an entry.
    #[inline(always)]
    fn enter(&self, now: u64, function: usize) {
        let now = low::<P>(self.cpu_buffer.advance(now));
        let function = function | CODE_BIT;
        if !self.control.enter(function, || now) && !self.control.enter_slowly(function, now) {
            // It has no frame, so there will be no record of it, however long it takes.
            self.lose();
        }
    }

    /// Tracks an exit.
    #[inline(always)]
    fn exit(&self, now: u64, function: usize) {
        let now = self.cpu_buffer.advance(now);
        let function = function | CODE_BIT;
        if !self.control.exit(function, low::<P>(now)) {
            self.exit_slowly(function, now);
        }
    }

    /// Handles an event at `now`. Like [`Single::duration_event`](crate::single::Single::duration_event).
    #[inline(always)]
    fn event(&self, now: u64, event: Event) {
        let (cpu_buffer, control) = (self.cpu_buffer, self.control);
        self.prepare(now);
        match event {
            Event::Enter(function) | Event::EnterFrom { function, .. } => self.enter(now, function),
            Event::Exit(function) => self.exit(now, function),
            // The ends of the calls show where the jump led.
            Event::Setjmp(buffer) => control.set_jump(buffer),
            Event::Longjmp(buffer) => {
                let now = cpu_buffer.advance(now);
                control.jump(buffer, now, |_, call| {
                    self.ended(call, now);
                });
            }
            Event::SwitchedIn(thread) => {
                self.record_beside(now, event);
                self.run(thread, now);
            }
            Event::SwitchedOut(_) | Event::IsrExit(_) => self.record_beside(now, event),
            Event::IsrEnter(_) => {
                self.record_beside(now, event);
                self.freeze_on(event);
            }
            Event::Marker(_) => {
                self.record(now, event);
                self.freeze_on(event);
            }
            _ => self.record(now, event),
        }
    }

    /// Records an event that is recorded only if the settings say so.
    fn record_beside(&self, now: u64, event: Event) {
        match self.control.settings.keeps_events() {
            true => self.record(now, event),
            false => self.cpu_buffer.writer.follow_event(event),
        }
    }

    fn record(&self, now: u64, event: Event) {
        if self.records {
            self.cpu_buffer.writer.record(now, event);
        } else {
            self.cpu_buffer.writer.follow_event(event);
            self.lose();
        }
    }

    /// Records a call that ended at `now`, if it is to be recorded; returns whether it is.
    fn ended(&self, call: &Ended, now: u64) -> bool {
        if !self.control.records(call) {
            return false;
        }
        if !self.records {
            self.lose();
            return true;
        }
        let how = match call.exited {
            true => EventId::Call,
            false => EventId::CallLost,
        };
        let thread = self.cpu_buffer.writer.stream().thread();
        self.cpu_buffer.record_call(call, how, now, thread);
        true
    }

    /// Counts a lost record.
    #[cold]
    fn lose(&self) {
        match self.records {
            true => self.cpu_buffer.writer.stream().add_discarded(1),
            false => add(&self.cpu_buffer.lost, 1),
        }
    }

    /// Switches to this thread at `now`.
    #[inline(always)]
    fn run(&self, thread: usize, now: u64) {
        if !self.control.runs(thread) {
            self.change_stack(thread, now);
        }
    }

    #[inline(never)]
    fn change_stack(&self, thread: usize, now: u64) {
        self.control.drop_moved();
        self.control.run(thread, low::<P>(now));
        for cpu_buffer in self.cpus.cpu_buffers() {
            if let Some(other) = cpu_buffer.duration()
                && !core::ptr::eq(cpu_buffer, self.cpu_buffer)
            {
                other.mark_moved(thread);
            }
        }
    }
}

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Gives each CPU its structure, before the set-up, instead of those that the program defines.
    ///
    /// # Safety
    /// So many structures are there, and frames for all of their stacks, which only this uses.
    pub unsafe fn give_duration(&self, duration: &'static CpuDuration) {
        for (n, cpu_buffer) in self
            .cpu_buffers
            .iter()
            .enumerate()
            .take(duration.cpus as usize)
        {
            // SAFETY: by this function's contract.
            let control = unsafe {
                let control = duration.controls.add(n);
                if !duration.frames.is_null() {
                    Control::place_frames(control, duration.frames, n);
                }
                &*control
            };
            let usable = Some(control).filter(|control| control.is_usable());
            cpu_buffer.calls.control.set(usable);
        }
    }

    /// Applies the program's settings during the set-up, when the number of CPUs is known. Duration mode is available
    /// only if all CPUs have a structure, and the clock is the processors' own counter: a program's clock may differ
    /// between CPUs. Nor is it available on 32-bit machines, because nothing completes the times of long calls
    /// ([`Control::age`]).
    pub(super) fn set_up_duration(&self, gate: &Gate, config: &Config) {
        let cpu_buffers = || self.cpu_buffers().iter();
        if cpu_buffers().all(|cpu_buffer| cpu_buffer.duration().is_none())
            && let Some(duration) = cpus_program()
        {
            // SAFETY: the program has defined them.
            unsafe { self.give_duration(duration) };
        }
        let lacks = cpu_buffers().any(|cpu_buffer| cpu_buffer.duration().is_none());
        if usize::BITS < 64 || config.clock.is_some() || lacks {
            return cpu_buffers().for_each(|cpu_buffer| cpu_buffer.calls.control.set(None));
        }
        let build_id = build_id_of(config);
        for cpu_buffer in cpu_buffers() {
            if let Some(control) = cpu_buffer.duration() {
                control.settings.set_base(config.text_base as usize);
                control.settings.load(build_id);
                cpu_buffer.restart_calls(control, gate.generation());
                cpu_buffer
                    .writer
                    .stream()
                    .set_calls(control.settings.is_on());
            }
        }
        self.choose_hooks(gate, self.stops().is_some_and(Settings::is_on));
    }

    /// A call in duration mode; `bits` are those of [`Look::Duration`](crate::gate::Look::Duration).
    #[inline(always)]
    pub(super) fn duration_call(
        &'static self,
        gate: &Gate,
        bits: usize,
        edge: Edge,
        (function, caller): (usize, usize),
    ) {
        match (bits, edge) {
            (0, Edge::Enter) => self.usual_call::<false>(gate, function, caller),
            (0, Edge::Exit) => self.usual_call::<true>(gate, function, caller),
            _ => self.watched_call(gate, edge, function, caller),
        }
    }

    /// A call in duration mode. A function of its own, separate from calls in the other mode; one instance for each
    /// edge, so that it need not test which.
    #[inline(never)]
    fn usual_call<const EXIT: bool>(&'static self, gate: &Gate, function: usize, caller: usize) {
        let edge = if EXIT { Edge::Exit } else { Edge::Enter };
        let done = self.inside(gate, |cpu_buffer| {
            self.follow_near(cpu_buffer, gate, edge, function)
        });
        match done {
            Some(true) => {}
            Some(false) => self.slow_call_in_duration(gate, edge, function, caller),
            None => self.refused_function.store(function, Ordering::Relaxed),
        }
    }

    /// Tracks a call in the usual case, while inside. Returns false if the slow path must handle it.
    #[inline(always)]
    fn follow_near(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        edge: Edge,
        function: usize,
    ) -> bool {
        let usual = gate.open_in_order()
            && cpu_buffer.changes.get() == gate.changes()
            && function != gate.stopper()
            && gate.in_duration()
            && cpu_buffer.calls.generation.get() == gate.generation()
            && !cpu_buffer.writer.queries_thread();
        let Some(control) = cpu_buffer.duration().filter(|_| usual) else {
            return false;
        };
        let follower = Follower {
            cpus: self,
            gate,
            cpu_buffer,
            control,
            records: true,
        };
        let now = cpu_buffer.now(&self.port);
        match edge {
            Edge::Enter => follower.enter(now, function),
            Edge::Exit => follower.exit(now, function),
        }
        true
    }

    /// Slow path of a call in duration mode.
    #[cold]
    #[inline(never)]
    pub(super) fn slow_call_in_duration(
        &'static self,
        gate: &Gate,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        if !gate.open() {
            return self.closed(gate, edge.of(function, caller));
        }
        let done = self.inside(gate, |cpu_buffer| {
            self.record_call_in_duration(cpu_buffer, gate, edge, function, caller);
        });
        if done.is_none() {
            self.refused_function.store(function, Ordering::Relaxed);
        }
    }

    /// The same, while inside.
    pub(super) fn record_call_in_duration(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        self.record(cpu_buffer, gate, edge.of(function, caller));
        if function == gate.stopper() && gate.open_in_order() {
            self.follow_stopper(cpu_buffer, gate, Some((edge, function)), gate.site(caller));
        }
    }

    /// Handles an event in duration mode, while inside.
    #[inline(never)]
    pub(super) fn record_in_duration(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        state: State,
        control: &Control,
        event: Event,
    ) {
        let now = match event {
            Event::Enter(_) | Event::EnterFrom { .. } | Event::Exit(_) => {
                cpu_buffer.now(&self.port)
            }
            _ => cpu_buffer.now_in_order(&self.port),
        };
        let follower = Follower {
            cpus: self,
            gate,
            cpu_buffer,
            control,
            records: state.open(),
        };
        if state.open() {
            cpu_buffer.catch_up(gate.changes(), now);
            return follower.event(now, event);
        }
        let lock = &cpu_buffer.calls.lock;
        if state.on() && state.enabled() {
            return lock.with(&self.port, || follower.event(now, event));
        }
        cpu_buffer.writer.follow_event(event);
        if let Event::SwitchedIn(thread) = event
            && state.on()
        {
            // Calls after the gate is enabled again belong on this thread's stack.
            lock.with(&self.port, || follower.run(thread, now));
        }
    }
}
