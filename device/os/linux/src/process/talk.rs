//! Talking to the host: for one thread at a time, and within the patience that is had with a host that has
//! gone.

use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;
use kymo_recorder::link::Control as _;
use kymo_recorder::threads::ThreadPort as _;
use kymo_wire::link::DUMP_TIMEOUT_MS;

use super::Process;
use crate::reader::View;
use crate::sys;

impl Process {
    /// A byte arrived from the host.
    pub fn receive(&self, byte: u8) {
        self.link.receive(byte);
    }

    /// Does what the host asked for; nothing if another thread is at it.
    pub fn poll(&self, gate: &Gate) {
        self.return_by(gate, false);
        // A hook that ends a dump at this very moment is soon done, and does not look for commands.
        for _ in 0..1000 {
            let view = View {
                process: self,
                gate,
            };
            if self.polling.take() {
                self.link.poll(&view);
                self.wait_for_host(gate);
                self.polling.release();
                return;
            }
            if !self.ending.load(Ordering::Relaxed) {
                return;
            }
            sys::sleep(10_000);
        }
    }

    /// Whether a poll would have something to do.
    pub fn pending(&self, gate: &Gate) -> bool {
        let view = View {
            process: self,
            gate,
        };
        if !self.polling.take() {
            return false;
        }
        let pending = self.link.is_pending(&view);
        self.polling.release();
        pending
    }

    /// The host is gone: ends what it asked for.
    pub(crate) fn hang_up(&self, gate: &Gate) {
        let view = View {
            process: self,
            gate,
        };
        for _ in 0..1000 {
            if self.polling.take() {
                self.link.hang_up(&view);
                self.wait_for_host(gate);
                self.polling.release();
                return;
            }
            sys::sleep(10_000);
        }
    }

    /// Whether packets of a stream have been sent and not acknowledged.
    pub(crate) fn has_flights(&self) -> bool {
        if !self.polling.take() {
            return true;
        }
        let has = self.link.has_flights();
        self.polling.release();
        has
    }

    /// Whether this process is a fork that has recorded nothing so far.
    pub(crate) fn has_nothing_of_its_own(&self) -> bool {
        self.forked.load(Ordering::Acquire)
    }

    /// Whether a stream is going on.
    pub fn is_streaming(&self) -> bool {
        self.link.is_streaming()
    }

    /// Ends a dump whose host has not been heard for too long, from the first hook that would be
    /// refused for it: a program may poll only when bytes arrive, and none do when the host is gone.
    /// Until then this costs a look at the clock.
    #[cold]
    pub(super) fn end_forgotten(&self, gate: &Gate) {
        let patience = self.patience.load();
        let now = self.port.now();
        if patience == 0 || now <= patience || !self.polling.take() {
            return;
        }
        self.ending.store(true, Ordering::Relaxed);
        let view = View {
            process: self,
            gate,
        };
        self.link.tick(now, 0, &view);
        self.wait_for_host(gate);
        self.ending.store(false, Ordering::Relaxed);
        self.polling.release();
    }

    /// Says how long the buffers wait for the host from now on, if they are held still.
    fn wait_for_host(&self, gate: &Gate) {
        let patience = if gate.state().frozen() {
            let span = self.port.hz() / 1000 * u64::from(DUMP_TIMEOUT_MS);
            self.port.now().saturating_add(span)
        } else {
            0
        };
        self.patience.store(patience);
    }

    /// Forgets events and table. Nothing happens while somebody reads them.
    pub fn clear(&self, gate: &Gate) {
        self.return_by(gate, false);
        let view = View {
            process: self,
            gate,
        };
        // A reader may be at work: it asked for what there is.
        if !self.is_streaming() {
            let _ = view.clear();
        }
    }
}
