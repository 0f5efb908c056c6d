//! Reader of the profile table in a memory dump.
//!
//! The ELF file contains the address and the number of its slots ([`kymo_wire::note::table`]). They are converted to
//! the bytes that the target would have sent ([`kymo_wire::profile`]). Invalid data is rejected: a state that does not
//! match the slots rejects the table; a slot that contradicts itself or names no code is left out and reported. Several
//! CPUs have a table each.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kymo_symbols::Program;
use kymo_wire::event::WordSize;
use kymo_wire::link::Identity;
use kymo_wire::note::table;
use kymo_wire::profile::{Entry, TableCpu, TableHeader};

use super::{Found, Recorder, look, number};
use crate::OpenError;
use crate::formats::kymo::packets::checked_header;

/// The profile table in a target's memory.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    identity: Identity,
    bytes: Vec<u8>,
    damage: Vec<String>,
}

impl MemoryTable {
    /// Finds the table of `program` in a dump of its memory; `None` if the program has none, or if its library's
    /// version does not put the location into the ELF note. The arguments are those of
    /// [`MemoryDump::open`](super::MemoryDump::open).
    ///
    /// # Errors
    /// [`OpenError`] if the dump cannot be read, lacks the table, or has other data at its address.
    pub fn open(
        path: &Path,
        program: &Program,
        address: Option<u64>,
        more: &[(PathBuf, u64)],
    ) -> Result<Option<Self>, OpenError> {
        look(path, program, address, more, |found| {
            if found.recorder.slots().is_empty() {
                return Ok(None);
            }
            let identity = found.identity()?;
            found
                .table(&|address| program.is_code(address), identity)
                .map(Some)
        })
    }

    /// The identity of the target, as far as memory and ELF file contain it.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The table as the target would have sent it, for [`decode`](crate::profile_table::decode).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Descriptions of damaged slots: their functions are left out of the table.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }
}

impl Recorder {
    /// The memory range of the profile tables of all CPUs; empty if there is none, or its address is unknown.
    pub(super) fn slots(&self) -> Range<u64> {
        let end = self.slots_of(self.cpus.saturating_sub(1)).end;
        match self.table {
            (0, _) => 0..0,
            (begin, _) => begin..end,
        }
    }

    /// The memory range of the table of this CPU, if there is any.
    fn slots_of(&self, cpu: u32) -> Range<u64> {
        let (begin, count) = self.table;
        let bytes = u64::from(count) * table::SLOT_BYTES as u64;
        let start = begin.saturating_add(bytes.saturating_mul(cpu.into()));
        start..start.saturating_add(bytes)
    }
}

impl Found<'_> {
    fn table(
        &self,
        is_code: &dyn Fn(u64) -> bool,
        identity: Identity,
    ) -> Result<MemoryTable, String> {
        let mut all = MemoryTable {
            identity,
            bytes: Vec::new(),
            damage: Vec::new(),
        };
        for cpu in 0..self.recorder.cpus {
            self.add_table(cpu, is_code, &mut all)?;
        }
        Ok(all)
    }

    /// Adds the table of a CPU to those of the CPUs before.
    fn add_table(
        &self,
        cpu: u32,
        is_code: &dyn Fn(u64) -> bool,
        all: &mut MemoryTable,
    ) -> Result<(), String> {
        let recorder = self.recorder;
        let layout = recorder.layout;
        let Range { start, end } = recorder.slots_of(cpu);
        let bytes = usize::try_from(end - start)
            .ok()
            .and_then(|size| self.image.bytes(start, size));
        let bytes = bytes.ok_or_else(|| {
            format!(
                "expected the profile table at {start:#x} to {end:#x}, which is not in the dump"
            )
        })?;
        let state = State::of(self, cpu)?;
        let mut damage = Vec::new();
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        let slots = bytes.chunks_exact(table::SLOT_BYTES);
        for (number, slot) in slots.take(state.slots as usize).enumerate() {
            let slot = Slot {
                bytes: slot,
                found: self,
            };
            let entry = match slot.entry(is_code) {
                Ok(None) => continue,
                Ok(Some(entry)) if seen.insert(entry.address) => Ok(entry),
                Ok(Some(entry)) => Err(format!(
                    "expected a function once, found {:#x} again",
                    entry.address
                )),
                Err(message) => Err(message),
            };
            match entry {
                Ok(entry) => entries.push(entry),
                Err(message) => {
                    let at = start + (number * table::SLOT_BYTES) as u64;
                    damage.push(format!("slot {number} at {at:#x} is damaged: {message}"));
                }
            }
        }
        if let (true, Some(first)) = (entries.is_empty(), damage.first()) {
            return Err(format!("the profile table is damaged: {first}"));
        }
        let header = TableHeader {
            order: layout.order,
            word: layout.word,
            entries: entries.len() as u32,
            slots: state.slots,
            no_slot: state.no_slot.into(),
            too_deep: state.too_deep.into(),
            unmatched: state.unmatched.into(),
            clock_hz: all.identity.clock_hz,
            recorded: state.recorded,
            replaced: state.replaced.into(),
            replaced_total: state.replaced_total,
        };
        match recorder.cpus {
            1 => all.bytes.extend(header.to_bytes()),
            cpus => all.bytes.extend(header.to_bytes_of(TableCpu {
                number: cpu as u16,
                cpus: cpus as u16,
            })),
        }
        for entry in entries {
            let entry = entry.to_bytes(layout.word, layout.order);
            all.bytes
                .extend_from_slice(entry.get(..Entry::bytes(layout.word)).unwrap_or(&[]));
        }
        all.damage.extend(damage);
        Ok(())
    }

    /// The latest end of all packets found.
    fn last_time(&self) -> u64 {
        let layout = self.recorder.layout;
        let mut last = 0;
        let mut rest = &*self.packets;
        while let Ok(header) = checked_header(layout, rest) {
            last = last.max(header.end);
            let length = (header.packet_bits / 8).max(1) as usize;
            rest = rest.get(length..).unwrap_or(&[]);
        }
        last
    }

    fn byte(&self, at: u64) -> Option<u8> {
        self.image.bytes(at, 1)?.first().copied()
    }

    fn long(&self, at: u64) -> Option<u64> {
        let bytes = self.image.bytes(at, 8)?;
        Some(number(self.recorder.layout.order, bytes))
    }
}

