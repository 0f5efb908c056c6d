//! The packets of a ring: room for items in the newest, the next one, headers.

use kymo_wire::event::{ByteOrder, PacketHeader};
use kymo_wire::items::{self, LONG_TIME_BITS, TIME_BITS};
use kymo_wire::link::Mode;
use kymo_wire::packet::{ITEM_STREAM, PACKET_MAGIC};

use super::word::{halves, in_order, ordered};
use super::{Moment, OPEN, Ring};
use crate::Target;
use crate::sync::{Ordering, add, fence, store_word};

impl<T: Target> Ring<T> {
    /// Finds room for so many items, in a new packet if need be, and with a time before them if the
    /// last item is far away. Gives their place and time; or counts them as discarded.
    pub(super) fn reserve(&self, now: u64, count: usize, moment: Moment) -> Option<(*mut u8, u64)> {
        let last = self.last.get();
        let now = if self.is_open() { now.max(last) } else { now };
        let distance = now.wrapping_sub(last);
        let lead = usize::from(distance >> TIME_BITS != 0);
        let mut at = self.at.load(Ordering::Relaxed);
        let fits = self.is_open()
            && distance >> LONG_TIME_BITS == 0
            && Self::room(at) >= (count + lead) * Self::ITEM;
        if fits {
            if lead != 0 {
                self.put_time(at, now);
                at = at.wrapping_add(Self::ITEM);
            }
        } else if count <= Self::CAPACITY && self.open(now, moment) {
            at = self.at.load(Ordering::Relaxed);
        } else {
            self.lose(count);
            return None;
        }
        self.last.set(now);
        Some((at, now))
    }

    /// Begins the next packet; false if there is no place for it.
    fn open(&self, now: u64, moment: Moment) -> bool {
        self.close(now);
        let (sequence, packets) = (self.sequence.load(Ordering::Relaxed), self.packets.get());
        let places_used = sequence.wrapping_sub(match self.mode() {
            Mode::Stream => self.taken.load(Ordering::Acquire),
            _ => 0,
        });
        let no_place = match self.mode() {
            Mode::Overwrite => false,
            Mode::Fixed => self.full.get() || places_used >= packets,
            Mode::Stream => places_used >= packets,
        };
        if no_place || (sequence == 0 && !self.usable()) {
            self.full.set(true);
            return false;
        }
        let next = self.start.get() + Self::PACKET as u32;
        let start = match sequence {
            0 => 0,
            _ if next as usize >= packets as usize * Self::PACKET => 0,
            _ => next,
        };
        let before = self.position();
        // A reader that sees the new number sees no content before it is this packet's. And what
        // stood in this place is gone from here on: who has read it looks at the number again.
        self.content.store(0, Ordering::Relaxed);
        self.sequence
            .store(sequence.wrapping_add(1), Ordering::Release);
        fence(Ordering::Release);
        self.start.set(start);
        self.before.store(before, Ordering::Relaxed);
        self.times.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        self.put_header(start, sequence, before, now, moment);
        let at = self.pointer(start + Self::HEADER as u32);
        self.at.store(at, Ordering::Release);
        self.content.store(OPEN, Ordering::Release);
        true
    }

    /// Completes the newest packet; what comes next begins a new one, and until then lands.
    pub(super) fn close(&self, now: u64) {
        if !self.is_open() {
            return;
        }
        let at = self.at.load(Ordering::Relaxed);
        let start = self.start.get();
        let content = (at as usize & (Self::PACKET - 1)) as u32;
        let place = self.pointer(start);
        let discarded = self.discarded.load(Ordering::Relaxed);
        let [end, end_second] = in_order(T::LAYOUT.order, now.max(self.last.get()));
        // SAFETY: it is a packet's place, which begins with a header.
        unsafe {
            Self::put_word(place, PacketHeader::DISCARDED_OFFSET, discarded);
            Self::put_word(place, PacketHeader::END_OFFSET, end);
            Self::put_word(place, PacketHeader::END_OFFSET + 4, end_second);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET, content * 8);
            Self::put_word(place, PacketHeader::CONTENT_OFFSET + 4, content * 8);
        }
        self.content.store(start + content, Ordering::Release);
        let landing = self.pointer(start + Self::LANDING as u32);
        self.at.store(landing, Ordering::Release);
        self.closed
            .store(self.sequence.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Stores a [`TIME`](items::TIME) item at `at`, where there is room for it.
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
    }

    /// Writes the header of a packet that begins at `now`, in the place at `start`.
    #[inline(always)]
    fn put_header(&self, start: u32, sequence: u32, before: u32, now: u64, moment: Moment) {
        let order = T::LAYOUT.order;
        let flags = PacketHeader::flags_byte(order, moment.flags, moment.isr_depth);
        let (stream, flags) = (u32::from(ITEM_STREAM), u32::from(flags));
        let cpu = u32::from(self.number.get());
        let front = match order {
            ByteOrder::Little => stream | flags << 8 | cpu << 16,
            ByteOrder::Big => stream << 24 | flags << 16 | cpu,
        };
        let [begin, begin_second] = in_order(order, now);
        let [thread, thread_second] = halves(T::LAYOUT, moment.thread as u64);
        let discarded = self.discarded.load(Ordering::Relaxed);
        let content = Self::HEADER as u32 * 8;
        let place = self.pointer(start);
        // SAFETY: it is a packet's place, which is longer than a header.
        unsafe {
            Self::put_word(place, 0, PACKET_MAGIC);
            Self::put_word(place, 4, front);
            Self::put_word(place, PacketHeader::SEQUENCE_OFFSET, sequence);
            Self::put_word(place, PacketHeader::DISCARDED_OFFSET, discarded);
            for at in [PacketHeader::BEGIN_OFFSET, PacketHeader::END_OFFSET] {
                Self::put_word(place, at, begin);
                Self::put_word(place, at + 4, begin_second);
            }
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
    /// `place` is a packet's, and has 4 bytes at `offset`, a multiple of 4.
    #[inline(always)]
    unsafe fn put_word(place: *mut u8, offset: usize, value: u32) {
        // SAFETY: by this function's contract.
        unsafe { store_word(place.add(offset).cast(), ordered::<T>(value)) };
    }
}
