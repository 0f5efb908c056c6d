//! Processes of tasks, from the thread groups in a trace.

use std::collections::{HashMap, VecDeque};

use kymo_event::{Identities, Space, SpaceId, SpaceKind};

/// Largest number of tasks. Linux has no higher pids (`PID_MAX_LIMIT`).
const MOST: usize = 1 << 22;

/// Processes of tasks.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Thread groups by task.
    groups: HashMap<i32, i32>,
    /// Thread groups of later tasks with the pids of earlier ones, in order.
    later: HashMap<i32, VecDeque<i32>>,
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

    /// Sets the thread groups of the tasks that have a pid one after another.
    pub(super) fn add_all(&mut self, pid: i32, mut groups: VecDeque<i32>) {
        if let Some(first) = groups.pop_front() {
            self.add(pid, first);
            if !groups.is_empty() {
                self.later.insert(pid, groups);
            }
        }
    }

    /// Handles another task with the pid of an earlier one, in `group` if that is known.
    pub(super) fn reused(&mut self, pid: i32, group: Option<i32>) {
        let later = self.later.get_mut(&pid);
        let next = later.as_ref().and_then(|later| later.front().copied());
        let group = group.or(next);
        if let Some(later) = later.filter(|_| group == next) {
            later.pop_front();
        }
        if let Some(group) = group {
            self.add(pid, group);
        }
        // No pid is that of another task before all of the group that it names have ended.
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
