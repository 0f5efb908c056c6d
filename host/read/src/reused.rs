//! Thread numbers that a system gives to a later thread once the earlier one has ended.

use std::collections::HashMap;

use kymo_event::{Identities, SpaceId, ThreadId, Tid};

/// How far a thread has come, as far as the trace shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// It may have been created only now.
    #[default]
    New,
    /// It has run.
    Ran,
    /// It exits, and runs for a while yet.
    Exits,
    /// It will not run again.
    Ended,
}

/// Threads that have run or ended: the creation of one with the number of such a thread is that of another.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    lives: Vec<Life>,
    /// Whether a thread has ended, so that its number may be another's.
    any_ended: bool,
    /// Processes of threads, where events name both.
    processes: Vec<Option<u64>>,
    /// The threads that had the number of a later thread of another process, by number and process.
    earlier: HashMap<(SpaceId, Tid, u64), ThreadId>,
}

/// Largest number of threads of other processes that are kept. Only damaged or hostile traces have more.
const MOST_EARLIER: usize = 1 << 16;

impl Threads {
    /// Notes that a thread runs or ends.
    #[inline]
    pub(crate) fn was_there(&mut self, thread: ThreadId) {
        self.reach(thread, Life::Ran);
    }

    /// Notes that a thread begins to exit.
    pub(crate) fn exits(&mut self, thread: ThreadId) {
        self.reach(thread, Life::Exits);
    }

    /// Notes that a thread that [exits](Self::exits) has left its processor for the last time.
    pub(crate) fn ended(&mut self, thread: ThreadId) {
        self.any_ended = true;
        self.reach(thread, Life::Ended);
    }

    /// Returns whether a thread exits.
    #[inline]
    pub(crate) fn is_exiting(&self, thread: ThreadId) -> bool {
        self.life(thread) == Life::Exits
    }

    /// Returns whether a thread will not run again: one with its number is another.
    #[inline]
    pub(crate) fn has_ended(&self, thread: ThreadId) -> bool {
        self.life(thread) == Life::Ended
    }

    /// Returns whether any thread has ended.
    #[inline]
    pub(crate) const fn any_ended(&self) -> bool {
        self.any_ended
    }

    #[inline]
    fn life(&self, thread: ThreadId) -> Life {
        self.lives
            .get(thread.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    #[inline]
    fn reach(&mut self, thread: ThreadId, life: Life) {
        let place = thread.0 as usize;
        if self.lives.len() <= place {
            self.lives.resize(place + 1, Life::New);
        }
        if let Some(known) = self.lives.get_mut(place) {
            *known = life.max(*known);
        }
    }

    /// Returns the thread that is created with this number: the one that is known, or another if that one has run or
    /// ended.
    pub(crate) fn created(
        &self,
        identities: &mut Identities,
        space: SpaceId,
        tid: Tid,
    ) -> ThreadId {
        let known = identities.thread(space, tid);
        match self.has_been(known) {
            false => known,
            true => identities.new_thread(space, tid),
        }
    }

    /// Returns whether a thread has run or ended.
    pub(crate) fn has_been(&self, thread: ThreadId) -> bool {
        self.life(thread) != Life::New
    }

    /// Returns the thread with this number in a process: the one that is known, or another if that one is of another
    /// process. (The processes of two containers may have threads with the same numbers at the same time.)
    pub(crate) fn of_process(
        &mut self,
        identities: &mut Identities,
        (space, tid, process): (SpaceId, Tid, u64),
    ) -> ThreadId {
        let known = identities.thread(space, tid);
        let thread = match self.process(known) {
            Some(other) if other != process => {
                if let Some(earlier) = self.earlier.get(&(space, tid, process)) {
                    return *earlier;
                }
                if self.earlier.len() >= MOST_EARLIER {
                    return known;
                }
                self.earlier.insert((space, tid, other), known);
                identities.new_thread(space, tid)
            }
            Some(_) => return known,
            None => known,
        };
        let place = thread.0 as usize;
        if self.processes.len() <= place {
            self.processes.resize(place + 1, None);
        }
        if let Some(of) = self.processes.get_mut(place) {
            *of = Some(process);
        }
        thread
    }

    fn process(&self, thread: ThreadId) -> Option<u64> {
        self.processes.get(thread.0 as usize).copied().flatten()
    }
}
