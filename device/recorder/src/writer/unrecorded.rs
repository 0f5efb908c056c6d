//! Updates the table alone, with events that are not recorded because a reader reads the buffers.

use super::{Threads, Writer};
use crate::{Event, Target};

impl<T: Target> Writer<T> {
    /// Updates the table with an event at `now`. Promoted functions change nothing.
    #[cold]
    #[inline(never)]
    pub(crate) fn account_unrecorded(&self, now: u64, event: Event) {
        let Ok((id, first, _)) = event.parts::<T>() else {
            return;
        };
        let is_call = matches!(
            event,
            Event::Enter(_) | Event::EnterFrom { .. } | Event::Exit(_)
        );
        if !is_call || !self.may_be_promoted(first) || self.promotion(first).is_none() {
            self.account_other(now, id, first);
        }
    }

    /// The running thread as the program's `current_thread` reports it, if it is called at every event; the stream keeps
    /// the one that it has recorded.
    #[cold]
    pub(crate) fn ask_thread(&self) -> Option<usize> {
        let before = self.stream.thread();
        let asks = self.threads.get() == Threads::Queried;
        let thread = asks.then(|| self.query_thread());
        self.stream.set_thread(before);
        thread
    }
}
