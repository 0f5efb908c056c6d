//! Lets the program read items out of a ring while it is being written.
//!
//! The reader passes a buffer of any size, as often as it likes, and gets the items produced since, in order, with
//! 64-bit times. Items that it can no longer get, because the ring wrapped around, are counted exactly: every item that
//! was produced is either returned once or counted once. (RTEMS's `rtems_record_fetch` checks for an overflow only when
//! it begins a round. With a buffer smaller than its ring it thus loses and repeats items without reporting it.)
//!
//! The writer does not know the readers. A reader keeps what it read only if the writer had not reached that slot again
//! by the end of the read. It checks the number of packets begun, which the writer increments *before* it writes to the
//! new packet's slot.

use kymo_wire::items::{self, TIME, TIME_BITS};

use super::word::whole;
use super::{OPEN, Ring};
use crate::Target;
use crate::sync::{Ordering, fence};

/// Number of attempts of a reader that the writer overtakes, before it returns what it has. On one processor an
/// interrupt would have to preempt each attempt, so this is for writers on other processors that never pause.
const TRIES: u32 = if cfg!(loom) { 3 } else { 100 };

/// Read position. All zero at first; the reader keeps it from call to call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Time of the last item read.
    time: u64,
    /// The number of the current packet.
    packet: u32,
    /// Number of its bytes read; 0: not examined yet.
    offset: u32,
    /// Number of items returned or counted as lost.
    position: u32,
    /// Number of items counted as lost while this packet was the newest.
    dropped: u32,
    /// The ring's clears at the last use.
    clears: u32,
    /// The packet's slot. (It can't be derived from the number, which wraps around to 0.)
    place: u32,
}

/// An item with its complete time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// Time of production, in ticks.
    pub time: u64,
    /// Its payload.
    pub data: usize,
    /// Its id.
    pub id: u16,
}

/// Result of a read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of items returned.
    pub count: usize,
    /// Number of items lost before the returned ones, since the last call. The next call reports losses behind them, so
    /// a call also ends where items were lost.
    pub lost: u32,
    /// Whether more can be read now: false if the reader has interrupted a writer that is beginning a packet.
    pub more: bool,
}

/// Snapshot of the writer's state.
struct View {
    /// Number of packets begun.
    begun: u32,
    /// End of the newest one's content, as an offset in it.
    end: usize,
    /// Items lost since it was begun.
    dropped: u32,
    /// Its slot.
    place: u32,
}

impl Cursor {
    /// A cursor at the beginning.
    pub const fn new() -> Self {
        Self {
            time: 0,
            packet: 0,
            offset: 0,
            position: 0,
            dropped: 0,
            clears: 0,
            place: 0,
        }
    }
}

