//! What recording costs a thread ([`crate::cost`]); others of its process are taken to pay the same.

use super::{ThreadBuffer, ThreadPort};
use crate::cost::{Bench, Hooks, Undisturbed, measure};
use crate::encode::Stream;
use crate::gate::Gate;
use crate::hot::Cursor;

/// Where it is measured.
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
    /// Measures what recording costs the calling thread, whose thread buffer it is, if the clock counts; gives
    /// `tell` the text of one [fact](kymo_wire::event::MetadataType::Measured) after the
    /// other.
    /// The gate stands open meanwhile, whatever it is: so the process has no other thread that records,
    /// no signal is delivered to this one, and it is not time for the
    /// [time of day](ThreadPort::wall_clock_due). Nothing has been recorded yet.
    pub fn measure(&self, port: &P, gate: &Gate, hooks: &'static Hooks, tell: impl Fn(&[u8])) {
        // Else hooks would have much to catch up with.
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
        measure(here, false, tell, || {});
        if let Some(profile) = profile {
            let now = port.now();
            profile.record(now, false);
            profile.clear(now);
        }
    }
}
