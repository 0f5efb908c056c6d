//! Tests with invalid input: damaged copies of real traces, and traces made to exhaust a reader.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::random::{Kind, Random};
use kymo_ctf::metadata::Metadata;
use kymo_ctf::{DecodeErrorKind, MetadataErrorKind, Plan, StreamReader, Trace, fuzzing};

/// Changes, truncates or repeats some bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0,
            3 => {
                let end = (at + 16).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, part);
            }
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

/// The small streams of the shared data with their metadata.
fn samples() -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return Vec::new();
    };
    let mut samples = Vec::new();
    let mut cases = crate::cases::cases(&data, crate::cases::Version::Ctf1);
    cases.extend(crate::cases::cases(&data, crate::cases::Version::Ctf2));
    for case in cases {
        let folder = case.folder.join("trace");
        let Ok(metadata) = fs::read(folder.join("metadata")) else {
            continue;
        };
        let files = fs::read_dir(&folder).expect("folder").flatten();
        let streams =
            files.filter(|entry| entry.path().is_file() && entry.file_name() != "metadata");
        let streams = streams
            .map(|entry| crate::cases::read(&entry.path()))
            .filter(|bytes| bytes.len() < 10_000)
            .collect();
        samples.push((metadata, streams));
    }
    samples
}

#[test]
fn damaged_metadata() {
    let mut random = Random::new(1);
    for (metadata, _) in samples()
        .iter()
        .filter(|(metadata, _)| metadata.len() < 20_000)
    {
        for _ in 0..20 {
            let mut metadata = metadata.clone();
            damage(&mut metadata, &mut random);
            fuzzing::metadata(&metadata);
        }
    }
}

#[test]
fn damaged_streams() {
    let mut random = Random::new(2);
    for (metadata, streams) in samples() {
        let Ok(parsed) = Metadata::parse(&metadata) else {
            continue;
        };
        let plan = Arc::new(Plan::new(parsed.metadata).expect("compiles"));
        for stream in streams {
            for _ in 0..20 {
                let mut stream = stream.clone();
                damage(&mut stream, &mut random);
                fuzzing::events(plan.clone(), &stream);
            }
        }
    }
}

#[test]
fn damage_to_both() {
    let mut random = Random::new(3);
    let mut events = 0;
    for (metadata, streams) in samples()
        .iter()
        .filter(|(metadata, _)| metadata.len() < 5_000)
    {
        for stream in streams {
            for _ in 0..10 {
                let mut both = [metadata.as_slice(), &[0], stream].concat();
                damage(&mut both, &mut random);
                events += fuzzing::stream(&both);
            }
        }
    }
    eprintln!("{events} events came out of damaged traces");
}

#[test]
fn random_traces_damaged() {
    let mut random = Random::new(4);
    for _ in 0..60 {
        let kind = random.pick(&[Kind::Ctf18, Kind::Ctf2]);
        let metadata = crate::random::metadata(&mut random, 40, kind);
        let plan = Arc::new(Plan::new(metadata).expect("metadata"));
        let (stream, _) = crate::random::stream(&plan, 0, &mut random, 30, 0);
        for _ in 0..10 {
            let mut stream = stream.clone();
            damage(&mut stream, &mut random);
            fuzzing::events(plan.clone(), &stream);
        }
    }
}

const HEAD: &str = "/* CTF 1.8 */ typealias integer { size = 64; align = 8; } := u64; \
    typealias integer { size = 8; } := u8; trace { major = 1; minor = 8; byte_order = le; };";

/// The error of the first event of a stream, which must be the first result.
fn first_error(metadata: &str, stream: &[u8]) -> DecodeErrorKind {
    let start = Instant::now();
    let text = format!("{HEAD}{metadata}");
    let trace = Trace::from_memory(text.as_bytes(), [("stream", stream)]).expect("metadata");
    let mut reader = StreamReader::new(trace.plan().clone(), std::io::Cursor::new(stream.to_vec()));
    let error = loop {
        match reader.next_message() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => break error.kind,
        }
    };
    assert!(
        start.elapsed() < Duration::from_secs(300),
        "{error}: took {:?}",
        start.elapsed()
    );
    error
}

#[test]
fn sizes_that_cannot_be_cost_nothing() {
    let huge = [0xff; 16];
    let sequence = "event { fields := struct { u64 length; u64 values[length]; }; };";
    assert!(matches!(
        first_error(sequence, &huge),
        DecodeErrorKind::BeyondContent { .. }
    ));
    let text = "event { fields := struct { u64 length; integer { size = 8; encoding = UTF8; } text[length]; }; };";
    assert!(matches!(
        first_error(text, &huge),
        DecodeErrorKind::BeyondContent { .. }
    ));
    assert!(matches!(
        first_error(text, &(1u64 << 40).to_le_bytes()),
        DecodeErrorKind::TooLarge { .. }
    ));
    let structures =
        "event { fields := struct { u64 length; struct { string s; } values[length]; }; };";
    assert!(matches!(
        first_error(structures, &huge),
        DecodeErrorKind::BeyondContent { .. }
    ));
    let empty = "event { fields := struct { u64 length; struct { } values[length]; }; };";
    assert!(matches!(
        first_error(empty, &huge),
        DecodeErrorKind::TooManyEmpty { .. }
    ));
    let nested =
        "event { fields := struct { u8 x; struct { } values[1000][1000][1000][1000]; }; };";
    assert!(matches!(
        first_error(nested, &huge),
        DecodeErrorKind::TooManyEmpty { .. }
    ));
    let dynamic = "event { fields := struct { u64 n; struct { struct { struct { } c[n]; } b[n]; } a[n]; }; };";
    assert!(matches!(
        first_error(dynamic, &huge),
        DecodeErrorKind::TooManyEmpty { .. }
    ));
    let nothing = "event { fields := struct { }; };";
    assert!(matches!(
        first_error(nothing, &huge),
        DecodeErrorKind::EmptyEvent
    ));
    let packet = "stream { packet.context := struct { u64 packet_size; }; }; event { fields := struct { u8 x; }; };";
    let size = (1u64 << 62).to_le_bytes();
    assert!(matches!(
        first_error(packet, &size),
        DecodeErrorKind::Truncated { .. }
    ));
}

