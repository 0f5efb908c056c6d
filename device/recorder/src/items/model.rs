//! Models of a ring that is drained while it is written: every item is given once or counted once, and
//! each as it was produced. See [`crate::model`].
//!
//! Of the ring's memory only some words are watched (they may be seen as they were before), as each makes
//! a model many times as long: those of the items for which writer and reader meet.

use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::vec;
use std::vec::Vec;

use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::link::Mode;

use super::{Cursor, Item, Moment, Ring, Timed};
use crate::Target;
use crate::model::explore;
use crate::sync::{AtomicU32, Ordering, Weak, watch, watch_nothing};

/// A 32-bit machine: its packets are the smaller ones.
struct Machine;

impl Target for Machine {
    const LAYOUT: Layout = Layout {
        shape: Shape::Compact,
        word: WordSize::Bits32,
        order: ByteOrder::NATIVE,
        function_shift: 0,
    };
}

/// How many packets there is room for.
const PACKETS: usize = 2;

/// Items that a packet holds.
const CAPACITY: usize = Ring::<Machine>::CAPACITY;

/// The items' id; their data is their number.
const ID: u32 = 600;

/// A ring, and what its items lie in.
struct Written {
    ring: Ring<Machine>,
    /// Both sides count here what they do, which puts nothing in order for the other: Loom tries
    /// another order only where two threads' accesses meet without one of the thread's own between.
    steps: AtomicU32,
    memory: Vec<u64>,
}

// SAFETY: it is one thread that writes; the memory lives as long as the ring.
unsafe impl Sync for Written {}
// SAFETY: as above.
unsafe impl Send for Written {}

impl Written {
    fn new(mode: Mode) -> Arc<Self> {
        const PACKET: usize = Ring::<Machine>::PACKET;
        // A run that failed may have left some.
        watch_nothing();
        let mut memory = vec![0u64; (PACKETS + 1) * PACKET / 8];
        let start: *mut u8 = memory.as_mut_ptr().cast();
        let start = start.wrapping_add(start.align_offset(PACKET));
        let ring = Ring::empty();
        // SAFETY: the memory is there, aligned, and lives as long as the ring.
        assert!(unsafe { ring.give(start, PACKETS as u32, 0) });
        ring.set_mode(mode);
        let steps = AtomicU32::new(0);
        Arc::new(Self {
            ring,
            steps,
            memory,
        })
    }

