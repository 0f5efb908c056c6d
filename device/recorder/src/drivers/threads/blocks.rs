//! Records that a thread fills in place ([`crate::encode::block`]).

use core::sync::atomic::Ordering;

use super::{ThreadBuffer, ThreadPort};
use crate::gate::Gate;

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Reserves a record of `length` bytes in the stream of the owning thread and returns the address of its data; null
    /// if nothing is to be recorded now, or if it is not possible (which is counted). A signal handler that interrupts
    /// a hook can't reserve one.
    #[inline(never)]
    pub fn reserve(&self, port: &P, gate: &Gate, length: usize) -> *mut u8 {
        if self.in_hook() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return core::ptr::null_mut();
        }
        self.enter(port);
        let state = gate.state();
        if !state.open() {
            self.refuse(state);
            return core::ptr::null_mut();
        }
        self.owned.written();
        let now = self.time(port, gate);
        let data = self.writer.stream().reserve_block(now, length);
        self.leave(port, gate);
        data
    }

    /// Finishes a reserved record, with this type; 0 discards it. For the thread, or the handler, that reserved it.
    ///
    /// # Safety
    /// `data` came from [`reserve`](Self::reserve), is not null, and is used for the last time.
    pub unsafe fn commit(&self, port: &P, gate: &Gate, data: *mut u8, kind: u16) {
        if kind == 0 {
            // SAFETY: by this function's contract.
            return unsafe { self.discard(port, gate, data) };
        }
        // SAFETY: by this function's contract. It touches nothing that hooks do, except for the count of reserved
        // records, which only the thread changes.
        unsafe { self.writer.stream().commit_block(data, kind) };
    }

    /// Discards a reserved record; if something was recorded since, it remains unfinished.
    ///
    /// # Safety
    /// As of [`commit`](Self::commit).
    pub unsafe fn discard(&self, port: &P, gate: &Gate, data: *mut u8) {
        let again = self.in_hook();
        if !again {
            self.enter(port);
        }
        // While a reader is active, or a hook interrupted, nothing can be removed.
        if again || gate.state().frozen() {
            self.writer.stream().buffer().unpin(data, false);
        } else {
            self.owned.written();
            // SAFETY: by this function's contract, and the thread is inside.
            unsafe { self.writer.stream().discard_block(data) };
        }
        if !again {
            self.leave(port, gate);
        }
    }
}
