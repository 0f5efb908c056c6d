//! Streams of items: read by name, with their data, beside the events of the same dump; also by babeltrace2.

use std::path::Path;
use std::process::Command;

use kymo_event::{Cpu, Event, EventKind, Gap, Value};
use kymo_fixtures::recorder::{every_way, identity, layouts, small};
use kymo_fixtures::{babeltrace, missing};
use kymo_read::OpenOptions;
use kymo_read::kymo::{Dump, Program, open_dump, write_trace};
use kymo_wire::event::{ByteOrder, Layout, PacketHeader};
use kymo_wire::packet::ITEM_STREAM;

/// Time, id and data of an item; without data it only has a time.
type Item = (u64, u16, Option<u64>);

/// Writes the low `count` bits of `value` after the first `from` bits of `word`.
fn bits(order: ByteOrder, word: &mut u64, from: u32, count: u32, value: u64) {
    let value = value & ((1 << count) - 1);
    *word |= match order {
        ByteOrder::Little => value << from,
        ByteOrder::Big => value << (64 - from - count),
    };
}

fn bytes(order: ByteOrder, value: u64, size: usize) -> Vec<u8> {
    match order {
        ByteOrder::Little => value.to_le_bytes()[..size].to_vec(),
        ByteOrder::Big => value.to_be_bytes()[8 - size..].to_vec(),
    }
}

/// A packet of items of ring `cpu`, by the table in `kymo_wire::items`.
fn packet(layout: Layout, cpu: u16, sequence: u32, before: u32, items: &[Item]) -> Vec<u8> {
    let order = layout.order;
    let word = layout.word.bytes();
    let front = layout.header_bytes() + 4;
    let size = front + items.len() * (4 + word);
    let header = PacketHeader {
        stream: ITEM_STREAM,
        flags: 0,
        isr_depth: 0,
        cpu,
        sequence,
        discarded: 0,
        begin: items[0].0,
        end: items[items.len() - 1].0,
        content_bits: size as u32 * 8,
        packet_bits: size as u32 * 8,
        thread: 0x50,
    };
    let mut packet = vec![0; front];
    header.write(layout, &mut packet).unwrap();
    packet[front - 4..].copy_from_slice(&bytes(order, before.into(), 4));
    for (time, id, data) in items {
        let mut first = 0;
        bits(order, &mut first, 0, 10, u64::from(*id));
        match data {
            Some(data) => {
                bits(order, &mut first, 10, 22, *time);
                let head = bytes(order, first, 8);
                packet.extend(&head[..4]);
                packet.extend(bytes(order, *data, word));
            }
            None => {
                bits(order, &mut first, 10, 54, *time);
                packet.extend(bytes(order, first, 8));
                packet.extend(vec![0; word - 4]);
            }
        }
    }
    assert_eq!(packet.len(), size);
    packet
}

/// Two packets of the ring of all items, with `missing` items between them, one packet of a level's ring, and the
/// packets of a dump without items.
fn dump(layout: Layout, missing: u32) -> Vec<u8> {
    let first = [
        (0x1000, 108, Some(0x40_0123)),
        (0x1000, 22, Some(64)),
        (0x40_0FFF, 600, Some(7)),
        // A time difference with more than 22 bits.
        (0x5_0000_0000, 511, None),
        (0x5_0000_0010, 109, Some(0x40_0123)),
        (0x5_0000_0010, 142, Some(0x2000_0000)),
    ];
    let behind = [(0x5_0000_2000, 1023, Some(u64::from(u32::MAX)))];
    let level = [(0x1001, 71, Some(3)), (0x1002, 72, Some(3))];
    [
        packet(layout, 0, 0, 0, &first),
        packet(layout, 256, 0, 0, &level),
        packet(layout, 0, 1 + missing, 40, &behind),
        small(layout).0,
    ]
    .concat()
}

