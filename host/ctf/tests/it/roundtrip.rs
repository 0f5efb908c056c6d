//! Tests that written traces read back equal, with this crate and with babeltrace2.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::random::{Kind, Random};
use kymo_ctf::metadata::{Metadata, Scope, Version};
use kymo_ctf::text::Layout;
use kymo_ctf::{
    Container, Event, GapKind, Message, Messages, Plan, StreamReader, Trace, Value, Visitor,
};
use proptest::prelude::*;

/// A random trace: its plan, the bytes of a stream of each class, and its expected content.
struct Sample {
    plan: Arc<Plan>,
    streams: Vec<crate::random::Stream>,
}

fn sample(seed: u64, parts: u32, events: u64, kind: Kind) -> Sample {
    let mut random = Random::new(seed);
    let plan =
        Arc::new(Plan::new(crate::random::metadata(&mut random, parts, kind)).expect("metadata"));
    // babeltrace2 2.0 prints an empty string as the previous string, so there are no empty ones.
    let least = u64::from(matches!(kind, Kind::Simple | Kind::Simple2));
    let classes = plan.metadata().streams.len();
    let streams = (0..classes)
        .map(|class| crate::random::stream(&plan, class, &mut random, events, least))
        .collect();
    Sample { plan, streams }
}

/// The times and texts of the events of a stream without losses.
fn read(plan: &Arc<Plan>, bytes: &[u8]) -> Vec<(u64, String)> {
    let mut reader = StreamReader::new(plan.clone(), std::io::Cursor::new(bytes.to_vec()));
    let mut events = Vec::new();
    while let Some(message) = reader.next_message().expect("decodes") {
        match message {
            Message::Event(event) => events.push((event.ticks().expect("a time"), shown(&event))),
            Message::Packet(packet) => assert!(!packet.info().foreign),
            Message::Gap(gap) => panic!("{gap:?}"),
        }
    }
    events
}

/// All fields of an event as text.
fn shown(event: &Event<'_>) -> String {
    struct Text(String);
    impl Visitor<'_> for Text {
        fn value(&mut self, name: &str, value: Value<'_>) {
            let label = value.label().unwrap_or("");
            let _ = match value {
                Value::Integer { value, .. } => write!(self.0, "{name}={}{label};", value.widen()),
                Value::Float { value, .. } => write!(self.0, "{name}={value};"),
                Value::Text { bytes, .. } => {
                    write!(self.0, "{name}=\"{}\";", String::from_utf8_lossy(bytes))
                }
                Value::Boolean(value) => write!(self.0, "{name}={value};"),
                Value::Bits { value, size, flags } => {
                    let flags: Vec<_> = flags.flags(value).collect();
                    write!(self.0, "{name}={value:x}/{size}{flags:?};")
                }
                Value::Blob { bytes, media_type } => {
                    write!(self.0, "{name}={bytes:x?}{media_type};")
                }
                Value::Absent => write!(self.0, "{name}=absent;"),
            };
        }
        fn begin(&mut self, name: &str, container: Container) {
            let _ = match container {
                Container::Struct => write!(self.0, "{name}{{"),
                Container::Array(length) => write!(self.0, "{name}[{length}]{{"),
                Container::Variant => write!(self.0, "{name}<"),
                Container::Optional => write!(self.0, "{name}("),
            };
        }
        fn end(&mut self, container: Container) {
            self.0.push(match container {
                Container::Variant => '>',
                Container::Optional => ')',
                Container::Struct | Container::Array(_) => '}',
            });
        }
    }
    let mut text = Text(format!("{}:", event.name()));
    let stream = event.packet().stream_class();
    for (scope, root) in [
        (Scope::StreamEventContext, &stream.event_context),
        (Scope::EventContext, &event.class().context),
        (Scope::EventFields, &event.class().fields),
    ] {
        if root.is_some() {
            text.0.push('|');
            event.visit(scope, &mut text);
        }
    }
    text.0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn written_events_read_back_equal(seed: u64, parts in 0u32..60, events in 0u64..40) {
        let sample = sample(seed, parts, events, Kind::Ctf18);
        for (bytes, expected) in &sample.streams {
            prop_assert_eq!(&read(&sample.plan, bytes), expected);
        }
    }

    #[test]
    fn metadata_survives_its_text(seed: u64, parts in 0u32..60) {
        let plan = sample(seed, parts, 0, Kind::Ctf18).plan;
        let text = plan.metadata().to_tsdl().expect("prints");
        let parsed = Metadata::parse(text.as_bytes()).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert!(parsed.warnings.is_empty());
        let mut again = parsed.metadata;
        // The text of a location is not compared. Names of clocks and everything else must be the same.
        prop_assert_eq!(&again, plan.metadata());
        again.resolve().expect("resolves again");
        prop_assert_eq!(&again, plan.metadata());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_the_same_in_ctf2(seed: u64, parts in 0u32..60, events in 0u64..40, more: bool) {
        let kind = if more { Kind::Ctf2 } else { Kind::Ctf18 };
        let sample = sample(seed, parts, events, kind);
        let text = sample.plan.metadata().to_ctf2();
        let text = text.map_err(|error| TestCaseError::fail(format!("{error}")))?;
        let parsed = Metadata::parse(text.as_bytes()).expect("it has been read before");
        // Converting the parsed metadata back must result in the same text.
        prop_assert_eq!(&parsed.metadata.to_ctf2().expect("prints"), &text);
        let plan = Arc::new(Plan::new(parsed.metadata).expect("compiles"));
        for (bytes, expected) in &sample.streams {
            prop_assert_eq!(&read(&plan, bytes), expected, "{}", text);
        }
    }
}

