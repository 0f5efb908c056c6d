//! Packets of a ring: makes room in the newest, begins and closes packets, writes headers.

use kymo_wire::event::{ByteOrder, PacketHeader};
use kymo_wire::items::{self, LONG_TIME_BITS, TIME_BITS};
use kymo_wire::link::Mode;
use kymo_wire::packet::{ITEM_STREAM, PACKET_MAGIC};

use super::word::{halves, in_order, ordered};
use super::{OPEN, PacketContext, Ring};
use crate::Target;
use crate::sync::{Ordering, add, load_acquire, release, store_address, store_release, store_word};

impl<T: Target> Ring<T> {
    /// Makes one change towards room for `count` items (no more than [`CAPACITY`](Self::CAPACITY)) at `now`, which is
    /// not before the last one's time; a new packet's header records `context`. Returns false if there can be no room.
    /// The ring is [usable](Self::usable).
    #[inline(always)]
    pub(crate) fn make_room(&self, now: u64, count: usize, context: PacketContext) -> bool {
        if !self.is_open() {
            return self.begin(now, context);
        }
        let (last, at) = (self.last(), self.at.load(Ordering::Relaxed));
        // Only this code changes the upper half of the time.
        let upper = (now >> 32) as u32 ^ (last >> 32) as u32;
        let far = upper != 0 || (now as u32).wrapping_sub(last as u32) >> TIME_BITS != 0;
        if upper >> (LONG_TIME_BITS - 32) != 0 || !Self::fits(at, count + usize::from(far)) {
            self.close(now);
        } else if far {
            self.put_time(at, now);
        }
        true
    }

    /// Whether there is a free slot for the next packet, when `begun` have been begun.
    #[inline(always)]
    fn has_place_behind(&self, begun: u32) -> bool {
        // In mode *stream*, slots of released packets are free again.
        let used = begun.wrapping_sub(load_acquire(&self.taken));
        self.mode.get() == Mode::Overwrite as u8 || used < self.packets.get()
    }

