//! Creation and end of tasks, whose pids the kernel gives to later ones.

use kymo_event::{Identities, ThreadId, Tid};

use super::Output;

impl Output {
    /// Handles the creation of a task, in a thread group if that is known. Returns the earlier thread with its pid, if
    /// there was one.
    pub(in crate::formats::ftrace) fn created(
        &mut self,
        pid: i32,
        group: Option<i32>,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
        let is_first = !self.tasks.threads.contains_key(&pid);
        if let Some(group) = group.filter(|_| is_first) {
            self.processes.add(pid, group);
        }
        let earlier = self.thread(pid, identities)?;
        if !self.reused.has_been(earlier) {
            return None;
        }
        self.processes.end(pid);
        self.reuse(pid, group, earlier, identities);
        Some(earlier)
    }

    /// Handles the thread group of a task in the columns of a line. Returns the earlier thread with its pid, if that was
    /// of another group and has ended. A thread that may run is the same one: the kernel names the group of the task
    /// that has the pid when the text is read.
    pub(in crate::formats::ftrace) fn grouped(
        &mut self,
        pid: i32,
        group: i32,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
        if self.processes.is_of(pid, group) {
            return None;
        }
        let earlier = self.tasks.threads.get(&pid).copied();
        let ended = earlier.filter(|earlier| {
            // An exiting thread runs up to its switch.
            let is_gone = self.reused.is_exiting(*earlier) && !self.tasks.has_switches;
            is_gone || self.reused.has_ended(*earlier)
        });
        match ended {
            Some(earlier) => self.reuse(pid, Some(group), earlier, identities),
            None => self.processes.add(pid, group),
        }
        ended
    }

    /// Creates the thread that has the pid of an earlier one.
    fn reuse(
        &mut self,
        pid: i32,
        group: Option<i32>,
        earlier: ThreadId,
        identities: &mut Identities,
    ) {
        if let Some(group) = group.or_else(|| self.processes.next_group(pid)) {
            self.processes.add(pid, group);
        }
        let space = self.processes.space(pid, self.space, identities);
        let tid = Tid(u64::from(pid.unsigned_abs()));
        let thread = identities.new_thread_after(Some(earlier), space, tid);
        self.tasks.threads.insert(pid, thread);
        self.last_thread = (pid, Some(thread));
        if let Some(comm) = self.comms.get(&pid) {
            // The list has the last one's name.
            if !self.is_stated(earlier) {
                identities.unname_thread(earlier);
            }
            identities.name_thread(thread, comm);
        }
    }

    /// Notes that a record states the name of a thread.
    #[inline]
    pub(in crate::formats::ftrace) fn stated(&mut self, thread: ThreadId) {
        let place = thread.0 as usize;
        if self.tasks.stated.len() <= place {
            self.tasks.stated.resize(place + 1, false);
        }
        if let Some(stated) = self.tasks.stated.get_mut(place) {
            *stated = true;
        }
    }

    fn is_stated(&self, thread: ThreadId) -> bool {
        let stated = self.tasks.stated.get(thread.0 as usize);
        stated.copied().unwrap_or_default()
    }

    /// Handles the first wakeup of a task, whose creation may not be recorded. Returns the earlier thread with its pid,
    /// if that was seen to exit: a thread that has run may be this task, whose wakeup has a time of another processor.
    pub(in crate::formats::ftrace) fn woken(
        &mut self,
        pid: i32,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
        let known = self.thread(pid, identities)?;
        let is_other = self.reused.is_exiting(known) || self.reused.has_ended(known);
        is_other
            .then(|| self.created(pid, None, identities))
            .flatten()
    }

    /// Handles a switch from one task to another. `is_dead` returns whether the first one's state says that it ends.
    /// Returns the earlier thread with the pid of the next task, if that one's creation was not recorded. It is in the
    /// earlier one's process, unless its lines name another: `execve` by another thread gives it the first one's pid.
    pub(in crate::formats::ftrace) fn switched(
        &mut self,
        [left, next]: [i32; 2],
        is_dead: impl FnOnce() -> bool,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
        self.tasks.has_switches = true;
        if let Some(thread) = self.thread(left, identities) {
            match self.reused.is_exiting(thread) && is_dead() {
                true => self.reused.ended(thread),
                false => self.reused.was_there(thread),
            }
        }
        if !self.reused.any_ended() {
            return None;
        }
        let next_thread = self.thread(next, identities)?;
        if !self.reused.has_ended(next_thread) {
            return None;
        }
        self.reuse(next, None, next_thread, identities);
        Some(next_thread)
    }

    /// Handles the exit of a task.
    pub(in crate::formats::ftrace) fn exits(&mut self, pid: i32, identities: &mut Identities) {
        if let Some(thread) = self.thread(pid, identities) {
            self.reused.exits(thread);
        }
    }
}
