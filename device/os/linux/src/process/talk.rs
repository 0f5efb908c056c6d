//! Communication with the host: by one thread at a time, and with a timeout for hosts that have disconnected.

use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;
use kymo_recorder::link::Control as _;
use kymo_recorder::threads::ThreadPort as _;
use kymo_wire::link::DUMP_TIMEOUT_MS;

use super::Process;
use super::reader::View;
use crate::sys;

impl Process {
    /// Takes a byte that arrived from the host.
    pub fn receive(&self, byte: u8) {
        self.link.receive(byte);
    }

    /// Executes the host's commands; does nothing if another thread is doing so.
    pub fn poll(&self, gate: &Gate) {
        self.return_by(gate, false);
        // A hook that is just ending a dump takes little time, and does not look for commands.
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

    /// Returns whether [`poll`](Self::poll) has work to do.
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

    /// Aborts the host's commands after it has disconnected.
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

    /// Returns whether packets of a stream have been sent and not acknowledged.
    pub(crate) fn has_flights(&self) -> bool {
        if !self.polling.take() {
            return true;
        }
        let has = self.link.has_flights();
        self.polling.release();
        has
    }

    /// Returns whether this process is a fork that has recorded nothing so far.
    pub(crate) fn has_nothing_of_its_own(&self) -> bool {
        self.forked.load(Ordering::Acquire)
    }

    /// Returns whether a stream is in progress.
    pub fn is_streaming(&self) -> bool {
        self.link.is_streaming()
    }

    /// Ends a dump whose host has been silent for too long. Called by the first hook that the dump would turn away,
    /// because a program may poll only when bytes arrive, and none arrive after the host has disconnected. Before the
    /// timeout it costs one read of the clock.
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

    /// Sets the timeout for the host, if the buffers are frozen.
    fn wait_for_host(&self, gate: &Gate) {
        let patience = if gate.state().frozen() {
            let span = self.port.hz() / 1000 * u64::from(DUMP_TIMEOUT_MS);
            self.port.now().saturating_add(span)
        } else {
            0
        };
        self.patience.store(patience);
    }

    /// Discards the recorded events and the profile table, unless a reader is active.
    pub fn clear(&self, gate: &Gate) {
        self.return_by(gate, false);
        let view = View {
            process: self,
            gate,
        };
        // A streaming host has requested all events that exist.
        if !self.is_streaming() {
            let _ = view.clear();
        }
    }
}
