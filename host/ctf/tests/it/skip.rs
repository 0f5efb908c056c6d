//! Tests of damaged packets: skipped parts are reported to the bit, and everything else is read.

use std::io::Cursor;
use std::sync::Arc;

use kymo_ctf::metadata::{
    ByteOrder, Clock, ClockId, EventClass, IntegerClass, Metadata, StreamClass, StructClass,
    standard,
};
use kymo_ctf::{
    DecodeErrorKind, GapKind, Message, Messages, Plan, Resume, Skipped, StreamReader, StreamWriter,
    Trace,
};

/// Size in bytes of a packet's head. A packet has header, context, and three events of 14 bytes.
const HEAD: usize = 24 + 48;
const EVENT: usize = 2 + 8 + 4;
const PACKET: usize = HEAD + 3 * EVENT;

fn plan(order: ByteOrder, header: bool) -> Arc<Plan> {
    let mut metadata = Metadata::new(order);
    metadata.clocks.push(Clock::new("c", 1_000_000_000));
    metadata.packet_header = header.then(|| standard::packet_header(order));
    let mut class = StreamClass::new(0);
    class.packet_context = Some(standard::packet_context(order, ClockId(0)));
    class.event_header = Some(standard::event_header(order, ClockId(0)));
    let mut event = EventClass::new(0, "event".into());
    let number = IntegerClass::unsigned(32, order);
    event.fields = Some(StructClass::new().with("number", number));
    class.events.push(event);
    metadata.streams.push(class);
    Arc::new(Plan::new(metadata).expect("metadata"))
}

/// Four packets of three events with consecutive numbers.
fn stream(plan: &Arc<Plan>) -> Vec<u8> {
    let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("writer");
    for packet in 0..4u32 {
        let begin = u64::from(packet) * 100;
        writer.begin_packet(begin, &[]).expect("packet");
        for event in 0..3 {
            let number = packet * 3 + event;
            writer
                .event(0, begin + 1 + u64::from(event), &[number.into()])
                .expect("event");
        }
        writer.end_packet(begin + 99, 0).expect("end");
    }
    writer.finish().expect("stream")
}

/// The numbers of the events, the skipped parts, and lost packets.
fn read(plan: &Arc<Plan>, bytes: Vec<u8>) -> (Vec<u64>, Vec<Skipped>, Vec<Option<u64>>) {
    let mut reader = StreamReader::new(plan.clone(), Cursor::new(bytes));
    let (mut numbers, mut skipped, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match reader.next_message() {
            Ok(Some(Message::Event(event))) => {
                numbers.extend(event.field("number").and_then(|value| value.as_u64()));
            }
            Ok(Some(Message::Gap(gap))) if gap.kind == GapKind::Packets => lost.push(gap.count),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                let one = reader.skip().expect("memory").expect("an error to skip");
                assert_eq!(one.error, error);
                assert_eq!(reader.skip(), Ok(None), "only once");
                skipped.push(one);
            }
        }
    }
    assert!(reader.next_message().expect("an end").is_none());
    (numbers, skipped, lost)
}

#[test]
fn a_damaged_event_costs_the_rest_of_its_packet() {
    for (order, header) in [
        (ByteOrder::Little, true),
        (ByteOrder::Big, true),
        (ByteOrder::Little, false),
    ] {
        let plan = plan(order, header);
        let mut bytes = stream(&plan);
        let packet = bytes.len() / 4;
        let event = packet + packet - 2 * EVENT;
        bytes[event] = 0xee;
        let (numbers, skipped, lost) = read(&plan, bytes);
        assert_eq!(numbers, [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]);
        let [one] = skipped[..] else {
            panic!("{skipped:?}")
        };
        assert!(matches!(
            one.error.kind,
            DecodeErrorKind::UnknownEvent { .. }
        ));
        assert_eq!((one.packet, one.error.event), (1, 1));
        assert_eq!(one.from, event as u64 * 8);
        assert_eq!(one.to, Some(2 * packet as u64));
        assert_eq!(one.resume, Resume::PacketSize);
        assert_eq!(lost, [], "the packet itself was seen");
    }
}

