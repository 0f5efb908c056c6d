//! Rings of items: events of the shape that RTEMS records ([`kymo_wire::items`]).
//!
//! A producer of items costs a dozen instructions because there is only one thing that it must
//! know: where the next item goes ([`Ring::at`](Ring)). It stores the item there, moves the
//! pointer on, and looks whether the pointer's low bits have become 0: packets are a power of two
//! long and lie at multiples of that. Everything else is decided then, in
//! [`landed`](Ring::landed). Producers in assembly (`device/arch`) do just this; the portable one
//! here ([`produce`](Ring::produce)) looks before it stores instead, and puts several items down at
//! once.
//!
//! The place of one item at the end of each packet is therefore never content: it is the *landing*.
//! An item that lands there is picked up and put where it belongs, or counted as lost. While a ring
//! is closed (nothing recorded yet, off, held still for a reader, full) its pointer stands at a
//! landing, so that every producer comes by, without having asked.
//!
//! Times. An item has the low 22 bits of the clock, so less than 2^22 ticks may pass from one to
//! the next. The portable producer puts a [`TIME`](items::TIME) item in between where more did. Those in assembly
//! don't look at the clock's upper bits; for them the [tick](Ring::tick) does it, which has to come
//! at least every 2^21 ticks.
//!
//! One ring has one writer at a time: whoever writes has interrupts masked, or all who write run at
//! one level of interrupts. Readers: [`packet`](Ring::packet) while the ring is sealed (a dump),
//! [`next`](Ring::next) and [`release`](Ring::release) beside the writer in mode *stream*, and
//! [`drain`](Ring::drain) beside the writer in any mode.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::null_mut;

use kymo_wire::items::{self, LAST, TIME_BITS};
use kymo_wire::link::Mode;

use crate::Target;
use crate::sync::{
    AtomicPtr, AtomicU32, Ordering, add, compiler_fence, fence, load_word, store_word,
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
    /// Its id; of more than 10 bits the low ones.
    pub id: u32,
    /// What it says.
    pub data: usize,
}

/// What a packet says of the moment at which it is begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// How many interrupt handlers are being served.
    pub isr_depth: u8,
    /// The thread that runs; 0 if none is known.
    pub thread: usize,
    /// [`PacketHeader::flags`](kymo_wire::packet::PacketHeader::flags).
    pub flags: u8,
}

/// [`Ring::content`] while the newest packet is open.
const OPEN: u32 = u32::MAX;

/// The tick puts a time into a ring that is written in assembly when the last one is so many ticks
/// ago.
pub const SYNC: u64 = 1 << (TIME_BITS - 1);

/// A ring of packets of items, and where its next item goes.
///
/// `kymo.h` has the same structure (`kymo_ring_t`): programs on bare metal define their rings, with
/// `at` standing at the landing of the first packet, so that a producer in assembly needs no set-up.
#[repr(C)]
#[derive(Debug)]
pub struct Ring<T> {
    /// Where the next item goes. At offset 0, for producers in assembly; they use nothing else.
    at: AtomicPtr<u8>,
    memory: AtomicPtr<u8>,
    /// How many packets there is room for.
    packets: Cell<u32>,
    /// The stream's number: `cpu_id` of its packets.
    number: Cell<u16>,
    /// What happens when it is full: a [`Mode`] as a number.
    mode: Cell<u8>,
    /// The recorder knows of it.
    listed: Cell<bool>,
    /// Packets begun: the number of the next.
    sequence: AtomicU32,
    /// Where the content of the newest packet ends, as an offset in the memory; [`OPEN`] while `at`
    /// says it. 0 before the first.
    content: AtomicU32,
    /// Where the newest packet begins, as an offset in the memory.
    start: Cell<u32>,
    /// Items produced before the newest packet, kept or not.
    before: AtomicU32,
    /// Items of the newest packet that are only times.
    times: AtomicU32,
    /// Items lost since the newest packet was begun.
    dropped: AtomicU32,
    /// Items lost, in all.
    discarded: AtomicU32,
    /// Packets closed.
    closed: AtomicU32,
    /// Packets that a reader has released, in mode *stream*; and the place of the next, which is
    /// the reader's.
    taken: AtomicU32,
    taken_place: Cell<u32>,
    /// How often it has been cleared.
    clears: AtomicU32,
    /// A fixed ring is full, and stays so.
    full: Cell<bool>,
    /// Producers in assembly write here: the time of the last item is not known.
    blind: Cell<bool>,
    /// The time of the last item, as far as known.
    last: Cell<u64>,
    /// The next ring that the recorder knows of.
    next: AtomicPtr<Ring<T>>,
    target: PhantomData<T>,
}

