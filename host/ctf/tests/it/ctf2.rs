//! Tests of CTF 2 beyond the shared data: constructs that its traces lack, and invalid metadata.

use kymo_ctf::convert::{Change, Conversion, Everything};
use kymo_ctf::metadata::{Form, Metadata, Version};
use kymo_ctf::text::Layout;
use kymo_ctf::{DecodeErrorKind, Message, MetadataErrorKind, StreamError, Trace};

const BYTE: &str =
    r#"{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian"}"#;

/// Concatenated fragments, with `byte` as the alias of an unsigned byte.
fn sequence(fragments: &[&str]) -> String {
    let alias =
        format!(r#"{{"type": "field-class-alias", "name": "byte", "field-class": {BYTE}}}"#);
    let head = [r#"{"type": "preamble", "version": 2}"#, &alias];
    let all = head.iter().chain(fragments);
    all.map(|fragment| format!("\u{1e}{fragment}\n")).collect()
}

/// Metadata of a single event class with these members in the payload.
fn payload(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, class)| format!(r#"{{"name": "{name}", "field-class": {class}}}"#))
        .collect();
    let event = format!(
        r#"{{"type": "event-record-class", "name": "e", "payload-field-class":
            {{"type": "structure", "member-classes": [{}]}}}}"#,
        members.join(", ")
    );
    sequence(&[r#"{"type": "data-stream-class"}"#, &event])
}

/// The lines of all events, and the final error.
fn lines(metadata: &str, stream: &[u8]) -> (Vec<String>, Option<StreamError>) {
    let trace = Trace::from_memory(metadata.as_bytes(), [("stream", stream)])
        .unwrap_or_else(|error| panic!("{error}\n{metadata}"));
    let layout = Layout::new(trace.metadata(), "");
    let mut messages = trace.messages().expect("memory");
    let mut lines = Vec::new();
    loop {
        match messages.next_message() {
            Ok(Some((_, Message::Event(event)))) => {
                let mut line = Vec::new();
                layout.event(&mut line, &event);
                lines.push(String::from_utf8(line).expect("UTF-8"));
            }
            Ok(Some(_)) => {}
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error)),
        }
    }
}

/// The error of invalid metadata.
fn refused(metadata: &str) -> MetadataErrorKind {
    match Metadata::parse(metadata.as_bytes()) {
        Ok(_) => panic!("accepted: {metadata}"),
        Err(error) => {
            assert!(error.line > 0, "{error}");
            error.kind
        }
    }
}

#[test]
fn fields_of_every_kind() {
    let metadata = payload(&[
        (
            "sel",
            r#"{"type": "fixed-length-signed-integer", "length": 8, "byte-order": "big-endian"}"#,
        ),
        (
            "o",
            r#"{"type": "optional", "selector-field-location": {"path": ["sel"]},
                "selector-field-ranges": [[-3, -1], [5, 5]], "field-class": "byte"}"#,
        ),
        (
            "v",
            r#"{"type": "variant", "selector-field-location": {"path": ["sel"]}, "options": [
                {"name": "neg", "selector-field-ranges": [[-128, -1]], "field-class": "byte"},
                {"selector-field-ranges": [[0, 127]], "field-class": {"type": "structure",
                    "member-classes": [{"name": "x", "field-class": "byte"}]}}]}"#,
        ),
        (
            "rev",
            r#"{"type": "fixed-length-unsigned-integer", "length": 16, "byte-order": "little-endian",
                "bit-order": "last-to-first", "preferred-display-base": 16}"#,
        ),
        (
            "bits",
            r#"{"type": "fixed-length-bit-array", "length": 8, "byte-order": "little-endian"}"#,
        ),
        (
            "map",
            r#"{"type": "fixed-length-bit-map", "length": 8, "byte-order": "little-endian",
                "flags": {"hi": [[7, 7]]}}"#,
        ),
        (
            "en",
            r#"{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian",
                "mappings": {"b": [[1, 2], [5, 5]], "a": [[2, 3]]}}"#,
        ),
        (
            "t",
            r#"{"type": "static-length-string", "length": 4, "encoding": "utf-16le"}"#,
        ),
        (
            "list",
            r#"{"type": "static-length-array", "length": 2, "element-field-class":
                {"type": "structure", "member-classes": [
                    {"name": "n", "field-class": "byte"},
                    {"name": "s", "field-class": {"type": "dynamic-length-string",
                        "length-field-location": {"path": ["n"]}}},
                    {"name": "in", "field-class": {"type": "structure", "member-classes": [
                        {"name": "w", "field-class": {"type": "dynamic-length-blob",
                            "length-field-location": {"path": [null, "n"]}}}]}}]}}"#,
        ),
        (
            "arr",
            r#"{"type": "static-length-array", "length": 0, "minimum-alignment": 32,
                "element-field-class": "byte"}"#,
        ),
        ("last", r#""byte""#),
    ]);
    let stream = [
        254, 7, 9, 1, 128, 165, 129, 2, 233, 0, 0, 0, 1, 65, 255, 2, 66, 67, 1, 2, 7, 0, 0, 0, 4,
        11, 0, 0, 0, 0, 9, 97, 0, 98, 0, 0, 0, 0, 0, 0, 8,
    ];
    // The text that babeltrace2 2.1.1 prints.
    let expected = [
        r#"e: { sel = -2, o = { 7 }, v = { 9 }, rev = 0x8001, bits = 0xA5, map = 0x81 { "hi" }, en = ( { "b", "a" } : container = 2 ), t = "é", list = [ [0] = { n = 1, s = "A", in = { w = { ff } } }, [1] = { n = 2, s = "BC", in = { w = { 01 02 } } } ], arr = [ ], last = 7 }"#,
        r#"e: { sel = 4, o = <none>, v = { { x = 11 } }, rev = 0x0, bits = 0x0, map = 0x0, en = ( <unknown> : container = 9 ), t = "ab", list = [ [0] = { n = 0, s = "", in = { w = { } } }, [1] = { n = 0, s = "", in = { w = { } } } ], arr = [ ], last = 8 }"#,
    ];
    let (shown, error) = lines(&metadata, &stream);
    assert_eq!(error, None);
    assert_eq!(shown, expected);
}