#[test]
fn a_damaged_head_costs_its_packet() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let plan = plan(order, true);
        for place in [0, 20] {
            // Damages the magic number, or the stream class.
            let mut bytes = stream(&plan);
            assert_eq!(bytes.len(), 4 * PACKET);
            bytes[PACKET + place] ^= 0x55;
            let (numbers, skipped, lost) = read(&plan, bytes);
            assert_eq!(numbers, [0, 1, 2, 6, 7, 8, 9, 10, 11]);
            let [one] = skipped[..] else {
                panic!("{skipped:?}")
            };
            assert_eq!(one.from, PACKET as u64 * 8);
            assert_eq!(one.to, Some(2 * PACKET as u64));
            assert_eq!(one.resume, Resume::Magic);
            assert_eq!(lost, [Some(1)], "its number is missing");
        }
    }
}

#[test]
fn a_size_that_leads_nowhere_is_not_believed() {
    let plan = plan(ByteOrder::Little, true);
    let mut bytes = stream(&plan);
    // Content and packet size of the second packet: 16 bytes more than the real ones.
    for field in [24 + 16, 24 + 24] {
        let size = (PACKET as u64 + 16) * 8;
        bytes[PACKET + field..PACKET + field + 8].copy_from_slice(&size.to_le_bytes());
    }
    let (numbers, skipped, _) = read(&plan, bytes);
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert_eq!(skipped[0].to, Some(2 * PACKET as u64));
    assert_eq!(skipped[0].resume, Resume::Magic);
}

#[test]
fn a_cut_stream_ends() {
    let plan = plan(ByteOrder::Little, true);
    let mut bytes = stream(&plan);
    bytes.truncate(4 * PACKET - EVENT - 1);
    let (numbers, skipped, _) = read(&plan, bytes);
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let [one] = skipped[..] else {
        panic!("{skipped:?}")
    };
    assert!(matches!(one.error.kind, DecodeErrorKind::Truncated { .. }));
    assert_eq!((one.to, one.resume), (None, Resume::End));
}

#[test]
fn without_sizes_and_magic_numbers_there_is_no_next_packet() {
    let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; \
        stream { event.header := struct { integer { size = 8; } id; }; }; event { id = 1; };";
    let trace = Trace::from_memory(metadata.as_bytes(), [("s", &[1u8, 1, 2, 1][..])]);
    let trace = trace.expect("metadata");
    let (_, skipped, _) = read(trace.plan(), vec![1, 1, 2, 1]);
    let [one] = skipped[..] else {
        panic!("{skipped:?}")
    };
    assert_eq!((one.from, one.to, one.resume), (16, None, Resume::End));
}

#[test]
fn zeros_up_to_the_end_are_the_unused_rest_of_a_buffer() {
    let metadata = |id: u32| {
        format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }}; \
             stream {{ event.header := struct {{ integer {{ size = 8; }} id; }}; }}; event {{ id = {id}; }};"
        )
    };
    let unused = |id: u32, rest: &[u8]| {
        let bytes = [&[1; 2], rest].concat();
        let metadata = metadata(id);
        let trace = Trace::from_memory(metadata.as_bytes(), [("s", bytes.clone())]);
        let (_, skipped, _) = read(trace.expect("metadata").plan(), bytes);
        skipped.iter().map(|one| one.is_unused).collect::<Vec<_>>()
    };
    assert_eq!(unused(1, &[0; 200_000]), [true]);
    assert_eq!(unused(1, &[0, 0, 2]), [false]);
    assert_eq!(unused(1, &[2, 0, 0]), [false]);
}

#[test]
fn streams_go_on_among_others() {
    let plan = plan(ByteOrder::Little, true);
    let whole = stream(&plan);
    let mut broken = whole.clone();
    broken[PACKET] = 0;
    let trace = Trace::from_plan(plan, [("whole", whole), ("broken", broken)]);
    let mut messages = Messages::merge([&trace]).expect("memory");
    let (mut counts, mut times, mut skipped) = ([0; 2], Vec::new(), 0);
    loop {
        match messages.next_message() {
            Ok(Some((origin, Message::Event(event)))) => {
                counts[origin.stream] += 1;
                times.extend(event.time_ns());
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.origin.stream, 1);
                let one = messages.skip(error.origin).expect("memory");
                assert_eq!(one.and_then(|one| one.to), Some(2 * PACKET as u64));
                skipped += 1;
            }
        }
    }
    assert_eq!((counts, skipped), ([12, 9], 1));
    assert!(times.is_sorted(), "{times:?}");
}
