//! Creation and end of tasks, whose pids the kernel gives to later ones.

use kymo_event::{Identities, ThreadId, Tid};

use super::Output;

impl Output {
    /// Handles the creation of a task. Returns the earlier thread with its pid, if there was one.
    pub(in crate::formats::ftrace) fn created(
        &mut self,
        pid: i32,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
        let earlier = self.thread(pid, identities)?;
        if !self.reused.has_been(earlier) {
            return None;
        }
        let space = self.processes.space(pid, self.space, identities);
        let thread = identities.new_thread(space, Tid(u64::from(pid.unsigned_abs())));
        self.tasks.threads.insert(pid, thread);
        self.last_thread = (pid, Some(thread));
        Some(earlier)
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
        is_other.then(|| self.created(pid, identities)).flatten()
    }

    /// Handles a switch from one task to another. `is_dead` returns whether the first one's state says that it ends.
    /// Returns the earlier thread with the pid of the next task, if that one's creation was not recorded.
    pub(in crate::formats::ftrace) fn switched(
        &mut self,
        [left, next]: [i32; 2],
        is_dead: impl FnOnce() -> bool,
        identities: &mut Identities,
    ) -> Option<ThreadId> {
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
        let is_other = self.reused.has_ended(next_thread);
        is_other.then(|| self.created(next, identities)).flatten()
    }

    /// Handles the exit of a task.
    pub(in crate::formats::ftrace) fn exits(&mut self, pid: i32, identities: &mut Identities) {
        if let Some(thread) = self.thread(pid, identities) {
            self.reused.exits(thread);
        }
    }
}
