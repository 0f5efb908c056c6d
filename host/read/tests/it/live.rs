//! Packets that arrive one by one: stored and read as they arrive.

use std::fs;
use std::path::Path;

use kymo_event::{Addr, Event, EventKind, Field, Gap, StreamId, TraceInfo, Value, Wanted};
use kymo_fixtures::names::{named_threads, reported};
use kymo_fixtures::recorder::{
    CORTEX_M, Encoder, Op, TEXT_BASE, events, identity, layouts, small, ten_packets,
};
use kymo_read::kymo::{Dump, Live, Program, Recording, Tail, Taken, open_dump, write_trace};
use kymo_read::{OpenOptions, Source, open};
use kymo_wire::event::{EventId, Layout, METADATA_STREAM, OTHER_BYTES, PacketHeader, Shape};
use kymo_wire::packet::EVENT_STREAM;

/// The packets of a dump, in order.
fn split(layout: Layout, mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(header) = PacketHeader::read(layout, bytes) {
        let (packet, rest) = bytes.split_at(header.packet_bits as usize / 8);
        packets.push(packet.to_vec());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    packets
}

fn live(layout: Layout) -> Live {
    Live::of_target(&identity(layout), "test", None, &OpenOptions::default()).unwrap()
}

/// Events as sorted lines, without properties that depend on the stream numbers or on guessed threads.
fn essence(info: &TraceInfo, events: &[Event]) -> Vec<String> {
    let tell = |event: &Event| {
        let plain = Event {
            stream: StreamId(0),
            cpu: None,
            ..event.clone()
        };
        reported(info, &plain)
    };
    let mut all: Vec<_> = events.iter().map(tell).collect();
    // The positions of names and the order of streams may differ.
    all.sort();
    all
}

/// The path of a directory for a recording, which does not exist yet.
fn directory() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    (folder, path)
}

#[test]
fn what_comes_packet_by_packet_is_what_a_dump_has() {
    for layout in layouts() {
        let (bytes, count) = small(layout);
        let dump = identity(layout);
        let options = OpenOptions::default();
        let mut whole = open_dump(&dump, bytes.clone(), &[], "test", &options).unwrap();
        let of_whole = events(&mut *whole);
        let mut live = live(layout);
        let mut found = Vec::new();
        for packet in split(layout, &bytes) {
            live.push(packet.clone());
            // A packet is sent again after a reconnection.
            live.push(packet);
            while let Some(event) = live.next(true) {
                found.push(event);
            }
        }
        assert_eq!(found.len() as u64, count);
        assert!(
            essence(live.info(), &found) == essence(whole.info(), &of_whole),
            "{layout:?}"
        );
        assert_eq!(named_threads(live.info()).len(), 2);
        assert_eq!(live.info().damage, []);
    }
}

#[test]
fn streams_are_merged_by_time_as_far_as_they_have_come() {
    let layout = CORTEX_M;
    let mut streams = [0u16, 1].map(|number| {
        let mut stream = Encoder::new(layout, number, 1);
        for packet in 0..4u64 {
            for i in 0..8 {
                let ticks = packet * 1000 + i * 10 + u64::from(number);
                stream.record(ticks, &Op::Marker(i as u32));
            }
            stream.close();
        }
        stream
    });
    let mut live = live(layout);
    let [one, other] = &mut streams;
    live.push(one.packets.remove(0));
    live.push(other.packets.remove(0));
    let mut found = Vec::new();
    while let Some(event) = live.next(false) {
        found.push(event.time);
    }
    // The last event of one stream may be before the next one of the other.
    assert_eq!(found.len(), 15);
    assert!(found.is_sorted());
    for packet in one.packets.drain(..) {
        live.push(packet);
    }
    assert_eq!(
        live.next(false).map(|event| event.cpu),
        Some(Some(kymo_event::Cpu(1)))
    );
    assert_eq!(live.next(false), None, "the other is waited for");
    assert!(live.next(true).is_some(), "but not for ever");
    // Packets that arrive too late are not lost.
    for packet in other.packets.drain(..) {
        live.push(packet);
    }
    let rest = std::iter::from_fn(|| live.next(true)).count();
    assert_eq!(15 + 1 + 1 + rest, 64);
}

