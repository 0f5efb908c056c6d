//! Duration mode of a thread ([`crate::duration`]): its shadow stack, and the hooks that use it.
//!
//! Only the thread inside a hook uses it, or a reader that has seen the thread outside. Calls of a signal handler while
//! its thread is inside go to the side buffer, as any event does, and are handled after the hook has updated the stack.

use core::cell::Cell;
use core::mem::offset_of;

use kymo_wire::event::EventId;

use super::{ThreadBuffer, ThreadPort};
use crate::bits64::Cell64;
use crate::duration::{Control, Ended};
use crate::encode::WholeCall;
use crate::gate::{Gate, code};
use crate::hot::{CODE_BIT, low};
use crate::{Edge, Event};

/// Duration mode's part of a thread buffer.
#[derive(Debug)]
pub(super) struct Calls {
    /// The shadow stack, in duration mode.
    control: Cell<Option<&'static Control>>,
    /// Time of the last entry or exit.
    last: Cell64,
    /// Time for which open calls were recorded last.
    open_at: Cell64,
    /// Number of calls recorded since the last `take_ended_calls`, and number of those among them that stop recording.
    recorded: Cell<u32>,
    frozen: Cell<u32>,
}

impl Calls {
    pub(super) const fn new() -> Self {
        Self {
            control: Cell::new(None),
            last: Cell64::new(0),
            open_at: Cell64::new(0),
            recorded: Cell::new(0),
            frozen: Cell::new(0),
        }
    }
}

impl<P> ThreadBuffer<P> {
    /// Offset of the time of the thread's last entry or exit in duration mode: 8 bytes.
    pub const LAST_CALL_OFFSET: usize = offset_of!(Self, calls) + offset_of!(Calls, last);
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Switches the thread to duration mode, with this shadow stack: calls are recorded if they take at least its
    /// threshold. Call it before any other context knows the thread buffer.
    pub fn give_duration(&self, control: &'static Control) {
        control.set_up(self.writer.stream().thread());
        self.writer.stream().set_calls(true);
        self.writer.allow_fast(false);
        self.calls.control.set(Some(control));
    }