/// State of a table besides its slots.
struct State {
    slots: u32,
    unmatched: u32,
    too_deep: u32,
    no_slot: u32,
    replaced: u32,
    replaced_total: u64,
    recorded: u64,
}

impl State {
    /// Reads the state of the table of a CPU.
    ///
    /// # Errors
    /// If it is not in the dump, or does not match the table in `kymo_config`.
    fn of(found: &Found<'_>, cpu: u32) -> Result<Self, String> {
        let recorder = found.recorder;
        let word = recorder.layout.word;
        let (begin, count) = (recorder.slots_of(cpu).start, recorder.table.1);
        let taken = u32::from(recorder.note.state_slots);
        let slots = count.saturating_sub(taken);
        let at = match taken {
            0 => recorder.of_cpu(recorder.state, recorder.note.state_offset, cpu),
            _ => Some(begin.wrapping_add(u64::from(slots) * table::SLOT_BYTES as u64)),
        };
        let at = at.ok_or(
            "expected the symbol kymo_recorder in the ELF file, which has the profile table's state, found none",
        )?;
        found
            .image
            .bytes(at, table::state_bytes(word))
            .ok_or_else(|| {
                format!("expected the profile table's state at {at:#x}, which is not in the dump")
            })?;
        let place = |offset: usize| at.wrapping_add(offset as u64);
        let half = |offset| found.half(place(offset)).unwrap_or(0);
        let byte = |offset| found.byte(place(offset)).unwrap_or(0);
        let long = |offset| found.long(place(offset)).unwrap_or(0);
        let its_slots = found.word(place(table::slots(word))).unwrap_or(0);
        let its_count = half(table::slot_count(word));
        match (its_slots, its_count) {
            (0, 0) => {
                return Err(
                    "the profile table was not set up yet: nothing had been recorded".to_owned(),
                );
            }
            its if its != (begin, slots) => {
                return Err(format!(
                    "expected {slots} slots at {begin:#x} in the profile table's state at {at:#x}, found {its_count} \
                     at {its_slots:#x}: it is damaged, or another program's"
                ));
            }
            _ => {}
        }
        let on = match (byte(table::on(word)), byte(table::paused(word))) {
            (on @ 0..=1, 0) => on == 1,
            (0..=1, 1) => {
                return Err("the profile table was being cleared: it says nothing".to_owned());
            }
            (on, paused) => {
                return Err(format!(
                    "expected 0 or 1 twice in the profile table's state at {at:#x}, found {on} and {paused}: it is \
                     damaged"
                ));
            }
        };
        let recorded = long(table::recorded(word));
        Ok(Self {
            slots,
            unmatched: half(table::UNMATCHED),
            too_deep: half(table::TOO_DEEP),
            no_slot: half(table::NO_SLOT),
            replaced: half(table::REPLACED),
            replaced_total: long(table::replaced_total(word)),
            recorded: match on {
                // The table still counts: up to the last known event, or 0 if it was started after that.
                true => found.last_time().saturating_sub(recorded),
                false => recorded,
            },
        })
    }
}

/// The bytes of a slot.
struct Slot<'a> {
    bytes: &'a [u8],
    found: &'a Found<'a>,
}

impl Slot<'_> {
    fn field(&self, at: usize, size: usize) -> u64 {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.get(..size));
        bytes.map_or(0, |bytes| number(self.found.recorder.layout.order, bytes))
    }

    /// Decodes the slot; `None` if it is free.
    ///
    /// # Errors
    /// If no recorder writes such contents. (The dump may show a partial update, which changes total, count, self
    /// time, minimum and maximum in this order.)
    fn entry(&self, is_code: &dyn Fn(u64) -> bool) -> Result<Option<Entry>, String> {
        let word = self.found.recorder.layout.word;
        let address = self.field(table::ADDRESS, word.bytes());
        if address == 0 {
            return Ok(None);
        }
        let time = |n: usize| self.field(table::TIMES + 8 * n, 8);
        let (self_time, total, least, max) = (time(0), time(1), time(2), time(3));
        let count = self.field(table::count(word), 4) as u32;
        let active = self.field(table::active(word), 4) as u32;
        let entry = Entry {
            address,
            count,
            total,
            self_time,
            min: if count == 0 { 0 } else { !least },
            max,
            recursive: active & table::RECURSIVE != 0,
        };
        let code = match word {
            WordSize::Bits32 => address & !1,
            WordSize::Bits64 => address,
        };
        if !is_code(code) {
            return Err(format!(
                "expected a function of the program, found {address:#x}"
            ));
        }
        if total & Entry::RECURSIVE != 0 {
            return Err(format!("expected a total below 2^63 ticks, found {total}"));
        }
        if count == 0 && (self_time, least, max) != (0, 0, 0) {
            return Err(format!(
                "expected no times without calls, found {self_time} ticks of self time and {max} of the longest call"
            ));
        }
        let longest = self_time.max(max).max(if least == 0 { 0 } else { !least });
        if !entry.recursive && longest > total {
            return Err(format!(
                "expected a total of at least {longest} ticks, found {total}"
            ));
        }
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests;