#[test]
fn a_loss_is_told_between_the_packets() {
    let mut stream = Encoder::new(CORTEX_M, 0, 1);
    stream.record(10, &Op::Enter(1));
    stream.close();
    stream.discarded = 7;
    stream.record(1000, &Op::Enter(2));
    stream.close();
    let mut live = live(CORTEX_M);
    let mut kinds = Vec::new();
    for packet in stream.packets {
        live.push(packet);
        while let Some(event) = live.next(true) {
            kinds.push(event.kind);
        }
    }
    assert_eq!(kinds.len(), 3);
    assert_eq!(kinds[1], EventKind::Gap(Gap::Discarded { events: Some(7) }));
}

#[test]
fn whatever_comes_nothing_panics_and_what_is_no_packet_is_told() {
    let (bytes, _) = small(CORTEX_M);
    let packets = split(CORTEX_M, &bytes);
    for at in (0..packets[1].len()).step_by(3) {
        let mut live = live(CORTEX_M);
        let mut damaged = packets.clone();
        damaged[1][at] ^= 0x55;
        let (_folder, path) = directory();
        let mut recording =
            Recording::create(&path, live_identity(), "test", None, &Program::default())
                .expect("it is begun");
        for packet in damaged {
            let _ = recording.push(&packet).expect("there is room");
            live.push(packet);
            while live.next(true).is_some() {}
        }
        live.push(Vec::new());
        live.push(vec![0; 100]);
        while live.next(true).is_some() {}
        assert!(!live.info().damage.is_empty());
    }
}

fn live_identity() -> &'static kymo_read::kymo::Identity {
    Box::leak(Box::new(identity(CORTEX_M)))
}

#[test]
fn a_recording_reads_back_at_every_moment() {
    for layout in layouts() {
        let (bytes, count) = small(layout);
        let packets = split(layout, &bytes);
        let (_folder, path) = directory();
        let program = Program {
            functions: vec![(Addr(TEXT_BASE), "zero")],
            ..Program::default()
        };
        let mut recording =
            Recording::create(&path, &identity(layout), "test", None, &program).unwrap();
        let mut before = 0;
        for (n, packet) in packets.iter().enumerate() {
            assert_eq!(recording.push(packet).unwrap(), Taken::Written);
            // A packet is sent again after a reconnection; names are written each time.
            if PacketHeader::read(layout, packet).unwrap().cpu != METADATA_STREAM {
                assert_eq!(recording.push(packet).unwrap(), Taken::Known);
            }
            let mut source = open(&path, &OpenOptions::default()).unwrap();
            let found = events(&mut *source).len();
            assert!(found > before, "packet {n}");
            before = found;
            assert_eq!(source.info().damage, []);
        }
        assert_eq!(before as u64, count);
        let figures = recording.figures();
        assert_eq!(figures.packets, packets.len() as u64);
        assert_eq!(
            (figures.lost_packets, figures.discarded, figures.refused),
            (0, 0, 0)
        );
        // The files contain the same number of bytes as a dump.
        let files = ["cpu0", "cpu1", "target"].map(|name| fs::read(path.join(name)).unwrap());
        let sizes: usize = files.iter().map(Vec::len).sum();
        assert_eq!(sizes, bytes.len());

        // Following the directory returns the same events.
        let (mut tail, mut live) = Tail::open(&path, &OpenOptions::default()).unwrap();
        let mut followed = Vec::new();
        while tail.feed(&mut live).unwrap() {
            while let Some(event) = live.next(true) {
                followed.push(event);
            }
        }
        let mut source = open(&path, &OpenOptions::default()).unwrap();
        let whole = events(&mut *source);
        assert!(essence(live.info(), &followed) == essence(source.info(), &whole));
    }
}

#[test]
fn what_does_not_belong_to_a_recording_is_told_apart() {
    let packets = ten_packets().packets;
    let (_folder, path) = directory();
    let mut recording =
        Recording::create(&path, live_identity(), "test", None, &Program::default()).unwrap();
    let mut push = |packet: &[u8]| recording.push(packet).unwrap();
    assert_eq!(push(&packets[0]), Taken::Written);
    assert_eq!(push(&packets[1]), Taken::Written);
    assert_eq!(push(&packets[1][..60]), Taken::Refused);
    assert_eq!(push(b"no packet"), Taken::Refused);
    // Two packets are missing.
    assert_eq!(push(&packets[4]), Taken::Written);
    assert_eq!(push(&packets[1]), Taken::Known);
    // After a reset the sequence numbers and the clock restart.
    let mut again = Encoder::new(CORTEX_M, 0, 1);
    again.record(17, &Op::Enter(1));
    assert_eq!(push(&again.bytes()), Taken::BegunAnew);
    let figures = recording.figures();
    assert_eq!((figures.packets, figures.lost_packets), (3, 2));
    assert_eq!(figures.events, 24);
    assert_eq!(figures.refused, 60 + 9);
    // A directory with other files is not changed.
    fs::write(path.join("thesis.tex"), "").unwrap();
    assert!(Recording::create(&path, live_identity(), "test", None, &Program::default()).is_err());
}

