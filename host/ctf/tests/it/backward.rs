//! Tests of time that steps back on real targets: it is reported as such, not as a wraparound of the counter.

use std::path::Path;
use std::sync::Arc;

use kymo_ctf::convert::{Conversion, Everything};
use kymo_ctf::metadata::{Metadata, Version};
use kymo_ctf::{Message, Plan, StreamReader, Trace};

/// The times of all events up to a truncation of the trace.
fn times(trace: &Trace) -> Vec<i64> {
    let mut messages = trace.messages().expect("opens");
    let mut times = Vec::new();
    while let Ok(Some((_, message))) = messages.next_message() {
        if let Message::Event(event) = message {
            times.push(event.time_ns().expect("a time"));
        }
    }
    times
}

/// Zephyr's tracing on a Cortex-M3 in QEMU: 8 steps back, of up to 430 ms, and 2 real wraparounds of a 32-bit counter
/// in 11 s, which babeltrace2 shows as 45 s.
#[test]
fn steps_back_of_zephyr_are_no_turns() {
    let Some(data) = kymo_fixtures::captures::zephyr_with_metadata() else {
        return;
    };
    let directory = data.join("ctf_uart_mps2");
    let golden =
        String::from_utf8(crate::cases::read(&directory.join("babeltrace2.txt"))).expect("text");
    let trace = Trace::open(directory.join("trace")).expect("opens");
    let found = times(&trace);
    let (mut turns, mut steps) = (0, 0);
    let mut before = 0;
    let mut lines = golden.lines();
    for time in &found {
        let line = lines.next().expect("as many events");
        let digits = line.get(1..19).expect("a time").replace([':', '.'], "");
        let (clock, ns) = digits.split_at(6);
        let minutes: i64 = clock[..4].parse().expect("hours and minutes");
        assert_eq!(minutes, 0, "{line}");
        let seconds: i64 = clock[4..].parse().expect("seconds");
        let shown = seconds * 1_000_000_000 + ns.parse::<i64>().expect("nanoseconds");
        if *time < before {
            steps += 1;
        }
        turns += i64::from(time >> 32 > before >> 32);
        before = *time;
        // babeltrace2 counts a wraparound too many for each step back.
        assert_eq!(*time, shown - (steps << 32), "{line}");
    }
    assert_eq!((found.len(), lines.count(), steps, turns), (941, 0, 8, 2));
    assert_eq!(found.last().map(|time| time / 1_000_000), Some(11_120));

    // Steps back are preserved by a conversion.
    let scratch = tempfile::tempdir().expect("scratch folder");
    for version in [Version::Ctf18, Version::Ctf2] {
        let into = scratch.path().join(version.to_string());
        let conversion = Conversion::new(version);
        let summary = conversion
            .run(&trace, &into, &mut Everything)
            .expect("converts");
        assert_eq!(summary.backward, 8);
        assert_eq!(times(&Trace::open(Path::new(&into)).expect("opens")), found);
    }
}

/// A barectf packet whose first event precedes its begin.
fn barectf(patch: u32) -> Vec<u64> {
    let text = format!(
        r#"/* CTF 1.8 */
        typealias integer {{ size = 64; align = 8; }} := u64;
        trace {{ major = 1; minor = 8; byte_order = le; }};
        env {{ tracer_name = "barectf"; tracer_major = 2; tracer_minor = 3; tracer_patch = {patch}; }};
        clock {{ name = c; }};
        typealias integer {{ size = 64; align = 8; map = clock.c.value; }} := time;
        stream {{
            packet.context := struct {{ time timestamp_begin; time timestamp_end; }};
            event.header := struct {{ integer {{ size = 32; align = 8; map = clock.c.value; }} timestamp; }};
        }};
        event {{ name = e; fields := struct {{ integer {{ size = 8; }} n; }}; }};
        "#
    );
    let metadata = Metadata::parse(text.as_bytes()).expect("parses").metadata;
    let plan = Arc::new(Plan::new(metadata).expect("compiles"));
    let mut bytes = Vec::new();
    bytes.extend((0x5_0000_0100u64).to_le_bytes());
    bytes.extend((0x5_0000_0200u64).to_le_bytes());
    for low in [0xf0u32, 0x180] {
        bytes.extend(low.to_le_bytes());
        bytes.push(0);
    }
    let mut reader = StreamReader::new(plan, std::io::Cursor::new(bytes));
    let mut ticks = Vec::new();
    while let Some(message) = reader.next_message().expect("decodes") {
        if let Message::Event(event) = message {
            ticks.push(event.ticks().expect("a time"));
        }
    }
    ticks
}

#[test]
fn an_event_before_its_packet_is_one_in_the_versions_of_barectf_that_write_such() {
    assert_eq!(barectf(0), [0x5_0000_00f0, 0x5_0000_0180]);
    assert_eq!(barectf(1), [0x6_0000_00f0, 0x6_0000_0180]);
}

/// LTTng before 2.11 wrote events after the stated end of their packet: losses after the packet begin at the last
/// event.
#[test]
fn an_event_behind_the_end_of_its_packet_moves_the_end() {
    use kymo_ctf::metadata::{ByteOrder, Clock, ClockId, EventClass, StreamClass, standard};
    use kymo_ctf::{Gap, GapKind, StreamWriter};
    let order = ByteOrder::Little;
    let mut metadata = Metadata::new(order);
    metadata.clocks.push(Clock::new("c", 1_000));
    metadata.packet_header = Some(standard::packet_header(order));
    let mut class = StreamClass::new(0);
    class.packet_context = Some(standard::packet_context(order, ClockId(0)));
    class.event_header = Some(standard::event_header(order, ClockId(0)));
    class.events.push(EventClass::new(0, "e".into()));
    metadata.streams.push(class);
    let plan = Arc::new(Plan::new(metadata).expect("compiles"));
    let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("class");
    for (begin, event, end) in [(10, 18, 15), (30, 40, 0), (50, 60, 70)] {
        writer.begin_packet(begin, &[]).expect("begins");
        writer.event(0, event, &[]).expect("fits");
        writer.end_packet(end, 0).expect("ends");
        writer.skip_packets(1);
    }
    let bytes = writer.finish().expect("finished");
    let mut reader = StreamReader::new(plan, std::io::Cursor::new(bytes));
    let mut gaps = Vec::new();
    while let Some(message) = reader.next_message().expect("decodes") {
        if let Message::Gap(gap) = message {
            gaps.push(gap);
        }
    }
    let lost = |from, to| Gap {
        kind: GapKind::Packets,
        count: Some(1),
        from_ticks: Some(from),
        to_ticks: Some(to),
    };
    assert_eq!(gaps, [lost(18, 30), lost(40, 50)]);
}
