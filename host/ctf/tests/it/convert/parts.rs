//! Conversions of parts, and of traces that are cut, damaged or incomplete.

use std::sync::Arc;

use super::contents;
use kymo_ctf::convert::{Conversion, Everything, Select, Summary};
use kymo_ctf::metadata::{EnvValue, Version};
use kymo_ctf::{GapKind, Message, Plan, Trace};

/// A trace of one stream with three packets and an event every thousand ticks, and the offsets of its packets.
fn three_packets() -> (Arc<Plan>, Vec<u8>, [usize; 3]) {
    packets_that_lost([0; 3])
}

/// As [`three_packets`], with the number of lost events in each packet.
fn packets_that_lost(lost: [u64; 3]) -> (Arc<Plan>, Vec<u8>, [usize; 3]) {
    use kymo_ctf::metadata::{
        ByteOrder, Clock, ClockId, EventClass, IntegerClass, Metadata, StreamClass, StructClass,
        standard,
    };
    use kymo_ctf::{Datum, StreamWriter};
    let order = ByteOrder::Big;
    let mut metadata = Metadata::new(order);
    metadata.clocks.push(Clock::new("ticks", 1_000_000_000));
    metadata.packet_header = Some(standard::packet_header(order));
    let mut class = StreamClass::new(0);
    class.packet_context = Some(standard::packet_context(order, ClockId(0)));
    class.event_header = Some(standard::event_header(order, ClockId(0)));
    let mut event = EventClass::new(0, "step".into());
    event.fields = Some(StructClass::new().with("n", IntegerClass::unsigned(32, order)));
    class.events.push(event);
    metadata.streams.push(class);
    let plan = Arc::new(Plan::new(metadata).expect("metadata"));
    let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("class");
    let (mut sizes, mut n) = ([0; 3], 0u32);
    for (size, lost) in sizes.iter_mut().zip(lost) {
        writer
            .begin_packet(u64::from(n) * 1000, &[])
            .expect("begins");
        for _ in 0..10 {
            writer
                .event(0, u64::from(n) * 1000, &[Datum::from(n)])
                .expect("fits");
            n += 1;
        }
        *size = writer.packet_size() as usize;
        let end = u64::from(n) * 1000 - 1;
        writer.end_packet(end, lost).expect("ends");
    }
    let places = [0, sizes[0], sizes[0] + sizes[1]];
    (plan, writer.finish().expect("finished"), places)
}

/// The field of every event, and the losses.
fn steps(trace: &Trace) -> (Vec<u64>, Vec<(GapKind, Option<u64>)>) {
    let (events, gaps) = contents(trace, Version::Ctf18);
    let steps = events
        .iter()
        .map(|event| event.values[2][0].parse().unwrap());
    (steps.collect(), gaps)
}

/// Filter for a time range.
struct Span(i64, i64);

impl Select for Span {
    fn span(&self) -> (i64, i64) {
        (self.0, self.1)
    }
}

fn run(conversion: Conversion, bytes: &[u8]) -> (Trace, Summary, tempfile::TempDir) {
    run_with(conversion, bytes, &mut Everything)
}

fn run_with(
    conversion: Conversion,
    bytes: &[u8],
    select: &mut dyn Select,
) -> (Trace, Summary, tempfile::TempDir) {
    let (plan, ..) = three_packets();
    let trace = Trace::from_plan(plan, [("stream", bytes.to_vec())]);
    let scratch = tempfile::tempdir().expect("scratch folder");
    let into = scratch.path().join("out");
    let summary = conversion.run(&trace, &into, select).expect("converts");
    (Trace::open(&into).expect("reads again"), summary, scratch)
}

