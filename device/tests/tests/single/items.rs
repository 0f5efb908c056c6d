//! Items in addition to the events of one processor.

use std::cell::Cell;
use std::rc::Rc;

use kymo_device_tests::{ItemPacket, Layouts};
use kymo_recorder::items::{Item, Ring};
use kymo_recorder::link::{Control, Refusal, SCRATCH_BYTES, Subject};

use super::*;

type SmallRing = Ring<Mock<Small>>;

/// A ring with memory for this many packets.
fn ring(packets: u32, number: u16) -> &'static SmallRing {
    let size = SmallRing::PACKET;
    let memory = leak(vec![0u8; (packets as usize + 1) * size])
        .as_ptr()
        .cast_mut();
    let memory = memory.wrapping_add(memory.align_offset(size));
    // SAFETY: it is there for good, initialized, aligned, and nobody else's.
    leak(unsafe { Ring::new(memory, packets, number) })
}

fn item(id: u32, data: usize) -> Item {
    Item { id, data }
}

impl Device {
    fn produce(self, ring: &'static SmallRing, items: &[Item]) {
        self.single.produce(self.hot, self.config, ring, items);
    }

    /// Closes a ring and returns its items, as id and data.
    fn items(self, ring: &SmallRing) -> Vec<(u16, usize)> {
        ring.seal(self.port.time.get());
        (0..)
            // SAFETY: the ring is sealed, and nobody writes.
            .map_while(|n| unsafe { ring.packet(n) })
            .flat_map(|bytes| ItemPacket::decode(Small::LAYOUT, bytes).items)
            .map(|item| (item.id, item.data))
            .collect()
    }
}

#[test]
fn items_are_recorded_while_the_gate_is_open() {
    let device = Device::new(config(16, 1024));
    let ring = ring(4, 0);
    device.produce(ring, &[item(600, 1)]);
    device.set_recording(true);
    device.produce(ring, &[item(601, 2), item(602, 3)]);
    device.enable(false);
    device.produce(ring, &[item(603, 4)]);
    device.enable(true);
    device.produce(ring, &[item(604, 5)]);
    device.set_recording(false);
    device.produce(ring, &[item(605, 6)]);
    assert_eq!(device.items(ring), [(601, 2), (602, 3), (604, 5)]);
    assert_eq!(ring.figures().discarded, 0, "what is off is not lost");
}

#[test]
fn an_interrupt_finds_no_item_half_written_and_none_between_two_of_one_time() {
    for one_level in [false, true] {
        for n in 0.. {
            let device = Device::on();
            let (own, other) = (ring(4, 0), ring(4, 256));
            let (count, struck) = (Cell::new(0), Rc::new(Cell::new(false)));
            let did = struck.clone();
            device.produce(own, &[item(512, 0)]);
            device.preempt(move |place| {
                if place != "counter" && count.replace(count.get() + 1) == n {
                    did.set(true);
                    // A ring of one level of interrupts is not for another.
                    let ring = if one_level { other } else { own };
                    device.produce(ring, &[item(700, 7), item(701, 8)]);
                }
            });
            for data in 1..3 {
                let items = [item(513, data), item(514, data)];
                device.produce(own, &items);
            }
            device.port.preempt.borrow_mut().take();
            if !struck.get() {
                assert!(n >= 4, "there are points before and after each");
                break;
            }
            let mut all = device.items(own);
            let mine = [(512, 0), (513, 1), (514, 1), (513, 2), (514, 2)];
            if one_level {
                assert_eq!(all, mine, "point {n}");
                assert_eq!(device.items(other), [(700, 7), (701, 8)]);
            } else {
                let at = all.iter().position(|it| it.0 == 700).expect("it is there");
                assert_eq!(at % 2, 1, "point {n}: {all:?}");
                let between: Vec<_> = all.splice(at..at + 2, []).collect();
                assert_eq!(between, [(700, 7), (701, 8)], "point {n}");
                assert_eq!(all, mine, "point {n}");
            }
        }
    }
}

#[test]
fn a_dump_has_the_metadata_then_items_then_events() {
    let device = Device::on();
    let (first, second) = (ring(4, 0), ring(4, 256));
    device.enter(MAIN);
    device.produce(first, &[item(600, 1)]);
    device.produce(second, &[item(601, 2)]);
    let handle = device.single.control(device.hot, device.config);
    assert_eq!(handle.freeze(Subject::Trace), Ok::<(), Refusal>(()));
    device.produce(first, &[item(602, 3), item(603, 4)]);
    let mut dump = Vec::new();
    let mut scratch = [0; SCRATCH_BYTES];
    let mut n = 0;
    let mut order = Vec::new();
    while let Some(chunk) = handle.chunk(Subject::Trace, n, &mut scratch) {
        let header = kymo_wire::event::PacketHeader::read(Small::LAYOUT, chunk);
        order.push(header.map(|header| (header.stream, header.cpu)));
        dump.extend_from_slice(chunk);
        n += 1;
    }
    let expected = [(0, 0xFFFF), (1, 0), (1, 256), (0, 0)].map(Some);
    assert_eq!(order, expected);
    handle.thaw();
    device.produce(first, &[item(604, 5)]);
    let (items, events) = ItemPacket::take(Small::LAYOUT, &dump);
    assert_eq!(items.len(), 2);
    assert_eq!(packets(&events, Small::LAYOUT, 0x1000).len(), 2);
    assert_eq!(device.items(first), [(600, 1), (604, 5)]);
    assert_eq!(
        first.figures().discarded,
        2,
        "what came meanwhile is counted"
    );
    handle.clear().expect("nobody reads");
    assert_eq!(device.items(first), []);
    assert_eq!(first.figures().produced, 0);
}
