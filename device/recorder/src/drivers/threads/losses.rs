//! Losses of a thread that its stream does not count, or that no packet reports yet.

use core::cell::Cell;

use super::{ThreadBuffer, ThreadPort};
use crate::sync::Ordering;

/// How many losses the newest packet reports on loan while a reader holds the buffer.
#[derive(Debug)]
pub(super) struct Published(Cell<u32>);

impl Published {
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
    pub fn publish_losses(&self) {
        let published = self.writer.stream().buffer().publish_losses();
        self.published.0.set(published);
    }

    /// Reverts [`publish_losses`](Self::publish_losses).
    pub fn retract_losses(&self) {
        let published = self.published.0.take();
        self.writer.stream().buffer().retract_losses(published);
    }

    /// Resets the loan after the thread buffer has been cleared.
    pub fn forget_published(&self) {
        self.published.0.set(0);
    }
}
