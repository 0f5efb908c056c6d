//! Tests of user attributes of CTF 2: they are preserved on every kind of object, or counted if they cannot be.

use std::fs;

use kymo_ctf::Trace;
use kymo_ctf::convert::{Change, Conversion, Everything};
use kymo_ctf::metadata::{Metadata, Version};

/// A trace in which every object has attributes; those of a field identify it.
fn attributed() -> String {
    let printed = |what: &str| format!(r#""attributes": {{"n": "{what}"}}"#);
    let byte = |what: &str, more: &str| {
        let printed = printed(what);
        format!(
            r#"{{"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian", "alignment": 8{more}, {printed}}}"#
        )
    };
    let bits = |kind: &str, length: u32, more: &str| {
        let printed = printed(kind);
        format!(
            r#"{{"type": "fixed-length-{kind}", "length": {length}, "byte-order": "little-endian"{more}, {printed}}}"#
        )
    };
    let selector = r#""selector-field-location": {"path": ["length"]}"#;
    let length = r#""length-field-location": {"path": ["length"]}"#;
    let classes = [
        ("length", byte("integer", "")),
        (
            "enumeration",
            byte("enumeration", r#", "mappings": {"one": [[1, 1]]}"#),
        ),
        ("boolean", bits("boolean", 8, "")),
        ("bits", bits("bit-array", 8, "")),
        ("map", bits("bit-map", 8, r#", "flags": {"low": [[0, 0]]}"#)),
        ("float", bits("floating-point-number", 32, "")),
        (
            "variable",
            format!(
                r#"{{"type": "variable-length-signed-integer", {}}}"#,
                printed("variable")
            ),
        ),
        (
            "text",
            format!(
                r#"{{"type": "null-terminated-string", {}}}"#,
                printed("text")
            ),
        ),
        (
            "fixed",
            format!(
                r#"{{"type": "static-length-string", "length": 2, {}}}"#,
                printed("fixed")
            ),
        ),
        (
            "dynamic",
            format!(
                r#"{{"type": "dynamic-length-string", {length}, {}}}"#,
                printed("dynamic")
            ),
        ),
        (
            "blob",
            format!(
                r#"{{"type": "static-length-blob", "length": 2, {}}}"#,
                printed("blob")
            ),
        ),
        (
            "bytes",
            format!(
                r#"{{"type": "dynamic-length-blob", {length}, {}}}"#,
                printed("bytes")
            ),
        ),
        ("alias", r#""shared""#.to_owned()),
        ("again", r#""shared""#.to_owned()),
        (
            "array",
            format!(
                r#"{{"type": "static-length-array", "length": 1, "element-field-class": {}, {}}}"#,
                byte("element", ""),
                printed("array")
            ),
        ),
        (
            "sequence",
            format!(
                r#"{{"type": "dynamic-length-array", {length}, "element-field-class": {}, {}}}"#,
                byte("element", ""),
                printed("sequence")
            ),
        ),
        (
            "optional",
            format!(
                r#"{{"type": "optional", {selector}, "selector-field-ranges": [[1, 9]], "field-class": {}, {}}}"#,
                byte("there", ""),
                printed("optional")
            ),
        ),
        (
            "variant",
            format!(
                r#"{{"type": "variant", {selector}, "options": [{{"name": "a", "selector-field-ranges": [[0, 255]],
                    "field-class": {}, {}}}], {}}}"#,
                byte("in-option", ""),
                printed("option"),
                printed("variant")
            ),
        ),
        (
            "structure",
            format!(
                r#"{{"type": "structure", "member-classes": [{{"name": "inner", "field-class": {}, {}}}], {}}}"#,
                byte("inner", ""),
                printed("inner-member"),
                printed("structure")
            ),
        ),
    ];
    let members = classes.iter().map(|(name, class)| {
        let printed = printed(&format!("member {name}"));
        format!(r#"{{"name": "{name}", "field-class": {class}, {printed}}}"#)
    });
    let members = members.collect::<Vec<_>>().join(", ");
    let root = |what: &str, field: &str| {
        let (root, member) = (printed(what), printed(&format!("{what} member")));
        format!(
            r#"{{"type": "structure", "member-classes": [{{"name": "id", "field-class": {field}, {member}}}], {root}}}"#
        )
    };
    let header = root(
        "packet-header",
        &byte("stream", r#", "roles": ["data-stream-class-id"]"#),
    );
    let context = root("packet-context", &byte("cpu", ""));
    let event = root(
        "event-header",
        &byte("event", r#", "roles": ["event-record-class-id"]"#),
    );
    let common = root("common-context", &byte("common", ""));
    let specific = root("specific-context", &byte("specific", ""));
    let payload = printed("payload");
    let shared = byte("shared", "");
    let fragments = [
        format!(
            r#"{{"type": "preamble", "version": 2, {}}}"#,
            printed("preamble")
        ),
        format!(r#"{{"type": "field-class-alias", "name": "shared", "field-class": {shared}}}"#),
        format!(
            r#"{{"type": "trace-class", "packet-header-field-class": {header}, {}}}"#,
            printed("trace")
        ),
        format!(
            r#"{{"type": "data-stream-class", "packet-context-field-class": {context}, "event-record-header-field-class": {event},
                "event-record-common-context-field-class": {common}, {}}}"#,
            printed("stream")
        ),
        format!(
            r#"{{"type": "event-record-class", "name": "e", "specific-context-field-class": {specific}, {}, "payload-field-class":
                {{"type": "structure", "member-classes": [{members}], {payload}}}}}"#,
            printed("event")
        ),
    ];
    fragments
        .map(|fragment| format!("\u{1e}{fragment}\n"))
        .concat()
}

/// The attributes in a text of metadata, in order.
fn attributes_in(text: &str) -> Vec<&str> {
    let parts = text.split(r#""attributes": {"n": ""#).skip(1);
    let mut all: Vec<&str> = parts.map(|part| part.split('"').next().unwrap()).collect();
    all.sort_unstable();
    all
}

#[test]
fn attributes_of_fields_are_kept_and_written_again() {
    let text = attributed();
    let metadata = Metadata::parse(text.as_bytes()).expect("metadata").metadata;
    let preamble = metadata.preamble_attributes.as_deref();
    assert_eq!(preamble, Some(r#"{"n": "preamble"}"#));
    // A text that several fields share is stored once.
    let mut texts: Vec<&String> = metadata.attributes.iter().collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), metadata.attributes.len());

    let fields = metadata.streams[0].events[0].fields.as_ref().unwrap();
    let of = |id| metadata.attributes_of(id);
    assert_eq!(of(fields.attributes), Some(r#"{"n": "payload"}"#));
    let member = fields.member("float").unwrap();
    assert_eq!(of(member.attributes), Some(r#"{"n": "member float"}"#));
    let class = of(member.class.attributes());
    assert_eq!(class, Some(r#"{"n": "floating-point-number"}"#));

    let written = metadata.to_ctf2().expect("CTF 2");
    // The alias is removed, and its attributes are written at the fields that used it.
    let mut expected = attributes_in(&text);
    expected.push("shared");
    expected.sort_unstable();
    assert!(expected.len() > 60);
    assert_eq!(attributes_in(&written), expected);
    let again = Metadata::parse(written.as_bytes())
        .expect("metadata")
        .metadata;
    assert_eq!(again.to_ctf2().expect("CTF 2"), written);
    assert!(metadata.to_tsdl().is_err());
}

#[test]
fn a_conversion_keeps_the_attributes_of_fields_or_counts_them() {
    let text = attributed();
    let trace = Trace::from_memory(text.as_bytes(), [("s", Vec::new())]).expect("a trace");
    let expected = attributes_in(&text).len() as u64 + 1;
    for (version, lost) in [(Version::Ctf2, 0), (Version::Ctf18, expected)] {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let summary = Conversion::new(version)
            .run(&trace, scratch.path(), &mut Everything)
            .expect("a conversion");
        let about = summary.changes.get(&Change::About).copied();
        assert_eq!(about.unwrap_or(0), lost, "{version}");
        let written = fs::read_to_string(scratch.path().join("metadata")).unwrap();
        assert_eq!(attributes_in(&written).len() as u64, expected - lost);
    }
}

#[test]
fn attributes_that_are_none_are_refused() {
    let mut metadata = Metadata::parse(attributed().as_bytes())
        .expect("metadata")
        .metadata;
    for bad in ["", "3", "{\"a\": }", "{} {}"] {
        metadata.attributes[0] = bad.to_owned();
        assert!(metadata.to_ctf2().is_err(), "{bad}");
    }
    metadata.attributes.clear();
    assert!(metadata.to_ctf2().is_err());
}
