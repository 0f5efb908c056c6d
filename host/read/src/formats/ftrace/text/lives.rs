//! Creation and end of tasks, whose pids the kernel gives to later ones.

use kymo_ftrace::text::Task;

use super::{Caller, TextSource};
use crate::linux::{DEAD, is_dead};

impl TextSource {
    /// Handles the creation of a task, or its first wakeup (`is_woken`).
    pub(super) fn created(&mut self, task: Task<'_>, is_woken: bool) {
        let identities = &mut self.info.identities;
        let earlier = match is_woken {
            true => self.output.woken(task.pid, identities),
            false => self.output.created(task.pid, identities),
        };
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
