//! User records filled in place, with interrupts in between.

use std::rc::Rc;

use kymo_device_tests::{Layouts, Random};
use kymo_recorder::config::STREAM;
use kymo_recorder::link::Control;
use kymo_wire::link::Mode;

use super::*;

fn block(kind: u16, data: &[u8]) -> Kind {
    Kind::Block {
        kind,
        data: data.to_vec(),
    }
}

impl Device {
    fn reserve(self, length: usize) -> *mut u8 {
        self.single.reserve(self.hot, self.config, length)
    }

    /// Fills a reserved record.
    fn fill(self, data: *mut u8, bytes: &[u8]) {
        assert!(!data.is_null());
        assert_eq!(data as usize % 4, 0, "aligned");
        // SAFETY: so many bytes were reserved.
        unsafe { data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn commit(self, data: *mut u8, kind: u16) {
        // SAFETY: it was reserved, and is not used again.
        unsafe { self.single.commit(self.hot, data, kind) };
    }

    fn discard(self, data: *mut u8) {
        // SAFETY: as above.
        unsafe { self.single.commit(self.hot, data, 0) };
    }

    fn bytes(self) -> u32 {
        self.single.writer().stream().figures().bytes
    }
}

#[test]
fn a_record_is_there_once_it_is_committed() {
    let device = Device::on();
    device.enter(MAIN);
    let first = device.reserve(5);
    device.fill(first, b"hello");
    device.hook(Event::Marker(1));
    let second = device.reserve(0);
    device.commit(second, 9);
    device.enter(WORK);
    device.commit(first, 7);
    device.exit(WORK);
    device.exit(MAIN);
    let expected = [
        recording(true, 0),
        enter(MAIN),
        block(7, b"hello"),
        Kind::Marker(1),
        block(9, b""),
        enter(WORK),
        exit(WORK),
        exit(MAIN),
    ];
    assert_eq!(device.kinds(), expected);
}

#[test]
fn what_is_discarded_leaves_nothing_behind_but_where_something_follows() {
    let device = Device::on();
    device.enter(MAIN);
    let before = device.bytes();
    // Also a long time later, for which there would be a record of its own.
    for wait in [0, 1 << 30] {
        device.port.time.set(device.port.time.get() + wait);
        let outer = device.reserve(100);
        let inner = device.reserve(40);
        device.discard(inner);
        device.discard(outer);
        assert_eq!(device.bytes(), before);
    }
    device.exit(MAIN);
    let followed = device.reserve(3);
    device.fill(followed, b"abc");
    device.hook(Event::Marker(2));
    device.discard(followed);
    let records = device.records();
    let kinds: Vec<Kind> = records.iter().map(|record| record.kind.clone()).collect();
    assert_eq!(kinds[..3], [recording(true, 0), enter(MAIN), exit(MAIN)]);
    assert!(matches!(kinds[3], Kind::Block { kind: 0, .. }));
    assert_eq!(kinds[4..], [Kind::Marker(2)]);
    assert!(
        records[2].time > records[1].time + (1 << 30),
        "the time is right"
    );
}

#[test]
fn however_long_ago_the_record_before_was_what_follows_one_taken_back_has_its_time() {
    const STEP: u64 = 1 << 30;
    for gap in [STEP, 4 * STEP - 16, 4 * STEP, 4 * STEP + 16, 9 * STEP] {
        // With a tick that says nothing of itself no reading is late.
        let device = Device::new(Config {
            flags: START_ON,
            tick_hz: 0,
            ..config(16, 1024)
        });
        let later = |ticks| device.port.time.set(device.port.time.get() + ticks);
        device.enter(MAIN);
        for _ in 0..gap / STEP {
            later(STEP);
            device.single.tick(device.hot, device.config);
        }
        later(gap % STEP);
        let data = device.reserve(4);
        assert!(!data.is_null());
        device.discard(data);
        later(32);
        device.exit(MAIN);
        let records = device.records();
        let times: Vec<u64> = records.iter().map(|record| record.time).collect();
        let [_, enter, exit] = times[..] else {
            panic!("{gap:#x}: {records:?}");
        };
        let passed = exit - enter - gap;
        assert!((32..64).contains(&passed), "{gap:#x}: {passed:#x}");
    }
}

#[test]
fn an_interrupt_at_any_point_finds_nothing_half_written() {
    for (n, keep) in (0..).flat_map(|n| [(n, true), (n, false)]) {
        let device = Device::on();
        let (count, struck) = (Cell::new(0), Rc::new(Cell::new(false)));
        let did = struck.clone();
        device.enter(MAIN);
        device.preempt(move |place| {
            if place != "counter" && count.replace(count.get() + 1) == n {
                did.set(true);
                let mine = device.reserve(2);
                device.fill(mine, b"is");
                device.commit(mine, 2);
                device.hook(Event::Marker(5));
            }
        });
        let data = device.reserve(6);
        device.fill(data, b"thread");
        if keep {
            device.commit(data, 1);
        } else {
            device.discard(data);
        }
        device.port.preempt.borrow_mut().take();
        if !struck.get() {
            assert!(n >= 4, "there are points before and after both");
            break;
        }
        let mut kinds = device.kinds();
        let at = kinds.iter().position(|it| *it == block(2, b"is"));
        let at = at.expect("the handler's is there");
        assert_eq!(kinds[at + 1], Kind::Marker(5), "point {n}");
        kinds.drain(at..at + 2);
        assert_eq!(kinds.remove(0), recording(true, 0));
        assert_eq!(kinds.remove(0), enter(MAIN));
        match kinds.pop() {
            Some(kind) if keep => assert_eq!(kind, block(1, b"thread"), "point {n}"),
            None => assert!(!keep),
            // Discarded with something behind it.
            Some(kind) => assert!(matches!(kind, Kind::Block { kind: 0, .. }), "point {n}"),
        }
        assert_eq!(kinds, [], "point {n}");
    }
}

#[test]
fn what_is_being_filled_is_not_overwritten_and_others_are_counted() {
    let device = Device::new(Config {
        flags: START_ON,
        ..config(3, 256)
    });
    let data = device.reserve(10);
    device.fill(data, b"0123456789");
    for value in 0..500 {
        device.hook(Event::Marker(value));
    }
    assert!(
        device
            .single
            .control(device.hot, device.config)
            .clear()
            .is_err()
    );
    device.single.clear(device.hot, device.config);
    device.commit(data, 3);
    device.hook(Event::Marker(500));
    let packets = device.read();
    let records: Vec<&Record> = packets.iter().flat_map(|p| &p.records).collect();
    let kept = records
        .iter()
        .filter(|record| matches!(record.kind, Kind::Marker(_)))
        .count() as u32;
    let lost = packets.last().expect("packets").discarded;
    let block = block(3, b"0123456789");
    // The last marker needed a place, which was that of the packet with the record.
    assert!(records.iter().all(|record| record.kind != block));
    assert_eq!(
        records.last().map(|it| it.kind.clone()),
        Some(Kind::Marker(500))
    );
    assert!(lost > 0 && kept > 0 && lost < 500);
    assert!(
        device
            .single
            .control(device.hot, device.config)
            .clear()
            .is_ok()
    );
}

#[test]
fn in_stream_mode_the_reader_waits_for_what_is_being_filled() {
    let device = Device::on();
    device.enter(MAIN);
    let control = device.single.control(device.hot, device.config);
    control.set_mode(Mode::Stream).expect("nobody reads");
    let buffer = device.single.writer().stream().buffer();
    let next = || {
        // SAFETY: this is the only reader.
        let bytes = unsafe { buffer.next() }?.to_vec();
        // SAFETY: `next` gave one.
        unsafe { buffer.release() };
        Some(packets(&bytes, Small::LAYOUT, 0x1000).remove(0))
    };
    for value in 0..300 {
        device.hook(Event::Marker(value));
    }
    let before = std::iter::from_fn(next).count();
    assert!(before >= 1);
    let data = device.reserve(4);
    device.fill(data, b"wait");
    for value in 0..400 {
        device.hook(Event::Marker(value));
    }
    assert!(next().is_none(), "not before it is committed");
    device.commit(data, 4);
    let first = next().expect("now it is there");
    let kinds: Vec<Kind> = first.records.into_iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&block(4, b"wait")));
    assert!(next().is_some());
}