#[test]
fn babeltrace_reads_what_is_written_and_shows_the_same() {
    let available = Command::new("babeltrace2")
        .arg("--version")
        .output()
        .is_ok();
    if !available {
        kymo_fixtures::missing("no babeltrace2");
        return;
    }
    compare_with("babeltrace2".as_ref(), Kind::Simple, Version::Ctf18);
}

/// Only version 2.1 of babeltrace2 supports CTF 2, and it must accept both.
#[test]
fn babeltrace_2_1_reads_both_and_shows_the_same() {
    let Some(command) = kymo_fixtures::babeltrace::version_2_1() else {
        return;
    };
    compare_with(&command, Kind::Simple, Version::Ctf18);
    compare_with(&command, Kind::Simple, Version::Ctf2);
    compare_with(&command, Kind::Simple2, Version::Ctf2);
}

/// Writes traces with metadata of a version, and reads them with this babeltrace2.
fn compare_with(babeltrace: &Path, kind: Kind, version: Version) {
    for seed in 0..40 {
        let sample = sample(seed, 40, 60, kind);
        let directory = tempfile::tempdir().expect("scratch folder");
        let path = directory.path().join("trace");
        fs::create_dir(&path).expect("folder");
        let text = sample.plan.metadata().to_text(version).expect("prints");
        fs::write(path.join("metadata"), &text).expect("metadata");
        for (index, (bytes, _)) in sample.streams.iter().enumerate() {
            fs::write(path.join(format!("stream_{index}")), bytes).expect("stream");
        }
        let output = Command::new(babeltrace)
            .args(["--clock-seconds", "--no-delta", "--fields=all"])
            .arg(&path)
            .env("TZ", "UTC")
            .output()
            .expect("babeltrace2 runs");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "seed {seed}: {complaints}\n{text}"
        );
        let traces = vec![Trace::open(&path).expect("opens")];
        let layout = Layout::of(&traces);
        let mut messages = Messages::merge(&traces).expect("opens");
        let mut shown = Vec::new();
        while let Some((_, message)) = messages.next_message().expect("decodes") {
            if let Message::Event(event) = message {
                layout[0].event(&mut shown, &event);
                shown.push(b'\n');
            }
        }
        let (ours, theirs) = (
            String::from_utf8_lossy(&shown),
            String::from_utf8_lossy(&output.stdout),
        );
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "seed {seed}\n{text}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "seed {seed}");
    }
}

#[test]
fn lost_packets_and_discarded_events_are_told() {
    use kymo_ctf::{Datum, StreamWriter};
    let plan = sample(1, 0, 0, Kind::Ctf18).plan;
    let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("class");
    for (begin, end, discarded) in [(10, 20, 0), (30, 40, 4)] {
        writer
            .begin_packet(begin, &[Datum::Unsigned(3)])
            .expect("begins");
        writer.end_packet(end, discarded).expect("ends");
    }
    writer.skip_packets(2);
    writer
        .begin_packet(50, &[Datum::Unsigned(3)])
        .expect("begins");
    writer.end_packet(60, 5).expect("ends");
    let bytes = writer.finish().expect("finished");
    let mut reader = StreamReader::new(plan, std::io::Cursor::new(bytes));
    let mut gaps = Vec::new();
    while let Some(message) = reader.next_message().expect("decodes") {
        if let Message::Gap(gap) = message {
            gaps.push((gap.kind, gap.count, gap.from_ticks, gap.to_ticks));
        }
    }
    let expected = [
        (GapKind::Events, Some(4), Some(30), Some(40)),
        (GapKind::Packets, Some(2), Some(40), Some(50)),
        (GapKind::Events, Some(1), Some(50), Some(60)),
    ];
    assert_eq!(gaps, expected);
}

