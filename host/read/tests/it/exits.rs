//! Exits without a function: the reader derives the function from the entries, or reports that it is unknown.

use kymo_event::{Event, EventKind, Gap};
use kymo_fixtures::names::address;
use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, TEXT_BASE, events, every_way, identity};
use kymo_read::kymo::open_dump;
use kymo_read::{OpenOptions, Source};
use kymo_wire::event::{ByteOrder, EventId, Form, PacketHeader, Shape};

/// The functions of entries and exits, by number; -1 for an exit whose function is not known.
fn calls(source: &mut dyn Source) -> Vec<(bool, i64)> {
    let events = events(source);
    let number = |function| (address(source.info(), function).0 - TEXT_BASE) as i64 / 2;
    let call = |event: &Event| match event.kind {
        EventKind::Enter { function, .. } => Some((true, number(function))),
        EventKind::Exit { function } => Some((false, function.map_or(-1, number))),
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

/// A packet of encoded records, all at one time whose low bits are 0.
fn packet(sequence: u32, flags: u8, thread: u64, records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; CORTEX_M.header_bytes()];
    bytes.extend(records.concat());
    let bits = bytes.len() as u32 * 8;
    let header = PacketHeader {
        stream: 0,
        flags,
        isr_depth: 0,
        cpu: 0,
        sequence,
        discarded: 0,
        begin: u64::from(sequence) << 16,
        end: u64::from(sequence) << 16,
        content_bits: bits,
        packet_bits: bits,
        thread,
    };
    header.write(CORTEX_M, &mut bytes).unwrap();
    bytes
}

fn record(form: Form, function: u32) -> Vec<u8> {
    let record = Shape::Compact.call_record(ByteOrder::Little, form, 0, function);
    record.to_le_bytes()[..Shape::Compact.bytes(form)].to_vec()
}

fn other(id: EventId, payload: &[u8]) -> Vec<u8> {
    let header = Shape::other_header(ByteOrder::Little, id, 0);
    [&header.to_le_bytes()[..3], payload].concat()
}

#[test]
fn names_of_exits_survive_packet_borders_switches_and_losses() {
    let mut stream = Encoder::new(CORTEX_M, 0, 0x20);
    let mut ticks = 0;
    let mut record = |stream: &mut Encoder, op| {
        ticks += 9;
        stream.record(ticks, &op);
    };
    for function in 0..40 {
        record(&mut stream, Op::Enter(function));
    }
    record(&mut stream, Op::SwitchedInNear(4));
    record(&mut stream, Op::Enter(90));
    record(&mut stream, Op::Exit(90));
    record(&mut stream, Op::SwitchedInNear(0));
    for function in (0..40).rev() {
        record(&mut stream, Op::Exit(function));
    }
    let bytes = stream.bytes();
    let mut wanted: Vec<_> = (0..40).map(|function| (true, function)).collect();
    wanted.extend([(true, 90), (false, 90)]);
    wanted.extend((0..40).rev().map(|function| (false, function)));
    every_way(CORTEX_M, &bytes, &mut |source| {
        assert_eq!(calls(source), wanted);
    });
    // If the entries are overwritten, exits still have their functions.
    assert!(stream.packets.len() >= 3, "several packets");
    let last = stream.packets.last().unwrap();
    let options = OpenOptions::default();
    let mut source = open_dump(&identity(CORTEX_M), last.clone(), &[], "test", &options).unwrap();
    let tail = calls(&mut *source);
    assert!(!tail.is_empty() && wanted.ends_with(&tail), "{tail:?}");
}

#[test]
fn where_no_exit_is_named_stacks_outlive_packets_but_no_loss() {
    let nested = PacketHeader::FLAG_NESTED;
    let (enter, exit) = (
        |number| record(Form::EnterShort, number),
        record(Form::ExitShort, 0),
    );
    let switch = |thread: u32| other(EventId::SwitchedIn, &thread.to_le_bytes());
    let packets = [
        packet(
            0,
            nested,
            1,
            &[&enter(5), &enter(6), &switch(2), &exit, &enter(7)],
        ),
        packet(1, nested, 2, &[&enter(8), &exit, &exit, &switch(1), &exit]),
        packet(2, nested, 1, &[&exit, &exit]),
    ];
    every_way(CORTEX_M, &packets.concat(), &mut |source| {
        let wanted = [
            (true, 5),
            (true, 6),
            (false, -1),
            (true, 7),
            (true, 8),
            (false, 8),
            (false, 7),
            (false, 6),
            (false, 5),
            (false, -1),
        ];
        assert_eq!(calls(source), wanted);
    });
    let lossy = [&packets[0][..], &packets[2]].concat();
    every_way(CORTEX_M, &lossy, &mut |source| {
        assert!(calls(source).ends_with(&[(true, 7), (false, -1), (false, -1)]));
    });
}

#[test]
fn an_exit_without_its_entry_is_damage_of_the_packet() {
    let (enter, exit) = (record(Form::EnterShort, 5), record(Form::ExitShort, 0));
    let bytes = packet(0, 0, 1, &[&enter, &exit, &exit, &enter]);
    let options = OpenOptions::default();
    let mut source = open_dump(&identity(CORTEX_M), bytes, &[], "test", &options).unwrap();
    let events = events(&mut *source);
    let [only] = &events[..] else {
        panic!("{events:?}");
    };
    let damage = Gap::Damage {
        offset: 44,
        bytes: None,
        message: format!(
            "expected an event at byte {} of a packet, found an exit without its entry; no event of this packet is used",
            44 + 3 + 1
        ),
    };
    assert_eq!(only.kind, EventKind::Gap(damage));
}

#[test]
fn packets_of_a_stream_that_is_not_known_are_told() {
    let mut bytes = packet(0, 0, 1, &[&record(Form::EnterShort, 5)]);
    bytes[4] = 9;
    let options = OpenOptions::default();
    let mut source = open_dump(&identity(CORTEX_M), bytes, &[], "test", &options).unwrap();
    assert_eq!(events(&mut *source).len(), 1);
    assert_eq!(
        source.info().damage[0].message,
        "expected a packet of a known stream, found one of stream_id 9"
    );
}
