//! Tests that traces are rejected that other readers reject, or that could block a reader.

use std::fs;
use std::path::Path;

use kymo_ctf::metadata::Metadata;
use kymo_ctf::{
    Absence, DecodeErrorKind, Message, Messages, MetadataErrorKind as Kind, OpenError, Trace,
};

const TYPES: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
    typealias integer { size = 32; align = 8; signed = false; } := u32;\n";

fn metadata(stream: &str, events: &str) -> String {
    format!(
        "{TYPES}trace {{ major = 1; minor = 8; byte_order = le; }};\n\
         stream {{ {stream} event.header := struct {{ u8 id; }}; }};\n{events}"
    )
}

fn refused(text: &str) -> Kind {
    match Metadata::parse(text.as_bytes()) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.kind,
    }
}

fn event(fields: &str) -> String {
    metadata(
        "",
        &format!("event {{ id = 0; name = \"e\"; fields := struct {{ {fields} }}; }};"),
    )
}

#[test]
fn keywords_are_no_names() {
    for keyword in [
        "event", "stream", "clock", "align", "string", "trace", "integer", "env",
    ] {
        assert_eq!(
            refused(&event(&format!("u8 {keyword};"))),
            Kind::Keyword,
            "{keyword}"
        );
        assert_eq!(
            refused(&event(&format!("u8 {keyword}[2];"))),
            Kind::Keyword,
            "{keyword}"
        );
        // Writers escape keywords in this way.
        let escaped = event(&format!("u8 _{keyword};"));
        let parsed = Metadata::parse(escaped.as_bytes()).expect("an escaped keyword");
        let fields = parsed.metadata.streams[0].events[0].fields.as_ref();
        assert_eq!(fields.expect("fields").members[0].name, keyword);
    }
}

#[test]
fn a_zero_byte_ends_nothing() {
    let text = event("u8 a;");
    for at in [20, text.len() / 2, text.len() - 3] {
        let mut text = text.clone();
        text.insert(at, '\0');
        assert_eq!(refused(&text), Kind::Zero, "at {at}");
    }
    // Also within a comment or a string.
    for (from, to) in [("CTF 1.8 *", "CTF 1.8 \0 *"), ("\"e\"", "\"e\0f\"")] {
        assert_eq!(refused(&text.replace(from, to)), Kind::Zero);
    }
    assert!(
        Metadata::parse(format!("{text}\0").as_bytes()).is_ok(),
        "as C ends a text"
    );
}

#[test]
fn an_event_says_which_stream_of_several_is_its_own() {
    let two = |id: &str| {
        format!(
            "{TYPES}trace {{ major = 1; minor = 8; byte_order = le; \
             packet.header := struct {{ u8 stream_id; }}; }};\n\
             stream {{ id = 0; event.header := struct {{ u8 id; }}; }};\n\
             stream {{ id = 1; event.header := struct {{ u8 id; }}; }};\n\
             event {{ id = 0; {id} name = \"e\"; fields := struct {{ u8 a; }}; }};"
        )
    };
    assert!(matches!(refused(&two("")), Kind::Missing(what) if what.contains("stream_id")));
    assert!(Metadata::parse(two("stream_id = 1;").as_bytes()).is_ok());
    // With a single stream class the stream's id may be omitted.
    assert!(Metadata::parse(event("u8 a;").as_bytes()).is_ok());
}

/// A text as one metadata packet, with a header in this byte order.
fn packetized(text: &str, big: bool) -> Vec<u8> {
    let word = |value: u32| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let bits = (37 + text.len() as u32) * 8;
    let mut packet = word(0x75d1_1d57).to_vec();
    packet.extend([7; 16]);
    for value in [0, bits, bits] {
        packet.extend(word(value));
    }
    packet.extend([0, 0, 0, 1, 8]);
    packet.extend(text.as_bytes());
    packet
}