#[test]
fn a_boolean_says_what_is_there() {
    let metadata = payload(&[
        (
            "there",
            r#"{"type": "fixed-length-boolean", "length": 16, "byte-order": "big-endian"}"#,
        ),
        (
            "o",
            r#"{"type": "optional", "selector-field-location": {"path": ["there"]},
                "field-class": {"type": "structure", "member-classes": [
                    {"name": "n", "field-class": "byte"}]}}"#,
        ),
        // A length in an optional field, which is missing in the second event.
        (
            "s",
            r#"{"type": "dynamic-length-string", "length-field-location": {"path": ["o", "n"]}}"#,
        ),
    ]);
    let (shown, error) = lines(&metadata, &[1, 0, 2, b'h', b'i', 0, 0]);
    assert_eq!(
        shown,
        [r#"e: { there = true, o = { { n = 2 } }, s = "hi" }"#]
    );
    let kind = error.expect("no length").error.kind;
    assert!(matches!(kind, DecodeErrorKind::NoSelector { .. }), "{kind}");
}

#[test]
fn roles_and_clocks() {
    let role = |name: &str, length: u32, role: &str| {
        format!(
            r#"{{"name": "{name}", "field-class": {{"type": "fixed-length-unsigned-integer",
                "length": {length}, "byte-order": "big-endian", "roles": [{role}]}}}}"#
        )
    };
    let stream = format!(
        r#"{{"type": "data-stream-class", "id": 3, "default-clock-class-id": "c",
            "packet-context-field-class": {{"type": "structure", "member-classes": [{}, {}, {}]}},
            "event-record-header-field-class": {{"type": "structure", "member-classes": [{}, {},
                {{"name": "more", "field-class": {{"type": "variable-length-unsigned-integer",
                    "roles": ["default-clock-timestamp"]}}}}]}}}}"#,
        role(
            "size",
            16,
            r#""packet-total-length", "packet-content-length""#
        ),
        role("begin", 16, r#""default-clock-timestamp""#),
        r#"{"name": "cpu_id", "field-class": "byte"}"#,
        role("id", 8, r#""event-record-class-id""#),
        // If several members have a role, the last one is used.
        role("id2", 8, r#""event-record-class-id""#),
    );
    let metadata = sequence(&[
        r#"{"type": "trace-class", "environment": {"domain": "x", "n": -3}}"#,
        r#"{"type": "clock-class", "id": "c", "frequency": 1000, "origin": "unix-epoch",
            "offset-from-origin": {"seconds": -5, "cycles": 999}}"#,
        &stream,
        r#"{"type": "event-record-class", "id": 7, "data-stream-class-id": 3, "name": "seven",
            "attributes": {"lttng.org,2009": {"log-level": "debug:line"}}}"#,
    ]);
    // Seven bits of the clock in each event: forward, and with one wraparound in the first packet.
    let bytes = [
        0, 88, 1, 0, 4, 9, 7, 0x7f, 9, 7, 0x00, //
        0, 88, 1, 0, 5, 9, 7, 0x7f, 9, 7, 0x7e,
    ];
    let trace = Trace::from_memory(metadata.as_bytes(), [("s", &bytes[..])]).expect("metadata");
    let mut messages = trace.messages().expect("memory");
    let (mut ticks, mut cpus) = (Vec::new(), Vec::new());
    while let Some((_, message)) = messages.next_message().expect("a whole stream") {
        match message {
            Message::Packet(packet) => cpus.push(packet.info().cpu_id),
            Message::Event(event) => {
                assert_eq!((event.name(), event.class().log_level), ("seven", Some(13)));
                ticks.push(event.ticks());
            }
            Message::Gap(gap) => panic!("{gap:?}"),
        }
    }
    assert_eq!(cpus, [Some(4), Some(5)]);
    let expected = [0x17f, 0x180, 0x17f, 0x1fe];
    assert_eq!(ticks, expected.map(Some));
    let clock = &trace.metadata().clocks[0];
    assert!(clock.absolute);
    assert_eq!(clock.nanoseconds(1), Some(-4_000_000_000));
}

