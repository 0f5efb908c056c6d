//! Rings of items: events of the shape that RTEMS records ([`kymo_wire::items`]).
//!
//! A producer of items takes a dozen instructions, because it needs only one pointer: where the next item goes
//! ([`Ring::at`](Ring)). It stores the item there, advances the pointer, and checks whether the pointer's low bits have
//! become 0: the size of packets is a power of two, and they are aligned to it. Producers in assembly (`device/arch`)
//! do just this; the portable one here (`put_near`) checks before it stores instead, and stores several items at once.
//!
//! The last item's space in each packet is therefore never content: it is the *sentinel slot* (`SENTINEL`). The recorder
//! [picks up](Ring::pick_up) an item that was stored there, and produces it again as the portable producer does. While
//! a ring is closed (nothing recorded yet, off, frozen for a reader, full) its pointer is at a sentinel slot, so that
//! every producer reaches the recorder without a check of its own.
//!
//! If an item finds no room, or its time is too far from the last one's, `make_room` makes one change at a time (it
//! stores a time item, closes the packet, or begins the next one), and the producer tries again. On one processor
//! interrupts thus need not be masked for longer than one such step, and a context that records in between does the
//! remaining steps itself.
//!
//! Times: an item has the low 22 bits of the clock, so less than 2^22 ticks may pass from one to the next. The portable
//! producer inserts a [`TIME`](items::TIME) item where more have passed, and where the upper half of the time changes,
//! because it compares lower halves only. Producers in assembly don't read the clock's upper bits; for them the
//! [tick](Ring::tick) inserts the item, and must be called at least every 2^21 ticks.
//!
//! A ring has one writer at a time: all writers either mask interrupts or run at one interrupt level. Readers:
//! [`packet`](Ring::packet) while the ring is sealed (a dump), [`next`](Ring::next) and [`release`](Ring::release)
//! beside the writer in mode *stream*, and [`drain`](Ring::drain) beside the writer in any mode.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::null_mut;

use kymo_wire::items::{self, LAST, TIME_BITS};
use kymo_wire::link::Mode;

use crate::Target;
use crate::sync::{
    AtomicPtr, AtomicU32, Ordering, add, load_word, release, store_address, store_release,
    store_word,
};

mod drain;
mod list;
#[cfg(all(test, loom))]
mod model;
mod packets;
mod read;
mod word;

pub use drain::{Cursor, Drained, Timed};
pub use list::{Rings, Work};
use word::{halves, ordered, whole};

/// An item to be produced.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its id, of which the low 10 bits are stored. [`TIME`](items::TIME) is reserved for the recorder: an item with
    /// that id is counted as lost, together with all that share its time.
    pub id: u32,
    /// Its payload.
    pub data: usize,
}

impl Item {
    /// Whether readers would take it for a time item.
    #[inline(always)]
    fn is_time(&self) -> bool {
        self.id as u16 & LAST == items::TIME
    }
}

/// Context that a packet's header records when the packet is begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketContext {
    /// Number of active interrupt handlers.
    pub isr_depth: u8,
    /// The running thread; 0 if unknown.
    pub thread: usize,
    /// [`PacketHeader::flags`](kymo_wire::packet::PacketHeader::flags).
    pub flags: u8,
}

/// [`Ring::content`] while the newest packet is open.
const OPEN: u32 = u32::MAX;

/// Interval in ticks after which the tick stores a time item into a ring that is written in assembly.
pub const SYNC: u64 = 1 << (TIME_BITS - 1);

