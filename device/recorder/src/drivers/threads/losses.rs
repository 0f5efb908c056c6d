//! What is lost beside a stream, and behind its packets.

use core::cell::Cell;

use super::{ThreadBuffer, ThreadPort};
use crate::sync::Ordering;

/// How many losses the newest packet tells of while a reader holds it.
#[derive(Debug)]
pub(super) struct Lent(Cell<u32>);

impl Lent {
    pub(super) const fn new() -> Self {
        Self(Cell::new(0))
    }
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Forgets events that were lost beside the stream, for who clears the thread buffer.
    pub fn forget_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }

    /// Lets the newest packet tell of losses behind it. For a reader that holds the thread buffer, as all of this.
    pub fn lend_losses(&self) {
        let lent = self.writer.stream().buffer().lend_losses();
        self.lent.0.set(lent);
    }

    /// Takes that back.
    pub fn take_losses_back(&self) {
        let lent = self.lent.0.take();
        self.writer.stream().buffer().take_losses_back(lent);
    }

    /// Forgets that, when the thread buffer has been cleared.
    pub fn forget_lent(&self) {
        self.lent.0.set(0);
    }
}
