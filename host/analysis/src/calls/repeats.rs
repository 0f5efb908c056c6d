//! Detection of calls that may have been ended twice.
//!
//! After a loss the thread or handler of an event is not always known. A call that is open on one track may be ended
//! there without its exit, while that exit is an orphan on another track. Each such pair of ends of one function may
//! be one call, not two.
//!
//! Without a loss this happens where a program has several stacks in one thread (`swapcontext`): the return of an
//! outer call on one stack ends calls on the others, which continue and return later, when no call of their function
//! is open.

use kymo_event::{SpaceId, ThreadId};

use super::Calls;
use super::output::{Callee, End, How, Repair};
use crate::hash::FastMap;

/// The scope within which two ends may belong to one call: a machine, and, for streams of a thread, that thread.
type Key = (SpaceId, Option<ThreadId>, Callee);

/// Per callee: the number of calls ended without their exits minus the number of exits without entries, as far as
/// they are unpaired.
#[derive(Debug, Default)]
pub(super) struct HalfSeen(FastMap<Key, i64>);

impl HalfSeen {
    /// Counts an end for which only the entry or only the exit was seen. Returns whether it may belong to the same
    /// call as an earlier one.
    fn add(&mut self, key: Key, entry: bool) -> bool {
        let balance = self.0.entry(key).or_default();
        let side = if entry { 1 } else { -1 };
        let repeats = balance.signum() == -side;
        *balance = balance.saturating_add(side);
        repeats
    }

    /// Counts an abandoned call, where nothing was lost.
    fn add_unwound(&mut self, key: Key) {
        let balance = self.0.entry(key).or_default();
        *balance = balance.saturating_add(1);
    }

    /// Counts an exit without an entry, where nothing was lost. Returns whether it may belong to a call abandoned
    /// before.
    fn add_exit(&mut self, key: Key) -> bool {
        let balance = self.0.get_mut(&key).filter(|balance| **balance > 0);
        balance.map(|balance| *balance -= 1).is_some()
    }

    /// Forgets all calls, because a window has a table of its own.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Calls {
    /// Counts a call for which only the entry (or else only the exit) was seen, and marks its end if another end may
    /// belong to the same call. Before the first loss only an exit of an abandoned call may.
    #[cold]
    pub(super) fn half_seen(&mut self, track: usize, end: &mut End, entry: bool) {
        if end.callee == Callee::Unknown {
            return;
        }
        let found = &self.tracks[track];
        let stream = self.streams.get(found.info.stream.0 as usize);
        let owner = stream.and_then(|stream| stream.thread);
        let key = (found.machine, owner, end.callee);
        let is_unwound = end.how == How::Repaired(Repair::Unwound);
        if self.counts.losses + self.counts.losses_before > 0 {
            end.uncounted = self.half_seen.add(key, entry);
        } else if is_unwound {
            self.half_seen.add_unwound(key);
        } else if !entry {
            end.uncounted = self.half_seen.add_exit(key);
        }
    }
}
