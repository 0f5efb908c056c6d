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

/// The slots of all CPUs are behind each other, their states a stride apart in the recorder.
#[test]
fn the_tables_of_several_cpus_are_read() {
    const STRIDE: u32 = 256;
    let word = WordSize::Bits64;
    let state = SLOTS * 2 * table::SLOT_BYTES;
    let mut memory = Memory {
        word,
        order: ByteOrder::Little,
        state_slots: 0,
        bytes: vec![0; state + STRIDE as usize + 8 + table::state_bytes(word)],
    };
    for cpu in 0..2 {
        let slots = MEMORY + (cpu * SLOTS * table::SLOT_BYTES) as u64;
        memory.slot(cpu * SLOTS, 0x1010, 2, [70, 90, !40, 50], 0);
        for (offset, size, value) in [
            (table::NO_SLOT, 4, 3),
            (table::slots(word), 8, slots),
            (table::slot_count(word), 4, SLOTS as u64),
        ] {
            memory.put(state + cpu * STRIDE as usize + 8 + offset, size, value);
        }
    }
    let mut recorder = super::super::tests::recorder();
    recorder.layout = Layout {
        word,
        ..recorder.layout
    };
    recorder.note.state_slots = 0;
    recorder.note.state_offset = 8;
    recorder.note.stride = STRIDE;
    recorder.cpus = 2;
    recorder.table = (MEMORY, SLOTS as u32);
    recorder.state = Some(MEMORY + state as u64);
    assert_eq!(recorder.slots(), MEMORY..MEMORY + state as u64);
    let image = Image::of(MEMORY, &memory.bytes);
    let found = Found {
        recorder: &recorder,
        image: &image,
        packets: Vec::new(),
        remarks: Vec::new(),
        damage: Vec::new(),
    };
    let identity = found.identity().unwrap();
    let read = found.table(&|address| CODE.contains(&address), identity);
    let sum = decode(read.unwrap().bytes()).unwrap();
    assert_eq!((sum.cpus, sum.no_slot, sum.missing.len()), (2, 6, 0));
    let [function] = &*sum.functions else {
        panic!("{:?}", sum.functions)
    };
    assert_eq!((function.count, function.total.0), (4, 180_000));
    assert_eq!(function.cpus.len(), 2);
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
