//! Models of a ring that is drained while it is written: every item is returned once or counted once, and returned as
//! it was produced. See [`crate::model`].
//!
//! Only some words of the ring's memory are tracked (threads may see their older values), because each makes a model
//! many times as long: the words of the items that writer and reader access at the same time.

use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::vec;
use std::vec::Vec;

use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::link::Mode;

use super::{Cursor, Item, PacketContext, Ring, Timed};
use crate::Target;
use crate::model::explore;
use crate::sync::{AtomicU32, Ordering, Weak, watch, watch_nothing};

/// A 32-bit machine, because its packets are smaller.
struct Machine;

impl Target for Machine {
    const LAYOUT: Layout = Layout {
        shape: Shape::Compact,
        word: WordSize::Bits32,
        order: ByteOrder::NATIVE,
        function_shift: 0,
    };
}

/// Number of packets in the ring.
const PACKETS: usize = 2;

/// Number of items in a packet.
const CAPACITY: usize = Ring::<Machine>::CAPACITY;

/// The items' id; their data is their number.
const ID: u32 = 600;

/// A ring with the memory of its items.
struct Written {
    ring: Ring<Machine>,
    /// Counter of the steps of both sides, which orders nothing between them: loom tries another order only where
    /// accesses of two threads meet without an access of the thread itself in between.
    steps: AtomicU32,
    memory: Vec<u64>,
}

// SAFETY: only one thread writes; the memory lives as long as the ring.
unsafe impl Sync for Written {}
// SAFETY: as above.
unsafe impl Send for Written {}

impl Written {
    fn new(mode: Mode) -> Arc<Self> {
        const PACKET: usize = Ring::<Machine>::PACKET;
        // A failed run may not have cleared them.
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
            self.ring.produce(
                data as u64,
                &[Item { id: ID, data }],
                PacketContext::default,
            );
        }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Tracks the words of `count` items from the `n`th of a slot on, and the word with the number of items before the
    /// packet in that slot.
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

/// A reader with its results.
#[derive(Default)]
struct Reader {
    cursor: Cursor,
    /// Number of items returned or counted as lost.
    reported: usize,
    lost: usize,
}

impl Reader {
    /// Drains once; returns whether there is more.
    fn drain(&mut self, ring: &Ring<Machine>, out: &mut [Timed]) -> bool {
        let drained = ring.drain(&mut self.cursor, out);
        let lost = drained.lost as usize;
        let given = out.get(..drained.count).expect("as many as fit");
        // Lost items are those before the returned ones.
        for (item, next) in given.iter().zip(self.reported + lost..) {
            assert!(
                item.data >= next,
                "{} is given twice, or was lost behind it",
                item.data
            );
            assert!(item.data <= next, "{next} is lost unsaid");
            assert_eq!((item.id, item.time), (ID as u16, item.data as u64), "torn");
        }
        self.lost += lost;
        self.reported += lost + given.len();
        drained.more
    }
}

/// A writer continues from item `before`, while a reader that has read up to item `read` drains with room for `room`.
fn meet(written: &Arc<Written>, before: usize, more: usize, read: usize, room: usize) -> Met {
    let mut out = vec![Timed::default(); CAPACITY * PACKETS];
    let mut reader = Reader::default();
    while reader.reported < read {
        let room = (read - reader.reported).min(out.len());
        reader.drain(&written.ring, &mut out[..room]);
    }
    let writer = written.clone();
    let writer = loom::thread::spawn(move || writer.produce(before..before + more));
    written.step();
    // Losses behind the items are reported by another call.
    if reader.drain(&written.ring, &mut out[..room]) && room > 1 {
        reader.drain(&written.ring, &mut out[..room]);
    }
    written.step();
    let (reported, lost) = (reader.reported, reader.lost);
    writer.join().expect("the writer ends");
    while reader.drain(&written.ring, &mut out) {}
    assert_eq!(reader.reported, before + more, "all are given or lost");
    watch_nothing();
    Met {
        given: reported - lost,
        lost,
    }
}

/// What a reader got while the writer was active, from the start.
struct Met {
    given: usize,
    lost: usize,
}

/// Bit set of the outcomes that occurred in some run.
type Seen = &'static AtomicUsize;

fn unseen() -> Seen {
    Box::leak(Box::default())
}

/// The reader reads items that the writer is just producing.
fn newest(seen: Seen) {
    let written = Written::new(Mode::Overwrite);
    written.produce(0..3);
    written.watch(0, 3, 2);
    let met = meet(&written, 3, 2, 3, 4);
    assert_eq!(met.lost, 0);
    seen.fetch_or(1 << (met.given - 3), Std::Relaxed);
}

/// The reader reads the oldest packet while the writer reuses its slot.
fn oldest(seen: Seen) {
    let written = Written::new(Mode::Overwrite);
    written.produce(0..PACKETS * CAPACITY);
    written.watch(0, 0, 1);
    let met = meet(&written, PACKETS * CAPACITY, 1, 0, 1);
    let seeing = if met.lost > 0 { 2 } else { met.given };
    seen.fetch_or(1 << seeing, Std::Relaxed);
}

/// The ring is full and preserves its items.
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
    // The reader was first; or the writer; and sometimes the order was still unknown.
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
    // (Loads without acquire ordering are still correct, because of the fence behind them.)
    explore(Some(Weak::Release), || newest(nowhere));
}
