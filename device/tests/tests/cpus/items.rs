//! Items of several CPUs, and user records that a CPU fills in place.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kymo_device_tests::ItemPacket;
use kymo_recorder::config::FIXED;
use kymo_recorder::cpus::CpuItems;
use kymo_recorder::items::{Cursor, Item, Ring, Timed};
use kymo_wire::link::Mode;

use super::*;

/// Memory for packets of items, with their alignment.
#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Place(#[allow(dead_code, reason = "only its address is used")] [u8; 4096]);

/// Four CPUs, of which `cpus` have `packets` packets of items each.
fn device(flags: u32, cpus: u32, packets: u32) -> Device {
    let places = vec![Place([0; 4096]); (cpus * packets) as usize].leak();
    Device {
        items: Some(leak(CpuItems {
            memory: places.as_mut_ptr().cast(),
            packets,
            cpus,
        })),
        ..Device::new(flags, 64)
    }
}

fn item(id: u32, data: usize) -> Item {
    Item { id, data }
}

/// The items of a dump by CPU, and the number of lost ones.
fn items_of(dump: &[u8]) -> BTreeMap<u16, (Vec<Timed>, u32)> {
    let (packets, _) = ItemPacket::take(Machine::LAYOUT, dump);
    let mut found = BTreeMap::<u16, (Vec<Timed>, u32)>::new();
    for packet in packets {
        let (items, lost) = found.entry(packet.header.cpu).or_default();
        items.extend(packet.items);
        *lost = packet.header.discarded;
    }
    found
}

#[test]
fn every_cpu_has_a_ring_of_its_own() {
    // So many that each goes on in a second packet.
    const ITEMS: usize = 500;
    let device = device(START_ON, CPUS.into(), 4);
    device.run(|cpu| {
        for number in 0..ITEMS {
            device.marker(number as u32);
            let two = [item(512 + u32::from(cpu), number), item(600, number + 1)];
            device.cpus.produce(device.gate, &two);
        }
    });
    let found = items_of(&device.dump());
    assert_eq!(found.len(), usize::from(CPUS));
    for (cpu, (items, lost)) in found {
        assert_eq!(lost, 0);
        assert_eq!(items.len(), 2 * ITEMS);
        for (pair, number) in items.chunks(2).zip(0..) {
            assert_eq!((pair[0].id, pair[0].data), (512 + cpu, number));
            assert_eq!((pair[1].id, pair[1].data), (600, number + 1));
            assert_eq!(pair[0].time, pair[1].time, "they share one time");
        }
        assert!(items.is_sorted_by_key(|item| item.time));
    }
    // Cleared, they are gone.
    assert!(device.talk(&Host::command(4, "clear")).replies[0].1);
    assert!(items_of(&device.dump()).is_empty());
}

#[test]
fn what_a_ring_cannot_keep_is_counted() {
    // CPU 1 has no ring, and CPU 0 one that is soon full.
    let device = device(START_ON | FIXED, 1, 2);
    let room = 2 * Ring::<Machine>::CAPACITY;
    device.run(|cpu| match cpu {
        0 => {
            for number in 0..room + 7 {
                device.cpus.produce(device.gate, &[item(1000, number)]);
            }
        }
        1 => {
            device.marker(1);
            let two = [item(1000, 1), item(1000, 2)];
            device.cpus.produce(device.gate, &two);
        }
        _ => {}
    });
    assert_eq!(figure(&device.status(), "discarded"), 7 + 2);
    let dump = device.dump();
    let (items, _) = &items_of(&dump)[&0];
    assert_eq!(items.len(), room);
    let lost: u32 = packets(
        &ItemPacket::take(Machine::LAYOUT, &dump).1,
        Machine::LAYOUT,
        0x1000,
    )
    .iter()
    .filter(|packet| packet.cpu == 1)
    .map(|packet| packet.discarded)
    .sum();
    assert_eq!(lost, 2, "told among the events");
}

#[test]
fn a_cpu_drains_its_own_items_while_it_records() {
    let device = device(START_ON, CPUS.into(), 2);
    device.run(|cpu| {
        let mut cursor = Cursor::default();
        let mut next = 0;
        for number in 0..3000 {
            let data = number << 8 | usize::from(cpu);
            device.cpus.produce(device.gate, &[item(700, data)]);
            if number % 100 == 99 {
                let mut out = [Timed::default(); 64];
                loop {
                    let drained = device.cpus.drain(&mut cursor, &mut out);
                    assert_eq!(drained.lost, 0);
                    for item in &out[..drained.count] {
                        assert_eq!(item.data, next << 8 | usize::from(cpu));
                        next += 1;
                    }
                    if !drained.more {
                        break;
                    }
                }
                assert_eq!(next, number + 1);
            }
        }
    });
}

