//! Measures the recording overhead on the first CPU that records ([`crate::cost`]); that of the others is assumed to be
//! the same.
//!
//! It is measured during the set-up, by a CPU that has its CPU buffer, before any other CPU has one: the others wait
//! for the lock, so the gate may be open briefly. Interrupts are masked all the time, some ten microseconds on a fast
//! processor.

use kymo_wire::event::MetadataType;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::cost::measure_undisturbed;
use crate::gate::Gate;
use crate::sync::Ordering;

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Measures the overhead and adds it to the metadata. For the CPU that sets the recorder up, with the lock held and
    /// interrupts masked.
    #[cold]
    pub(super) fn measure(&'static self, gate: &Gate, cpu_buffer: &CpuBuffer<P>) {
        let Some(hooks) = self.port.hooks() else {
            return;
        };
        // Otherwise hooks would begin a packet.
        cpu_buffer.changes.set(gate.changes());
        let metadata = &self.shared.metadata;
        if !metadata.has_room_for_costs() {
            return;
        }
        // The gate is forced open, so this would count events of CPUs without a CPU buffer, though nothing is recorded.
        let unbuffered = self.shared.unbuffered.load(Ordering::Relaxed);
        let clock = || cpu_buffer.now(&self.port);
        let report = |text: &[u8]| metadata.add(MetadataType::Measured, clock(), 0, text);
        let here = (&cpu_buffer.writer, &cpu_buffer.cursor);
        measure_undisturbed(here, gate, hooks, clock, report);
        self.shared.unbuffered.store(unbuffered, Ordering::Relaxed);
    }
}
