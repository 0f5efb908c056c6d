//! Which process a task is of, where the trace tells its thread group.

use std::collections::HashMap;

use kymo_event::{Identities, Space, SpaceId, SpaceKind};

/// Of so many tasks it is kept; Linux has no higher numbers (`PID_MAX_LIMIT`).
const MOST: usize = 1 << 22;

/// The processes of tasks.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// The thread groups of tasks.
    groups: HashMap<i32, i32>,
    /// The spaces of thread groups.
    spaces: HashMap<i32, SpaceId>,
}

impl Processes {
    /// A task is of a thread group. That comes too late for one that has a thread already, which stays the kernel's.
    pub(super) fn add(&mut self, pid: i32, group: i32) {
        if pid > 0 && group > 0 && self.groups.len() < MOST {
            self.groups.insert(pid, group);
        }
    }

    /// The space of a task's process, or the kernel's if the process is not known.
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
            // Now it stands beside others.
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

    /// A task has a name, which is also that of its process if it is the first thread of it.
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

/// So many names of a process are kept.
const MOST_NAMES: usize = 16;
