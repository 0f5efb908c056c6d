//! Tests with the metadata texts of yactfr's and ctf-testsuite's suites, for both versions: valid texts are parsed,
//! invalid ones result in an error.

use std::fs;

use kymo_ctf::MetadataErrorKind;
use kymo_ctf::metadata::Metadata;

/// Texts that yactfr rejects and this crate accepts, each with a reason.
const LENIENT: &[(&str, &str)] = &[
    ("clk-type-unknown-attr", UNKNOWN),
    ("fl-float-type-unknown-attr", UNKNOWN),
    ("fl-int-type-unknown-attr", UNKNOWN),
    ("nt-str-type-unknown-attr", UNKNOWN),
    (
        "clk-type-wrong-offset-attr-1",
        "the offset of a clock may be negative",
    ),
    ("ctf-testsuite-array-size-identifier", UNUSED),
    ("ctf-testsuite-enum-field-value-out-of-range", OUTSIDE),
    ("ctf-testsuite-enum-type-value-out-of-range", OUTSIDE),
    ("ctf-testsuite-enum-values-too-small", OUTSIDE),
    ("fl-enum-type-len-too-small-1", OUTSIDE),
    ("fl-enum-type-val-out-of-range-1", OUTSIDE),
    ("fl-enum-type-val-out-of-range-5", OUTSIDE),
    ("ert-empty-1", EMPTY),
    ("ert-empty-2", EMPTY),
    ("ert-empty-3", EMPTY),
    (
        "var-type-inval-sel-loc-11",
        "an option that no tag value selects does no harm",
    ),
];
const UNKNOWN: &str = "unknown attributes are warnings, as ctf-testsuite wants";
const UNUSED: &str = "a type may need a field that only its uses provide, and this one is not used";
const OUTSIDE: &str =
    "LTTng writes labels that no value of their integer has, and babeltrace2 reads them";
const EMPTY: &str = "an event class without fields is an error once there is an event of it";

/// Texts that yactfr accepts and this crate rejects.
const STRICT: &[(&str, &str)] = &[
    ("dt-aliases-everywhere", SELECTABLE),
    ("type-defs-everywhere", SELECTABLE),
];
const SELECTABLE: &str =
    "a variant none of whose options its tag can select, which ctf-testsuite wants refused";

#[test]
fn suite_texts() {
    compare("ctf-1-", 200);
}

#[test]
fn suite_texts_of_ctf2() {
    compare("ctf-2-", 140);
}

/// Parses the texts whose names begin with `prefix`; there must be at least `least`.
fn compare(prefix: &str, least: usize) {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return;
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(data.join("yactfr-metadata"))
        .expect("folder")
        .flatten()
    {
        let name = entry.file_name().into_string().expect("name");
        let Some(case) = name
            .strip_suffix(".metadata")
            .and_then(|name| name.strip_prefix(prefix))
        else {
            continue;
        };
        seen += 1;
        let result = Metadata::parse(&crate::cases::read(&entry.path()));
        let lenient = LENIENT
            .iter()
            .any(|(name, _reason)| case.strip_prefix("fail-") == Some(name));
        let strict = STRICT
            .iter()
            .any(|(name, _reason)| case.strip_prefix("pass-") == Some(name));
        match result {
            Ok(_) if (case.starts_with("fail-") && !lenient) || strict => {
                wrong.push(format!("{case}: accepted"))
            }
            Err(error) if (case.starts_with("pass-") && !strict) || lenient => {
                wrong.push(format!("{case}: {error}"))
            }
            _ => {}
        }
    }
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {seen}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(seen > least, "only {seen} texts");
}

#[test]
fn metadata_packets() {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return;
    };
    let mut seen = 0;
    for entry in fs::read_dir(data.join("yactfr-metadata-stream"))
        .expect("folder")
        .flatten()
    {
        let name = entry.file_name().into_string().expect("name");
        match (
            Metadata::parse(&crate::cases::read(&entry.path())),
            name.starts_with("pass-"),
        ) {
            // Some of the files are no complete metadata. Their error must be one of the text, with a line.
            (Err(error), true) => assert!(error.line > 0, "{name}: {error}"),
            (Ok(_), true) => {}
            (Err(error), false) => assert!(
                matches!(error.kind, MetadataErrorKind::Packet { .. }),
                "{name}: {error}"
            ),
            (Ok(_), false) => panic!("{name}: accepted"),
        }
        seen += 1;
    }
    assert_eq!(seen, 18);
}
