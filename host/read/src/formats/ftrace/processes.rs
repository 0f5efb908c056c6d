//! Processes of tasks, from the thread groups in a trace.

use std::collections::{HashMap, VecDeque};

use kymo_event::{Identities, Space, SpaceId, SpaceKind};

/// Largest number of tasks. Linux has no higher pids (`PID_MAX_LIMIT`).
const MOST: usize = 1 << 22;

/// Thread groups of tasks, as lines name them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Groups of each task in the order of its lines, with the number of the last line before another group.
    of_tasks: HashMap<i32, VecDeque<(i32, u64)>>,
    lines: u64,
}

impl Groups {
    /// Takes the next line that names the group of its task.
    pub(super) fn line(&mut self, pid: i32, group: i32) {
        let groups = self.of_tasks.entry(pid).or_default();
        match groups.back_mut() {
            Some((known, last)) if *known == group => *last = self.lines,
            _ => groups.push_back((group, self.lines)),
        }
        self.lines += 1;
    }

    /// Returns whether no line named a group.
    pub(super) fn is_empty(&self) -> bool {
        self.of_tasks.is_empty()
    }
}

/// Processes of tasks.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Thread groups by task.
    groups: HashMap<i32, i32>,
    /// Thread groups that the first lines name.
    ahead: Groups,
    /// Number of lines that have named groups.
    lines: u64,
    /// Spaces by thread group.
    spaces: HashMap<i32, SpaceId>,
}

impl Processes {
    /// Sets the thread group of a task. If the task has a thread already, that stays in the kernel's space.
    pub(super) fn add(&mut self, pid: i32, group: i32) {
        if pid > 0 && group > 0 && self.groups.len() < MOST {
            self.groups.insert(pid, group);
        }
    }

    /// Sets the thread groups that the first lines name.
    pub(super) fn add_ahead(&mut self, ahead: Groups) {
        for (pid, groups) in &ahead.of_tasks {
            if let Some((group, _)) = groups.front() {
                self.add(*pid, *group);
            }
        }
        self.ahead = ahead;
    }

    /// Counts a line that names the thread group of its task. Returns whether it is the known one, or the first.
    pub(super) fn is_of(&mut self, pid: i32, group: i32) -> bool {
        self.lines += 1;
        match self.group(pid) {
            Some(known) => known == group,
            None => {
                self.add(pid, group);
                true
            }
        }
    }

    /// Returns the thread group that the next line of a task names, as far as that is one of the first lines.
    pub(super) fn next_group(&mut self, pid: i32) -> Option<i32> {
        let groups = self.ahead.of_tasks.get_mut(&pid)?;
        while groups.front().is_some_and(|(_, last)| *last < self.lines) {
            groups.pop_front();
        }
        groups.front().map(|(group, _)| *group)
    }

    /// Handles the creation of another task with the pid of an earlier one: no pid is that of another task before all
    /// of the group that it names have ended.
    pub(super) fn end(&mut self, pid: i32) {
        self.spaces.remove(&pid);
    }

    /// Returns the thread group of a task.
    pub(super) fn group(&self, pid: i32) -> Option<i32> {
        self.groups.get(&pid).copied()
    }

    /// Returns the space of a task's process, or the kernel's if the process is unknown.
    pub(super) fn space(
        &mut self,
        pid: i32,
        kernel: SpaceId,
        identities: &mut Identities,
    ) -> SpaceId {
        let Some(group) = self.groups.get(&pid).copied() else {
            return kernel;
        };
        if !self.spaces.contains_key(&group)
            && let Some(space) = identities.space_mut(kernel).filter(|it| it.name.is_empty())
        {
            // There are other spaces now.
            space.name = "kernel".to_owned();
        }
        let space = self.spaces.entry(group).or_insert_with(|| {
            identities.add_space(Space {
                kind: SpaceKind::Process,
                pid: Some(u64::from(group.unsigned_abs())),
                ..Space::default()
            })
        });
        *space
    }

    /// Sets the name of a task, which is also that of its process if it is the first thread.
    pub(super) fn name(&self, pid: i32, comm: &str, identities: &mut Identities) {
        if let Some(space) = self.spaces.get(&pid)
            && let Some(space) = identities.space_mut(*space)
            && space.name != comm
        {
            let before = std::mem::replace(&mut space.name, comm.to_owned());
            let is_known = before.is_empty() || space.other_names.contains(&before);
            if !is_known && space.other_names.len() < MOST_NAMES {
                space.other_names.push(before);
            }
        }
    }
}

/// Largest number of names of a process.
const MOST_NAMES: usize = 16;