// SAFETY: cells are the writer's alone (there is one at a time, by the contract of the methods), or a
// reader's while the writer is held off; everything else is atomic.
unsafe impl<T> Sync for Ring<T> {}

// SAFETY: nothing in it belongs to a thread.
unsafe impl<T> Send for Ring<T> {}

/// The size that `kymo_items.h` gives to it.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Ring<()>>() == if size_of::<usize>() == 4 { 80 } else { 88 });

/// What a ring has come to since it was last cleared. Counters wrap at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items produced: those that were overwritten or discarded too.
    pub produced: u32,
    /// Items that could not be recorded.
    pub discarded: u32,
    /// Packets begun.
    pub packets: u32,
}

/// What a reader of memory takes for granted ([`kymo_wire::note::ring`]).
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
    /// Where the address of the next ring is, in bytes from the beginning: a word.
    pub const NEXT_OFFSET: usize = offset_of!(Self, next);
    /// The size of a packet.
    pub const PACKET: usize = items::packet_bytes(T::LAYOUT.word);
    /// The size of an item.
    pub const ITEM: usize = items::item_bytes(T::LAYOUT.word);
    /// The size of a packet's header.
    pub const HEADER: usize = items::header_bytes(T::LAYOUT);
    /// Where the landing is in a packet: behind all that can be content.
    pub const LANDING: usize = Self::PACKET - Self::ITEM;
    /// How many items a packet holds; no more can be produced at once.
    pub const CAPACITY: usize = (Self::LANDING - Self::HEADER) / Self::ITEM;

    /// Without memory: counts everything as discarded. All zero.
    pub const fn empty() -> Self {
        Self::over(null_mut(), null_mut(), 0, 0)
    }

    /// With memory for so many packets, for a `static`.
    ///
    /// # Safety
    /// `memory` points to `packets` times [`PACKET`](Self::PACKET) initialized bytes that only this
    /// ring uses; it is aligned to that size.
    pub const unsafe fn new(memory: *mut u8, packets: u32, number: u16) -> Self {
        Self::over(memory.wrapping_add(Self::LANDING), memory, packets, number)
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
            start: Cell::new(0),
            before: AtomicU32::new(0),
            times: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
            discarded: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            taken_place: Cell::new(0),
            clears: AtomicU32::new(0),
            full: Cell::new(false),
            blind: Cell::new(false),
            last: Cell::new(0),
            next: AtomicPtr::new(null_mut()),
            target: PhantomData,
        }
    }

    /// Gives memory to a ring that has none; false if it is not aligned to a packet, or has not room
    /// for two.
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
            .store(memory.wrapping_add(Self::LANDING), Ordering::Release);
        true
    }

    /// Whether it has memory to record into.
    pub fn usable(&self) -> bool {
        let memory = self.memory.load(Ordering::Relaxed);
        self.packets.get() >= 2
            && !memory.is_null()
            && (memory as usize).is_multiple_of(Self::PACKET)
    }

    /// What to do when it is full. To be said before anything is recorded, or after a clear.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.set(mode as u8);
    }

    /// The stream's number.
    pub fn number(&self) -> u16 {
        self.number.get()
    }

    /// What it has come to. Of a ring that is being written the figures may be a moment apart.
    pub fn figures(&self) -> Figures {
        Figures {
            produced: self.position(),
            discarded: self.discarded.load(Ordering::Relaxed),
            packets: self.sequence.load(Ordering::Relaxed),
        }
    }

    /// Produces items that share one time and stay together: no other item of the ring comes between
    /// them, and they are in one packet. More than [`CAPACITY`](Self::CAPACITY) cannot be; they are
    /// counted as discarded. `moment` is asked if a packet has to be begun.
    #[inline(always)]
    pub fn produce(&self, now: u64, items: &[Item], moment: impl FnOnce() -> Moment) {
        if items.is_empty() {
            return;
        }
        let at = self.at.load(Ordering::Relaxed);
        let bytes = items.len() * Self::ITEM;
        if now.wrapping_sub(self.last.get()) >> TIME_BITS == 0
            && bytes <= Self::LANDING - (at as usize & (Self::PACKET - 1))
            && !at.is_null()
        {
            self.last.set(now);
            self.put(at, now, items);
        } else {
            self.produce_with_more(now, items, moment());
        }
    }

    /// Whether so many items may be [produced near](Self::produce_near): the recorder knows of the
    /// ring, and a packet holds them.
    #[inline(always)]
    pub fn may_be_near(&self, items: usize) -> bool {
        self.listed.get()
            && (1..=Self::CAPACITY).contains(&items)
            && !self.at.load(Ordering::Relaxed).is_null()
    }

    /// [`produce`](Self::produce), if that takes neither a time nor a packet first: false if it does.
    /// `now` is the low half of the time. The ring's [tick](Self::tick) comes at least once in a quarter
    /// of that half's turn, and the items [may be produced](Self::may_be_near) so.
    #[inline(always)]
    pub fn produce_near(&self, now: u32, items: &[Item]) -> bool {
        let bytes = items.len() * Self::ITEM;
        self.near(now, bytes, |at| self.put(at, now.into(), items))
    }

    /// The same of one item, in fewer instructions.
    #[inline(always)]
    pub fn produce_one_near(&self, now: u32, item: Item) -> bool {
        self.near(now, Self::ITEM, |at| {
            self.move_to(Self::store(at, now.into(), &item));
        })
    }

    /// Puts so many bytes of items to their place, if there is room and the last item is near.
    #[inline(always)]
    fn near(&self, now: u32, bytes: usize, put: impl FnOnce(*mut u8)) -> bool {
        let last = self.last.get();
        let at = self.at.load(Ordering::Relaxed);
        // Where the low half has begun again the other one changes, too: not here.
        let Some(ahead) = now.checked_sub(last as u32) else {
            return false;
        };
        if ahead >= 1 << TIME_BITS
            || at as usize & (Self::PACKET - 1) > Self::LANDING.wrapping_sub(bytes)
        {
            return false;
        }
        self.last.set(last >> 32 << 32 | u64::from(now));
        put(at);
        true
    }

    /// [`produce`](Self::produce) where a time or a packet is needed first.
    #[cold]
    #[inline(never)]
    fn produce_with_more(&self, now: u64, items: &[Item], moment: Moment) {
        if let Some((at, now)) = self.reserve(now, items.len(), moment) {
            self.put(at, now, items);
        }
    }

    /// Stores items from `at` on, where there is room for them, and makes them count.
    #[inline(always)]
    fn put(&self, at: *mut u8, now: u64, items: &[Item]) {
        let mut to = at;
        for item in items {
            to = Self::store(to, now, item);
        }
        self.move_to(to);
    }

    /// What stands before `at` counts from now on.
    #[inline(always)]
    fn move_to(&self, at: *mut u8) {
        if T::SINGLE {
            compiler_fence(Ordering::Release);
            self.at.store(at, Ordering::Relaxed);
        } else {
            self.at.store(at, Ordering::Release);
        }
    }

    /// Stores one item at `to`, where the caller has found room for it; returns where it ends.
    #[inline(always)]
    fn store(to: *mut u8, now: u64, item: &Item) -> *mut u8 {
        let head = items::head(T::LAYOUT.order, item.id as u16 & LAST, now);
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

    /// An item was stored at the landing, and `at` moved behind it: by a producer in assembly, which
    /// still has its interrupts masked, or is alone with this ring. `wanted`: whether it is to be
    /// recorded, or lost because something holds the ring still (`None`: nothing is recorded now).
    /// `now` is not before the item's time, and less than 2^22 ticks behind it.
    pub fn landed(&self, now: u64, wanted: Option<bool>, moment: Moment) {
        self.blind.set(true);
        let (item, time) = self.pick_up();
        match wanted {
            None => {}
            Some(false) => self.lose(1),
            Some(true) => {
                let ago = items::time_bits(now.wrapping_sub(time.into()));
                self.produce_with_more(now.wrapping_sub(ago.into()), &[item], moment);
            }
        }
    }

    /// Whether producers in assembly fill the newest packet, so that an item that has landed may be
    /// [added](Self::land) without a look at the clock.
    #[inline(always)]
    pub fn is_filling(&self) -> bool {
        self.blind.get() && self.is_open()
    }

    /// The same as [`landed`](Self::landed) of an item that is to be recorded behind a packet that has been
    /// [filled](Self::is_filling). The [tick](Self::tick) has seen to it that the last time that is
    /// known is less than 2^22 ticks ago.
    pub fn land(&self, moment: Moment) {
        let (item, time) = self.pick_up();
        let last = self.last.get();
        let ahead = items::time_bits(u64::from(time).wrapping_sub(last));
        self.produce_with_more(last.wrapping_add(ahead.into()), &[item], moment);
    }

    /// Takes the item at the landing, and has the next one land there too.
    #[inline(always)]
    fn pick_up(&self) -> (Item, u32) {
        let landing = self.at.load(Ordering::Relaxed).wrapping_sub(Self::ITEM);
        self.at.store(landing, Ordering::Release);
        let words = landing.cast::<u32>();
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
        let (id, time) = items::split(T::LAYOUT.order, head);
        let data = whole(T::LAYOUT, [first, second]) as usize;
        (
            Item {
                id: id.into(),
                data,
            },
            time,
        )
    }

    /// Counts items as discarded.
    pub fn lose(&self, items: usize) {
        // A reader that sees them counted also sees what came before.
        fence(Ordering::Release);
        add(&self.discarded, items as u32);
        add(&self.dropped, items as u32);
    }

    /// The periodic tick: see the module's words on times.
    pub fn tick(&self, now: u64) {
        // However long ago the last item was: the low bits alone tell that it was too long.
        const LONG: u64 = 2 << TIME_BITS;
        if now.wrapping_sub(self.last.get()) > LONG && !self.blind.get() {
            self.last.set(now - (1 << TIME_BITS));
        }
        if self.blind.get() && now.wrapping_sub(self.last.get()) >= SYNC && self.is_open() {
            let at = self.at.load(Ordering::Relaxed);
            if Self::room(at) >= Self::ITEM {
                let now = now.max(self.last.get());
                self.put_time(at, now);
                self.at
                    .store(at.wrapping_add(Self::ITEM), Ordering::Release);
                self.last.set(now);
            }
        }
    }

    /// What is left of the packet that `at` is in, in bytes.
    fn room(at: *mut u8) -> usize {
        Self::LANDING.saturating_sub(at as usize & (Self::PACKET - 1))
    }

    /// Whether a packet has been begun and not closed. Anybody may ask; it may be another one the next
    /// moment.
    pub fn is_open(&self) -> bool {
        self.content.load(Ordering::Relaxed) == OPEN
    }

    /// Whether producers in assembly write here.
    pub fn is_blind(&self) -> bool {
        self.blind.get()
    }

    /// Forgets all packets and counts from the beginning again.
    pub fn clear(&self) {
        add(&self.clears, 1);
        fence(Ordering::Release);
        let landing = self.pointer(Self::LANDING as u32);
        self.content.store(0, Ordering::Release);
        self.at.store(landing, Ordering::Release);
        self.start.set(0);
        self.before.store(0, Ordering::Relaxed);
        self.full.set(false);
        self.taken_place.set(0);
        for counter in [
            &self.sequence,
            &self.times,
            &self.dropped,
            &self.discarded,
            &self.closed,
            &self.taken,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn mode(&self) -> Mode {
        const FIXED: u8 = Mode::Fixed as u8;
        const STREAM: u8 = Mode::Stream as u8;
        match self.mode.get() {
            FIXED => Mode::Fixed,
            STREAM => Mode::Stream,
            _ => Mode::Overwrite,
        }
    }

    /// How many items have been produced since the last clear, without those that are only times.
    fn position(&self) -> u32 {
        let content = match self.content.load(Ordering::Relaxed) {
            OPEN => self.at.load(Ordering::Relaxed) as usize & (Self::PACKET - 1),
            0 => Self::HEADER,
            content => content as usize & (Self::PACKET - 1),
        };
        let items = (content.saturating_sub(Self::HEADER) / Self::ITEM) as u32;
        self.before
            .load(Ordering::Relaxed)
            .wrapping_add(items)
            .wrapping_sub(self.times.load(Ordering::Relaxed))
            .wrapping_add(self.dropped.load(Ordering::Relaxed))
    }

    /// An offset in the memory as a pointer.
    fn pointer(&self, offset: u32) -> *mut u8 {
        self.memory
            .load(Ordering::Relaxed)
            .wrapping_add(offset as usize)
    }

    /// The word at an offset in the memory; 0 outside.
    fn word(&self, offset: u32) -> u32 {
        if offset as usize + 4 > self.packets.get() as usize * Self::PACKET {
            return 0;
        }
        // SAFETY: inside (checked), a multiple of 4 from an aligned base, only written atomically.
        ordered::<T>(unsafe { load_word(self.pointer(offset).cast()) })
    }
}