/// What babeltrace2 2.1 writes of LTTng's traces.
#[test]
fn log_levels_that_babeltrace_states_are_shown() {
    let metadata = sequence(&[
        r#"{"type": "data-stream-class"}"#,
        r#"{"type": "event-record-class", "name": "e",
            "attributes": {"babeltrace.org,2020": {"log-level": "debug:line", "emf-uri": "u", "more": 1}}}"#,
    ]);
    let metadata = Metadata::parse(metadata.as_bytes())
        .expect("metadata")
        .metadata;
    let event = &metadata.streams[0].events[0];
    assert_eq!(
        (event.log_level, event.emf_uri.as_deref()),
        (Some(13), Some("u"))
    );
    let written = metadata.to_ctf2().expect("CTF 2");
    let again = Metadata::parse(written.as_bytes())
        .expect("metadata")
        .metadata;
    let event = &again.streams[0].events[0];
    assert_eq!(
        (event.log_level, event.emf_uri.as_deref()),
        (Some(13), Some("u"))
    );
}

#[test]
fn texts_are_of_whole_characters() {
    let metadata = payload(&[
        ("n", r#""byte""#),
        (
            "s",
            r#"{"type": "dynamic-length-string", "length-field-location": {"path": ["n"]},
                "encoding": "utf-32be"}"#,
        ),
    ]);
    let (shown, error) = lines(&metadata, &[4, 0, 1, 0xf9, 0x14, 3, 0, 0, 0]);
    assert_eq!(shown, ["e: { n = 4, s = \"🤔\" }"]);
    let kind = error.expect("three quarters").error.kind;
    let (expected, found) = (4, 3);
    assert_eq!(kind, DecodeErrorKind::Characters { expected, found });
    let odd = payload(&[(
        "s",
        r#"{"type": "static-length-string", "length": 3, "encoding": "utf-16be"}"#,
    )]);
    assert!(matches!(refused(&odd), MetadataErrorKind::Attribute { .. }));
}

