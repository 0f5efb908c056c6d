//! Rings of items: every item is read as produced, or counted as lost.
//!
//! The decoder is independent of the recorder's: it follows the table in `kymo_wire::items`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use kymo_device_tests::{ItemPacket, Layouts, Mock, Random, layout};
use kymo_recorder::Target;
use kymo_recorder::items::{Cursor, Item, PacketContext, Ring, SYNC, Timed};
use kymo_wire::event::{ByteOrder, WordSize};
use kymo_wire::link::Mode;

/// A ring with its own memory.
fn ring<L: Layouts + 'static>(packets: u32, number: u16) -> &'static Ring<Mock<L>> {
    let size = Ring::<Mock<L>>::PACKET;
    let bytes = packets as usize * size;
    let memory = Vec::leak(vec![0u8; bytes + size]).as_mut_ptr();
    let memory = memory.wrapping_add(memory.align_offset(size));
    let ring = Box::leak(Box::new(Ring::empty()));
    // SAFETY: it is there for good, initialized, and nobody else's.
    assert!(unsafe { ring.give(memory, packets, number) });
    ring
}

/// The ring's part of a dump, after closing the ring at `now`.
fn dump<L: Layouts>(ring: &Ring<Mock<L>>, now: u64) -> Vec<ItemPacket> {
    ring.seal(now);
    (0..)
        // SAFETY: it was sealed, and nobody writes.
        .map_while(|n| unsafe { ring.packet(n) })
        .map(|bytes| ItemPacket::decode(L::LAYOUT, bytes))
        .collect()
}

/// The items in packets, in order; checks that every item produced since `from` is there or counted as lost.
fn all(packets: &[ItemPacket], figures: kymo_recorder::items::Figures) -> Vec<Timed> {
    for pair in packets.windows(2) {
        let (old, new) = (&pair[0], &pair[1]);
        assert_eq!(new.header.sequence, old.header.sequence + 1);
        let lost = new.before - old.before - old.items.len() as u32;
        assert!(lost <= new.header.discarded);
        assert!(old.header.end <= new.header.begin);
    }
    if let Some(last) = packets.last() {
        let kept: u32 = packets.iter().map(|packet| packet.items.len() as u32).sum();
        let overwritten = packets[0].before;
        let lost = figures.produced - overwritten - kept;
        assert!(lost <= figures.discarded, "{figures:?}");
        assert!(last.header.discarded <= figures.discarded);
    }
    packets
        .iter()
        .flat_map(|packet| packet.items.clone())
        .collect()
}

fn moment() -> PacketContext {
    PacketContext {
        isr_depth: 2,
        thread: 0x77,
        flags: 0,
    }
}

/// A ring's pointer, as producers in assembly use it: its first word.
fn pointer<L: Layouts>(ring: &Ring<Mock<L>>) -> &AtomicPtr<u8> {
    // SAFETY: the structure is laid out as in C, and this is its first field.
    unsafe { &*std::ptr::from_ref(ring).cast::<AtomicPtr<u8>>() }
}

/// Produces an item as a hook in assembly does, which knows only `at`.
fn assembly<L: Layouts>(ring: &Ring<Mock<L>>, now: u64, id: u16, data: u32) {
    let layout = L::LAYOUT;
    let size = Ring::<Mock<L>>::PACKET;
    let pointer = pointer(ring);
    let at = pointer.load(Ordering::Relaxed);
    let next = at.wrapping_add(8);
    // SAFETY: `at` is in the ring's memory; nobody else is at it.
    unsafe {
        let time = (now & 0x3F_FFFF) as u32;
        let id = u32::from(id);
        let (head, order): (u32, fn(u32) -> [u8; 4]) = match layout.order {
            ByteOrder::Little => (id | time << 10, u32::to_le_bytes),
            ByteOrder::Big => (id << 22 | time, u32::to_be_bytes),
        };
        at.cast::<[u8; 4]>().write(order(head));
        at.add(4).cast::<[u8; 4]>().write(order(data));
    }
    pointer.store(next, Ordering::Relaxed);
    if (next as usize).is_multiple_of(size) {
        ring.produce(now, &[ring.pick_up()], moment);
    }
}

