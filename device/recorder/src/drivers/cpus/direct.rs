//! Direct recording of switches, interrupts and markers by one of several CPUs: as [`crate::single`] does it, with
//! interrupts masked once, and the CPU marked as inside its buffer.

use kymo_wire::event::OTHER_BITS;

use super::{CpuBuffer, Cpus, CpusPort};
use crate::gate::{Gate, Look};
use crate::hot::{distance, low};
use crate::writer::Place;
use crate::{Event, Writer};

impl<P: CpusPort, const N: usize> Cpus<P, N> {
    /// Hook for an event that is no call, and whose kind is a constant: code for other kinds is removed.
    #[inline(always)]
    pub fn event(&'static self, gate: &Gate, event: Event) {
        if !self.record_direct(gate, event) {
            self.hook(gate, event);
        }
    }

    /// Records an event if it needs nothing but a record; returns false if it must be recorded in the
    /// [general way](Self::hook).
    #[inline(always)]
    fn record_direct(&self, gate: &Gate, event: Event) -> bool {
        let Some(bytes) = Writer::<P>::direct_bytes(event) else {
            return false;
        };
        let may = match gate.look() {
            Look::Open => true,
            #[cfg(feature = "duration")]
            Look::Duration(_) => self.is_marker_alone(event),
            _ => false,
        };
        if !may {
            return false;
        }
        let beyond = bytes.saturating_sub(P::LAYOUT.fast_bytes());
        // (Not as a closure, of which compilers would make one function for all kinds of events.)
        let was = self.port.mask();
        let done = match self.come_in(gate) {
            Some(cpu_buffer) => {
                let done = self.record_inside(cpu_buffer, gate, event, beyond);
                cpu_buffer.go_out();
                done
            }
            // It has been counted.
            None => true,
        };
        self.port.unmask(was);
        done
    }

    /// The same, while inside. The event takes `beyond` bytes more than the fast path's longest record.
    #[inline(always)]
    fn record_inside(
        &self,
        cpu_buffer: &CpuBuffer<P>,
        gate: &Gate,
        event: Event,
        beyond: usize,
    ) -> bool {
        let (cursor, writer) = (&cpu_buffer.cursor, &cpu_buffer.writer);
        let at = cursor.at();
        let usual = gate.open_in_order()
            && cpu_buffer.changes.get() == gate.changes()
            && writer.is_direct(event)
            && at as usize + beyond < cursor.limit();
        if !usual {
            return false;
        }
        // (A program's own clock is not used here: nothing is direct then.)
        let now = low::<P>(self.port.counter_in_order());
        if distance::<P>(now, cursor.last.get()) >> OTHER_BITS != 0 {
            return false;
        }
        let place = Place { cursor, at, now };
        // SAFETY: below the limit there is memory for the fast path's longest record and, as was checked, for what this
        // takes beyond; this CPU is inside, with no reader.
        match unsafe { writer.record_direct(&place, event) } {
            Some(end) => {
                cursor.commit(end, now);
                true
            }
            None => false,
        }
    }
}
