//! Direct-mapped cache in front of [`Identities`]: the most recent functions, threads and interrupts resolve
//! without a hash-table lookup.

use kymo_event::{FunctionId, Identities, InterruptId, ThreadId};

use crate::dialects::kymo::Dialect;

/// Caches of recently used identities.
#[derive(Debug)]
pub(super) struct Interned {
    /// By the `function` of a record.
    functions: Recent<4096>,
    threads: Recent<64>,
    interrupts: Recent<32>,
}

impl Interned {
    pub(super) fn new() -> Self {
        Self {
            functions: Recent::new(),
            threads: Recent::new(),
            interrupts: Recent::new(),
        }
    }

    /// Resolves the number of a function.
    #[inline(always)]
    pub(super) fn function(
        &mut self,
        dialect: &Dialect,
        identities: &mut Identities,
        number: u32,
    ) -> FunctionId {
        let slot = self.functions.slot(number.into());
        if slot.0 != u64::from(number) {
            *slot = (number.into(), new_function(dialect, identities, number));
        }
        FunctionId(slot.1)
    }

    /// Resolves the number of a thread; 0 means none.
    #[inline]
    pub(super) fn thread(
        &mut self,
        dialect: &Dialect,
        identities: &mut Identities,
        number: u64,
    ) -> Option<ThreadId> {
        let slot = self.threads.slot(number);
        if slot.0 != number || number == 0 {
            let thread = dialect.thread(identities, number)?;
            *slot = (number, thread.0);
        }
        Some(ThreadId(slot.1))
    }

    /// Resolves the number of an interrupt.
    #[inline]
    pub(super) fn interrupt(
        &mut self,
        dialect: &Dialect,
        identities: &mut Identities,
        number: u64,
    ) -> Option<InterruptId> {
        let slot = self.interrupts.slot(number);
        if slot.0 != number {
            let irq = dialect.interrupt(identities, number)?;
            *slot = (number, irq.0);
        }
        Some(InterruptId(slot.1))
    }
}

#[cold]
fn new_function(dialect: &Dialect, identities: &mut Identities, number: u32) -> u32 {
    let address = dialect.address(number.into());
    identities.function_at(dialect.space, address).0
}

/// Direct-mapped cache from record numbers to identities. `PLACES` is a power of two.
#[derive(Debug)]
struct Recent<const PLACES: usize>(Box<[(u64, u32); PLACES]>);

impl<const PLACES: usize> Recent<PLACES> {
    /// Creates an empty cache: each slot holds a number that maps to another slot, so no lookup hits.
    fn new() -> Self {
        let mut places = Box::new([(0, 0); PLACES]);
        if let Some(first) = places.first_mut() {
            first.0 = 1;
        }
        Self(places)
    }

    /// The slot of a number. The slot's first field is the number that it currently holds.
    #[inline(always)]
    fn slot(&mut self, number: u64) -> &mut (u64, u32) {
        // Fibonacci hashing: it spreads consecutive numbers over the table.
        let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES.trailing_zeros());
        &mut self.0[place as usize & (PLACES - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_knows_no_number() {
        let mut table = Recent::<32>::new();
        for number in 0..100_000 {
            let found = *table.slot(number);
            assert_ne!(found.0, number);
        }
    }
}