#[test]
fn records_that_overlap_without_end_hold_nothing_back_for_ever() {
    // So many are open at a time, each over more than a packet.
    for open in 1..6 {
        let device = Device::new(Config {
            flags: START_ON | STREAM,
            ..config(24, 256)
        });
        let buffer = device.single.writer().stream().buffer();
        let mut taken = Vec::new();
        let mut records = std::collections::VecDeque::new();
        for number in 0..200u8 {
            let data = device.reserve(1);
            device.fill(data, &[number]);
            records.push_back((data, number));
            for value in 0..40 {
                device.hook(Event::Marker(value));
            }
            if records.len() == open {
                let (data, number) = records.pop_front().expect("there are some");
                device.commit(data, 1 + u16::from(number));
            }
            // SAFETY: this is the only reader, and each is released once.
            while let Some(packet) = unsafe { buffer.next() } {
                taken.extend_from_slice(packet);
                // SAFETY: as above.
                unsafe { buffer.release() };
            }
        }
        let taken = packets(&taken, Small::LAYOUT, 0x1000);
        let kinds = taken.iter().flat_map(|packet| &packet.records);
        let blocks = kinds.filter_map(|record| match &record.kind {
            Kind::Block { kind, data } => Some((*kind, data[0])),
            _ => None,
        });
        let blocks: Vec<_> = blocks.collect();
        assert!(blocks.len() > 150, "{open} open: {}", blocks.len());
        let whole = |(kind, number): &(u16, u8)| *kind == 1 + u16::from(*number);
        assert!(blocks.iter().all(whole), "none is taken before it is whole");
        assert_eq!(device.lost(), 0, "{open} open");
    }
}