/// A ring of packets of items, with the position of its next item.
///
/// `kymo_items.h` has the same structure (`kymo_ring_t`): programs on bare metal define their rings with `at` at the
/// sentinel slot of the first packet, so that a producer in assembly needs no set-up.
#[repr(C)]
#[derive(Debug)]
pub struct Ring<T> {
    /// Position of the next item. At offset 0, for producers in assembly, which use nothing else.
    at: AtomicPtr<u8>,
    memory: AtomicPtr<u8>,
    /// Number of packets that the memory holds.
    packets: Cell<u32>,
    /// The stream's number: `cpu_id` of its packets.
    number: Cell<u16>,
    /// What happens when the ring is full: a [`Mode`] as a number.
    mode: Cell<u8>,
    /// Whether the recorder has the ring in its list.
    listed: Cell<bool>,
    /// Number of packets begun, which is the number of the next one.
    sequence: AtomicU32,
    /// End of the newest packet's content, as an offset in the memory; [`OPEN`] while `at` defines it, 0 before the
    /// first packet and while one is being begun. The newest packet is the one that `at` points into.
    content: AtomicU32,
    /// Items produced before the newest packet, kept or not; plus those in it, once it is closed.
    before: AtomicU32,
    /// Time items in the newest packet, while it is open.
    times: AtomicU32,
    /// Items lost since the newest packet was begun.
    dropped: AtomicU32,
    /// Items lost in total.
    discarded: AtomicU32,
    /// Packets closed.
    closed: AtomicU32,
    /// Packets that a reader has released, in mode *stream*.
    taken: AtomicU32,
    /// Number of times that the ring was cleared.
    clears: AtomicU32,
    /// Slot of the first packet that a reader has not released. Only the reader uses it.
    reading: Cell<u32>,
    /// Whether producers in assembly write here: then the time of the last item is unknown.
    blind: Cell<bool>,
    /// Whether every slot has held a packet.
    round: Cell<bool>,
    /// Time of the last item, as far as known: lower half, upper half.
    last: [Cell<u32>; 2],
    /// The next ring in the recorder's list.
    next: AtomicPtr<Ring<T>>,
    target: PhantomData<T>,
}

// SAFETY: cells are the writer's alone (there is one at a time, by the contract of the methods), or a reader's while
// the writer is excluded; everything else is atomic.
unsafe impl<T> Sync for Ring<T> {}

// SAFETY: nothing in it belongs to a thread.
unsafe impl<T> Send for Ring<T> {}

/// The size in `kymo_items.h`.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Ring<()>>() == if size_of::<usize>() == 4 { 72 } else { 88 });

/// Statistics of a ring since the last clear. Counters wrap at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items produced, including those overwritten or discarded.
    pub produced: u32,
    /// Items that could not be recorded.
    pub discarded: u32,
    /// Packets begun.
    pub packets: u32,
}

/// Layout that readers of memory rely on ([`kymo_wire::note::ring`]).
#[cfg(not(loom))]
const _: () = {
    use kymo_wire::note::ring;
    let word = size_of::<usize>();
    assert!(offset_of!(Ring<()>, at) == ring::AT_WORD * word);
    assert!(offset_of!(Ring<()>, memory) == ring::MEMORY_WORD * word);
    let packets = offset_of!(Ring<()>, packets);
    assert!(packets == ring::PACKETS_WORD * word);
    assert!(offset_of!(Ring<()>, sequence) == packets + ring::SEQUENCE_BYTES);
    assert!(offset_of!(Ring<()>, content) == packets + ring::CONTENT_BYTES);
    assert!(OPEN == ring::OPEN);
};

impl<T: Target> Ring<T> {
    /// Offset of the address of the next ring: a word.
    pub const NEXT_OFFSET: usize = offset_of!(Self, next);
    /// Offset of the lower half of the last item's time.
    pub const LAST_OFFSET: usize = offset_of!(Self, last);
    /// The size of a packet.
    pub const PACKET: usize = items::packet_bytes(T::LAYOUT.word);
    /// The size of an item.
    pub const ITEM: usize = items::item_bytes(T::LAYOUT.word);
    /// The size of a packet's header.
    pub const HEADER: usize = items::header_bytes(T::LAYOUT);
    /// Offset of the sentinel slot in a packet: behind all content.
    pub const SENTINEL: usize = Self::PACKET - Self::ITEM;
    /// Number of items that a packet holds, which is also the most that can be produced at once.
    pub const CAPACITY: usize = (Self::SENTINEL - Self::HEADER) / Self::ITEM;