/// Compares random producers and readers with a plain list.
fn property<L: Layouts + 'static>(mode: Mode, in_assembly: bool) {
    // Miri takes thousands of times as long.
    let (seeds, steps) = if cfg!(miri) { (1, 100) } else { (60, 3000) };
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let packets = 2 + random.below(4) as u32;
        let ring = ring::<L>(packets, 5);
        ring.set_mode(mode);
        let mut now = random.below(1 << 40);
        let mut made: Vec<Timed> = Vec::new();
        // What came out of the drain.
        let mut got: Vec<Timed> = Vec::new();
        let (mut lost, mut cursor) = (0, Cursor::default());
        let mut streamed = Vec::new();
        for _ in 0..random.below(steps) {
            let far = !in_assembly && random.one_in(300);
            now += match random.below(if far { 4 } else { 2 }) {
                0 => random.below(40),
                1 => random.below(SYNC - 1),
                2 => random.below(1 << 33),
                _ => 1 << random.below(50),
            };
            if in_assembly {
                ring.tick(now);
                let data = made.len() as u32 | 0xA000_0000;
                let id = random.below(500) as u16;
                assembly(ring, now, id, data);
                made.push(Timed {
                    time: now,
                    data: data as usize,
                    id,
                });
            } else {
                let count = match random.below(40) {
                    0 => random.below(Ring::<Mock<L>>::CAPACITY as u64 + 3),
                    1 => 0,
                    n => n % 5,
                };
                let items: Vec<Item> = (0..count)
                    .map(|n| Item {
                        id: random.below(1024).clamp(0, 1023) as u32 % 511,
                        data: made.len() + n as usize,
                    })
                    .collect();
                ring.produce(now, &items, moment);
                made.extend(items.iter().map(|item| Timed {
                    time: now,
                    data: item.data,
                    id: item.id as u16,
                }));
            }
            if random.one_in(400) {
                ring.seal(now);
            }
            if mode == Mode::Stream && random.one_in(100) {
                while let Some(packet) = ring.next() {
                    streamed.push(ItemPacket::decode(L::LAYOUT, packet));
                    ring.release();
                }
            }
            if random.one_in(150) {
                let mut out = vec![Timed::default(); 1 + random.below(300) as usize];
                for _ in 0..random.below(4) {
                    let drained = ring.drain(&mut cursor, &mut out);
                    lost += drained.lost;
                    got.extend(&out[..drained.count]);
                    if !drained.more {
                        assert_eq!(got.len() + lost as usize, made.len(), "seed {seed}");
                    }
                }
            }
        }
        let mut out = vec![Timed::default(); 7];
        loop {
            let drained = ring.drain(&mut cursor, &mut out);
            lost += drained.lost;
            got.extend(&out[..drained.count]);
            if !drained.more {
                break;
            }
        }
        let figures = ring.figures();
        assert_eq!(figures.produced as usize, made.len(), "seed {seed}");
        assert_eq!(got.len() + lost as usize, made.len(), "seed {seed}");
        for item in &got {
            assert_eq!(made[item.data & 0xFFF_FFFF], *item, "seed {seed}");
        }
        assert!(got.is_sorted_by(|one, next| one.data < next.data));
        let rest = dump(ring, now);
        let kept = all(&rest, figures);
        match mode {
            Mode::Overwrite => {
                assert!(
                    made.ends_with(&kept) || figures.discarded > 0,
                    "seed {seed}"
                );
                let distance = made.len() - kept.len() - figures.discarded as usize;
                let overwritten = rest.first().map_or(0, |first| first.before) as usize;
                assert!(overwritten >= distance, "seed {seed}");
            }
            Mode::Fixed => {
                assert_eq!(kept.len() + figures.discarded as usize, made.len());
            }
            Mode::Stream => {
                while let Some(packet) = ring.next() {
                    streamed.push(ItemPacket::decode(L::LAYOUT, packet));
                    ring.release();
                }
                let items = all(&streamed, figures);
                assert_eq!(items.len() + figures.discarded as usize, made.len());
            }
        }
        for item in kept {
            assert_eq!(made[item.data & 0xFFF_FFFF], item, "seed {seed}");
        }
        assert!(rest.iter().all(|packet| packet.header.thread == 0x77
            && packet.header.isr_depth == 2
            && packet.header.cpu == 5));
    }
}