#[test]
fn items_are_read_by_name() {
    for layout in layouts() {
        every_way(layout, &dump(layout, 1), &mut |source| {
            let names: Vec<_> = source
                .info()
                .streams
                .iter()
                .map(|it| it.name.clone())
                .collect();
            assert!(names.contains(&"items0".to_owned()), "{names:?}");
            assert!(names.contains(&"items256".to_owned()), "{names:?}");
            let items = names.iter().position(|name| name == "items0").unwrap() as u32;
            // Items are no calls, so their losses must not affect calls.
            for stream in &source.info().streams {
                assert_eq!(stream.without_calls, stream.name.starts_with("items"));
            }
            let events = kymo_fixtures::recorder::events(source);
            let mine: Vec<_> = events.iter().filter(|it| it.stream.0 == items).collect();
            let reported: Vec<(&str, u64)> = mine
                .iter()
                .filter(|event| event.record)
                .map(|event| {
                    let data = event.fields.iter().find(|field| field.name == "data");
                    let value = data.map_or(0, |field| match field.value {
                        Value::Hex(value) | Value::Unsigned(value) => value,
                        ref other => panic!("{other:?}"),
                    });
                    (&*event.name, value)
                })
                .collect();
            assert_eq!(
                reported,
                [
                    ("MALLOC_ENTRY", 0x40_0123),
                    ("ARG_0", 64),
                    ("USER_88", 7),
                    ("time", 0),
                    ("MALLOC_EXIT", 0x40_0123),
                    ("RETURN_0", 0x2000_0000),
                    ("USER_511", u64::from(u32::MAX)),
                ],
                "{layout:?}"
            );
            assert!(mine.iter().all(|event| event.cpu == Some(Cpu(0))));
            assert!(mine.iter().all(|event| event.thread.is_none()));
            let gap = mine.iter().find_map(|event| match &event.kind {
                EventKind::Gap(gap) => Some(gap),
                _ => None,
            });
            assert_eq!(gap, Some(&Gap::LostPackets { packets: Some(1) }));
            let distance = mine[4].time.0 - mine[0].time.0;
            let ticks = 0x5_0000_0010u64 - 0x1000;
            let hz = u128::from(identity(layout).clock_hz);
            let expected = u128::from(ticks) * 1_000_000_000 / hz;
            assert!(
                u128::from(distance as u64).abs_diff(expected) <= 1,
                "{layout:?}"
            );
            let level = events
                .iter()
                .filter(|event| event.name.starts_with("INTERRUPT_"));
            assert!(level.clone().all(|event| event.cpu == Some(Cpu(0))));
            assert_eq!(level.count(), 2);
        });
    }
}

/// The names of the events of a dump in memory, and whether damage was reported.
fn read(layout: Layout, bytes: &[u8]) -> (Vec<String>, bool) {
    let options = OpenOptions::default();
    let dump = open_dump(&identity(layout), bytes.to_vec(), &[], "test", &options);
    let events = kymo_fixtures::recorder::events(&mut *dump.unwrap());
    let damage = |event: &Event| matches!(event.kind, EventKind::Gap(Gap::Damage { .. }));
    let damaged = events.iter().any(damage);
    let names = events.into_iter().map(|event| event.name.into_owned());
    (names.filter(|name| !name.is_empty()).collect(), damaged)
}

/// A truncated packet, one that contains garbage, one with a hole: intact items are kept, garbage is not read.
#[test]
fn damaged_items_are_told() {
    for layout in layouts() {
        let item = 4 + layout.word.bytes();
        let items = [(10, 600, Some(1)), (20, 601, Some(2)), (30, 602, Some(3))];
        let whole = packet(layout, 0, 0, 0, &items);
        let good = (vec!["USER_88".to_owned(), "USER_89".to_owned()], true);
        for cut in 1..=item {
            assert_eq!(
                read(layout, &whole[..whole.len() - cut]),
                good,
                "{layout:?} {cut}"
            );
        }
        let at = whole.len() - item;
        let mut late = whole.clone();
        late[match layout.order {
            ByteOrder::Little => at + 3,
            ByteOrder::Big => at + 1,
        }] ^= 0x10;
        assert_eq!(read(layout, &late), (Vec::new(), true), "{layout:?}");
        let hole = [(40, 0, Some(0)), (40, 0, Some(0))];
        let mut holed = packet(layout, 0, 0, 0, &[&items[..2], &hole[..]].concat());
        let from = holed.len() - 2 * item;
        holed[from..].fill(0);
        assert_eq!(read(layout, &holed), good, "{layout:?}");
    }
}

fn every_layout(command: &Path) {
    for layout in layouts() {
        let bytes = dump(layout, 0);
        let identity = identity(layout);
        let dump = Dump {
            identity: &identity,
            bytes: &bytes,
            missing: &[],
            target: "test",
        };
        let folder = tempfile::tempdir().unwrap();
        write_trace(folder.path(), &dump, &Program::default()).unwrap();
        let (_, others) = small(layout);
        assert_eq!(
            babeltrace::agrees(command, folder.path(), 1),
            others + 9,
            "{layout:?}"
        );
    }
}

#[test]
fn babeltrace_agrees() {
    let command = Path::new("babeltrace2");
    match Command::new(command).arg("--version").output() {
        Ok(_) => every_layout(command),
        Err(error) => missing(&format!("babeltrace2 cannot be run: {error}")),
    }
}
