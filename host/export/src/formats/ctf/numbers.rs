//! Numbers of functions, threads and interrupts in an export.
//!
//! Events refer to a function by its address, and so on, as most readers expect. If that number is already in use (in
//! another space, or for an earlier function at that address), or a function has no address, it gets a substitute
//! number that is recognisable as one.

use std::collections::HashSet;

use kymo_event::{FunctionId, Identities, InterruptId, InterruptKind, ThreadId};

/// Upper half of substitute numbers: "kymo". No processor has code at such addresses, and no system has threads there.
const INSTEAD: u64 = 0x6b79_6d6f;

/// The same for an interrupt, whose numbers are shorter: "k".
const INSTEAD_OF_IRQ: u32 = 0x6b << 24;

/// The assigned numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    functions: Table,
    threads: Table,
    interrupts: Table,
}

/// Numbers of one kind of object.
#[derive(Debug, Default)]
struct Table {
    by_id: Vec<Option<u64>>,
    taken: HashSet<u64>,
}

impl Table {
    /// The number of an object: `own`, if it has one and that is free, else one based on `instead`.
    #[inline]
    fn number(&mut self, id: u32, own: impl FnOnce() -> Option<u64>, instead: u64) -> u64 {
        if let Some(Some(known)) = self.by_id.get(id as usize) {
            return *known;
        }
        let number = own().filter(|own| self.taken.insert(*own));
        let number = number.unwrap_or(instead);
        self.taken.insert(number);
        let index = id as usize;
        if self.by_id.len() <= index {
            self.by_id.resize(index + 1, None);
        }
        if let Some(place) = self.by_id.get_mut(index) {
            *place = Some(number);
        }
        number
    }

    /// Objects with numbers, in the order of the numbers.
    fn given(&self) -> Vec<(u64, u32)> {
        let numbers = (0..).zip(&self.by_id);
        let mut given: Vec<_> = numbers
            .filter_map(|(id, number)| Some(((*number)?, id)))
            .collect();
        given.sort_unstable();
        given
    }
}

impl Numbers {
    /// The number of a function.
    pub fn function(&mut self, identities: &Identities, id: FunctionId) -> u64 {
        let own = || Some(identities.function(id)?.address?.0);
        let instead = INSTEAD << 32 | u64::from(id.0);
        self.functions.number(id.0, own, instead)
    }

    /// The number of a thread.
    pub fn thread(&mut self, identities: &Identities, id: ThreadId) -> u64 {
        let own = || Some(identities.tid(id).0);
        let instead = INSTEAD << 32 | u64::from(id.0);
        self.threads.number(id.0, own, instead)
    }

    /// The number of an interrupt.
    pub fn interrupt(&mut self, identities: &Identities, id: InterruptId) -> u64 {
        let own = || Some(identities.irq(id).0.into());
        // There are fewer interrupts than this mask allows.
        let instead = u64::from(INSTEAD_OF_IRQ | id.0 & 0x00FF_FFFF);
        self.interrupts.number(id.0, own, instead)
    }

    /// The functions that were given numbers, in the order of those.
    pub fn functions(&self) -> impl Iterator<Item = (u64, FunctionId)> {
        let given = self.functions.given().into_iter();
        given.map(|(number, id)| (number, FunctionId(id)))
    }

    /// The same of threads.
    pub fn threads(&self) -> impl Iterator<Item = (u64, ThreadId)> {
        let given = self.threads.given().into_iter();
        given.map(|(number, id)| (number, ThreadId(id)))
    }

    /// The same of interrupts.
    pub fn interrupts(&self) -> impl Iterator<Item = (u64, InterruptId)> {
        let given = self.interrupts.given().into_iter();
        given.map(|(number, id)| (number, InterruptId(id)))
    }
}

/// Whether an interrupt's number identifies it.
pub(super) fn is_plain(identities: &Identities, number: u64, id: InterruptId) -> bool {
    let found = identities.interrupts().get(id.0 as usize);
    found.is_none_or(|it| it.kind == InterruptKind::Hard && u64::from(it.irq.0) == number)
}
