//! Calls that may have been ended twice.
//!
//! Behind a loss it is not always known in which thread or handler events happened. So a call may be open in one track, to be
//! ended there without its exit, while that exit is one without an entry in another track. As many calls of a function as
//! there are such pairs may be one, and not two.

use kymo_event::{SpaceId, ThreadId};

use super::Calls;
use super::output::{Callee, End};
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

    /// Forgets all calls: a window has a table of its own.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Calls {
    /// Takes note of a call of which the entry (or else the exit) alone was seen, and marks its end if another end may be of the
    /// same call. Before the first loss each call has one.
    #[cold]
    pub(super) fn half_seen(&mut self, track: usize, end: &mut End, entry: bool) {
        if self.counts.losses + self.counts.losses_before == 0 || end.callee == Callee::Unknown {
            return;
        }
        let found = &self.tracks[track];
        let stream = self.streams.get(found.info.stream.0 as usize);
        let owner = stream.and_then(|stream| stream.thread);
        end.uncounted = self
            .half_seen
            .add((found.machine, owner, end.callee), entry);
    }
}