#[test]
fn whatever_is_produced_is_read_or_counted() {
    for mode in [Mode::Overwrite, Mode::Fixed, Mode::Stream] {
        property::<layout::Small>(mode, false);
        property::<layout::SmallBig>(mode, false);
        property::<layout::Large>(mode, false);
        property::<layout::LargeBig>(mode, false);
    }
}

#[test]
fn producers_in_assembly_need_nothing_but_the_pointer() {
    for mode in [Mode::Overwrite, Mode::Fixed, Mode::Stream] {
        property::<layout::Small>(mode, true);
        property::<layout::SmallBig>(mode, true);
    }
}

#[test]
fn items_of_one_time_stay_in_one_packet_and_more_than_it_holds_are_counted() {
    type Small = Ring<Mock<layout::Small>>;
    let ring = ring::<layout::Small>(3, 0);
    let item = |data| Item { id: 600, data };
    ring.produce(10, &[item(0)], moment);
    let many: Vec<Item> = (0..Small::CAPACITY).map(item).collect();
    ring.produce(20, &many, moment);
    let too_many: Vec<Item> = (0..=Small::CAPACITY).map(item).collect();
    ring.produce(30, &too_many, moment);
    ring.produce(40, &[item(1), item(2)], moment);
    let packets = dump(ring, 50);
    let counts: Vec<usize> = packets.iter().map(|packet| packet.items.len()).collect();
    assert_eq!(counts, [1, Small::CAPACITY, 2]);
    assert_eq!(ring.figures().discarded, Small::CAPACITY as u32 + 1);
    assert_eq!(
        packets[2].before as usize,
        1 + Small::CAPACITY + too_many.len()
    );
    assert_eq!(packets[1].header.discarded, Small::CAPACITY as u32 + 1);
}

#[test]
fn an_item_with_the_id_of_a_time_is_lost_and_counted_with_those_of_its_moment() {
    use kymo_wire::items::TIME;
    let ring = ring::<layout::Small>(2, 1);
    let item = |id: u32| Item { id, data: 7 };
    ring.produce(10, &[item(512)], moment);
    ring.produce(11, &[item(TIME.into())], moment);
    // Of more than 10 bits the low ones count.
    ring.produce(12, &[item(600), item(1024 + u32::from(TIME))], moment);
    ring.produce(13, &[item(513)], moment);
    assert_eq!(ring.figures().discarded, 3);
    assert_eq!(ring.figures().produced, 5);
    let packets = dump(ring, 20);
    let read: Vec<_> = all(&packets, ring.figures());
    let read: Vec<_> = read.iter().map(|timed| (timed.id, timed.time)).collect();
    assert_eq!(read, [(512, 10), (513, 13)]);
}

#[test]
fn what_lands_while_the_ring_is_held_still_is_lost_and_counted_but_not_while_it_is_off() {
    let ring = ring::<layout::Small>(2, 0);
    let pointer = pointer(ring);
    let land = || {
        let at = pointer.load(Ordering::Relaxed);
        // SAFETY: as a producer in assembly does it; the ring is closed, so `at` is at a landing.
        unsafe { at.cast::<[u32; 2]>().write([7 | 5 << 10, 9]) };
        pointer.store(at.wrapping_add(8), Ordering::Relaxed);
        let item = ring.pick_up();
        assert_eq!(item, Item { id: 7, data: 9 });
        assert_eq!(
            pointer.load(Ordering::Relaxed),
            at,
            "the next one lands there"
        );
        item
    };
    land();
    assert_eq!(ring.figures().produced, 0);
    land();
    ring.lose(1);
    assert_eq!((ring.figures().produced, ring.figures().discarded), (1, 1));
    ring.produce(6, &[land()], moment);
    let packets = dump(ring, 7);
    let items = &packets[0].items;
    let (time, data, id) = (6, 9, 7);
    assert_eq!(items[..], [Timed { time, data, id }]);
    assert_eq!(packets[0].before, 1, "the one that was lost came before");
}

