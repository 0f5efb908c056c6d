//! Measures the recording overhead on the first CPU that records ([`crate::cost`]); that of the others is assumed to be
//! the same.
//!
//! It is measured during the set-up, by a CPU that has its CPU buffer, before any other CPU has one: the others wait
//! for the lock, so the gate may be open briefly. Interrupts are masked all the time, some ten microseconds on a fast
//! processor.

use kymo_wire::event::MetadataType;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::cost::{Bench, Hooks, Undisturbed, measure};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::Cursor;
use crate::sync::Ordering;

/// The recorder under measurement.
struct Here<'a, P: 'static> {
    port: &'a P,
    cpu_buffer: &'a CpuBuffer<P>,
    gate: &'a Gate,
    hooks: &'static Hooks,
}

impl<P: CpusPort> Bench for Here<'_, P> {
    type Target = P;
    type Tally = Undisturbed;

    fn stream(&self) -> &Stream<P> {
        self.cpu_buffer.writer.stream()
    }

    fn cursor(&self) -> &Cursor {
        &self.cpu_buffer.cursor
    }

    fn hooks(&self) -> &'static Hooks {
        self.hooks
    }

    fn gate(&self) -> &Gate {
        self.gate
    }

    #[inline(never)]
    fn clock(&self) -> u64 {
        self.cpu_buffer.now(self.port)
    }
}

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
        let here = Here {
            port: &self.port,
            cpu_buffer,
            gate,
            hooks,
        };
        let metadata = &self.shared.metadata;
        if !metadata.has_room_for_costs() {
            return;
        }
        // The gate is forced open, so this would count events of CPUs without a CPU buffer, though nothing is recorded.
        let unbuffered = self.shared.unbuffered.load(Ordering::Relaxed);
        let profile = cpu_buffer.writer.profile();
        if let Some(profile) = profile {
            profile.record(cpu_buffer.now(&self.port), true);
        }
        let report = |text: &[u8]| {
            metadata.add(MetadataType::Measured, cpu_buffer.now(&self.port), 0, text);
        };
        measure(here, false, report, || {});
        if let Some(profile) = profile {
            let now = cpu_buffer.now(&self.port);
            profile.record(now, false);
            profile.clear(now);
        }
        self.shared.unbuffered.store(unbuffered, Ordering::Relaxed);
    }
}
