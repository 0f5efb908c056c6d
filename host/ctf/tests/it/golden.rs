//! Tests of every trace of the shared data: events as babeltrace2 shows them (2.0.4 for CTF 1.8, 2.1.3 for CTF 2), or
//! an expected error.

use std::path::Path;

use crate::cases::Version;

use kymo_ctf::text::Layout;
use kymo_ctf::{Message, Messages, Trace};

/// Cases in which this crate deviates from the expectation of their authors, each with a reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "babeltrace/ctf1-live-new-streams",
        "no trace: two traces in a source format of babeltrace's tests",
    ),
    (
        "ctf-testsuite/metadata-fail-array-size-identifier",
        "the type that cannot be resolved is never used",
    ),
    (
        "ctf-testsuite/metadata-fail-enum-field-value-out-of-range",
        "LTTng writes labels that no value of their integer has",
    ),
    (
        "ctf-testsuite/metadata-fail-enum-values-too-small",
        "LTTng writes labels that no value of their integer has",
    ),
    (
        "ctf-testsuite/metadata-fail-variant-string-fields",
        "the type that cannot be resolved is never used",
    ),
    (
        "yactfr-data/ctf-2-fail-vl-uint-oversized-gt-10-bytes",
        "bytes that add nothing to a value are legal; yactfr refuses the eleventh, whatever it says",
    ),
    ("yactfr-data/ctf-2-pass-diff-magic-auto", NO_STREAM_CLASS),
    ("yactfr-data/ctf-2-pass-diff-uuid-auto", NO_STREAM_CLASS),
    (
        "yactfr-data/ctf-2-pass-no-ers-no-dst-id-fl-ints-auto",
        NO_STREAM_CLASS,
    ),
];
const NO_STREAM_CLASS: &str = "no data stream class, of which the specification wants one at least, \
    as a case of babeltrace's does";

/// The lines of all events below a directory, and the first error.
fn show(directory: &Path) -> (Vec<Vec<u8>>, Option<String>) {
    let traces = match Trace::open_all(directory) {
        Ok(traces) => traces,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let layouts = Layout::of(&traces);
    let mut messages = Messages::merge(&traces).expect("streams open");
    let mut lines = Vec::new();
    loop {
        match messages.next_message() {
            Ok(Some((origin, Message::Event(event)))) => {
                let mut line = Vec::new();
                layouts[origin.trace].event(&mut line, &event);
                lines.push(line);
            }
            Ok(Some(_)) => {}
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error.to_string())),
        }
    }
}

#[test]
fn events_are_those_of_babeltrace() {
    compare(Version::Ctf1, 200);
}

#[test]
fn events_of_ctf2_are_those_of_babeltrace() {
    compare(Version::Ctf2, 80);
}

/// Compares all cases of a version; there must be at least `least`.
fn compare(version: Version, least: usize) {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return;
    };
    let scratch = tempfile::tempdir().expect("scratch folder");
    let (mut wrong, mut seen, mut lines) = (Vec::new(), 0, 0);
    for case in crate::cases::cases(&data, version) {
        let exception = EXCEPTIONS.iter().any(|(name, _reason)| *name == case.name);
        let (shown, error) = show(&case.trace(scratch.path()));
        seen += 1;
        let golden = case.golden();
        let golden = golden.unwrap_or_default();
        let expected: Vec<&[u8]> = golden
            .strip_suffix(b"\n")
            .map_or(vec![], |text| text.split(|&byte| byte == b'\n').collect());
        if case.passes != exception {
            if let Some(error) = error {
                wrong.push(format!("{}: {error}", case.name));
            } else if case.babeltrace == 0 && !exception && shown != expected {
                let differ = shown
                    .iter()
                    .zip(&expected)
                    .position(|(a, b)| a != b)
                    .unwrap_or(shown.len().min(expected.len()));
                wrong.push(format!(
                    "{}: {} events, expected {}; event {differ}:\n   {:?}\n   {:?}",
                    case.name,
                    shown.len(),
                    expected.len(),
                    shown.get(differ).map(|line| String::from_utf8_lossy(line)),
                    expected
                        .get(differ)
                        .map(|line| String::from_utf8_lossy(line))
                ));
            }
            lines += shown.len();
        } else if error.is_none() {
            wrong.push(format!("{}: accepted, {} events", case.name, shown.len()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {seen} cases ({lines} events):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(seen > least, "only {seen} cases");
}
