//! Measures the recording overhead of one thread ([`crate::cost`]); that of the process's other threads is assumed to
//! be the same.

use super::{ThreadBuffer, ThreadPort};
use crate::cost::{Bench, Hooks, Undisturbed, measure};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::Cursor;

/// The recorder under measurement.
struct Here<'a, P> {
    port: &'a P,
    thread_buffer: &'a ThreadBuffer<P>,
    gate: &'a Gate,
    hooks: &'static Hooks,
}

impl<P: ThreadPort> Bench for Here<'_, P> {
    type Target = P;
    type Tally = Undisturbed;

    fn stream(&self) -> &Stream<P> {
        self.thread_buffer.writer.stream()
    }

    fn cursor(&self) -> &Cursor {
        &self.thread_buffer.cursor
    }

    fn hooks(&self) -> &'static Hooks {
        self.hooks
    }

    fn gate(&self) -> &Gate {
        self.gate
    }

    #[inline(never)]
    fn clock(&self) -> u64 {
        self.port.now()
    }
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Measures the recording overhead in the calling thread, the owner, if the clock counts; passes the text of each
    /// [fact](kymo_wire::event::MetadataType::Measured) to `report`.
    ///
    /// The gate is forced open meanwhile. So the caller ensures that no other thread of the process records, no signal
    /// is delivered to this one, and the [wall-clock time](ThreadPort::wall_clock_due) is not due. Nothing has been
    /// recorded yet.
    pub fn measure(&self, port: &P, gate: &Gate, hooks: &'static Hooks, report: impl Fn(&[u8])) {
        // Otherwise hooks would first handle the changes of the gate.
        self.changes.set(gate.changes());
        let here = Here {
            port,
            thread_buffer: self,
            gate,
            hooks,
        };
        let profile = self.writer.profile();
        if let Some(profile) = profile {
            profile.record(port.now(), true);
        }
        measure(here, false, report, || {});
        if let Some(profile) = profile {
            let now = port.now();
            profile.record(now, false);
            profile.clear(now);
        }
    }
}
