//! The processes into which timeline formats group tracks: one for each space that threads or
//! interrupts are of.

use std::collections::{HashMap, HashSet};

use kymo_event::{SpaceId, Tid, TraceInfo};

use kymo_analysis::titles::{self, LARGEST_OWN};

/// The first number of those that no thread is given.
const FIRST_BEYOND: u32 = 1 << 30;

/// The processes that are shown.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// The number of each, by [`SpaceId`]; 0 for those that are not shown.
    numbers: Vec<u32>,
    /// The number of each process that only counters are of, by its machine and its number there.
    counted: HashMap<(SpaceId, u64), u32>,
    taken: HashSet<u32>,
    /// The number from which on those that no thread is given are looked for.
    beyond: u32,
    first: Option<u32>,
}

/// A process that is shown for the first time.
pub(crate) struct New {
    /// Its name.
    pub name: String,
    /// Whether it is the first of all.
    pub first: bool,
}

impl Processes {
    /// The number of the process of a space, and what it is if it is new. `program` is its name where there is
    /// one space.
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

    /// The number of a process that counters are of, as its machine numbers it, and what it is if it is new. `own`: it is that
    /// number, if it is free; else no number that a thread could have: Perfetto would take the thread for one of this process.
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
        // Threads of processes have spaces of their own; of several machines, which one those are of is not known here.
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

    /// A number from `least` on that is free.
    fn free(&mut self, least: u32) -> u32 {
        // There are fewer processes than numbers.
        let free = (least..=u32::MAX).find(|number| self.taken.insert(*number));
        free.unwrap_or(u32::MAX)
    }

    /// The number of the process of a space, if it is shown.
    #[inline]
    pub fn get(&self, space: SpaceId) -> Option<u32> {
        let number = *self.numbers.get(space.0 as usize)?;
        (number != 0).then_some(number)
    }
}

/// Whether the threads and interrupts that are known by now are of several spaces.
fn has_several(info: &TraceInfo) -> bool {
    let threads = info.identities.threads().iter().map(|it| it.space);
    let interrupts = info.identities.interrupts().iter().map(|it| it.space);
    let mut spaces = threads.chain(interrupts);
    let first = spaces.next();
    spaces.any(|space| Some(space) != first)
}
