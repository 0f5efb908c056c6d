//! Calls that may have been ended twice.
//!
//! Behind a loss it is not always known in which thread or handler events happened. So a call may be open in one track, to be
//! ended there without its exit, while that exit is one without an entry in another track. As many calls of a function as
//! there are such pairs may be one, and not two.
//!
//! Without a loss this happens where a program has several stacks in one thread (`swapcontext`): the return of an outer call
//! on one stack ends calls on the others, which go on and return later, with nothing open of their function.

use kymo_event::{SpaceId, ThreadId};

use super::Calls;
use super::output::{Callee, End, How, Repair};
use crate::hash::FastMap;

/// Where the two ends of a call may be: on one machine, and of streams that belong to a thread, in that thread.
type Key = (SpaceId, Option<ThreadId>, Callee);

/// By callee, how many more calls were ended without their exits than exits had no entries, and had no counterpart. Below 0, the
/// other way round.
#[derive(Debug, Default)]
pub(super) struct HalfSeen(FastMap<Key, i64>);

impl HalfSeen {
    /// Takes an end of which the entry or the exit alone was seen: whether it may be of the same call as one before.
    fn add(&mut self, key: Key, entry: bool) -> bool {
        let balance = self.0.entry(key).or_default();
        let side = if entry { 1 } else { -1 };
        let repeats = balance.signum() == -side;
        *balance = balance.saturating_add(side);
        repeats
    }

    /// Takes a call that was left behind, where nothing was lost.
    fn add_unwound(&mut self, key: Key) {
        let balance = self.0.entry(key).or_default();
        *balance = balance.saturating_add(1);
    }

    /// Takes an exit without an entry, where nothing was lost: whether it may be that of a call which was left behind before.
    fn add_exit(&mut self, key: Key) -> bool {
        let balance = self.0.get_mut(&key).filter(|balance| **balance > 0);
        balance.map(|balance| *balance -= 1).is_some()
    }

    /// Forgets all calls: a window has a table of its own.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Calls {
    /// Takes note of a call of which the entry (or else the exit) alone was seen, and marks its end if another end may be of the
    /// same call. Before the first loss only an exit may be, of a call that was left behind.
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
