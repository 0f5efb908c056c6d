//! Checksums of the packets of one processor ([`sums`](crate::sums)).

use super::{Single, SinglePort};

#[cfg(not(feature = "sums"))]
impl<P: SinglePort + 'static> Single<P> {
    /// Whether packets have checksums.
    #[inline(always)]
    pub(super) const fn is_summed(&self) -> bool {
        false
    }
}

#[cfg(feature = "sums")]
impl<P: SinglePort + 'static> Single<P> {
    /// Gives the recorder memory for checksums, once it is set up.
    pub fn give_sums(&self, sums: crate::sums::Sums) {
        self.sums.set(sums, self.writer.stream().buffer().places());
    }

    /// Whether packets have checksums.
    #[inline(always)]
    pub(super) fn is_summed(&self) -> bool {
        self.sums.is_used()
    }

    /// Computes the checksums of the packets closed since, with interrupts enabled as far as they were.
    #[inline(always)]
    pub(super) fn sum_packets(&self) {
        if self.is_summed() {
            self.sum_closed();
        }
    }

    #[inline(never)]
    fn sum_closed(&self) {
        let stream = self.writer.stream();
        while let Some(due) = self.masked_quietly(|| self.sums.due(stream)).flatten() {
            let sum = due.checksum();
            self.masked_quietly(|| self.sums.finish(stream, due, sum));
        }
    }

    /// Runs `work` with interrupts masked; `None` in a hook within a hook.
    #[inline(always)]
    fn masked_quietly<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let was = self.port.mask();
        let result = (!self.inside.get()).then(work);
        self.port.unmask(was);
        result
    }
}