#[test]
fn what_a_target_had_kept_before_is_told_apart() {
    let mut target = Encoder::new(CORTEX_M, 0, 1);
    for packet in 0..8u64 {
        for i in 0..8 {
            target.record(packet * 1000 + i, &Op::Enter(i as u32));
        }
        // The fifth packet reports the loss that began after the fourth, before the recording began.
        target.discarded = match packet {
            0..4 => 0,
            4..6 => 7,
            _ => 9,
        };
        target.close();
    }
    let (_folder, path) = directory();
    let mut recording =
        Recording::create(&path, live_identity(), "test", None, &Program::default()).unwrap();
    recording.begins_at(3500);
    for packet in &target.packets {
        assert_eq!(recording.push(packet).unwrap(), Taken::Written);
    }
    let figures = recording.figures();
    assert_eq!((figures.events, figures.earlier), (64, 32));
    assert_eq!((figures.discarded, figures.discarded_earlier), (9, 7));
    assert_eq!(figures.earlier_ticks, 3500);
}

/// A second recording of a target does not repeat the losses of the first one.
#[test]
fn losses_before_its_first_packet_are_not_of_a_recording() {
    let mut target = Encoder::new(CORTEX_M, 0, 1);
    for packet in 0..6u64 {
        target.record(packet * 1000, &Op::Enter(1));
        target.discarded = [0, 7, 7, 7, 9, 9][packet as usize];
        target.close();
    }
    let lost = |path: &Path| -> u64 {
        let mut source = open(path, &OpenOptions::default()).unwrap();
        let lost = events(&mut *source)
            .into_iter()
            .map(|event| match event.kind {
                EventKind::Gap(Gap::Discarded { events, .. }) => events.unwrap_or(0),
                _ => 0,
            });
        lost.sum()
    };
    for (first, expected) in [(0, 9), (3, 2), (4, 0)] {
        let (_folder, path) = directory();
        let mut recording =
            Recording::create(&path, live_identity(), "test", None, &Program::default()).unwrap();
        recording.begins_at(first * 1000);
        for packet in &target.packets[first as usize..] {
            assert_eq!(recording.push(packet).unwrap(), Taken::Written);
        }
        let figures = recording.figures();
        assert_eq!(
            (figures.discarded, figures.discarded_earlier),
            (expected, 0)
        );
        assert_eq!(lost(&path), expected, "from packet {first}");
    }
}

/// A packet of calls with one record each: function, end, duration and thread.
fn whole_calls(calls: &[(u32, u64, u32, u32)]) -> Vec<u8> {
    let layout = CORTEX_M;
    let mut records = Vec::new();
    for (function, end, duration, thread) in calls {
        let header = Shape::other_header(layout.order, EventId::Call, *end);
        records.extend(&header.to_le_bytes()[..OTHER_BYTES]);
        records.extend(&function.to_le_bytes()[..3]);
        for word in [*duration, *duration, *thread] {
            records.extend(word.to_le_bytes());
        }
    }
    let head = layout.header_bytes();
    let bits = (head + records.len()) as u32 * 8;
    let header = PacketHeader {
        stream: EVENT_STREAM,
        flags: PacketHeader::FLAG_CALLS,
        isr_depth: 0,
        cpu: 0,
        sequence: 0,
        discarded: 0,
        begin: 0,
        end: calls.last().map_or(0, |call| call.1),
        content_bits: bits,
        packet_bits: bits,
        thread: 0,
    };
    let mut packet = vec![0; head];
    header.write(layout, &mut packet);
    packet.extend(records);
    packet
}