    /// A ring without memory, which counts all items as discarded. All zero.
    pub const fn empty() -> Self {
        Self::over(null_mut(), null_mut(), 0, 0)
    }

    /// A ring with memory for so many packets, for a `static`.
    ///
    /// # Safety
    /// `memory` points to `packets` times [`PACKET`](Self::PACKET) initialized bytes that only this
    /// ring uses; it is aligned to that size.
    pub const unsafe fn new(memory: *mut u8, packets: u32, number: u16) -> Self {
        Self::over(memory.wrapping_add(Self::SENTINEL), memory, packets, number)
    }

    /// A ring in which nothing has been recorded.
    const fn over(at: *mut u8, memory: *mut u8, packets: u32, number: u16) -> Self {
        Self {
            at: AtomicPtr::new(at),
            memory: AtomicPtr::new(memory),
            packets: Cell::new(packets),
            number: Cell::new(number),
            mode: Cell::new(0),
            listed: Cell::new(false),
            sequence: AtomicU32::new(0),
            content: AtomicU32::new(0),
            before: AtomicU32::new(0),
            times: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
            discarded: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            clears: AtomicU32::new(0),
            reading: Cell::new(0),
            blind: Cell::new(false),
            round: Cell::new(false),
            last: [const { Cell::new(0) }; 2],
            next: AtomicPtr::new(null_mut()),
            target: PhantomData,
        }
    }

    /// Gives memory to a ring that has none; returns false if it is not aligned to a packet, or too small for two.
    ///
    /// # Safety
    /// As [`new`](Self::new), apart from the alignment; nobody uses the ring yet.
    pub unsafe fn give(&self, memory: *mut u8, packets: u32, number: u16) -> bool {
        if packets < 2 || memory.is_null() || !(memory as usize).is_multiple_of(Self::PACKET) {
            return false;
        }
        self.memory.store(memory, Ordering::Relaxed);
        self.packets.set(packets);
        self.number.set(number);
        self.at
            .store(memory.wrapping_add(Self::SENTINEL), Ordering::Release);
        true
    }

    /// Whether the ring has memory to record into. ([`give`](Self::give) has checked the alignment.)
    pub fn usable(&self) -> bool {
        self.packets.get() >= 2
    }