    /// The thread's shadow stack, in duration mode. Any context may read its settings and counts, and change the
    /// threshold and the depth.
    pub fn duration(&self) -> Option<&'static Control> {
        self.calls.control.get()
    }

    /// [`call`](Self::call) in duration mode.
    #[inline(always)]
    pub fn call_in_duration(
        &self,
        port: &P,
        gate: &Gate,
        edge: Edge,
        function: usize,
        caller: usize,
    ) {
        if self.in_hook() {
            let frame = edge.frame(port.stack(), caller);
            return self.aside(port, gate, edge.of(function, caller), frame);
        }
        self.enter(port);
        let state = gate.state();
        if !state.open() {
            return self.refuse(state);
        }
        self.owned.written();
        let now = self.time(port, gate);
        if !self.is_short(now, edge, function) {
            self.record(now, edge.of(function, caller));
            if port.wall_clock_due(now) {
                self.record_wall_clock(port);
            }
        }
        port.refresh(self, now);
        self.leave(port, gate);
    }

    /// Handles an entry, or the exit of a call shorter than the threshold; returns whether that was all.
    #[inline(always)]
    fn is_short(&self, now: u64, edge: Edge, function: usize) -> bool {
        let Some(control) = self.calls.control.get() else {
            return false;
        };
        let (now, function) = (low::<P>(self.advance(now)), function | CODE_BIT);
        match edge {
            Edge::Enter => control.enter(function, || now),
            Edge::Exit => control.exit_if_any(function, now),
        }
    }

    /// Records an event, while inside, in the current mode.
    #[inline(always)]
    pub(super) fn record(&self, now: u64, event: Event) {
        match self.calls.control.get() {
            Some(control) => self.follow_call(control, now, event),
            None => self.writer.record(now, event),
        }
    }

    /// Handles an event in duration mode, like [`Single::duration_event`](crate::single::Single::duration_event).
    #[inline(never)]
    fn follow_call(&self, control: &Control, now: u64, event: Event) {
        match event {
            Event::Enter(function) | Event::EnterFrom { function, .. } => {
                let now = low::<P>(self.advance(now));
                let function = function | CODE_BIT;
                if !control.enter(function, || now) && !control.enter_slowly(function, now) {
                    // It has no frame, so there will be no record of it, however long it takes.
                    self.writer.stream().add_discarded(1);
                }
            }
            Event::Exit(function) => {
                let now = self.advance(now);
                let function = function | CODE_BIT;
                if !control.exit_if_any(function, low::<P>(now)) {
                    control.exit_slowly(function, now, |control, call| {
                        self.end_call(control, call, now);
                    });
                }
            }
            // The ends of the calls show where the jump led.
            Event::Setjmp(buffer) => control.set_jump(buffer),
            Event::Longjmp(buffer) => {
                self.writer.jump_in_stopper();
                let now = self.advance(now);
                control.jump(buffer, now, |control, call| {
                    self.end_call(control, call, now);
                });
            }
            Event::SwitchedIn(_)
            | Event::SwitchedOut(_)
            | Event::IsrEnter(_)
            | Event::IsrExit(_) => self.writer.follow_event(event),
            _ => self.writer.record(now, event),
        }
    }

    /// The time of an entry or exit, at least that of the last one: clocks of processors may differ a little.
    #[inline(always)]
    fn advance(&self, now: u64) -> u64 {
        let now = now.max(self.calls.last.get());
        self.calls.last.set(now);
        now
    }

    /// Records a call that ended at `ended`, if it lasted long enough; returns whether it did.
    fn record_if_long(&self, control: &Control, call: &Ended, ended: u64) -> bool {
        let records = control.records(call);
        if records {
            let how = match call.exited {
                true => EventId::Call,
                false => EventId::CallLost,
            };
            self.record_call(call, how, ended);
        }
        records
    }

    /// The same, and counts the call for what stops recording.
    fn end_call(&self, control: &Control, call: &Ended, ended: u64) {
        if self.record_if_long(control, call, ended) {
            self.calls.recorded.set(self.calls.recorded.get() + 1);
        }
        let settings = &control.settings;
        if settings.freezes(call.function, call.duration)
            && settings.is_from(control.caller(call, 0))
        {
            self.calls.frozen.set(self.calls.frozen.get() + 1);
        }
    }

    /// Number of calls of the buffer's own thread that were recorded since the last call of this function, and number of
    /// those that [stop recording](crate::duration::Settings::set_freeze).
    #[inline(always)]
    pub fn take_ended_calls(&self) -> (u32, u32) {
        (self.calls.recorded.take(), self.calls.frozen.take())
    }

    /// Records a call that ended at `ended`, or was still open at that time.
    #[cold]
    #[inline(never)]
    fn record_call(&self, call: &Ended, how: EventId, ended: u64) {
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
                thread: stream.thread(),
            },
        );
    }

    /// Records the open calls as ended without an exit: the thread has exited, or recording was off meanwhile. They
    /// took at least until the thread's last entry or exit. They don't count for what stops recording, which has been
    /// turned on anew since.
    #[cold]
    #[inline(never)]
    pub(super) fn abandon_calls(&self) {
        if let Some(control) = self.calls.control.get() {
            let last = self.calls.last.get();
            control.leave_all(last, |control, call| {
                self.record_if_long(control, call, last);
            });
        }
    }

    /// Drops the open calls, because another thread gets the thread buffer.
    pub(super) fn restart_calls(&self) {
        if let Some(control) = self.calls.control.get() {
            control.set_up(self.writer.stream().thread());
            self.calls.last.set(0);
        }
    }

    /// Records the calls that are open at `now` and have taken long enough, for a reader that seals the thread buffer
    /// then. Only once for the same time, that at which recording was turned off: a second reader finds them, and nothing
    /// is overwritten for it.
    ///
    /// # Safety
    /// As of [`seal`](Self::seal).
    pub unsafe fn record_open_calls(&self, now: u64) {
        let Some(control) = self.calls.control.get() else {
            return;
        };
        self.owned.written();
        self.drain();
        let is_known = self.calls.open_at.get() == now;
        self.calls.open_at.set(now);
        if is_known {
            return;
        }
        let now = now.max(self.calls.last.get());
        let mut n = 0;
        while let Some(open) = control.open(n, now) {
            // There is one stack, so the first free frame ends the open calls.
            let Some((_, call)) = open else { return };
            if control.records(&call) {
                self.record_call(&call, EventId::CallOpen, now);
            }
            n += 1;
        }
    }
}
