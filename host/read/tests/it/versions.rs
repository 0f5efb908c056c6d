//! Recordings that older recorders made, and some of the current format: what is read from them does not change.
//!
//! `tests/fixtures/data/README.md` says where they come from. A change of the format makes a new version: recordings of
//! the current one are kept under its number, and a test says for each whether it is read or refused. They are never
//! recorded anew.

use std::fmt::Write as _;
use std::fs;

use kymo_event::EventKind;
use kymo_fixtures::captures;
use kymo_fixtures::recorder::events;
use kymo_read::{OpenOptions, open};
use kymo_wire::link::PROTOCOL;
use kymo_wire::note::NOTE_VERSION;
use kymo_wire::process_file;

/// The events of a recording, one a line: time in nanoseconds, stream, thread, record and its fields; for what the
/// reader found out, what it is.
fn listing(name: &str) -> Result<String, String> {
    let path = captures::kymo().join(name);
    let mut source = open(&path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    let events = events(source.as_mut());
    let info = source.info();
    let mut text = String::new();
    for event in &events {
        let (time, stream) = (event.time.0, event.stream.0);
        let thread = event.thread.map(|thread| info.identities.tid(thread).0);
        let _ = write!(text, "{time} {stream} {thread:?} {}", event.name);
        if let EventKind::Gap(gap) = &event.kind {
            let _ = write!(text, " {gap:?}");
        }
        for field in &event.fields {
            let _ = write!(text, " {}={:?}", field.name, field.value);
        }
        text.push('\n');
    }
    assert!(info.damage.is_empty(), "{name}: {:?}", info.damage);
    Ok(text)
}

/// Compares a recording with the list of its events beside it. With `KYMO_WRITE_LISTS` it writes lists that are missing.
fn is_read(name: &str) {
    let found = listing(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let path = captures::kymo().join(format!("{name}.txt"));
    if let Some(folder) = std::env::var_os("KYMO_WRITE_LISTS") {
        let path = std::path::Path::new(&folder).join(format!("{name}.txt"));
        if !path.exists() {
            fs::write(path, &found).unwrap();
        }
        return;
    }
    let expected = fs::read_to_string(path).unwrap();
    for (n, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}, line {}", n + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn recordings_of_the_current_format_are_read() {
    assert_eq!(
        (PROTOCOL, NOTE_VERSION, process_file::VERSION),
        (3, 4, 1),
        "{ADVICE}"
    );
    for name in [
        "linux.kymo",
        "duration.kymo",
        "killed.kymo",
        "board.log",
        "sums.log",
        "long.log",
    ] {
        is_read(&format!("format-3/{name}"));
    }
}

const ADVICE: &str =
    "keep recordings of the version before, and say in `versions.rs` whether they are read";

/// Compact ones: their records were the same.
#[test]
fn recordings_of_format_2_from_32_bit_targets_are_read() {
    for name in ["compact.kymo", "dates.kymo", "processors.kymo", "directory"] {
        is_read(&format!("format-2/{name}"));
    }
}

#[test]
fn recordings_of_format_2_from_64_bit_targets_are_refused_by_their_version() {
    for name in ["wide.kymo", "rtems.kymo"] {
        let error = listing(&format!("format-2/{name}")).expect_err("it is refused");
        let reason = "expected a recording of format 3, found one of format 2";
        assert!(error.ends_with(&format!("{name}: {reason}")), "{error}");
    }
}