    /// Sets what happens when the ring is full. Call it before anything is recorded, or after a clear.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.set(mode as u8);
    }

    /// The stream's number.
    pub fn number(&self) -> u16 {
        self.number.get()
    }

    /// Returns the statistics. While the ring is being written they may not be consistent with each other.
    pub fn figures(&self) -> Figures {
        Figures {
            produced: self.position(),
            discarded: self.discarded.load(Ordering::Relaxed),
            packets: self.sequence.load(Ordering::Relaxed),
        }
    }

    /// Produces items that share one time and stay together: within one packet, with no other item of the ring in
    /// between. More than [`CAPACITY`](Self::CAPACITY) items can't be stored: they are counted as discarded. `context`
    /// is called only if something has to be done first.
    #[inline(always)]
    pub fn produce(&self, now: u64, items: &[Item], context: impl Fn() -> PacketContext) {
        if !(Self::admits(items) && self.put(now, items)) {
            self.produce_with_more(now, items, context());
        }
    }

    /// [`produce`](Self::produce) when `put` has failed.
    #[cold]
    #[inline(never)]
    fn produce_with_more(&self, now: u64, items: &[Item], context: PacketContext) {
        // On Linux the clock of one processor may be behind that of another.
        let now = match self.is_open() {
            true => now.max(self.last()),
            false => now,
        };
        if !(self.usable() && Self::admits(items)) {
            return self.lose(items.len());
        }
        while !self.put(now, items) {
            if !self.make_room(now, items.len(), context) {
                return self.lose(items.len());
            }
        }
    }

    /// Stores [admitted](Self::admits) items at `now`, if nothing has to be done first.
    #[inline(always)]
    fn put(&self, now: u64, items: &[Item]) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let fits = now.wrapping_sub(self.last()) >> TIME_BITS == 0
            && self.has_memory()
            && Self::fits(at, items.len());
        if fits {
            self.set_last(now);
            self.lay(at, now as u32, items);
        }
        fits
    }

    /// The same for a ring that has memory, where `now` is the lower half of a time less than 2^32 ticks after the last
    /// item's. Regular [ticks](Self::tick) of the ring ensure that.
    #[inline(always)]
    pub(crate) fn put_near(&self, now: u32, items: &[Item]) -> bool {
        let [last, _] = &self.last;
        let at = self.at.load(Ordering::Relaxed);
        // Where the lower half has wrapped around, the upper half changes, too: left to `make_room`.
        let ahead = now.checked_sub(last.get());
        let fits =
            ahead.is_some_and(|ahead| ahead >> TIME_BITS == 0) && Self::fits(at, items.len());
        if fits {
            last.set(now);
            self.lay(at, now, items);
        }
        fits
    }

    /// Whether there is room at `at` for `items` items, at most as many as a packet holds.
    #[inline(always)]
    fn fits(at: *mut u8, items: usize) -> bool {
        at as usize & (Self::PACKET - 1) <= Self::SENTINEL.wrapping_sub(items * Self::ITEM)
    }

    /// Stores items from `at` on, where there is room for them, and commits them.
    #[inline(always)]
    fn lay(&self, at: *mut u8, now: u32, items: &[Item]) {
        let mut to = at;
        for item in items {
            to = Self::store(to, now, item);
        }
        store_address(&self.at, to);
    }

    /// Whether there is memory.
    #[inline(always)]
    pub fn has_memory(&self) -> bool {
        !self.at.load(Ordering::Relaxed).is_null()
    }

    /// Whether items may ever be stored: there are no more than a packet holds, and none is a time item.
    #[inline(always)]
    pub fn admits(items: &[Item]) -> bool {
        match items {
            // The usual case.
            [item] => !item.is_time(),
            _ => Self::admit_all(items),
        }
    }

    #[inline(never)]
    fn admit_all(items: &[Item]) -> bool {
        (1..=Self::CAPACITY).contains(&items.len()) && !items.iter().any(Item::is_time)
    }

    /// Stores one item at `to`, where the caller has found room for it; returns its end.
    #[inline(always)]
    fn store(to: *mut u8, now: u32, item: &Item) -> *mut u8 {
        let head = items::head(T::LAYOUT.order, item.id as u16 & LAST, now.into());
        let words = to.cast::<u32>();
        let [first, second] = halves(T::LAYOUT, item.data as u64);
        // SAFETY: there are so many bytes of the ring's memory, at a multiple of 4.
        unsafe {
            store_word(words, ordered::<T>(head));
            store_word(words.add(1), ordered::<T>(first));
            if Self::ITEM == 12 {
                store_word(words.add(2), ordered::<T>(second));
            }
        }
        to.wrapping_add(Self::ITEM)
    }

    /// Takes the item that a producer in assembly stored in the sentinel slot before it advanced `at`, and resets `at`
    /// to the sentinel slot. The producer still has interrupts masked, or is the only one that uses this ring.
    pub fn pick_up(&self) -> Item {
        let sentinel = self.at.load(Ordering::Relaxed).wrapping_sub(Self::ITEM);
        let words = sentinel.cast::<u32>();
        // SAFETY: a producer stored an item there: `at` is only ever in the ring's memory.
        let (head, first, second) = unsafe {
            (
                ordered::<T>(load_word(words)),
                ordered::<T>(load_word(words.add(1))),
                if Self::ITEM == 12 {
                    ordered::<T>(load_word(words.add(2)))
                } else {
                    0
                },
            )
        };
        store_address(&self.at, sentinel);
        self.blind.set(true);
        let (id, _) = items::split(T::LAYOUT.order, head);
        let data = whole(T::LAYOUT, [first, second]) as usize;
        Item {
            id: id.into(),
            data,
        }
    }

    /// Whether the ring is in a recorder's list.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.get()
    }

    /// Marks that producers in assembly write here.
    pub fn set_blind(&self) {
        self.blind.set(true);
    }

    /// Counts items as discarded.
    pub fn lose(&self, items: usize) {
        // A reader that sees the new counts also sees all items before.
        release();
        add(&self.discarded, items as u32);
        add(&self.dropped, items as u32);
    }

    /// Periodic tick, at a time not before the last item's; the module's documentation describes its purpose. (It does
    /// nothing while no packet is open.)
    pub fn tick(&self, now: u64) {
        // However long ago the last item was, the low bits alone show that it was too long.
        const LONG: u32 = 2 << TIME_BITS;
        const FAR: u32 = 1 << TIME_BITS;
        if !self.is_open() {
            return;
        }
        let last = self.last();
        let distance = (now as u32).wrapping_sub(last as u32);
        if !self.blind.get() {
            if distance >= LONG {
                self.set_last(last.wrapping_add(u64::from(distance - FAR)));
            }
        } else if u64::from(distance) >= SYNC {
            let at = self.at.load(Ordering::Relaxed);
            if Self::fits(at, 1) {
                self.put_time(at, now);
            }
        }
    }

    /// Time of the last item, as far as known.
    #[inline(always)]
    fn last(&self) -> u64 {
        let [low, high] = &self.last;
        u64::from(low.get()) | u64::from(high.get()) << 32
    }

    #[inline(always)]
    fn set_last(&self, time: u64) {
        let [low, high] = &self.last;
        low.set(time as u32);
        high.set((time >> 32) as u32);
    }

    /// Whether a packet is open. Any context may call it; the result may be outdated at once.
    pub fn is_open(&self) -> bool {
        self.content.load(Ordering::Relaxed) == OPEN
    }

    /// Whether producers in assembly write here.
    pub fn is_blind(&self) -> bool {
        self.blind.get()
    }

    /// Drops all packets and resets the counters.
    #[inline(never)]
    pub fn clear(&self) {
        add(&self.clears, 1);
        release();
        store_release(&self.content, 0);
        store_address(&self.at, self.pointer(Self::SENTINEL as u32));
        // (One by one: a loop over them takes twice the code.)
        self.sequence.store(0, Ordering::Relaxed);
        self.before.store(0, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.discarded.store(0, Ordering::Relaxed);
        self.closed.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.reading.set(0);
        self.round.set(false);
    }

    /// Number of items produced since the last clear, without time items.
    fn position(&self) -> u32 {
        let mut items = self.dropped.load(Ordering::Relaxed);
        if self.is_open() {
            items = items.wrapping_add(self.items(self.at.load(Ordering::Relaxed)));
        }
        self.before.load(Ordering::Relaxed).wrapping_add(items)
    }

    /// Number of items before `at` in its packet, which is open, without time items.
    #[inline(always)]
    fn items(&self, at: *mut u8) -> u32 {
        let bytes = (at as usize & (Self::PACKET - 1)).wrapping_sub(Self::HEADER);
        let times = self.times.load(Ordering::Relaxed);
        ((bytes / Self::ITEM) as u32).wrapping_sub(times)
    }

    /// Start of the packet that `at` points into.
    #[inline(always)]
    fn packet_of(at: *mut u8) -> *mut u8 {
        at.wrapping_sub(at as usize & (Self::PACKET - 1))
    }

    /// Address of an offset in the memory.
    fn pointer(&self, offset: u32) -> *mut u8 {
        self.memory
            .load(Ordering::Relaxed)
            .wrapping_add(offset as usize)
    }

    /// Loads the word at an offset in the memory; 0 outside.
    fn word(&self, offset: u32) -> u32 {
        if offset as usize + 4 > self.packets.get() as usize * Self::PACKET {
            return 0;
        }
        // SAFETY: inside (checked), a multiple of 4 from an aligned base, only written atomically.
        ordered::<T>(unsafe { load_word(self.pointer(offset).cast()) })
    }
}
