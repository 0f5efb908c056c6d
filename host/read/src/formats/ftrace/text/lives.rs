//! Creation and end of tasks, whose pids the kernel gives to later ones.

use kymo_event::ThreadId;
use kymo_ftrace::text::Task;

use super::{Caller, TextSource};
use crate::linux::{DEAD, is_dead};

impl TextSource {
    /// Handles the thread group of a task in the columns of a line.
    pub(super) fn grouped(&mut self, pid: i32, group: i32) {
        let identities = &mut self.info.identities;
        if self.output.grouped(pid, group, identities).is_some() {
            self.forget_earlier(pid);
        }
    }

    /// Returns the thread group of a task that another one creates with these flags.
    pub(super) fn group_of_new(&mut self, pid: i32, parent: i32, flags: &str) -> Option<i32> {
        /// `CLONE_THREAD` (Linux, `include/uapi/linux/sched.h`): the task is a thread of the one that creates it.
        const THREAD: u64 = 0x1_0000;
        let flags = flags.strip_prefix("0x").unwrap_or(flags);
        let flags = u64::from_str_radix(flags.split_whitespace().next()?, 16).ok()?;
        let processes = &mut self.output.processes;
        match flags & THREAD {
            _ if !self.info.has_processes => None,
            0 => Some(pid),
            _ => (processes.next_group(pid)).or_else(|| processes.group(parent)),
        }
    }

    /// Handles the creation of a task, in a thread group if that is known.
    pub(super) fn created(&mut self, task: Task<'_>, group: Option<i32>) {
        let identities = &mut self.info.identities;
        let earlier = self.output.created(task.pid, group, identities);
        self.begin(task, earlier);
    }

    /// Handles the first wakeup of a task.
    pub(super) fn woken(&mut self, task: Task<'_>) {
        let earlier = self.output.woken(task.pid, &mut self.info.identities);
        self.begin(task, earlier);
    }

    fn begin(&mut self, task: Task<'_>, earlier: Option<ThreadId>) {
        if earlier.is_some() {
            self.forget_earlier(task.pid);
        }
        // The thread gets its parent's name, and may have its own in the column of a line already.
        let thread = self.output.thread(task.pid, &mut self.info.identities);
        let is_unnamed = |thread| self.info.identities.thread_name(thread).is_none();
        if !task.comm.is_empty() && thread.is_some_and(is_unnamed) {
            self.name(task.pid, task.comm);
        }
    }

    /// Handles a switch from one task to another, with its text.
    pub(super) fn switched(&mut self, tasks: [i32; 2], body: &str) {
        let identities = &mut self.info.identities;
        let earlier = self.output.switched(tasks, || is_last(body), identities);
        if earlier.is_some() {
            self.forget_earlier(tasks[1]);
        }
    }

    /// Forgets the open calls of the earlier task with a pid.
    fn forget_earlier(&mut self, pid: i32) {
        let task = Caller::Thread(pid);
        self.system_calls.remove(&task);
        self.numbered_calls.end(task);
        if let Some(mut stack) = self.stacks.remove(&task) {
            for entry in stack.end().into_iter().filter_map(|open| open.entry) {
                self.output.release(entry);
            }
        }
        self.of_threads.remove(&pid);
    }
}

/// Returns whether the state of the task that a switch leaves says that it will not run again: `prev_state=X ==> `,
/// `prev_state=0x10 (16)` with the option `fields`, `sh:7 [120] X ==> ` of trace-cmd.
fn is_last(body: &str) -> bool {
    let state = match body.split_once("prev_state=") {
        Some((_, state)) => state.split_whitespace().next(),
        None => {
            let before = body.split_once(" ==> ").map(|(before, _)| before);
            before.and_then(|before| before.split([' ', ':']).next_back())
        }
    };
    let Some(state) = state else { return false };
    match state.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok_and(is_dead),
        None => state.contains(DEAD),
    }
}
