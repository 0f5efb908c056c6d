//! Turns recording on and off for all CPUs.

use kymo_wire::event::Cause;

use super::buffer::MASKED_PATIENCE_MS;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::gate::Gate;
use crate::sync::{Ordering, fence};
use crate::{Edge, Event};

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Handles an event while the gate is closed.
    #[cold]
    #[inline(never)]
    pub(super) fn closed(&'static self, gate: &Gate, event: Event) {
        let state = gate.state();
        if !state.alive() || state.fresh() || state.claimed() || state.failed() {
            return;
        }
        self.inside(gate, |cpu_buffer| {
            self.record(cpu_buffer, gate, event);
            let state = gate.state();
            if gate.open_in_order() || !state.enabled() {
                return;
            }
            match event {
                Event::Enter(function) | Event::EnterFrom { function, .. }
                    if function != 0
                        && function == gate.trigger()
                        && !state.on()
                        && !state.spent()
                        && gate.site_of(&event).triggers() =>
                {
                    if !self.set_recording_inside(cpu_buffer, gate, true, Cause::Function) {
                        gate.site_of(&event).take_back(false);
                    }
                    self.record(cpu_buffer, gate, event);
                    if function == gate.stopper() {
                        self.follow_stopper(
                            cpu_buffer,
                            gate,
                            Some((Edge::Enter, function)),
                            gate.site_of(&event),
                        );
                    }
                }
                // Also while a dump is being read, when the trace can't be marked.
                Event::Enter(function)
                | Event::EnterFrom { function, .. }
                | Event::Exit(function)
                    if state.on() && function == gate.stopper() =>
                {
                    let is_exit = matches!(event, Event::Exit(_));
                    let edge = if is_exit { Edge::Exit } else { Edge::Enter };
                    let call = Some((edge, function));
                    self.follow_stopper(cpu_buffer, gate, call, gate.site_of(&event));
                }
                _ => {}
            }
        });
    }

    /// Turns recording on or off, while inside, and marks it in this CPU's stream: the mark for "on" is recorded before
    /// other CPUs can record, that for "off" when none can any more. Returns whether it was not on or off before.
    pub(super) fn set_recording_inside(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        on: bool,
        cause: Cause,
    ) -> bool {
        cpu_buffer.switching.store(true, Ordering::SeqCst);
        let changed = self.shared.lock.with(&self.port, || {
            let state = gate.state_in_order();
            if state.on() == on || state.fresh() || state.failed() {
                return false;
            }
            let mark = Event::Recording { on, cause };
            if on {
                self.shared.stopper.forget();
                #[cfg(feature = "duration")]
                self.restart_stops();
                let now = cpu_buffer.now_in_order(&self.port);
                self.record_in_tables(cpu_buffer, on, now, true);
                if !state.frozen() {
                    cpu_buffer.begin(gate.changes());
                    cpu_buffer.catch_up_table(now);
                    cpu_buffer.writer.record(now, mark);
                    gate.set_recording(true, false);
                    cpu_buffer.changes.set(gate.changes());
                } else {
                    gate.set_recording(true, false);
                }
            } else {
                #[cfg(feature = "duration")]
                self.shared
                    .off_since
                    .set(cpu_buffer.now_in_order(&self.port));
                gate.set_recording(false, cause == Cause::Function && self.shared.once.get());
                let needs_rest = !state.frozen() || cpu_buffer.writer.profile().is_some();
                let alone = needs_rest && self.wait_for_others(cpu_buffer);
                let now = cpu_buffer.now_in_order(&self.port);
                if !state.frozen() {
                    cpu_buffer.catch_up(gate.changes(), now);
                    cpu_buffer.writer.record(now, mark);
                }
                self.record_in_tables(cpu_buffer, on, now, alone);
            }
            true
        });
        cpu_buffer.switching.store(false, Ordering::Release);
        changed
    }

    /// Waits until every other CPU has seen the current state of the gate: it has left its hook, or waits there for the
    /// lock that this CPU holds, and will check the gate again. Interrupts are masked, so the wait is short: if a CPU
    /// was stopped in its hook, this returns false, and the event that it was recording may come after the mark for
    /// "off".
    fn wait_for_others(&self, own: &CpuBuffer<P>) -> bool {
        fence(Ordering::SeqCst);
        let start = self.port.counter_in_order();
        let mut all = true;
        for cpu_buffer in self
            .cpu_buffers()
            .iter()
            .filter(|cpu_buffer| !core::ptr::eq(*cpu_buffer, own))
        {
            let already = || cpu_buffer.switching.load(Ordering::Acquire);
            all &= cpu_buffer.wait_outside(&self.port, start, MASKED_PATIENCE_MS, already);
        }
        all
    }

    /// Turns recording on or off.
    pub fn set_recording(&'static self, gate: &Gate, on: bool) {
        if gate.state().alive() {
            self.inside(gate, |cpu_buffer| {
                self.set_recording_inside(cpu_buffer, gate, on, Cause::Command);
            });
        }
    }
}