impl<T: Target> Ring<T> {
    /// A cursor behind all items. For the writer, while no packet is open.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn end(&self) -> Cursor {
        Cursor {
            packet: self.sequence.load(Ordering::Relaxed),
            position: self.position(),
            dropped: self.dropped.load(Ordering::Relaxed),
            clears: self.clears.load(Ordering::Relaxed),
            place: match self.content.load(Ordering::Relaxed) {
                0 => 0,
                content => self.behind(Self::place_at(content)),
            },
            ..Cursor::new()
        }
    }

    /// Copies the items behind `cursor`, as many as fit into `out`, and advances it. Any context may call it, beside
    /// the writer. Each reader has its own cursor, and gets all items independently of the others.
    ///
    /// The call ends after a bounded time, however fast others write. Where they write faster than this reads there is
    /// always [more](Drained::more), so a loop until there is none needs a bound.
    pub fn drain(&self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        let mut drained = Drained::default();
        let mut haste = 0;
        let mut seen = false;
        for _ in 0..TRIES {
            let before = (*cursor, drained);
            let clears = self.clears.load(Ordering::Acquire);
            let view = self.view();
            // A writer that this context has interrupted itself does not continue before this ends.
            seen = view.is_some();
            let Some(view) = view else { continue };
            match self.drain_packet(cursor, out, &mut drained, haste, clears, &view) {
                Some(true) => {}
                Some(false) => return drained,
                // The writer has overtaken: the items just read may be invalid.
                None => {
                    (*cursor, drained) = before;
                    haste += 1;
                }
            }
        }
        drained.more = seen;
        drained
    }

    /// Reads from one packet: returns whether to continue, or `None` if the writer overtook meanwhile. `haste` is the
    /// number of oldest packets to give up, so that a slow reader gets anything at all. The caller read `clears` and
    /// `view` before, in this order.
    fn drain_packet(
        &self,
        cursor: &mut Cursor,
        out: &mut [Timed],
        drained: &mut Drained,
        haste: u32,
        clears: u32,
        view: &View,
    ) -> Option<bool> {
        if clears != cursor.clears {
            *cursor = Cursor {
                clears,
                ..Cursor::default()
            };
        }
        let places = self.packets.get();
        let kept = places.saturating_sub(haste).max(1);
        // Number of packets from the cursor's on. The packet numbers wrap around to 0.
        let mut behind = view.begun.wrapping_sub(cursor.packet);
        if behind > kept {
            behind = kept;
            cursor.packet = view.begun.wrapping_sub(kept);
            cursor.place = (view.place + places - (kept - 1)) % places.max(1);
            cursor.offset = 0;
        }
        let start = cursor.place * Self::PACKET as u32;
        let newest = behind <= 1;
        let mut end = view.end;
        let mut lost = 0;
        let mut count = drained.count;
        if behind != 0 {
            let header = self.header(start);
            if cursor.offset == 0 {
                let before = self.word(start + Self::HEADER as u32 - 4);
                lost = before.wrapping_sub(cursor.position);
                if lost != 0 && count > 0 {
                    // The next call reports these losses.
                    drained.more = true;
                    return Some(false);
                }
                cursor.position = before;
                cursor.offset = Self::HEADER as u32;
                cursor.dropped = 0;
                cursor.time = header.map_or(0, |header| header.begin);
            }
            if !newest {
                end = header.map_or(0, |header| header.content_bits / 8) as usize;
            }
            while cursor.offset as usize + Self::ITEM <= end {
                match self.read(start, cursor) {
                    Some(item) => match out.get_mut(count) {
                        Some(to) => *to = item,
                        None => break,
                    },
                    None => {
                        cursor.offset += Self::ITEM as u32;
                        continue;
                    }
                }
                count += 1;
                cursor.offset += Self::ITEM as u32;
                cursor.position = cursor.position.wrapping_add(1);
            }
        }
        let whole = behind == 0 || cursor.offset as usize + Self::ITEM > end;
        let mut more_lost = false;
        if newest && whole {
            let more = view.dropped.wrapping_sub(cursor.dropped);
            more_lost = more != 0 && count > 0;
            if !more_lost {
                lost = lost.wrapping_add(more);
                cursor.position = cursor.position.wrapping_add(more);
                cursor.dropped = view.dropped;
            }
        }
        // Check that nothing that was read has been overwritten.
        fence(Ordering::Acquire);
        let begun = self.sequence.load(Ordering::Relaxed);
        let kept = begun.wrapping_sub(cursor.packet) <= places;
        if !kept || self.clears.load(Ordering::Relaxed) != clears {
            return None;
        }
        drained.count = count;
        drained.lost = drained.lost.wrapping_add(lost);
        drained.more = !(newest && whole) || more_lost;
        if whole && !newest {
            cursor.packet = cursor.packet.wrapping_add(1);
            cursor.place = self.behind(cursor.place);
            cursor.offset = 0;
            return Some(true);
        }
        Some(false)
    }

    /// Snapshot of the writer's state, if it is consistent.
    fn view(&self) -> Option<View> {
        let begun = self.sequence.load(Ordering::Acquire);
        let content = self.content.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let dropped = self.dropped.load(Ordering::Acquire);
        let memory = self.memory.load(Ordering::Relaxed);
        let end = match content {
            OPEN => (at as usize).wrapping_sub(memory as usize),
            // A packet is being begun.
            0 if begun != 0 => return None,
            0 => Self::HEADER,
            content => content as usize,
        };
        fence(Ordering::Acquire);
        let same = self.content.load(Ordering::Acquire) == content
            && self.sequence.load(Ordering::Relaxed) == begun;
        same.then_some(View {
            begun,
            end: end & (Self::PACKET - 1),
            dropped,
            place: Self::place_at(end as u32),
        })
    }

    /// Slot of an offset in the memory.
    fn place_at(offset: u32) -> u32 {
        offset / Self::PACKET as u32
    }

    /// The slot after another.
    pub(super) fn behind(&self, place: u32) -> u32 {
        let next = place + 1;
        if next < self.packets.get() { next } else { 0 }
    }

    /// Reads the item at the cursor and updates the cursor's time; `None` for a time item.
    fn read(&self, start: u32, cursor: &mut Cursor) -> Option<Timed> {
        let order = T::LAYOUT.order;
        let at = start + cursor.offset;
        let (head, first) = (self.word(at), self.word(at + 4));
        let (id, time) = items::split(order, head);
        if id == TIME {
            cursor.time = items::from_long_time(order, cursor.time, [head, first]);
            return None;
        }
        let ahead = items::time_bits(u64::from(time).wrapping_sub(cursor.time));
        // When `out` is full the item is read again in the next call, which computes its time anew.
        cursor.time = cursor.time.wrapping_add(ahead.into());
        let second = if Self::ITEM == 12 {
            self.word(at + 8)
        } else {
            0
        };
        Some(Timed {
            time: cursor.time,
            data: whole(T::LAYOUT, [first, second]) as usize,
            id,
        })
    }
}