#[test]
fn calls_that_are_one_record_come_as_entries_and_exits() {
    // A callee's record precedes its caller's.
    let packet = whole_calls(&[(1, 1100, 50, 7), (2, 1200, 200, 7), (3, 1500, 100, 8)]);
    let mut whole = live(CORTEX_M);
    whole.push(packet);
    assert!(whole.next(false).is_none(), "a caller may still come");
    let mut seen = Vec::new();
    while let Some(event) = whole.next(true) {
        seen.push(match event.kind {
            EventKind::Enter { .. } => '(',
            EventKind::Exit { .. } => ')',
            _ => '?',
        });
    }
    assert_eq!(String::from_iter(seen), "(())()");
    let streams = &whole.info().streams;
    assert!(streams[0].whole_calls);
    assert_eq!(streams[1].cpu, streams[0].cpu);
}

#[test]
fn names_of_markers_travel_with_a_recording() {
    for layout in layouts() {
        let mut first = Encoder::new(layout, 0, 0x20);
        first.record(10, &Op::NamedMarker(0x4000, 1));
        first.record(20, &Op::NamedMarker(0x5000, 2));
        let mut second = Encoder::new(layout, 1, 0x20);
        second.record(30, &Op::NamedMarker(0x6000, 3));
        let string_at = |address: Addr| match address.0 {
            0x4000 => Some("frame \"a\"".to_owned()),
            0x6000 => Some("done".to_owned()),
            _ => None,
        };
        // The meaning of events, and all of their fields, are read by different decoders.
        let markers = |path: &Path| {
            let [meaning, fields] = [Wanted::Meaning, Wanted::Everything].map(|wanted| {
                let options = OpenOptions {
                    wanted,
                    ..OpenOptions::default()
                };
                events(&mut *open(path, &options).unwrap())
            });
            let markers = |events: &[Event]| {
                let markers = events.iter().filter_map(|event| match &event.kind {
                    EventKind::Marker { label, value } => Some((label.clone(), *value)),
                    _ => None,
                });
                markers.collect::<Vec<_>>()
            };
            let addresses = fields.iter().filter(|event| event.name == "named_marker");
            for event in addresses {
                assert!(matches!(event.fields[0].value, Value::Hex(_)), "{event:?}");
            }
            assert_eq!(markers(&meaning), markers(&fields));
            markers(&meaning)
        };
        let label = |name: &str| Some(name.to_owned());
        let (frame, done) = ((label("frame \"a\""), 1), (label("done"), 3));
        let (_folder, path) = directory();
        let mut recording =
            Recording::create(&path, &identity(layout), "test", None, &Program::default()).unwrap();
        recording.push(&first.bytes()).unwrap();
        recording.name_markers(string_at).unwrap();
        // Names while the recording is being read, without the program.
        assert_eq!(markers(&path), [frame.clone(), (None, 2)]);
        recording.push(&second.bytes()).unwrap();
        recording.name_markers(string_at).unwrap();
        let all = [frame, (None, 2), done];
        assert_eq!(markers(&path), all);

        let dump = Dump {
            identity: &identity(layout),
            bytes: &[first.bytes(), second.bytes()].concat(),
            missing: &[],
            target: "test",
        };
        let whole = path.join("whole");
        let program = Program {
            string_at: &string_at,
            ..Program::default()
        };
        write_trace(&whole, &dump, &program).unwrap();
        assert_eq!(markers(&whole), all);
    }
}

#[test]
fn declared_events_travel_with_a_recording() {
    for layout in layouts() {
        let mut cpu = Encoder::new(layout, 0, 0x20);
        cpu.record(10, &Op::Block(7, vec![3, 1]));
        cpu.record(20, &Op::Block(8, vec![3]));
        let program = Program {
            events: vec![
                b"sensor.state 0=idle 1=busy\0",
                b"7 sensor u8 channel u8 state\0",
            ],
            ..Program::default()
        };
        let (_folder, path) = directory();
        let mut recording =
            Recording::create(&path, &identity(layout), "test", None, &program).unwrap();
        recording.push(&cpu.bytes()).unwrap();
        let fields = vec![
            Field::new("channel", 3u64),
            Field::new("state", Value::Unsigned(1).with_label("busy")),
        ];
        let check = |found: Vec<Event>| {
            let names: Vec<_> = found.iter().map(|event| &*event.name).collect();
            assert_eq!(names, ["sensor", "block"]);
            assert_eq!(found[0].fields, fields);
        };
        let options = OpenOptions {
            wanted: Wanted::Everything,
            ..OpenOptions::default()
        };
        check(events(&mut *open(&path, &options).unwrap()));
        let (mut tail, mut live) = Tail::open(&path, &options).unwrap();
        while tail.feed(&mut live).unwrap() {}
        check(std::iter::from_fn(|| live.next(true)).collect());
    }
}
