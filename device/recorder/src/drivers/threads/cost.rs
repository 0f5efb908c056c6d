//! Measures the recording overhead of one thread ([`crate::cost`]); that of the process's other threads is assumed to
//! be the same.

use super::{ThreadBuffer, ThreadPort};
use crate::cost::{Hooks, measure_undisturbed};
use crate::gate::Gate;

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
        let here = (&self.writer, &self.cursor);
        measure_undisturbed(here, gate, hooks, || port.now(), report);
    }
}