const _: () = assert!(TIME_BITS == 22, "the C header says so");

#[cfg(all(test, not(loom)))]
mod tests {
    use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
    use kymo_wire::link::Mode;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::items::{Item, PacketContext};

    struct Machine;

    impl Target for Machine {
        const LAYOUT: Layout = Layout {
            shape: Shape::Compact,
            word: WordSize::Bits32,
            order: ByteOrder::NATIVE,
            function_shift: 0,
        };
    }

    /// A ring of three packets, in which the next packet has this number.
    fn ring(mode: Mode, next: u32) -> Ring<Machine> {
        const PACKET: usize = Ring::<Machine>::PACKET;
        let memory = vec![0u64; 4 * PACKET / 8].leak().as_mut_ptr().cast::<u8>();
        let ring = Ring::empty();
        // SAFETY: the memory is leaked, and aligned.
        assert!(unsafe { ring.give(memory.wrapping_add(memory.align_offset(PACKET)), 3, 0) });
        ring.set_mode(mode);
        ring.sequence.store(next, Ordering::Relaxed);
        ring.closed.store(next, Ordering::Relaxed);
        ring.taken.store(next, Ordering::Relaxed);
        ring
    }

    /// Produces the item of this number; returns whether it was kept.
    fn produce(ring: &Ring<Machine>, data: usize) -> bool {
        let before = ring.figures().discarded;
        ring.produce(
            data as u64,
            &[Item { id: 600, data }],
            PacketContext::default,
        );
        ring.figures().discarded == before
    }

    #[test]
    fn draining_goes_on_where_the_numbers_of_packets_begin_again() {
        for pause in [1, 50, 250] {
            let ring = ring(Mode::Overwrite, u32::MAX - 3);
            let mut cursor = ring.end();
            let (mut next, mut lost) = (0, 0u32);
            for data in 0..2000 {
                produce(&ring, data);
                if data % pause != 0 {
                    continue;
                }
                let mut out = [Timed::default(); 7];
                loop {
                    let drained = ring.drain(&mut cursor, &mut out);
                    lost += drained.lost;
                    next += drained.lost as usize;
                    for item in &out[..drained.count] {
                        assert_eq!((item.data, item.time), (next, next as u64));
                        next += 1;
                    }
                    if !drained.more {
                        break;
                    }
                }
                assert_eq!(next, data + 1, "every item is given or counted");
            }
            assert_eq!(lost, 0);
            assert!(ring.figures().packets < 100, "they have begun again");
            assert_eq!(ring.kept(), 3);
        }
    }

    #[test]
    fn a_slow_reader_counts_what_it_missed_across_the_turn() {
        let ring = ring(Mode::Overwrite, u32::MAX - 3);
        let mut cursor = ring.end();
        (0..2000).for_each(|data| _ = produce(&ring, data));
        let mut out = [Timed::default(); 2000];
        let drained = ring.drain(&mut cursor, &mut out);
        assert!(drained.lost > 1000);
        let first = drained.lost as usize;
        let given = &out[..drained.count];
        assert!(given.iter().map(|item| item.data).eq(first..2000));
    }

    #[test]
    fn packets_are_taken_in_order_where_their_numbers_begin_again() {
        let ring = ring(Mode::Stream, u32::MAX - 3);
        let (mut sequence, mut items) = (u32::MAX - 3, Vec::new());
        for data in 0..2000usize {
            assert!(produce(&ring, data));
            while let Some(packet) = ring.next() {
                let word = |at: usize| {
                    u32::from_ne_bytes(*packet[at..].first_chunk().expect("it is longer"))
                };
                assert_eq!(word(8), sequence);
                sequence = sequence.wrapping_add(1);
                let content = packet.chunks_exact(Ring::<Machine>::ITEM);
                let content = content.skip(Ring::<Machine>::HEADER / Ring::<Machine>::ITEM);
                items.extend(content.map(|item| {
                    u32::from_ne_bytes(*item[4..].first_chunk().expect("it is longer"))
                }));
                ring.release();
            }
        }
        assert!(sequence < 100 && items.len() > 1500, "{}", items.len());
        assert!(items.iter().zip(0..).all(|(item, number)| *item == number));
    }
}