#[test]
fn a_refused_event_leaves_nothing_behind() {
    use kymo_ctf::metadata::{
        ArrayClass, ByteOrder, Clock, ClockId, EventClass, IntegerClass, Role, StreamClass,
        StructClass, standard,
    };
    use kymo_ctf::{Datum, FieldError, StreamWriter, WriteError};
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bits = |size| IntegerClass::unsigned(size, order).align(1);
        let mut metadata = Metadata::new(order);
        metadata.clocks.push(Clock::new("ticks", 1_000));
        let mut class = StreamClass::new(0);
        class.packet_context = Some(standard::packet_context(order, ClockId(0)));
        let header = StructClass::new().with("id", bits(3).role(Role::EventId));
        class.event_header = Some(header.with("timestamp", bits(10).clock(ClockId(0))));
        let mut event = EventClass::new(0, "bits".into());
        let fields = StructClass::new()
            .with("n", bits(2))
            .with("length", bits(3));
        event.fields = Some(fields.with("list", ArrayClass::sequence("length", bits(1))));
        class.events.push(event);
        metadata.streams.push(class);
        let plan = Arc::new(Plan::new(metadata).expect("metadata"));
        let mut writer = StreamWriter::new(plan.clone(), 0, Vec::new()).expect("class");
        writer.begin_packet(5_000, &[]).expect("begins");
        let one = [Datum::Unsigned(1)];
        let fields = |n: u64, length: u64| {
            [
                Datum::Unsigned(n),
                Datum::Unsigned(length),
                Datum::Array(&one),
            ]
        };
        writer.event(0, 5_001, &fields(3, 1)).expect("fits");
        let refused = [
            (
                5_002,
                4,
                1,
                FieldError::Range {
                    size: 2,
                    signed: false,
                    found: 4,
                },
            ),
            (
                5_002,
                1,
                2,
                FieldError::Count {
                    expected: 2,
                    found: 1,
                },
            ),
            (
                5_000,
                1,
                1,
                FieldError::Time {
                    from: 5_001,
                    to: 5_000,
                    size: 10,
                },
            ),
            (
                9_000,
                1,
                1,
                FieldError::Time {
                    from: 5_001,
                    to: 9_000,
                    size: 10,
                },
            ),
        ];
        for (time, n, length, expected) in refused {
            match writer.event(0, time, &fields(n, length)) {
                Err(WriteError::Field { error, .. }) => assert_eq!(error, expected),
                other => panic!("{other:?}"),
            }
        }
        writer.event(0, 6_000, &fields(2, 1)).expect("fits");
        writer.end_packet(6_000, 0).expect("ends");
        let bytes = writer.finish().expect("finished");
        let events = read(&plan, &bytes);
        let expected = [
            (5_001, "bits:|n=3;length=1;list[1]{=1;}"),
            (6_000, "bits:|n=2;length=1;list[1]{=1;}"),
        ];
        assert_eq!(events, expected.map(|(time, text)| (time, text.to_owned())));
    }
}

#[test]
fn what_only_ctf2_has_is_refused_in_ctf18_by_name() {
    use kymo_ctf::metadata::{
        ArrayClass, BitMapClass, BlobClass, ByteOrder, Choice, Encoding, EventClass, FieldClass,
        FloatClass, Form, IntegerClass, Length, Location, Member, OptionalClass, StreamClass,
        StringClass, StructClass, Value64, VariantClass,
    };
    let integer = IntegerClass::unsigned(8, ByteOrder::Little);
    let float = FloatClass {
        size: 64,
        reversed: true,
        align: 8,
        byte_order: ByteOrder::Little,
        attributes: None,
    };
    let ranges = vec![(Value64::Unsigned(1), Value64::Unsigned(1))];
    let cases: [(FieldClass, &str); 10] = [
        (FieldClass::Boolean(integer), "a boolean"),
        (
            BitMapClass {
                integer,
                flags: Arc::default(),
            }
            .into(),
            "a bit array or bit map",
        ),
        (
            BlobClass {
                length: Length::Fixed(3),
                media_type: "text/plain".into(),
                is_uuid: false,
                attributes: None,
            }
            .into(),
            "a blob",
        ),
        (
            OptionalClass {
                selector: Location::new("before"),
                ranges: Some(ranges.clone()),
                class: Box::new(integer.into()),
                attributes: None,
            }
            .into(),
            "an optional field",
        ),
        (
            VariantClass {
                tag: Location::new("before"),
                choice: Choice::Ranges(vec![ranges]),
                options: vec![Member::new("one", integer)],
                attributes: None,
            }
            .into(),
            "a variant whose options",
        ),
        (
            IntegerClass::variable(false).into(),
            "an integer of variable size",
        ),
        (
            IntegerClass {
                form: Form::Reversed,
                ..integer
            }
            .into(),
            "a number whose bits",
        ),
        (float.into(), "a number whose bits"),
        (
            StringClass {
                encoding: Encoding::Utf32Le,
                attributes: None,
            }
            .into(),
            "text in UTF-16 or UTF-32",
        ),
        (
            ArrayClass {
                min_align: 64,
                ..ArrayClass::fixed(2, integer)
            }
            .into(),
            "an array that is aligned",
        ),
    ];
    for (class, expected) in cases {
        let mut metadata = Metadata::new(ByteOrder::Little);
        let mut stream = StreamClass::new(0);
        let mut event = EventClass::new(0, "one".into());
        let before = StructClass::new().with("before", integer);
        event.fields = Some(before.with("only", class.clone()));
        stream.events.push(event);
        metadata.streams.push(stream);
        let error = metadata.to_tsdl().expect_err("is refused").to_string();
        let expected = format!("metadata: unsupported: {expected}");
        assert!(error.starts_with(&expected), "{class:?}: {error}");
        metadata.to_ctf2().expect("can be said");
    }
}