#[test]
fn a_part_by_time_has_what_is_in_it_and_no_false_loss() {
    let (_, bytes, _) = three_packets();
    for version in [Version::Ctf18, Version::Ctf2] {
        let conversion = Conversion::new(version);
        let mut span = Span(12_000, 21_500);
        let (trace, summary, _scratch) = run_with(conversion, &bytes, &mut span);
        assert_eq!(steps(&trace), ((12..=21).collect(), vec![]));
        assert_eq!((summary.events, summary.left_out), (10, 20));
        let mut messages = trace.messages().expect("opens");
        let mut packets = Vec::new();
        while let Some((_, message)) = messages.next_message().expect("decodes") {
            if let Message::Packet(packet) = message {
                let info = packet.info();
                packets.push((info.begin_ticks, info.end_ticks, info.seq_num));
            }
        }
        let expected = [(12_000, 19_999, 0), (20_000, 21_000, 1)];
        assert_eq!(
            packets,
            expected.map(|(begin, end, number)| (Some(begin), Some(end), Some(number)))
        );
    }
}

/// Everything, with a fact about it.
struct Stating;

impl Select for Stating {
    fn facts(&self, _: bool) -> Vec<(String, EnvValue)> {
        vec![("begin".to_owned(), EnvValue::Integer(7))]
    }
}

#[test]
fn facts_are_written_although_stream_classes_are_dropped() {
    let (plan, bytes, _) = three_packets();
    let mut metadata = plan.metadata().clone();
    let mut unused = metadata.streams[0].clone();
    unused.id = 1;
    metadata.streams.push(unused);
    let plan = Arc::new(Plan::new(metadata).expect("metadata"));
    let trace = Trace::from_plan(plan, [("stream", bytes)]);
    for version in [Version::Ctf18, Version::Ctf2] {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let into = scratch.path().join("out");
        let conversion = Conversion::new(version);
        conversion
            .run(&trace, &into, &mut Stating)
            .expect("converts");
        let trace = Trace::open(&into).expect("reads again");
        let metadata = trace.metadata();
        assert_eq!(metadata.streams.len(), 1);
        assert_eq!(metadata.env("begin"), Some(&EnvValue::Integer(7)));
    }
}

#[test]
fn a_part_by_time_has_no_loss_from_before_it() {
    let (_, bytes, _) = packets_that_lost([0, 7, 9]);
    let conversion = Conversion::new(Version::Ctf18);
    // Events are discarded when a packet is full: the last ones behind the selection.
    for (begin, expected) in [(21_000, 0), (12_000, 7), (10_000, 7), (8_000, 7)] {
        let (trace, summary, _scratch) = run_with(conversion, &bytes, &mut Span(begin, 25_000));
        let lost = steps(&trace)
            .1
            .iter()
            .map(|(_, count)| count.expect("counted"))
            .sum::<u64>();
        assert_eq!(
            (lost, summary.discarded),
            (expected, expected),
            "from {begin}"
        );
    }
}

/// The first packet that is there counts what those before it lost.
#[test]
fn what_earlier_packets_lost_is_kept() {
    let (_, bytes, places) = packets_that_lost([7, 7, 9]);
    let rest = &bytes[places[1]..];
    let conversion = Conversion::new(Version::Ctf18);
    for (begin, expected) in [
        (
            0,
            vec![
                (GapKind::EarlierEvents, Some(7)),
                (GapKind::Events, Some(2)),
            ],
        ),
        (12_000, vec![(GapKind::Events, Some(2))]),
    ] {
        let (trace, summary, _scratch) = run_with(conversion, rest, &mut Span(begin, 40_000));
        let counts = expected.iter().map(|(_, count)| count.expect("counted"));
        assert_eq!(summary.discarded, counts.sum::<u64>(), "from {begin}");
        assert_eq!(steps(&trace).1, expected, "from {begin}");
    }
}

