//! Taking items out of a ring while it is written, for the program itself.
//!
//! The reader gives a buffer of any size, as often as it likes, and gets what was produced since,
//! in order, with times of 64 bits. What it cannot have any more, because the ring went round, is
//! counted, to the item: every item that was produced is either given once or counted once. (RTEMS's
//! `rtems_record_fetch` looks for an overflow only when it begins a round, so with a buffer smaller
//! than its ring it loses and repeats items without saying so.)
//!
//! The writer takes no notice of the reader. So what was read counts only if the writer had not come
//! round to that packet before the reading was over; it says so by the number of packets it has
//! begun, which it raises *before* it writes to the new one's place.

use kymo_wire::items::{self, TIME, TIME_BITS};

use super::word::whole;
use super::{OPEN, Ring};
use crate::Target;
use crate::sync::{Ordering, fence};

/// How often a reader tries again because the writer came round, before it gives what it has: on
/// one processor an interrupt must preempt each time, so this is for others that write without end.
const TRIES: u32 = if cfg!(loom) { 3 } else { 100 };

/// How far a reader has come. All zero at first, and kept by the reader from call to call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The time of the last item that was read.
    time: u64,
    /// The number of the packet ...
    packet: u32,
    /// ... and how many of its bytes have been read; 0: it has not been looked at.
    offset: u32,
    /// The items that were given or counted as lost.
    position: u32,
    /// How many were counted as lost while this packet was the newest.
    dropped: u32,
    /// The ring's clears when this was last used.
    clears: u32,
    /// Where the packet lies, counted in packets. (Its number does not say: numbers begin again at 0.)
    place: u32,
}

/// An item with its whole time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// When it was produced, in ticks.
    pub time: u64,
    /// What it says.
    pub data: usize,
    /// Its id.
    pub id: u16,
}

/// What a reader got.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// How many items were given.
    pub count: usize,
    /// How many items were lost in front of those that are given, since the last call. What is lost behind
    /// them is for the next call, so a call also ends where something was lost.
    pub lost: u32,
    /// There is more to read, at this moment: not if the reader has interrupted a writer who is
    /// beginning a packet.
    pub more: bool,
}

/// What a reader sees of the writer at one moment.
struct View {
    /// How many packets have been begun.
    begun: u32,
    /// Where the newest one ends, as an offset in it.
    end: usize,
    /// Items lost since it was begun.
    dropped: u32,
    /// Where it lies, counted in packets.
    place: u32,
}

impl Cursor {
    /// At the beginning.
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
    /// A cursor behind all items there are. For the writer, while no packet is open.
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

    /// Gives the items behind `cursor`, as many as fit into `out`, and moves it behind them. For any
    /// context, beside the writer; each reader has a cursor of its own, and none takes anything from
    /// another.
    ///
    /// It ends after a bounded time, however fast others write. Where they write faster than this reads
    /// there is always [more](Drained::more), so who calls it until there is none has to have an end.
    pub fn drain(&self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        let mut drained = Drained::default();
        let mut haste = 0;
        let mut seen = false;
        for _ in 0..TRIES {
            let before = (*cursor, drained);
            let clears = self.clears.load(Ordering::Acquire);
            let view = self.view();
            // A writer that this has itself interrupted does not go on before this ends.
            seen = view.is_some();
            let Some(view) = view else { continue };
            match self.drain_packet(cursor, out, &mut drained, haste, clears, &view) {
                Some(true) => {}
                Some(false) => return drained,
                // The writer came round: what was just read may be anything.
                None => {
                    (*cursor, drained) = before;
                    haste += 1;
                }
            }
        }
        drained.more = seen;
        drained
    }

    /// One step of it, within one packet: whether there is more to do, or `None` if the writer came
    /// round meanwhile. `haste`: how many packets that the writer comes to next are given up, so that
    /// a reader that is slow gets something. `clears` and `view` were read before, in this order.
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
        // How many packets there are from the cursor's on. Their numbers begin again at 0.
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
                    // Behind what was given.
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
        // Nothing that was read may have been written over.
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

    /// What the writer is at, if it could be seen whole.
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

    /// The place that an offset in the memory is in, counted in packets.
    fn place_at(offset: u32) -> u32 {
        offset / Self::PACKET as u32
    }

    /// The place behind another.
    pub(super) fn behind(&self, place: u32) -> u32 {
        let next = place + 1;
        if next < self.packets.get() { next } else { 0 }
    }

    /// Reads the item at the cursor, whose time becomes the cursor's; `None` for one that is only a
    /// time.
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
        // A buffer that is full leaves the item for the next time: its time is found anew then.
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
    use crate::items::{Item, Moment};

    struct Machine;

    impl Target for Machine {
        const LAYOUT: Layout = Layout {
            shape: Shape::Compact,
            word: WordSize::Bits32,
            order: ByteOrder::NATIVE,
            function_shift: 0,
        };
    }

    /// A ring of three packets, where the next one begun has this number.
    fn ring(mode: Mode, next: u32) -> Ring<Machine> {
        const PACKET: usize = Ring::<Machine>::PACKET;
        let memory = vec![0u64; 4 * PACKET / 8].leak().as_mut_ptr().cast::<u8>();
        let ring = Ring::empty();
        // SAFETY: the memory is there for good, and aligned.
        assert!(unsafe { ring.give(memory.wrapping_add(memory.align_offset(PACKET)), 3, 0) });
        ring.set_mode(mode);
        ring.sequence.store(next, Ordering::Relaxed);
        ring.closed.store(next, Ordering::Relaxed);
        ring.taken.store(next, Ordering::Relaxed);
        ring
    }

    /// Produces the item of this number, and whether that was kept.
    fn produce(ring: &Ring<Machine>, data: usize) -> bool {
        let before = ring.figures().discarded;
        ring.produce(data as u64, &[Item { id: 600, data }], Moment::default);
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