#[test]
fn items_are_taken_while_all_record() {
    let device = device(START_ON | STREAM, CPUS.into(), 4);
    device.run(|cpu| {
        for number in 0..100 {
            device.cpus.produce(device.gate, &[item(512, number)]);
        }
        device.cpus.flush(device.gate);
        let _ = cpu;
    });
    assert_eq!(
        device.cpus.cpu_buffers()[0].writer().stream().mode(),
        Mode::Stream
    );
    let mut taken = Vec::new();
    while device
        .cpus
        .take_packets(device.gate, |_, packet| taken.extend_from_slice(packet))
        != 0
    {}
    let found = items_of(&taken);
    for cpu in 0..CPUS {
        let (items, _) = &found[&cpu];
        assert!(items.iter().map(|item| item.data).eq(0..100), "cpu {cpu}");
    }
}

#[test]
fn a_record_is_filled_in_place_on_each_cpu() {
    let device = Device::new(START_ON, 16);
    device.run(|cpu| {
        for number in 0..50u8 {
            let data = device.cpus.reserve(device.gate, 3);
            assert!(!data.is_null());
            // Others go on meanwhile, this CPU too; what is discarded then stays as unfinished.
            let kept = number % 2 == 0;
            if kept {
                device.marker(number.into());
            }
            // SAFETY: three bytes were reserved, by this CPU, and are used for the last time.
            unsafe {
                data.copy_from_nonoverlapping([cpu as u8, number, 7].as_ptr(), 3);
                device
                    .cpus
                    .commit(device.gate, data, if kept { 9 } else { 0 });
            }
        }
    });
    let trace = device.trace();
    for cpu in 0..CPUS {
        let blocks: Vec<_> = of(&trace, cpu)
            .into_iter()
            .filter_map(|(_, kind)| match kind {
                Kind::Block { kind, data } => Some((kind, data)),
                _ => None,
            })
            .collect();
        let expected = (0..50u8).step_by(2);
        let expected: Vec<_> = expected.map(|n| (9, vec![cpu as u8, n, 7])).collect();
        assert_eq!(blocks, expected, "cpu {cpu}");
    }
}

#[test]
fn a_record_is_committed_on_another_cpu_than_it_was_reserved_on() {
    const ROUNDS: u8 = 200;
    let device = Device::new(START_ON | STREAM, 64);
    // Records go from one CPU to the other through these; 0 is a free place. (The thread sanitizer
    // does not see into the standard library's channels.)
    let places: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
    let place = |number: u8| &places[usize::from(number) % places.len()];
    let taken = Mutex::new(Vec::new());
    let take = || {
        let mut bytes = taken.lock().expect("nobody panics");
        let push = |_, packet: &[u8]| bytes.extend_from_slice(packet);
        device.cpus.take_packets(device.gate, push)
    };
    let reserve = || loop {
        let data = device.cpus.reserve(device.gate, 3);
        // Where there is no room the reader comes soon.
        if !data.is_null() {
            return data;
        }
        std::thread::yield_now();
    };
    device.run(|cpu| match cpu {
        0 => {
            for number in 0..ROUNDS {
                // Several are open at a time, in more than two packets now and then.
                let data = reserve() as usize;
                while place(number).load(Ordering::Acquire) != 0 {
                    std::thread::yield_now();
                }
                place(number).store(data, Ordering::Release);
                (0..60).for_each(|value| device.marker(value));
            }
        }
        1 => {
            for number in 0..ROUNDS {
                let data = loop {
                    match place(number).swap(0, Ordering::AcqRel) {
                        0 => std::thread::yield_now(),
                        data => break std::ptr::with_exposed_provenance_mut::<u8>(data),
                    }
                };
                let kind = if number % 4 == 0 { 0 } else { 9 };
                // SAFETY: three bytes were reserved, and are used for the last time.
                unsafe {
                    data.copy_from_nonoverlapping([1, number, 7].as_ptr(), 3);
                    device.cpus.commit(device.gate, data, kind);
                }
                device.marker(number.into());
                take();
            }
        }
        _ => {}
    });
    while take() != 0 {}
    let bytes = taken.into_inner().expect("nobody panics");
    let trace = packets(&bytes, Machine::LAYOUT, 0x1000);
    let numbers: Vec<u8> = of(&trace, 0)
        .into_iter()
        .filter_map(|(_, kind)| match kind {
            Kind::Block { kind: 9, data } => Some(data[1]),
            _ => None,
        })
        .collect();
    // The last ones may be in the packet that is open.
    let expected: Vec<u8> = (0..ROUNDS).filter(|number| number % 4 != 0).collect();
    assert!(numbers.len() > 100, "{numbers:?}");
    assert!(expected.starts_with(&numbers), "{numbers:?}");
    let cpu_buffer = device.cpus.cpu_buffers().first().expect("a CPU buffer");
    let stream = cpu_buffer.writer().stream();
    assert!(!stream.is_reserved(), "nothing is held back any more");
}
