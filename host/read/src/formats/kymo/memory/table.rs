//! Reader of the profile table in a memory dump.
//!
//! The ELF file contains the address and the number of its slots ([`kymo_wire::note::table`]). They are converted to
//! the bytes that the target would have sent ([`kymo_wire::profile`]). Invalid data is rejected: a state that does not
//! match the slots rejects the table; a slot that contradicts itself or names no code is left out and reported.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kymo_symbols::Program;
use kymo_wire::event::WordSize;
use kymo_wire::link::Identity;
use kymo_wire::note::table;
use kymo_wire::profile::{Entry, TableHeader};

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
    /// The memory range of the profile table; empty if there is none, or its address is unknown.
    pub(super) fn slots(&self) -> Range<u64> {
        let (begin, count) = self.table;
        let bytes = u64::from(count) * table::SLOT_BYTES as u64;
        match begin {
            0 => 0..0,
            _ => begin..begin.saturating_add(bytes),
        }
    }
}

impl Found<'_> {
    fn table(
        &self,
        is_code: &dyn Fn(u64) -> bool,
        identity: Identity,
    ) -> Result<MemoryTable, String> {
        let recorder = self.recorder;
        let layout = recorder.layout;
        let all = recorder.slots();
        let bytes = usize::try_from(all.end - all.start)
            .ok()
            .and_then(|size| self.image.bytes(all.start, size));
        let bytes = bytes.ok_or_else(|| {
            let (start, end) = (all.start, all.end);
            format!(
                "expected the profile table at {start:#x} to {end:#x}, which is not in the dump"
            )
        })?;
        let state = State::of(self)?;
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
                    let at = all.start + (number * table::SLOT_BYTES) as u64;
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
            clock_hz: identity.clock_hz,
            recorded: state.recorded,
            replaced: state.replaced.into(),
            replaced_total: state.replaced_total,
        };
        let mut bytes = header.to_bytes().to_vec();
        for entry in entries {
            let entry = entry.to_bytes(layout.word, layout.order);
            bytes.extend_from_slice(entry.get(..Entry::bytes(layout.word)).unwrap_or(&[]));
        }
        Ok(MemoryTable {
            identity,
            bytes,
            damage,
        })
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
    /// Reads the state of the table.
    ///
    /// # Errors
    /// If it is not in the dump, or does not match the table in `kymo_config`.
    fn of(found: &Found<'_>) -> Result<Self, String> {
        let recorder = found.recorder;
        let word = recorder.layout.word;
        let (begin, count) = recorder.table;
        let taken = u32::from(recorder.note.state_slots);
        let slots = count.saturating_sub(taken);
        let at = match taken {
            0 => recorder.of_cpu(recorder.state, recorder.note.state_offset, 0),
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
mod tests {
    use kymo_wire::event::{ByteOrder, Layout};
    use kymo_wire::note::NOWHERE;

    use super::super::image::Image;
    use super::*;
    use crate::profile_table::{ProfileTable, decode};

    /// Start of the tests' memory: 4 slots, then `kymo_recorder`, whose state begins at offset 8.
    const MEMORY: u64 = 0x2000_0000;
    const SLOTS: usize = 4;
    const RECORDER: usize = SLOTS * table::SLOT_BYTES;
    /// The address range of code.
    const CODE: Range<u64> = 0x1000..0x2000;

    /// Layouts of targets, and the number of slots that the table's state takes.
    const LAYOUTS: [(WordSize, ByteOrder, u8); 4] = [
        (WordSize::Bits32, ByteOrder::Little, 2),
        (WordSize::Bits32, ByteOrder::Big, 2),
        (WordSize::Bits64, ByteOrder::Little, 0),
        (WordSize::Bits64, ByteOrder::Big, 0),
    ];

    /// A memory with a table of the functions at 0x1010 and 0x1020; the second one is recursive.
    struct Memory {
        word: WordSize,
        order: ByteOrder,
        state_slots: u8,
        bytes: Vec<u8>,
    }

    impl Memory {
        fn new((word, order, state_slots): (WordSize, ByteOrder, u8)) -> Self {
            let mut memory = Self {
                word,
                order,
                state_slots,
                bytes: vec![0; RECORDER + 8 + table::state_bytes(word)],
            };
            let usable = SLOTS as u64 - u64::from(state_slots);
            memory.slot(0, 0x1010, 2, [70, 90, !40, 50], 0);
            memory.slot(1, 0x1020, 3, [80, 60, !10, 60], table::RECURSIVE);
            for (offset, size, value) in [
                (table::UNMATCHED, 4, 1),
                (table::TOO_DEEP, 4, 2),
                (table::NO_SLOT, 4, 3),
                (table::REPLACED, 4, 4),
                (table::slots(word), word.bytes(), MEMORY),
                (table::slot_count(word), 4, usable),
                (table::recorded(word), 8, 1000),
                (table::replaced_total(word), 8, 5),
            ] {
                memory.state(offset, size, value);
            }
            memory
        }

        fn put(&mut self, at: usize, size: usize, value: u64) {
            let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
            self.bytes[at..at + size].copy_from_slice(match self.order {
                ByteOrder::Little => &little[..size],
                ByteOrder::Big => &big[8 - size..],
            });
        }

        fn state(&mut self, offset: usize, size: usize, value: u64) {
            let begin = match self.state_slots {
                0 => RECORDER + 8,
                taken => (SLOTS - usize::from(taken)) * table::SLOT_BYTES,
            };
            self.put(begin + offset, size, value);
        }

        fn slot(&mut self, n: usize, address: u64, count: u64, times: [u64; 4], active: u32) {
            let at = n * table::SLOT_BYTES;
            self.put(at, self.word.bytes(), address);
            self.put(at + table::count(self.word), 4, count);
            self.put(at + table::active(self.word), 4, active.into());
            for (n, time) in times.into_iter().enumerate() {
                self.put(at + table::TIMES + 8 * n, 8, time);
            }
        }

        fn table(&self) -> Result<MemoryTable, String> {
            let mut recorder = super::super::tests::recorder();
            recorder.layout = Layout {
                word: self.word,
                order: self.order,
                ..recorder.layout
            };
            recorder.note.state_slots = self.state_slots;
            recorder.note.state_offset = match self.state_slots {
                0 => 8,
                _ => NOWHERE,
            };
            recorder.table = (MEMORY, SLOTS as u32);
            recorder.state = Some(MEMORY + RECORDER as u64);
            let image = Image::of(MEMORY, &self.bytes);
            let found = Found {
                recorder: &recorder,
                image: &image,
                packets: Vec::new(),
                remarks: Vec::new(),
                damage: Vec::new(),
            };
            found.table(&|address| CODE.contains(&address), found.identity()?)
        }

        fn read(&self) -> (ProfileTable, Vec<String>) {
            let table = self.table().unwrap();
            (decode(table.bytes()).unwrap(), table.damage)
        }
    }

    #[test]
    fn a_table_is_read_in_every_layout() {
        for layout in LAYOUTS {
            let (table, damage) = Memory::new(layout).read();
            assert!(damage.is_empty(), "{damage:?}");
            // (A tick is a microsecond.)
            let rows = table.functions.iter().map(|row| {
                let times = [row.total, row.self_time, row.min, row.max];
                let times = times.map(|time| time.0 / 1000);
                (row.address.0, row.count, times, row.recursive)
            });
            assert_eq!(
                rows.collect::<Vec<_>>(),
                [
                    (0x1010, 2, [90, 70, 40, 50], false),
                    (0x1020, 3, [60, 80, 10, 60], true)
                ]
            );
            assert_eq!(table.slots, 4 - u32::from(layout.2));
            let lost = [
                table.unmatched,
                table.too_deep,
                table.no_slot,
                table.replaced,
            ];
            assert_eq!(lost, [1, 2, 3, 4]);
            assert_eq!(table.replaced_total.0, 5000);
            assert_eq!(table.recorded.0, 1_000_000);
        }
    }

    #[test]
    fn a_slot_that_no_recorder_wrote_is_left_out_and_reported() {
        for layout in LAYOUTS {
            for (slot, reason) in [
                (
                    (0x3000, 2, [70, 90, !40, 50], 0),
                    "a function of the program, found 0x3000",
                ),
                (
                    (0x1010, 2, [70, 90, !40, 91], 0),
                    "a total of at least 91 ticks, found 90",
                ),
                (
                    (0x1010, 2, [91, 90, !40, 50], 0),
                    "a total of at least 91 ticks, found 90",
                ),
                (
                    (0x1010, 2, [70, 90, !95, 50], 0),
                    "a total of at least 95 ticks, found 90",
                ),
                ((0x1010, 2, [70, 1 << 63, !40, 50], 0), "a total below 2^63"),
                ((0x1010, 0, [70, 90, !40, 50], 0), "no times without calls"),
            ] {
                let mut memory = Memory::new(layout);
                let (address, count, times, active) = slot;
                memory.slot(0, address, count, times, active);
                let (table, damage) = memory.read();
                assert_eq!(table.functions.len(), 1, "{reason}");
                assert!(
                    damage[0].starts_with("slot 0 at 0x20000000 is damaged: expected ")
                        && damage[0].contains(reason),
                    "{damage:?}"
                );
            }
            let mut twice = Memory::new(layout);
            twice.slot(1, 0x1010, 1, [1, 1, !1, 1], 0);
            let (table, damage) = twice.read();
            assert_eq!((table.functions.len(), damage.len()), (1, 1));
            // A partial update at the end of a first call: only total and count are written.
            let mut middle = Memory::new(layout);
            middle.slot(0, 0x1010, 1, [0, 90, 0, 0], 0);
            assert_eq!(middle.read().1, [""; 0]);
        }
    }

    #[test]
    fn a_state_of_another_table_refuses_it() {
        for layout in LAYOUTS {
            let word = layout.0;
            for (offset, size, value, reason) in [
                (
                    table::slots(word),
                    4,
                    0x55,
                    "it is damaged, or another program's",
                ),
                (
                    table::slot_count(word),
                    4,
                    77,
                    "it is damaged, or another program's",
                ),
                (table::on(word), 1, 2, "found 2 and 0: it is damaged"),
                (table::paused(word), 1, 9, "found 0 and 9: it is damaged"),
                (table::paused(word), 1, 1, "was being cleared"),
            ] {
                let mut memory = Memory::new(layout);
                memory.state(offset, size, value);
                let error = memory.table().unwrap_err();
                assert!(error.contains(reason), "{error}");
            }
            let mut fresh = Memory::new(layout);
            fresh.bytes.fill(0);
            assert!(fresh.table().unwrap_err().contains("not set up yet"));
            let mut short = Memory::new(layout);
            short.bytes.truncate(RECORDER - 1);
            assert!(short.table().unwrap_err().contains("not in the dump"));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_memory_is_read_or_refused(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, RECORDER + 8 + 96),
            kept in 0..4usize,
            layout in 0..LAYOUTS.len(),
        ) {
            let mut memory = Memory::new(LAYOUTS[layout]);
            // Only some of the slots stay valid, or none.
            let from = [0, 48, 96, RECORDER][kept];
            let upto = memory.bytes.len().min([RECORDER, 96, 144, bytes.len()][kept]);
            memory.bytes[from..upto].copy_from_slice(&bytes[from..upto]);
            if let Ok(table) = memory.table() {
                proptest::prop_assert!(decode(table.bytes()).is_ok());
            }
        }
    }
}
