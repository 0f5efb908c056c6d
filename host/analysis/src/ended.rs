//! Ring of recently ended calls, each with a value: a clock may turn out to have been ahead in them.

use crate::calls::CallId;

/// Number of calls remembered: clocks run ahead for some hundreds of events.
const ENDED: usize = 1 << 12;

/// The calls that ended most recently.
#[derive(Debug)]
pub(crate) struct Ended<T> {
    /// A ring, once it is full.
    calls: Vec<(CallId, T)>,
    next: usize,
}

impl<T> Default for Ended<T> {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            next: 0,
        }
    }
}

impl<T: Copy> Ended<T> {
    #[inline]
    pub(crate) fn add(&mut self, call: CallId, of: T) {
        match self.calls.get_mut(self.next) {
            Some(place) => *place = (call, of),
            None => self.calls.push((call, of)),
        }
        self.next = (self.next + 1) % ENDED;
    }

    pub(crate) fn find(&self, call: CallId) -> Option<T> {
        let found = self.calls.iter().find(|(ended, _)| *ended == call);
        found.map(|(_, of)| *of)
    }
}