#[test]
fn a_cut_trace_is_mended_and_that_is_said() {
    let (_, bytes, places) = three_packets();
    // In the middle of the sixth event of the last packet.
    let cut = places[2] + (bytes.len() - places[2]) / 2 + 20;
    for repair in [false, true] {
        let mut conversion = Conversion::new(Version::Ctf18);
        conversion.repair = repair;
        let (trace, summary, _scratch) = run(conversion, &bytes[..cut]);
        let (steps, gaps) = steps(&trace);
        let kept = steps.len() as u64 - 20;
        assert!(kept > 0 && kept < 10);
        assert!(steps.into_iter().eq(0..20 + kept));
        // The rest of the trace is one lost packet with an unknown number of events.
        assert_eq!(gaps, [(GapKind::Packets, Some(1))]);
        let [damage] = summary.damage.as_slice() else {
            panic!("{:?}", summary.damage)
        };
        assert_eq!((damage.kept, damage.error.packet), (kept, 2));
        assert_eq!(damage.skipped.is_some(), repair);
    }
}

#[test]
fn behind_damage_it_goes_on_if_it_is_to_be_repaired() {
    let (_, mut bytes, places) = three_packets();
    bytes[places[1]] ^= 0xff;
    let mut conversion = Conversion::new(Version::Ctf2);
    let (trace, summary, _scratch) = run(conversion, &bytes);
    assert_eq!(
        steps(&trace),
        ((0..10).collect(), vec![(GapKind::Packets, Some(1))])
    );
    assert_eq!(summary.damage.len(), 1);
    conversion.repair = true;
    let (trace, summary, _scratch) = run(conversion, &bytes);
    let (steps, gaps) = steps(&trace);
    assert!(steps.into_iter().eq((0..10).chain(20..30)));
    assert_eq!(gaps, [(GapKind::Packets, Some(1))]);
    let skipped = summary.damage[0].skipped.expect("is skipped");
    assert_eq!(skipped.to, Some(places[2] as u64));
}

/// One file with very many streams that contain only damaged packets: the numbers of open files and of stored errors
/// are limited.
#[test]
fn many_streams_in_a_file_and_much_damage_are_bounded() {
    use kymo_ctf::StreamWriter;
    use kymo_ctf::metadata::{
        ByteOrder, Clock, ClockId, EventClass, IntegerClass, Metadata, Role, StreamClass, standard,
    };
    let order = ByteOrder::Little;
    let mut metadata = Metadata::new(order);
    metadata.clocks.push(Clock::new("ticks", 1_000));
    let instance = IntegerClass::unsigned(32, order).role(Role::StreamInstanceId);
    let header = standard::packet_header(order).with("stream_instance_id", instance);
    metadata.packet_header = Some(header);
    let mut class = StreamClass::new(0);
    class.packet_context = Some(standard::packet_context(order, ClockId(0)));
    class.event_header = Some(standard::event_header(order, ClockId(0)));
    class.events.push(EventClass::new(0, "one".into()));
    metadata.streams.push(class);
    let plan = Arc::new(Plan::new(metadata).expect("metadata"));
    let mut bytes = Vec::new();
    for number in 0..1_200 {
        let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("class");
        writer = writer.instance(number);
        writer.begin_packet(number, &[]).expect("begins");
        writer.event(0, number, &[]).expect("fits");
        writer.event(0, number, &[]).expect("fits");
        writer.end_packet(number, 0).expect("ends");
        let mut packet = writer.finish().expect("finished");
        // The id of the last event is unknown.
        let place = packet.len() - 10;
        packet[place] = 9;
        bytes.extend(packet);
    }
    let trace = Trace::from_plan(plan, [("all", bytes)]);
    let scratch = tempfile::tempdir().expect("scratch folder");
    let into = scratch.path().join("out");
    let mut conversion = Conversion::new(Version::Ctf18);
    conversion.repair = true;
    let summary = conversion
        .run(&trace, &into, &mut Everything)
        .expect("converts");
    assert_eq!((summary.events, summary.streams), (1_200, 1_200));
    assert_eq!((summary.damaged, summary.damage.len()), (1_200, 1_000));
    assert_eq!(
        Trace::open(&into)
            .expect("reads again")
            .stream_names()
            .len(),
        1_200
    );
}