    /// Whether there is a free slot for the next packet.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn has_place(&self) -> bool {
        self.has_place_behind(self.sequence.load(Ordering::Relaxed))
    }

    /// Begins the next packet, while none is open; returns false if there is no free slot.
    #[inline(always)]
    fn begin(&self, now: u64, context: PacketContext) -> bool {
        let (sequence, packets) = (self.sequence.load(Ordering::Relaxed), self.packets.get());
        if !self.has_place_behind(sequence) {
            return false;
        }
        let memory = self.memory.load(Ordering::Relaxed);
        let mut place = memory;
        // (The number may have wrapped around to 0.)
        if self.content.load(Ordering::Relaxed) != 0 {
            place = Self::packet_of(self.at.load(Ordering::Relaxed)).wrapping_add(Self::PACKET);
            if place as usize - memory as usize >= packets as usize * Self::PACKET {
                place = memory;
                self.round.set(true);
            }
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        let before = self.before.load(Ordering::Relaxed).wrapping_add(dropped);
        // A reader that sees the new number sees no content before this packet's. From here on the slot's previous
        // content is overwritten: a reader that has read it checks the number again.
        self.content.store(0, Ordering::Relaxed);
        store_release(&self.sequence, sequence.wrapping_add(1));
        release();
        self.before.store(before, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.put_header(place, sequence, before, now, context);
        self.set_last(now);
        store_address(&self.at, place.wrapping_add(Self::HEADER));
        store_release(&self.content, OPEN);
        true
    }

    /// Closes the open packet. The next item begins a new one, and until then goes to the sentinel slot.
    #[inline(never)]
    fn close(&self, now: u64) {
        let at = self.at.load(Ordering::Relaxed);
        let place = Self::packet_of(at);
        let bits = (at as usize - place as usize) as u32 * 8;
        let discarded = self.discarded.load(Ordering::Relaxed);
        let [end, end_second] = in_order(T::LAYOUT.order, now);
        // SAFETY: it is a packet's slot, which begins with a header.
        unsafe {
            Self::put_word(place, PacketHeader::DISCARDED_OFFSET, discarded);
            Self::put_word(place, PacketHeader::END_OFFSET, end);
            Self::put_word(place, PacketHeader::END_OFFSET + 4, end_second);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET, bits);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET + 4, bits);
        }
        add(&self.before, self.items(at));
        let memory = self.memory.load(Ordering::Relaxed);
        store_release(&self.content, (at as usize - memory as usize) as u32);
        store_address(&self.at, place.wrapping_add(Self::SENTINEL));
        store_release(&self.closed, self.sequence.load(Ordering::Relaxed));
    }

    /// Closes the newest packet at `now`, so that a reader may get it.
    pub fn seal(&self, now: u64) {
        if self.is_open() {
            self.close(now.max(self.last()));
        }
    }

    /// Stores a [`TIME`](items::TIME) item at `at`, the end of the content, where there is room for it.
    #[inline(never)]
    pub(super) fn put_time(&self, at: *mut u8, now: u64) {
        let [head, low] = items::long_time(T::LAYOUT.order, now);
        let words = at.cast::<u32>();
        // SAFETY: the caller found room, in the ring's memory.
        unsafe {
            store_word(words, ordered::<T>(head));
            store_word(words.add(1), ordered::<T>(low));
            if Self::ITEM == 12 {
                store_word(words.add(2), 0);
            }
        }
        add(&self.times, 1);
        self.set_last(now);
        store_address(&self.at, at.wrapping_add(Self::ITEM));
    }

    /// Writes the header of a packet that begins at `now`, into the slot at `place`.
    #[inline(always)]
    fn put_header(
        &self,
        place: *mut u8,
        sequence: u32,
        before: u32,
        now: u64,
        context: PacketContext,
    ) {
        let order = T::LAYOUT.order;
        let flags = PacketHeader::flags_byte(order, context.flags, context.isr_depth);
        let (stream, flags) = (u32::from(ITEM_STREAM), u32::from(flags));
        let cpu = u32::from(self.number.get());
        let front = match order {
            ByteOrder::Little => stream | flags << 8 | cpu << 16,
            ByteOrder::Big => stream << 24 | flags << 16 | cpu,
        };
        let [begin, begin_second] = in_order(order, now);
        let [thread, thread_second] = halves(T::LAYOUT, context.thread as u64);
        let discarded = self.discarded.load(Ordering::Relaxed);
        let content = Self::HEADER as u32 * 8;
        // SAFETY: it is a packet's slot, which is longer than a header.
        unsafe {
            Self::put_word(place, 0, PACKET_MAGIC);
            Self::put_word(place, 4, front);
            Self::put_word(place, PacketHeader::SEQUENCE_OFFSET, sequence);
            Self::put_word(place, PacketHeader::DISCARDED_OFFSET, discarded);
            // (One by one: a loop takes longer.)
            Self::put_word(place, PacketHeader::BEGIN_OFFSET, begin);
            Self::put_word(place, PacketHeader::BEGIN_OFFSET + 4, begin_second);
            Self::put_word(place, PacketHeader::END_OFFSET, begin);
            Self::put_word(place, PacketHeader::END_OFFSET + 4, begin_second);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET, content);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET + 4, content);
            Self::put_word(place, PacketHeader::WORD_OFFSET, thread);
            if Self::ITEM == 12 {
                Self::put_word(place, PacketHeader::WORD_OFFSET + 4, thread_second);
            }
            Self::put_word(place, Self::HEADER - 4, before);
        }
    }

    /// Stores a word of a header.
    ///
    /// # Safety
    /// `place` is a packet's slot, and has 4 bytes at `offset`, a multiple of 4.
    #[inline(always)]
    unsafe fn put_word(place: *mut u8, offset: usize, value: u32) {
        // SAFETY: by this function's contract.
        unsafe { store_word(place.add(offset).cast(), ordered::<T>(value)) };
    }
}
