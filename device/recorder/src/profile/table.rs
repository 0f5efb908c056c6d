//! The whole table: sending it, and adding it to another.

#[cfg(target_has_atomic = "ptr")]
use kymo_wire::profile::TableCpu;
use kymo_wire::profile::{Entry, TableHeader};

use super::slot::RECURSIVE;
use super::{Losses, Profile, grow, raise};
use crate::Target;
use crate::link::SCRATCH_BYTES;

impl<T: Target> Profile<T> {
    /// The `n`th part of the table in the format of the link: the header, then each slot, empty if it is free; `None`
    /// behind the last. `recorded` is the value of [`recorded`](Self::recorded) when the table was frozen.
    pub fn chunk<'a>(
        &self,
        n: u32,
        clock_hz: u64,
        recorded: u64,
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]> {
        let Some(slot) = n.checked_sub(1) else {
            let header = self.header(clock_hz, recorded, self.losses()).to_bytes();
            return put(&header, scratch);
        };
        self.slot_chunk(slot, scratch)
    }

    /// The same for the table of one of several CPUs, with these losses.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn chunk_of<'a>(
        &self,
        cpu: TableCpu,
        n: u32,
        (clock_hz, recorded, losses): (u64, u64, Losses),
        scratch: &'a mut [u8; SCRATCH_BYTES],
    ) -> Option<&'a [u8]> {
        let Some(slot) = n.checked_sub(1) else {
            let header = self.header(clock_hz, recorded, losses).to_bytes_of(cpu);
            return put(&header, scratch);
        };
        self.slot_chunk(slot, scratch)
    }

    #[inline(always)]
    fn header(&self, clock_hz: u64, recorded: u64, losses: Losses) -> TableHeader {
        let layout = T::LAYOUT;
        TableHeader {
            order: layout.order,
            word: layout.word,
            entries: self.functions(),
            slots: self.slots(),
            no_slot: losses.no_slot.into(),
            too_deep: losses.too_deep.into(),
            unmatched: losses.unmatched.into(),
            clock_hz,
            recorded,
            replaced: losses.replaced.into(),
            replaced_total: self.replaced_total.get(),
        }
    }

    /// A slot in the format of the link.
    #[inline(always)]
    fn slot_chunk<'a>(&self, slot: u32, scratch: &'a mut [u8; SCRATCH_BYTES]) -> Option<&'a [u8]> {
        let layout = T::LAYOUT;
        match self.entry(slot)? {
            None => Some(&[]),
            Some(entry) => {
                let bytes = entry.to_bytes(layout.word, layout.order);
                put(bytes.get(..Entry::bytes(layout.word))?, scratch)
            }
        }
    }

    /// Adds another table's numbers for one function.
    pub fn merge(&self, entry: &Entry) {
        let function = entry.address as usize;
        let mut slot = None;
        if self.exists() {
            slot = self.slot(function).or_else(|| {
                let lowest = self.lowest(function, entry.total)?;
                self.give(lowest, function);
                Some(lowest)
            });
        }
        let Some(slot) = slot else {
            return self.count(&self.no_slot, entry.count);
        };
        if entry.count == 0 {
            return;
        }
        slot.count.set(slot.count.get().saturating_add(entry.count));
        if entry.recursive {
            slot.active.set(slot.active.get() | RECURSIVE);
        }
        let [own, total, least, most] = &slot.times;
        grow(own, entry.self_time);
        grow(total, entry.total);
        raise(least, !entry.min);
        raise(most, entry.max);
    }

    /// Adds another table's losses.
    pub fn merge_losses(&self, other: &Self) {
        let more = other.losses();
        self.count(&self.replaced, more.replaced);
        let total = self.replaced_total.get();
        self.replaced_total
            .set(total.saturating_add(other.replaced_total.get()));
        self.count(&self.no_slot, more.no_slot);
        self.count(&self.too_deep, more.too_deep);
        self.count(&self.unmatched, more.unmatched);
    }
}

#[inline(always)]
fn put<'a>(bytes: &[u8], scratch: &'a mut [u8; SCRATCH_BYTES]) -> Option<&'a [u8]> {
    let to = scratch.get_mut(..bytes.len())?;
    to.copy_from_slice(bytes);
    Some(to)
}