#[test]
fn locations_lead_backward_only() {
    let array = |path: &str| {
        format!(
            r#"{{"type": "dynamic-length-array", "element-field-class": "byte",
                "length-field-location": {{{path}}}}}"#
        )
    };
    for path in [
        r#""path": ["n"]"#,
        r#""path": ["a"]"#,
        r#""path": [null, "m"]"#,
        r#""path": ["nowhere"]"#,
        r#""origin": "event-record-header", "path": ["m"]"#,
        r#""origin": "event-record-payload", "path": [null, "m"]"#,
    ] {
        let metadata = payload(&[("m", r#""byte""#), ("a", &array(path)), ("n", r#""byte""#)]);
        let kind = refused(&metadata);
        assert!(matches!(kind, MetadataErrorKind::Location(_)), "{kind}");
    }
    let metadata = payload(&[
        ("m", r#""byte""#),
        ("a", &array(r#""path": ["x", null, "m"]"#)),
    ]);
    let (shown, _) = lines(&metadata, &[2, 5, 6]);
    assert_eq!(shown, ["e: { m = 2, a = [ [0] = 5, [1] = 6 ] }"]);
}

#[test]
fn selectors_have_one_meaning() {
    let variant = |first: &str, second: &str| {
        payload(&[
            ("m", r#""byte""#),
            (
                "v",
                &format!(
                    r#"{{"type": "variant", "selector-field-location": {{"path": ["m"]}}, "options": [
                        {{"selector-field-ranges": {first}, "field-class": "byte"}},
                        {{"selector-field-ranges": {second}, "field-class": "byte"}}]}}"#
                ),
            ),
        ])
    };
    assert!(Metadata::parse(variant("[[0, 1], [7, 9]]", "[[2, 6]]").as_bytes()).is_ok());
    for (first, second) in [
        ("[[0, 5]]", "[[5, 9]]"),
        ("[[5, 5]]", "[[0, 9]]"),
        ("[[0, 9], [1, 1]]", "[[3, 3]]"),
    ] {
        let kind = refused(&variant(first, second));
        assert!(matches!(kind, MetadataErrorKind::Variant(_)), "{kind}");
    }
    let kind = refused(&variant("[[-1, 0]]", "[[1, 2]]"));
    assert!(
        matches!(kind, MetadataErrorKind::Attribute { .. }),
        "{kind}"
    );
}

#[test]
fn drafts_are_named() {
    let clock = r#"{"type": "clock-class", "name": "c", "frequency": 5}"#;
    let by_name = r#"{"type": "data-stream-class", "default-clock-class-name": "c"}"#;
    let attributes = r#"{"type": "trace-class", "user-attributes": {}}"#;
    let class = r#"{"type": "field-class-alias", "name": "e", "field-class": {"type":
        "fixed-length-unsigned-enumeration", "length": 8, "byte-order": "big-endian", "mappings": {}}}"#;
    for fragment in [clock, by_name, attributes, class] {
        let kind = refused(&sequence(&[fragment]));
        assert!(matches!(kind, MetadataErrorKind::Draft(_)), "{kind}");
    }
}

#[test]
fn fragments_are_in_order_and_agree() {
    let clock = |id: &str, more: &str| {
        format!(
            r#"{{"type": "clock-class", "id": "{id}", "namespace": "n", "name": "c", "uid": "u", {more}}}"#
        )
    };
    let stream = r#"{"type": "data-stream-class"}"#;
    let same = sequence(&[
        &clock("a", r#""frequency": 5"#),
        &clock("b", r#""frequency": 5"#),
        stream,
    ]);
    assert!(Metadata::parse(same.as_bytes()).is_ok());
    let differ = sequence(&[
        &clock("a", r#""frequency": 5"#),
        &clock("b", r#""frequency": 6"#),
        stream,
    ]);
    assert!(matches!(refused(&differ), MetadataErrorKind::Duplicate(_)));
    let ahead = clock(
        "a",
        r#""frequency": 5, "offset-from-origin": {"cycles": 5}"#,
    );
    assert!(matches!(
        refused(&sequence(&[&ahead, stream])),
        MetadataErrorKind::Property { .. }
    ));
    let orphan = r#"{"type": "event-record-class", "data-stream-class-id": 1}"#;
    assert!(matches!(
        refused(&sequence(&[stream, orphan])),
        MetadataErrorKind::Missing(_)
    ));
    let twice =
        format!(r#"{{"type": "field-class-alias", "name": "byte", "field-class": {BYTE}}}"#);
    assert!(matches!(
        refused(&sequence(&[&twice, stream])),
        MetadataErrorKind::Duplicate(_)
    ));
    assert!(matches!(
        refused(&sequence(&[
            stream,
            r#"{"type": "data-stream-class", "id": 0}"#
        ])),
        MetadataErrorKind::Duplicate(_)
    ));
}

#[test]
fn aliases_that_explode_are_refused() {
    let mut fragments = vec![String::from(
        r#"{"type": "field-class-alias", "name": "t0", "field-class": "byte"}"#,
    )];
    for level in 1..60 {
        let below = level - 1;
        fragments.push(format!(
            r#"{{"type": "field-class-alias", "name": "t{level}", "field-class": {{"type": "structure",
                "member-classes": [{{"name": "a", "field-class": "t{below}"}},
                    {{"name": "b", "field-class": "t{below}"}}]}}}}"#
        ));
    }
    let fragments: Vec<&str> = fragments.iter().map(String::as_str).collect();
    assert!(matches!(
        refused(&sequence(&fragments)),
        MetadataErrorKind::Size(_) | MetadataErrorKind::Depth(_)
    ));
}

#[test]
fn what_only_ctf2_has_is_not_written_as_ctf1() {
    let metadata = payload(&[("n", r#"{"type": "variable-length-signed-integer"}"#)]);
    let parsed = Metadata::parse(metadata.as_bytes())
        .expect("metadata")
        .metadata;
    let fields = parsed.streams[0].events[0]
        .fields
        .as_ref()
        .expect("payload");
    let class = fields.members[0].class.as_integer().expect("an integer");
    assert_eq!((class.form, class.signed), (Form::Variable, true));
    let error = parsed.to_tsdl().expect_err("CTF 1.8 has no such integer");
    assert!(matches!(error.kind, MetadataErrorKind::Unsupported(_)));
}

#[test]
fn names_that_ctf1_reads_something_into_are_not_written_there() {
    // Found by damaging metadata: a field without a name, and one that is named like a timestamp and is none.
    let unnamed = payload(&[("", r#""byte""#)]);
    let stamp = sequence(&[
        r#"{"type": "data-stream-class", "event-record-header-field-class": {"type": "structure",
            "member-classes": [{"name": "timestamp", "field-class": "byte"}]}}"#,
        r#"{"type": "event-record-class"}"#,
    ]);
    for metadata in [unnamed, stamp] {
        let parsed = Metadata::parse(metadata.as_bytes())
            .expect("metadata")
            .metadata;
        let error = parsed.to_tsdl().expect_err("it would mean something else");
        assert!(matches!(error.kind, MetadataErrorKind::Unsupported(_)));
        let again = parsed.to_ctf2().expect("CTF 2 knows of no names");
        let again = Metadata::parse(again.as_bytes()).expect("metadata");
        assert_eq!(
            again.metadata.streams[0].event_header,
            parsed.streams[0].event_header
        );
    }
}

/// Fragments with all optional properties.
fn talkative() -> String {
    sequence(&[
        r#"{"type": "trace-class", "namespace": "n", "name": "t", "uid": "1", "attributes": {"n": {"a": [true, null, 1.5e3, -2, "q\"\u0001é"]}}}"#,
        r#"{"type": "clock-class", "id": "c", "namespace": "n", "name": "other", "uid": "u", "frequency": 1000, "accuracy": 7,
            "origin": {"namespace": "x", "name": "boot", "uid": "8"}, "attributes": {"k": {}}}"#,
        r#"{"type": "clock-class", "id": "d", "name": "d", "uid": "00010203-0405-0607-0809-0a0b0c0d0e0f", "frequency": 1}"#,
        r#"{"type": "data-stream-class", "name": "s", "uid": "2", "default-clock-class-id": "c"}"#,
        r#"{"type": "event-record-class", "namespace": "e", "name": "event", "uid": "3", "attributes":
            {"lttng.org,2009": {"log-level": "info", "emf-uri": "u", "more": 1}, "z": 0},
            "payload-field-class": {"type": "structure", "member-classes": [{"name": "f", "field-class":
                {"type": "fixed-length-floating-point-number", "length": 16, "byte-order": "big-endian"}}]}}"#,
    ])
}

#[test]
fn what_is_said_besides_the_layout_is_kept() {
    let mut metadata = Metadata::parse(talkative().as_bytes())
        .expect("metadata")
        .metadata;
    let text = |text: &str| Some(text.to_owned());
    let about = &metadata.about;
    assert_eq!((&about.namespace, &about.name), (&text("n"), &text("t")));
    let attributes = r#"{"n": {"a": [true, null, 1.5e3, -2, "q\"\u0001é"]}}"#;
    assert_eq!(about.attributes.as_deref(), Some(attributes));
    let [clock, plain] = metadata.clocks.as_slice() else {
        panic!("two clocks");
    };
    assert_eq!(
        (clock.name.as_str(), &clock.about.name),
        ("c", &text("other"))
    );
    assert_eq!((clock.accuracy, clock.absolute), (Some(7), false));
    let origin = clock.origin.as_ref().expect("an origin");
    assert_eq!((origin.name.as_str(), origin.uid.as_str()), ("boot", "8"));
    assert!(plain.uuid.is_some() && plain.about.is_empty());
    let event = &metadata.streams[0].events[0];
    assert_eq!((event.log_level, &event.emf_uri), (Some(6), &text("u")));
    let attributes = r#"{"lttng.org,2009": {"more": 1}, "z": 0}"#;
    assert_eq!(event.about.attributes.as_deref(), Some(attributes));

    let written = metadata.to_ctf2().expect("all is of CTF 2");
    let again = Metadata::parse(written.as_bytes()).expect("metadata");
    assert_eq!(again.metadata.about, metadata.about);
    assert_eq!(again.metadata.clocks, metadata.clocks);
    assert_eq!(again.metadata.streams[0].about, metadata.streams[0].about);
    assert_eq!(again.metadata.streams[0].events[0].about, event.about);
    let error = metadata.to_tsdl().expect_err("CTF 1.8 has no words for it");
    assert!(matches!(error.kind, MetadataErrorKind::Unsupported(_)));

    // A text that is no JSON object must not become a property of the fragment.
    for bad in ["{}, \"uid\": \"x\"", "1", "{"] {
        metadata.about.attributes = text(bad);
        assert!(metadata.to_ctf2().is_err(), "{bad}");
    }
}

/// CTF 2 allows labels for values that don't fit into the integer; CTF 1.8 does not.
#[test]
fn labels_of_impossible_values_are_left_out_of_ctf_1_8() {
    let metadata = concat!(
        "\x1e{\"type\": \"preamble\", \"version\": 2}",
        "\x1e{\"type\": \"trace-class\"}",
        "\x1e{\"type\": \"data-stream-class\"}",
        "\x1e{\"type\": \"event-record-class\", \"name\": \"e\", \"payload-field-class\": {",
        "\"type\": \"structure\", \"member-classes\": [{\"name\": \"x\", \"field-class\": {",
        "\"type\": \"fixed-length-unsigned-integer\", \"length\": 8, \"byte-order\": \"little-endian\", ",
        "\"alignment\": 8, \"mappings\": {\"some\": [[1, 2]], \"many\": [[3, 300]], \"none\": [[256, 256]]}}}]}}"
    );
    let trace = Trace::from_memory(metadata.as_bytes(), [("s", &[1, 255][..])]).expect("metadata");
    let error = trace.metadata().to_tsdl().expect_err("no word for it");
    assert!(matches!(error.kind, MetadataErrorKind::Unsupported(_)));
    let folder = tempfile::tempdir().expect("folder");
    let into = folder.path().join("out");
    let summary = Conversion::new(Version::Ctf18)
        .run(&trace, &into, &mut Everything)
        .expect("converted");
    assert_eq!(
        summary.changes.into_iter().collect::<Vec<_>>(),
        [(Change::Label, 1)]
    );
    let converted = Trace::open(&into).expect("a trace");
    let mut messages = converted.messages().expect("files");
    let mut labels = Vec::new();
    while let Some((_, message)) = messages.next_message().expect("events") {
        if let Message::Event(event) = message {
            let value = event.field("x").expect("a field");
            labels.push(value.label().expect("a label").to_owned());
        }
    }
    assert_eq!(labels, ["some", "many"]);
}

#[test]
fn a_conversion_keeps_what_it_can_say() {
    let metadata = talkative();
    let trace =
        Trace::from_memory(metadata.as_bytes(), [("s", &[0x3c, 0x01][..])]).expect("metadata");
    for (version, changes) in [
        (Version::Ctf18, vec![(Change::Half, 1), (Change::About, 5)]),
        (Version::Ctf2, vec![(Change::Half, 1)]),
    ] {
        let folder = tempfile::tempdir().expect("folder");
        let into = folder.path().join("out");
        let conversion = Conversion::new(version);
        let summary = conversion
            .run(&trace, &into, &mut Everything)
            .expect("converted");
        assert_eq!(summary.changes.into_iter().collect::<Vec<_>>(), changes);
        let converted = Trace::open(&into).expect("a trace");
        let (old, new) = (trace.metadata(), converted.metadata());
        if version == Version::Ctf2 {
            assert_eq!(new.about, old.about);
            assert_eq!(new.clocks, old.clocks);
            assert_eq!(
                new.streams[0].events[0].about,
                old.streams[0].events[0].about
            );
        }
        let mut messages = converted.messages().expect("files");
        let mut values = Vec::new();
        while let Some((_, message)) = messages.next_message().expect("whole") {
            if let Message::Event(event) = message {
                values.push(event.field("f").and_then(|value| value.as_f64()));
            }
        }
        assert_eq!(values, [Some(1.0009765625)]);
    }
}
