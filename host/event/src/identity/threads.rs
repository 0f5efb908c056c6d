//! Interning of threads.

use super::{About, Change, Identities, MOST_SPACES, MOST_THREADS, Stack, Thread, next};
use crate::{Space, SpaceId, SpaceKind, ThreadId, Tid};

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

    /// Sets the priority of a thread.
    pub fn set_priority(&mut self, thread: ThreadId, priority: i64) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.priority != Some(priority)
        {
            known.priority = Some(priority);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Sets the stack of a thread.
    pub fn set_stack(&mut self, thread: ThreadId, stack: Stack) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.stack != Some(stack)
        {
            known.stack = Some(stack);
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// Sets the attributes of a thread that another table has reported.
    pub(super) fn learn_about(&mut self, id: ThreadId, about: About) {
        if let Some(thread) = self.threads.get_mut(id.0 as usize) {
            thread.space = about.space;
            (thread.priority, thread.stack) = (about.priority, about.stack);
        }
        self.change(Change::ThreadAbout(id));
    }

    /// Interns the process with this number on a machine.
    pub fn process(&mut self, machine: SpaceId, pid: u64) -> SpaceId {
        match self.by_pid.get(&(machine, pid)) {
            Some(known) => *known,
            None => self.new_process(machine, pid),
        }
    }

    /// Interns a process whose number an earlier one had. [`process`](Self::process) returns the new one from now on.
    pub fn new_process(&mut self, machine: SpaceId, pid: u64) -> SpaceId {
        let is_distinct = self.spaces.len() < MOST_SPACES;
        let space = self.add_space(Space {
            kind: SpaceKind::Process,
            pid: Some(pid),
            machine: Some(machine),
            ..Space::default()
        });
        if is_distinct {
            self.by_pid.insert((machine, pid), space);
        }
        space
    }

    /// Makes a space that of a process, whose number on its machine is known. [`process`](Self::process) returns it
    /// unless another process with the number is known.
    pub fn become_process(&mut self, space: SpaceId, machine: SpaceId, pid: u64) {
        if let Some(known) = self.space_mut(space) {
            (known.kind, known.pid) = (SpaceKind::Process, Some(pid));
            known.machine = Some(machine).filter(|machine| *machine != space);
        }
        self.by_pid.entry((machine, pid)).or_insert(space);
    }

    /// Sets the process of a thread, also for earlier events. [`thread`](Self::thread) finds the thread in the space in
    /// which it was interned.
    pub fn set_process(&mut self, thread: ThreadId, process: SpaceId) {
        if let Some(known) = self.threads.get_mut(thread.0 as usize)
            && known.space != process
        {
            known.space = process;
            self.change(Change::ThreadAbout(thread));
        }
    }

    /// The space of the threads and interrupts of a space's machine.
    pub fn machine(&self, space: SpaceId) -> SpaceId {
        let machine = self.space(space).and_then(|space| space.machine);
        machine.unwrap_or(space)
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