#[test]
fn metadata_packets_have_the_byte_order_of_the_trace() {
    let little = event("u8 a;");
    let big = little.replace("byte_order = le", "byte_order = be");
    for (text, packets_big, right) in [
        (&little, false, true),
        (&little, true, false),
        (&big, true, true),
        (&big, false, false),
    ] {
        let parsed = Metadata::parse(&packetized(text, packets_big));
        match parsed {
            Ok(_) => assert!(right),
            Err(error) => {
                assert!(!right, "{error}");
                assert!(matches!(error.kind, Kind::PacketOrder { .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_structure_at_the_root_needs_no_semicolon() {
    for end in ["", ";"] {
        let text = event("struct point p;").replace(
            "trace {",
            &format!("struct point {{ u8 x; u8 y; }}{end}\ntrace {{"),
        );
        let parsed = Metadata::parse(text.as_bytes());
        assert!(parsed.is_ok(), "{end:?}: {:?}", parsed.err());
    }
}

/// A trace of streams whose packets have these UUIDs (all bytes equal), with one event each.
fn with_uuids(folder: &Path, uuids: &[u8]) -> Trace {
    let text = format!(
        "{TYPES}trace {{ major = 1; minor = 8; byte_order = le; \
         uuid = \"01010101-0101-0101-0101-010101010101\"; \
         packet.header := struct {{ u32 magic; u8 uuid[16]; }}; }};\n\
         stream {{ event.header := struct {{ u8 id; }}; }};\n\
         event {{ id = 0; name = \"e\"; fields := struct {{ u8 a; }}; }};"
    );
    fs::write(folder.join("metadata"), text).expect("a file");
    for (number, uuid) in uuids.iter().enumerate() {
        let mut stream = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
        stream.extend([*uuid; 16]);
        stream.extend([0, 7]);
        fs::write(folder.join(format!("s{number}")), stream).expect("a file");
    }
    Trace::open(folder).expect("a trace")
}

fn read(trace: &Trace) -> (usize, Vec<DecodeErrorKind>) {
    let mut messages = Messages::merge([trace]).expect("streams");
    let (mut events, mut errors) = (0, Vec::new());
    loop {
        match messages.next_message() {
            Ok(Some((_, Message::Event(_)))) => events += 1,
            Ok(Some(_)) => {}
            Ok(None) => return (events, errors),
            Err(error) => {
                errors.push(error.error.kind);
                let skipped = messages.skip(error.origin).expect("readable");
                assert_eq!(
                    skipped.and_then(|skipped| skipped.to),
                    None,
                    "all of it is foreign"
                );
            }
        }
    }
}

#[test]
fn a_stream_of_another_trace_is_refused_and_the_others_are_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let trace = with_uuids(folder.path(), &[1, 2, 1]);
    assert_eq!(read(&trace), (2, vec![DecodeErrorKind::ForeignUuid]));
    // If the metadata was generated again, no stream has its UUID, and none is refused.
    let folder = tempfile::tempdir().expect("a directory");
    assert_eq!(read(&with_uuids(folder.path(), &[2, 2])), (2, Vec::new()));
}

#[test]
fn streams_that_are_empty_or_missing_are_told() {
    let folder = tempfile::tempdir().expect("a directory");
    let trace = with_uuids(folder.path(), &[1, 1, 1, 1]);
    assert_eq!(trace.absences(), []);
    fs::remove_file(folder.path().join("s1")).expect("it is there");
    fs::write(folder.path().join("s2"), "").expect("a file");
    let trace = Trace::open(folder.path()).expect("a trace");
    let expected = [
        Absence::Empty {
            stream: "s2".to_owned(),
        },
        Absence::Missing {
            stream: "s1".to_owned(),
        },
    ];
    assert_eq!(trace.absences(), expected);
    let folder = tempfile::tempdir().expect("a directory");
    let trace = with_uuids(folder.path(), &[]);
    assert_eq!(trace.absences(), [Absence::NoStreams]);
    let text = format!(
        "{TYPES}trace {{ major = 1; minor = 8; byte_order = le; \
         packet.header := struct {{ u8 stream_id; }}; }};\n\
         stream {{ id = 0; event.header := struct {{ u8 id; }}; }};\n\
         stream {{ id = 5; event.header := struct {{ u8 id; }}; }};\n\
         event {{ id = 0; stream_id = 0; name = \"e\"; fields := struct {{ u8 a; }}; }};\n\
         event {{ id = 0; stream_id = 5; name = \"e\"; fields := struct {{ u8 a; }}; }};"
    );
    let trace = Trace::from_memory(text.as_bytes(), [("x", vec![0_u8, 0, 7])]).expect("metadata");
    assert_eq!(
        trace.absences(),
        [Absence::NoPackets {
            class: 5,
            events: 1
        }]
    );
}

#[cfg(unix)]
#[test]
fn what_would_be_waited_for_is_refused() {
    for name in ["metadata", "s9", "deep/s9"] {
        let folder = tempfile::tempdir().expect("a directory");
        let at = folder.path();
        with_uuids(at, &[1]);
        fs::create_dir(at.join("deep")).expect("a directory");
        // Replaces an existing file.
        let _ = fs::remove_file(at.join(name));
        let made = std::process::Command::new("mkfifo")
            .arg(at.join(name))
            .status();
        assert!(made.expect("mkfifo").success());
        let error = Trace::open_all(at).expect_err("a pipe");
        assert!(
            matches!(&error, OpenError::NotAFile { path, found: "a pipe" } if path.ends_with(name)),
            "{error}"
        );
    }
    let folder = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("metadata")).expect("a link");
    let error = Trace::open_all(folder.path()).expect_err("a device");
    assert!(
        matches!(
            error,
            OpenError::NotAFile {
                found: "a device",
                ..
            }
        ),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn links_out_of_a_directory_are_not_followed() {
    use std::os::unix::fs::symlink;
    let other = tempfile::tempdir().expect("a directory");
    with_uuids(other.path(), &[1]);
    let folder = tempfile::tempdir().expect("a directory");
    symlink(other.path(), folder.path().join("out")).expect("a link");
    symlink(folder.path(), folder.path().join("around")).expect("a link");
    symlink("nothing", folder.path().join("broken")).expect("a link");
    let error = Trace::open_all(folder.path()).expect_err("nothing of its own");
    assert!(matches!(error, OpenError::NoTrace { .. }), "{error}");
    // Directories deeper than the documented limit are not searched.
    let mut deep = folder.path().to_owned();
    for level in 0..=kymo_ctf::MAX_LEVELS {
        deep.push(level.to_string());
    }
    fs::create_dir_all(&deep).expect("directories");
    with_uuids(&deep, &[1]);
    assert!(Trace::open_all(folder.path()).is_err());
    assert_eq!(
        Trace::open_all(folder.path().join("0"))
            .expect("a trace")
            .len(),
        1
    );
}

/// babeltrace2's own writer repeats the clock for each stream class.
#[test]
fn a_clock_may_be_repeated_but_not_differ() {
    let clock =
        |frequency: u64| format!("clock {{ name = c; freq = {frequency}; offset = 5; }};\n");
    let rest = event("u8 a;");
    let twice = format!("{rest}{}{}", clock(1000), clock(1000));
    let metadata = Metadata::parse(twice.as_bytes()).expect("the same clock twice");
    assert_eq!(metadata.metadata.clocks.len(), 1);
    let differing = format!("{rest}{}{}", clock(1000), clock(2000));
    assert_eq!(refused(&differing), Kind::Duplicate("clock"));
}
