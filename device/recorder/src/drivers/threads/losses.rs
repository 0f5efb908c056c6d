//! Losses of a thread that its stream does not count, or that no packet reports yet.

use core::cell::Cell;

use super::{ThreadBuffer, ThreadPort};
use crate::sync::Ordering;

/// How many losses the newest packet reports on loan while a reader holds the buffer.
#[derive(Debug)]
pub(super) struct Lent(Cell<u32>);

impl Lent {
    pub(super) const fn new() -> Self {
        Self(Cell::new(0))
    }
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// Resets the count of events lost without the stream's knowledge, for code that clears the thread buffer.
    pub fn forget_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }

    /// Lets the newest packet report losses behind it. Like the functions below, for a reader that holds the thread
    /// buffer.
    pub fn lend_losses(&self) {
        let lent = self.writer.stream().buffer().lend_losses();
        self.lent.0.set(lent);
    }

    /// Reverts [`lend_losses`](Self::lend_losses).
    pub fn take_losses_back(&self) {
        let lent = self.lent.0.take();
        self.writer.stream().buffer().take_losses_back(lent);
    }

    /// Resets the loan after the thread buffer has been cleared.
    pub fn forget_lent(&self) {
        self.lent.0.set(0);
    }
}