    /// Produces the items of these numbers, one at a time.
    fn produce(&self, numbers: std::ops::Range<usize>) {
        for data in numbers {
            self.step();
            self.ring
                .produce(data as u64, &[Item { id: ID, data }], Moment::default);
        }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Watches the words of so many items from the `n`th of a place on, and the word that says how many
    /// items came before the packet that is there.
    fn watch(&self, place: usize, n: usize, count: usize) {
        assert!(!self.memory.is_empty());
        let start = place * Ring::<Machine>::PACKET + Ring::<Machine>::HEADER;
        let item = |n: usize| start + n * Ring::<Machine>::ITEM;
        let items = (n..n + count).flat_map(|n| [item(n), item(n) + 4]);
        for offset in items.chain([start - 4]) {
            watch(self.ring.pointer(offset as u32).cast());
        }
    }
}

/// A reader, and what it got.
#[derive(Default)]
struct Reader {
    cursor: Cursor,
    /// Items that were given or counted as lost.
    told: usize,
    lost: usize,
}

impl Reader {
    /// Drains once; whether there is more.
    fn drain(&mut self, ring: &Ring<Machine>, out: &mut [Timed]) -> bool {
        let drained = ring.drain(&mut self.cursor, out);
        let lost = drained.lost as usize;
        let given = out.get(..drained.count).expect("as many as fit");
        // What is lost was before them.
        for (item, next) in given.iter().zip(self.told + lost..) {
            assert!(
                item.data >= next,
                "{} is given twice, or was lost behind it",
                item.data
            );
            assert!(item.data <= next, "{next} is lost unsaid");
            assert_eq!((item.id, item.time), (ID as u16, item.data as u64), "torn");
        }
        self.lost += lost;
        self.told += lost + given.len();
        drained.more
    }
}

/// A writer goes on from item `before`, and a reader that has got to item `read` comes meanwhile, with room
/// for so many.
fn meet(written: &Arc<Written>, before: usize, more: usize, read: usize, room: usize) -> Met {
    let mut out = vec![Timed::default(); CAPACITY * PACKETS];
    let mut reader = Reader::default();
    while reader.told < read {
        let room = (read - reader.told).min(out.len());
        reader.drain(&written.ring, &mut out[..room]);
    }
    let writer = written.clone();
    let writer = loom::thread::spawn(move || writer.produce(before..before + more));
    written.step();
    // What is refused behind the items is reported by itself.
    if reader.drain(&written.ring, &mut out[..room]) && room > 1 {
        reader.drain(&written.ring, &mut out[..room]);
    }
    written.step();
    let (told, lost) = (reader.told, reader.lost);
    writer.join().expect("the writer ends");
    while reader.drain(&written.ring, &mut out) {}
    assert_eq!(reader.told, before + more, "all are given or lost");
    watch_nothing();
    Met {
        given: told - lost,
        lost,
    }
}

/// What a reader got while the writer was at work, since the beginning.
struct Met {
    given: usize,
    lost: usize,
}

/// What happened in some run, a bit each.
type Seen = &'static AtomicUsize;

fn unseen() -> Seen {
    Box::leak(Box::default())
}

/// The reader reads what the writer is just producing.
fn newest(seen: Seen) {
    let written = Written::new(Mode::Overwrite);
    written.produce(0..3);
    written.watch(0, 3, 2);
    let met = meet(&written, 3, 2, 3, 4);
    assert_eq!(met.lost, 0);
    seen.fetch_or(1 << (met.given - 3), Std::Relaxed);
}

/// The reader reads the oldest packet while the writer comes round to its place.
fn oldest(seen: Seen) {
    let written = Written::new(Mode::Overwrite);
    written.produce(0..PACKETS * CAPACITY);
    written.watch(0, 0, 1);
    let met = meet(&written, PACKETS * CAPACITY, 1, 0, 1);
    let seeing = if met.lost > 0 { 2 } else { met.given };
    seen.fetch_or(1 << seeing, Std::Relaxed);
}

/// The ring is full and keeps what it has.
fn full(seen: Seen) {
    let written = Written::new(Mode::Fixed);
    let before = PACKETS * CAPACITY - 1;
    written.produce(0..before);
    written.watch(PACKETS - 1, CAPACITY - 1, 1);
    let met = meet(&written, before, 2, before - 1, 2);
    seen.fetch_or(1 << (met.given + met.lost + 1 - before), Std::Relaxed);
}

#[test]
fn items_are_given_as_they_were_produced() {
    let seen = unseen();
    explore(None, || newest(seen));
    // None of the two, one, and both.
    assert_eq!(seen.load(Std::Relaxed), 0b111);
}

#[test]
fn items_that_are_overwritten_are_counted() {
    let seen = unseen();
    explore(None, || oldest(seen));
    // The reader was first; or the writer; and sometimes nobody could tell yet.
    assert_eq!(seen.load(Std::Relaxed), 0b111);
}

#[test]
fn items_that_are_refused_are_counted() {
    let seen = unseen();
    explore(None, || full(seen));
    // The reader saw the item before; that and the last one; and that another was refused.
    assert_eq!(seen.load(Std::Relaxed), 0b1110);
}

#[test]
fn draining_needs_the_fences_and_every_release() {
    let nowhere = unseen();
    explore(Some(Weak::Fence), || oldest(nowhere));
    // (Loads that acquire nothing are made good for by the fence behind them.)
    explore(Some(Weak::Release), || newest(nowhere));
}
