//! Turns recording on and off for all CPUs.

use kymo_wire::event::Cause;

use super::buffer::MASKED_PATIENCE_MS;
use super::{CpuBuffer, Cpus, CpusPort};
use crate::gate::{Gate, Site};
use crate::sync::{Ordering, fence};
use crate::{Edge, Event};

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Handles an entry or exit of the stopper while recording is on: its outermost exit turns recording off.
    pub(super) fn follow_stopper(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        edge: Edge,
        site: Site,
    ) {
        if cpu_buffer.writer.follow_stopper(edge, site) {
            self.set_recording_inside(cpu_buffer, gate, false, Cause::Function);
        }
    }

    /// Turns recording on or off, while inside, and marks it in this CPU's stream: the mark for "on" is recorded before
    /// other CPUs can record, that for "off" when none can any more.
    pub(super) fn set_recording_inside(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        on: bool,
        cause: Cause,
    ) {
        cpu_buffer.switching.store(true, Ordering::SeqCst);
        self.shared.lock.with(&self.port, || {
            let state = gate.state_in_order();
            if state.on() == on || state.fresh() || state.failed() {
                return;
            }
            let mark = Event::Recording { on, cause };
            if on {
                if !state.frozen() {
                    let now = cpu_buffer.now_in_order(&self.port);
                    cpu_buffer.begin(gate.changes());
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
                if !state.frozen() {
                    self.wait_for_others(cpu_buffer);
                    let now = cpu_buffer.now_in_order(&self.port);
                    cpu_buffer.catch_up(gate.changes(), now);
                    cpu_buffer.writer.record(now, mark);
                }
            }
        });
        cpu_buffer.switching.store(false, Ordering::Release);
    }

    /// Waits until every other CPU has seen the current state of the gate: it has left its hook, or waits there for the
    /// lock that this CPU holds, and will check the gate again. Interrupts are masked, so the wait is short: if a CPU
    /// was stopped in its hook, the event that it was recording may come after the mark for "off".
    fn wait_for_others(&self, own: &CpuBuffer<P>) {
        fence(Ordering::SeqCst);
        let start = self.port.counter_in_order();
        for cpu_buffer in self
            .cpu_buffers()
            .iter()
            .filter(|cpu_buffer| !core::ptr::eq(*cpu_buffer, own))
        {
            let already = || cpu_buffer.switching.load(Ordering::Acquire);
            let _ = cpu_buffer.wait_outside(&self.port, start, MASKED_PATIENCE_MS, already);
        }
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