#[test]
fn a_drain_knows_a_clear() {
    let ring = ring::<layout::Small>(2, 0);
    let mut cursor = Cursor::default();
    let mut out = [Timed::default(); 8];
    for round in 0..3 {
        for data in 0..4 {
            ring.produce(
                data,
                &[Item {
                    id: 1,
                    data: data as usize,
                }],
                moment,
            );
        }
        let drained = ring.drain(&mut cursor, &mut out[..3]);
        assert_eq!(
            (drained.count, drained.lost, drained.more),
            (3, 0, true),
            "{round}"
        );
        ring.clear();
        let drained = ring.drain(&mut cursor, &mut out);
        assert_eq!(
            (drained.count, drained.lost, drained.more),
            (0, 0, false),
            "{round}"
        );
    }
}

#[test]
fn a_drain_tells_a_loss_in_front_of_what_comes_behind_it() {
    let produce = |ring: &Ring<Mock<layout::Small>>, data: std::ops::Range<usize>| {
        for data in data {
            ring.produce(data as u64, &[Item { id: 1, data }], moment);
        }
    };
    let mut out = vec![Timed::default(); 2000];
    // The ring is full, and keeps the oldest.
    let ring = ring::<layout::Small>(2, 0);
    ring.set_mode(Mode::Fixed);
    produce(ring, 0..1000);
    let kept = 1000 - ring.figures().discarded as usize;
    let mut cursor = Cursor::default();
    let drained = ring.drain(&mut cursor, &mut out);
    assert_eq!((drained.count, drained.lost, drained.more), (kept, 0, true));
    let drained = ring.drain(&mut cursor, &mut out);
    let lost = (1000 - kept) as u32;
    assert_eq!(
        (drained.count, drained.lost, drained.more),
        (0, lost, false)
    );
    let drained = ring.drain(&mut cursor, &mut out);
    assert_eq!((drained.count, drained.lost, drained.more), (0, 0, false));

    // Mode *stream*: there was no room, and then there is.
    let ring = self::ring::<layout::Small>(2, 0);
    ring.set_mode(Mode::Stream);
    produce(ring, 0..1000);
    while ring.next().is_some() {
        ring.release();
    }
    produce(ring, 1000..1005);
    let mut cursor = Cursor::default();
    let (mut next, mut losses) = (0, 0);
    loop {
        let drained = ring.drain(&mut cursor, &mut out);
        next += drained.lost as usize;
        losses += u32::from(drained.lost != 0);
        for item in &out[..drained.count] {
            assert_eq!(item.data, next);
            next += 1;
        }
        if !drained.more {
            break;
        }
    }
    assert!(next == 1005 && losses > 0, "{next}, {losses}");
}

/// RTEMS's own client sets the time at an UPTIME pair, and adds the difference of the 22-bit times from item to item.
/// Here the packet's beginning is the pair.
#[test]
fn the_rules_of_rtems_give_the_same_times() {
    let ring = ring::<layout::Small>(4, 0);
    let mut random = Random::new(3);
    let mut now = 1 << 40;
    for data in 0..400 {
        now += random.below(1 << 21);
        ring.produce(now, &[Item { id: 700, data }], moment);
    }
    for packet in dump(ring, now) {
        assert_eq!(packet.times, 0);
        let mut uptime = packet.header.begin;
        let mut last = (uptime & 0x3F_FFFF) as u32;
        for item in &packet.items {
            let time = (item.time & 0x3F_FFFF) as u32;
            // Signed, so that two that were swapped by an interrupt do not cost a whole turn.
            let delta = (time.wrapping_sub(last) << 10) as i32 >> 10;
            uptime = uptime.wrapping_add_signed(delta.into());
            last = time;
            assert_eq!(uptime, item.time);
        }
    }
}

