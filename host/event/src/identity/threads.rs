//! Interning of threads.

use super::{Change, Identities, MOST_THREADS, Thread, next};
use crate::{SpaceId, ThreadId, Tid};

impl Identities {
    /// Interns a thread.
    pub fn thread(&mut self, space: SpaceId, tid: Tid) -> ThreadId {
        let next = ThreadId(next(&self.threads));
        if self.threads.len() >= MOST_THREADS {
            let other = ThreadId(next.0 - 1);
            let known = self.by_tid.get(&(space, tid)).copied();
            self.beyond.threads += u64::from(known.is_none());
            return known.unwrap_or(other);
        }
        let id = *self.by_tid.entry((space, tid)).or_insert(next);
        if id == next {
            self.threads.push(Thread {
                space,
                tid,
                name: None,
                priority: None,
                stack: None,
                followed: false,
            });
        }
        id
    }

    /// Interns a thread whose number an earlier thread had: systems give the numbers of threads that have ended to new
    /// ones. [`thread`](Self::thread) returns the new one from now on.
    pub fn new_thread(&mut self, space: SpaceId, tid: Tid) -> ThreadId {
        self.new_thread_after(None, space, tid)
    }

    /// Like [`new_thread`](Self::new_thread), for an `earlier` thread that may be of another space.
    pub fn new_thread_after(
        &mut self,
        earlier: Option<ThreadId>,
        space: SpaceId,
        tid: Tid,
    ) -> ThreadId {
        if self.threads.len() < MOST_THREADS {
            earlier.into_iter().for_each(|it| self.follow(it));
            let earlier = self.by_tid.remove(&(space, tid));
            earlier.into_iter().for_each(|it| self.follow(it));
            // What was derived from the number and a name is of the earlier one.
            self.renamed += 1;
        }
        self.thread(space, tid)
    }

    /// Takes back the name of a thread, also for earlier events: it turned out to be that of a later thread.
    pub fn unname_thread(&mut self, thread: ThreadId) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.name.take().is_some()
        {
            self.renamed += 1;
            self.change(Change::ThreadName(thread));
        }
    }

    /// Notes that a later thread has the number of this one.
    pub(super) fn follow(&mut self, earlier: ThreadId) {
        if let Some(thread) = self.threads.get_mut(earlier.0 as usize)
            && !std::mem::replace(&mut thread.followed, true)
        {
            self.followed += 1;
            self.change(Change::Followed(earlier));
        }
    }

    /// Number of threads whose number a later one has: while it is unchanged, so is [`Thread::followed`] of all threads.
    pub const fn followed(&self) -> u64 {
        self.followed
    }
}
