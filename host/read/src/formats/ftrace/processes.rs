//! Processes of tasks, from the thread groups in a trace.

use std::collections::HashMap;

use kymo_event::{Identities, Space, SpaceId, SpaceKind};

/// Largest number of tasks. Linux has no higher pids (`PID_MAX_LIMIT`).
const MOST: usize = 1 << 22;

/// Processes of tasks.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Thread groups by task.
    groups: HashMap<i32, i32>,
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
        if self.spaces.is_empty()
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