/// Stops another thread on drop.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An endless writer on another processor: the drain returns items in order, and reports everything that is missing.
#[test]
fn a_drain_beside_the_writer_never_loses_or_repeats_silently() {
    let ring = ring::<layout::Small>(3, 0);
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut data = 0;
            while !stop.load(Ordering::Relaxed) {
                let items = [data, data + 1, data + 2].map(|data| Item { id: 9, data });
                let count = 1 + data % 3;
                ring.produce(data as u64 * 11, &items[..count], moment);
                data += count;
                if data % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let _stop = Stop(stop);
        let mut random = Random::new(1);
        let (mut cursor, mut next, mut lost_ever, mut got) = (Cursor::default(), 0, 0, 0);
        // Until both have been seen often: what came whole, and what was lost.
        let (enough, lost_enough) = if cfg!(miri) {
            (300, 10)
        } else {
            (300_000, 1000)
        };
        while got < enough || lost_ever < lost_enough {
            let mut out = vec![Timed::default(); 1 + random.below(200) as usize];
            if random.one_in(20) {
                // Long enough for the writer to come round.
                let before = ring.figures().packets;
                while ring.figures().packets.wrapping_sub(before) < 4 {
                    std::thread::yield_now();
                }
            }
            let drained = ring.drain(&mut cursor, &mut out);
            // What is lost was in front of them.
            next += drained.lost as usize;
            for item in &out[..drained.count] {
                assert_eq!(item.id, 9);
                assert_eq!(item.data, next);
                // The time of its group, which is at most two items before it.
                let behind = item.data as u64 * 11 - item.time;
                assert!(behind == 0 || behind == 11 || behind == 22, "{behind}");
                next += 1;
            }
            lost_ever += drained.lost as usize;
            got += drained.count;
        }
    });
}

/// Mode *stream*: one reader consumes packets while the writer continues; items without room are counted in the next
/// packet.
#[test]
fn a_reader_of_packets_beside_the_writer_gets_all_that_is_not_counted() {
    let ring = ring::<layout::Large>(3, 0);
    ring.set_mode(Mode::Stream);
    const ITEMS: usize = if cfg!(miri) { 2000 } else { 200_000 };
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for data in 0..ITEMS {
                ring.produce(data as u64, &[Item { id: 9, data }], moment);
                if data % 300 == 0 {
                    std::thread::yield_now();
                }
            }
            ring.seal(ITEMS as u64);
            done.store(true, Ordering::Release);
        });
        let (mut read, mut next, mut sequence) = (0, 0, 0);
        let mut after: VecDeque<u32> = VecDeque::new();
        loop {
            let ended = done.load(Ordering::Acquire);
            while let Some(bytes) = ring.next() {
                let packet = ItemPacket::decode(layout::Large::LAYOUT, bytes);
                assert_eq!(packet.header.sequence, sequence);
                sequence += 1;
                for item in &packet.items {
                    assert!(item.data >= next && item.time == item.data as u64);
                    if item.data > next {
                        assert_eq!(
                            packet.before as usize, item.data,
                            "lost in front of a packet"
                        );
                    }
                    next = item.data + 1;
                    read += 1;
                }
                after.push_back(packet.before);
                ring.release();
            }
            if ended {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(read + ring.figures().discarded as usize, ITEMS);
        assert!(after.make_contiguous().is_sorted());
    });
}

/// The sizes of both layouts are the documented ones.
#[test]
fn packets_hold_what_is_documented() {
    type Small = Ring<Mock<layout::Small>>;
    type Large = Ring<Mock<layout::Large>>;
    assert_eq!((Small::PACKET, Small::ITEM, Small::HEADER), (1024, 8, 48));
    assert_eq!((Large::PACKET, Large::ITEM, Large::HEADER), (4096, 12, 52));
    assert_eq!((Small::CAPACITY, Large::CAPACITY), (121, 336));
    assert_eq!(
        <Mock<layout::Small> as Target>::LAYOUT.word,
        WordSize::Bits32
    );
}
