//! Programs that replaced each other at the same addresses at a time that the trace cannot tell.

use super::super::super::MemorySpace;
use super::super::{Placed, View};
use super::Memory;

/// Exec of a process whose new program has code at addresses where the old one had other code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Replaced {
    pub process: u32,
    /// First address that both programs have.
    pub address: u64,
    /// File of the old program at the address.
    pub before: String,
    /// File of the new program at the address.
    pub after: String,
}

impl Memory {
    /// Programs replaced during the source's sessions. Empty if timestamps relate the trace to the recording's clock.
    pub(crate) fn replaced(&self) -> Vec<Replaced> {
        let Some(recorded) = &self.recorded else {
            return Vec::new();
        };
        let is_timed = recorded.conversion.is_some() && recorded.protocol.has_timestamps();
        if is_timed || !recorded.protocol.traces_instructions() {
            return Vec::new();
        }
        let sessions = &recorded.sessions;
        let is_recorded = |change: u32| {
            let time = (change as usize).checked_sub(1);
            let time = time.and_then(|index| self.history.times.get(index));
            time.is_some_and(|time| {
                let mut all = sessions.iter();
                sessions.is_empty() || all.any(|it| (it.begin..=it.end).contains(time))
            })
        };
        let mut found = Vec::new();
        for (process, programs) in &self.history.processes {
            for pair in programs.windows(2) {
                let [(_, before), (begin, after)] = pair else {
                    continue;
                };
                if is_recorded(*begin) {
                    found.extend(self.overlap(*process, (*before, *begin), *after));
                }
            }
        }
        found.sort();
        found
    }

    /// First address at which two programs of a process have code of different files.
    fn overlap(&self, process: u32, (before, begin): (u32, u32), after: u32) -> Option<Replaced> {
        let mut view = Some(View {
            program: before,
            change: begin,
        });
        let mut old: Vec<&Placed> = Vec::new();
        while let Some(seen) = view {
            let program = self.history.program(seen.program);
            let placed = program.placed.iter();
            old.extend(placed.filter(|placed| placed.since <= seen.change));
            view = program.below;
        }
        let starts = |placed: &Placed| placed.image.address;
        let new = &self.history.program(after).placed;
        let pairs = new
            .iter()
            .flat_map(|new| old.iter().map(move |old| (new, *old)));
        let differing = pairs.filter_map(|(new, old)| {
            let address = starts(new).max(starts(old));
            let is_one = new.image.name == old.image.name;
            let is_used = self.history.find(
                View {
                    program: before,
                    change: begin,
                },
                MemorySpace::ANY,
                address,
            );
            let is_used = is_used.is_some_and(|used| used.image.name == old.image.name);
            (!is_one && is_used && new.has(address) && old.has(address)).then(|| Replaced {
                process,
                address,
                before: old.image.name.clone(),
                after: new.image.name.clone(),
            })
        });
        differing.min()
    }
}
