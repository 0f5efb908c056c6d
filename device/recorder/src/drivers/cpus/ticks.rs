//! Comparison of the clock of several CPUs with the periodic tick of one of them.

use kymo_wire::clock_check::TickCheck;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::sync::Ordering;

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Updates the comparison at a tick, if this is the CPU whose tick is compared: the first one that ticked.
    pub(super) fn compare_tick(&self, cpu_buffer: &CpuBuffer<P>, now: u64) {
        let metadata = &self.shared.metadata;
        if self.is_ticking(cpu_buffer) && metadata.tick(now) {
            // A reader may hold the lock while it waits for this CPU.
            self.shared.lock.try_with(|| metadata.record_tick(now));
        }
    }

    /// Whether this CPU's tick is the one that is compared with the clock; selects this CPU if none is selected yet.
    fn is_ticking(&self, cpu_buffer: &CpuBuffer<P>) -> bool {
        let this = u32::from(cpu_buffer.writer.stream().buffer().cpu()) + 1;
        let before =
            self.shared
                .ticking
                .compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed);
        before.is_ok() || before == Err(this)
    }

    /// The comparison of clock and tick as of `now`, if it uses this CPU's tick.
    pub(super) fn tick_check(&self, now: u64) -> Option<TickCheck> {
        let was = self.port.mask();
        let ours = self.cpu_buffer().is_some_and(|cpu_buffer| {
            let ours = u32::from(cpu_buffer.writer.stream().buffer().cpu()) + 1;
            [0, ours].contains(&self.shared.ticking.load(Ordering::Relaxed))
        });
        let check = self.shared.metadata.tick_check(now).filter(|_| ours);
        self.port.unmask(was);
        check
    }
}