#[test]
fn types_that_explode_are_refused() {
    let mut text = format!("{HEAD} typealias struct {{ u8 a; u8 b; }} := t0;");
    for level in 1..60 {
        text += &format!(
            "typealias struct {{ t{} a; t{} b; }} := t{level};",
            level - 1,
            level - 1
        );
    }
    let error = Metadata::parse(text.as_bytes()).expect_err("2^60 parts");
    assert!(
        matches!(
            error.kind,
            MetadataErrorKind::Size(_) | MetadataErrorKind::Depth(_)
        ),
        "{error}"
    );
    // One type under many names, and in many fields of many events: a few bytes of text would lead to many copies.
    let members: String = (0..1000).map(|n| format!("u8 f{n};")).collect();
    let names: Vec<String> = (0..1000).map(|n| format!("t{n}")).collect();
    let typedef = format!("typedef struct {{ {members} }} {};", names.join(", "));
    let fields = names.get(..400).unwrap_or(&[]).join(", ");
    let events = (0..10).map(|id| {
        format!("event {{ id = {id}; fields := struct {{ struct {{ {members} }} {fields}; }}; }};")
    });
    let events: String = events.collect();
    for text in [typedef, events] {
        let error = Metadata::parse(format!("{HEAD}{text}").as_bytes()).expect_err("a million");
        assert!(matches!(error.kind, MetadataErrorKind::Size(_)), "{error}");
    }
    let deep = format!("{HEAD} event {{ fields := {}", "struct { ".repeat(100_000));
    let error = Metadata::parse(deep.as_bytes()).expect_err("too deep");
    assert!(matches!(error.kind, MetadataErrorKind::Depth(_)), "{error}");
}

/// Metadata with many of every object that others refer to. Parsing must take linear time: if every reference searched
/// all earlier objects, this would take hours.
#[test]
fn many_of_a_kind_are_found_at_once() {
    const MANY: usize = 20_000;
    let all = |each: &dyn Fn(usize) -> String| (0..MANY).map(each).collect::<String>();
    let start = Instant::now();
    let clocks = all(&|n| format!("clock {{ name = c{n}; }};"));
    let maps = all(&|n| {
        let c = MANY - 1 - n;
        format!("typealias integer {{ size = 8; map = clock.c{c}.value; }} := t{n};")
    });
    let environment = all(&|n| format!("e{n} = 1;"));
    let lengths = all(&|n| format!("u8 l{n}; u8 a{n}[l{n}]; u8 b{n}[env.e{n}];"));
    let labels = all(&|n| format!("L{n},"));
    let options = all(&|n| format!("u8 L{n};"));
    let streams =
        all(&|n| format!("stream {{ id = {n}; }}; event {{ id = 0; stream_id = {n}; }};"));
    let head = HEAD.replace(
        "byte_order = le;",
        "byte_order = le; packet.header := struct { integer { size = 8; } stream_id; };",
    );
    let text = format!(
        "{head} {clocks} {maps} env {{ {environment} }}; {streams}
        event {{ id = 1; stream_id = 0; fields := struct {{ {lengths} }}; }};
        event {{ id = 2; stream_id = 0; fields := struct {{
            enum : integer {{ size = 16; }} {{ {labels} }} tag; variant <tag> {{ {options} }} v; }}; }};"
    );
    let parsed = Metadata::parse(text.as_bytes()).expect("good, if large");
    let metadata = parsed.metadata;
    assert_eq!(
        (metadata.clocks.len(), metadata.streams.len()),
        (MANY, MANY)
    );
    let plan = Plan::new(metadata).expect("it can be decoded");
    let text = plan.metadata().to_ctf2().expect("in CTF 2 too");
    assert!(text.len() > MANY);
    assert!(
        start.elapsed() < Duration::from_secs(300),
        "took {:?}",
        start.elapsed()
    );
}

/// Each of thousands of lengths may be in any of thousands of options of a variant.
#[test]
fn locations_that_explode_are_refused() {
    let labels: String = (0..4000).map(|n| format!("L{n},")).collect();
    let options: String = (0..4000)
        .map(|n| format!("struct {{ u8 len; }} L{n};"))
        .collect();
    let arrays: String = (0..4000).map(|n| format!("u8 a{n}[v.len];")).collect();
    let text = format!(
        "{HEAD} event {{ fields := struct {{ enum : integer {{ size = 16; }} {{ {labels} }} tag;
            variant <tag> {{ {options} }} v; {arrays} }}; }};"
    );
    let error = Metadata::parse(text.as_bytes()).expect_err("16 million");
    let kind = error.kind;
    assert!(matches!(kind, MetadataErrorKind::Unsupported(_)), "{kind}");
    assert!(error.line > 0);
}
