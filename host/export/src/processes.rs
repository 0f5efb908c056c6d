//! The processes into which timeline formats group tracks: one for each space that threads or
//! interrupts are of.

use std::collections::HashSet;

use kymo_event::{SpaceId, TraceInfo};

use kymo_analysis::titles::{self, LARGEST_OWN};

/// The processes that are shown.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// The number of each, by [`SpaceId`]; 0 for those that are not shown.
    numbers: Vec<u32>,
    taken: HashSet<u32>,
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
        let number = number.unwrap_or_else(|| {
            // There are fewer processes than numbers.
            let free = (1..=u32::MAX).find(|number| self.taken.insert(*number));
            free.unwrap_or(u32::MAX)
        });
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
