//! Measures the overhead of recording in a process, when the recorder is set up: usually before `main`.

use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;
use kymo_recorder::threads::ThreadPort;
use kymo_wire::event::MetadataType;

use super::Process;
use crate::port::period;
use crate::sys;

kymo_recorder::program_hooks!();

impl Process {
    /// Measures the overhead of recording in the calling thread, and records it in the metadata. Does nothing if the
    /// process already has other threads: the gate is open meanwhile, so they would record.
    pub(crate) fn measure(&self, gate: &Gate) {
        if !sys::is_alone() {
            return;
        }
        sys::without_signals(|| {
            let Some(thread_buffer) = self.thread_buffer() else {
                return;
            };
            // Suppresses wall-clock events during the measurement.
            let reported = &self.port.wall_clock_reported;
            reported.store(period(self.port.now()), Ordering::Relaxed);
            thread_buffer.measure(&self.port, gate, &HOOKS, |text| {
                self.with_metadata(|metadata| {
                    metadata.add(MetadataType::Measured, self.port.now(), 0, text);
                });
            });
            reported.store(0, Ordering::Relaxed);
        });
    }
}
