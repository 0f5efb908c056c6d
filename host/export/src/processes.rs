//! Processes into which timeline formats group tracks: one for each space of threads or interrupts.

use std::collections::{HashMap, HashSet};

use kymo_event::{SpaceId, Tid, TraceInfo};

use kymo_analysis::titles::{self, LARGEST_OWN};

/// First of the process numbers that no thread has.
const FIRST_BEYOND: u32 = 1 << 30;

/// The displayed processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// Process number of each space, by [`SpaceId`]; 0 if not displayed.
    numbers: Vec<u32>,
    /// Process number of each process that has only counters, by its machine and its number there.
    counted: HashMap<(SpaceId, u64), u32>,
    taken: HashSet<u32>,
    /// Next candidate for a process number that no thread has.
    beyond: u32,
    first: Option<u32>,
}

/// A process that is displayed for the first time.
pub(crate) struct New {
    /// Its name.
    pub name: String,
    /// Whether it is the first process.
    pub first: bool,
}

impl Processes {
    /// Returns the process number of a space, and the process if it is new. `program` is its name if there is only one
    /// space.
    pub fn show(&mut self, info: &TraceInfo, program: &str, space: SpaceId) -> (u32, Option<New>) {
        if let Some(number) = self.get(space) {
            return (number, None);
        }
        let known = info.identities.space(space);
        let own = known.and_then(|space| space.pid);
        let own = own.filter(|pid| (1..=LARGEST_OWN).contains(pid));
        let own = own.and_then(|pid| u32::try_from(pid).ok());
        let number = own.filter(|pid| self.taken.insert(*pid));
        let number = number.unwrap_or_else(|| self.free(1));
        let index = space.0 as usize;
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, 0);
        }
        if let Some(place) = self.numbers.get_mut(index) {
            *place = number;
        }
        let first = self.first.is_none();
        self.first.get_or_insert(number);
        let name = if first && !has_several(info) {
            program.to_owned()
        } else {
            titles::space(info, space)
        };
        (number, Some(New { name, first }))
    }

    /// Returns the number of a process with counters, given by its number on its machine, and the process if it is new.
    /// `own`: it gets that number if it is free; else a number that no thread can have, because Perfetto would assign
    /// the thread to this process.
    pub fn show_counted(
        &mut self,
        info: &TraceInfo,
        (machine, pid): (SpaceId, u64),
        own: bool,
    ) -> (u32, Option<New>) {
        if let Some(number) = self.counted.get(&(machine, pid)) {
            return (*number, None);
        }
        let number = u32::try_from(pid).ok().filter(|pid| own && *pid > 0);
        let number = number.filter(|pid| self.taken.insert(*pid));
        let number = number.unwrap_or_else(|| {
            let free = self.free(self.beyond.max(FIRST_BEYOND));
            self.beyond = free.saturating_add(1);
            free
        });
        self.counted.insert((machine, pid), number);
        self.first.get_or_insert(number);
        let threads = &info.identities.threads();
        // Threads of processes have spaces of their own; with several machines, it is unknown here to which one such a
        // space belongs.
        let is_here = |space| space == machine || !info.has_machines();
        let main = threads
            .iter()
            .find(|it| it.tid == Tid(pid) && is_here(it.space));
        let name = main.and_then(|main| main.name.as_deref());
        let name = match name {
            Some(name) => format!("{name} ({pid})"),
            None => format!("process {pid}"),
        };
        (number, Some(New { name, first: false }))
    }

    /// A free number from `least` on.
    fn free(&mut self, least: u32) -> u32 {
        // There are fewer processes than numbers.
        let free = (least..=u32::MAX).find(|number| self.taken.insert(*number));
        free.unwrap_or(u32::MAX)
    }

    /// The process number of a space, if it is displayed.
    #[inline]
    pub fn get(&self, space: SpaceId) -> Option<u32> {
        let number = *self.numbers.get(space.0 as usize)?;
        (number != 0).then_some(number)
    }
}

/// Whether the threads and interrupts known so far belong to several spaces.
fn has_several(info: &TraceInfo) -> bool {
    let threads = info.identities.threads().iter().map(|it| it.space);
    let interrupts = info.identities.interrupts().iter().map(|it| it.space);
    let mut spaces = threads.chain(interrupts);
    let first = spaces.next();
    spaces.any(|space| Some(space) != first)
}