#[test]
fn a_record_that_cannot_be_is_refused_and_counted() {
    let device = Device::new(config(4, 256));
    assert!(device.reserve(4).is_null());
    assert_eq!(device.lost(), 0, "off");
    device.set_recording(true);
    for length in [256, 70_000, usize::MAX] {
        assert!(device.reserve(length).is_null());
    }
    // kymo.h promises 80 bytes less than a packet.
    let most = device.reserve(256 - 44 - 8 - 3 - 4 - 4);
    assert!(!most.is_null());
    device.commit(most, 1);
    assert_eq!(device.read().last().expect("packets").discarded, 3);
}

/// Compares random sequences of reserving, filling, committing and discarding, with events between, with a list.
#[test]
fn any_order_of_things() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let device = Device::new(Config {
            flags: START_ON,
            ..config(64, 1024)
        });
        // What should be in the trace: the place of each reserved record, or `None` for one gone.
        let mut list: Vec<Option<Kind>> = vec![Some(recording(true, 0))];
        let mut open: Vec<(usize, *mut u8, Vec<u8>)> = Vec::new();
        device.enter(MAIN);
        list.push(Some(enter(MAIN)));
        for step in 0..random.below(200) {
            device
                .port
                .time
                .set(device.port.time.get() + (1 << random.below(28)));
            match random.below(4) {
                0 => {
                    let bytes = vec![step as u8; random.below(40) as usize];
                    let data = device.reserve(bytes.len());
                    device.fill(data, &bytes);
                    open.push((list.len(), data, bytes));
                    list.push(Some(block(0, &[])));
                }
                1 if !open.is_empty() => {
                    let which = random.below(open.len() as u64) as usize;
                    let (place, data, bytes) = open.remove(which);
                    device.commit(data, 1 + step as u16);
                    list[place] = Some(block(1 + step as u16, &bytes));
                }
                2 if !open.is_empty() => {
                    let which = random.below(open.len() as u64) as usize;
                    let (_, data, _) = open.remove(which);
                    device.discard(data);
                }
                _ => {
                    device.hook(Event::Marker(step as u32));
                    list.push(Some(Kind::Marker(step as u32)));
                }
            }
        }
        for (_, data, _) in open.drain(..) {
            device.discard(data);
        }
        let records = device.records();
        assert!(records.is_sorted_by_key(|record| record.time));
        // What was discarded may be there as unfinished, and then nothing else is missing.
        let unfinished = |kind: &Kind| matches!(kind, Kind::Block { kind: 0, .. });
        let found = records.into_iter().map(|record| record.kind);
        let found: Vec<Kind> = found.filter(|kind| !unfinished(kind)).collect();
        let expected = list.into_iter().flatten();
        let expected: Vec<Kind> = expected.filter(|kind| !unfinished(kind)).collect();
        assert_eq!(found, expected, "seed {seed}");
        assert!(!device.single.writer().stream().is_reserved());
    }
}
