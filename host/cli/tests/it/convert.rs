//! `kymo export --to ctf|ctf2` of CTF traces: the copy, a part of it, and the repair of a damaged trace have the same
//! meaning as the source.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `kymo` in the directory of the fixtures.
fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kymo"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"))
        .env("NO_COLOR", "1")
        .args(arguments)
        .output()
        .expect("it runs")
}

/// Runs `kymo`, which must succeed, and returns its stderr.
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {printed}");
    printed
}

/// Reads the events and gaps of a trace with `kymo show`.
fn shown(trace: &str, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["show", "--events", "--format", "json", trace];
    arguments.extend(more);
    let output = run(&arguments);
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).expect("every line is JSON"))
        .collect()
}

/// Creates a CTF trace that is not a recording of Kymo's own: an export.
fn exported(scratch: &Path) -> String {
    let path = scratch.join("ctf");
    let path = path.to_str().expect("UTF-8").to_owned();
    done(&[
        "export",
        "--to",
        "ctf",
        "-o",
        &path,
        "--symbols",
        "demo.nm",
        "demo",
    ]);
    path
}

#[test]
fn what_events_mean_stays_in_both_versions() {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let source = exported(scratch.path());
    let before = shown(&source, &[]);
    assert!(before.len() > 40, "{}", before.len());
    for format in ["ctf", "ctf2"] {
        let into = scratch.path().join(format!("again.{format}"));
        let into = into.to_str().expect("UTF-8");
        let printed = done(&["export", "--to", format, "-o", into, &source]);
        assert!(printed.contains(" events, "), "{printed}");
        assert_eq!(shown(into, &[]), before, "{format}");
        let metadata = fs::read(Path::new(into).join("metadata")).expect("metadata");
        let start: &[u8] = if format == "ctf" {
            b"/* CTF 1.8"
        } else {
            b"\x1e{"
        };
        assert!(metadata.starts_with(start), "{format}");
    }
}

#[test]
fn a_part_is_what_show_shows_of_the_whole() {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let source = exported(scratch.path());
    let selections: [&[&str]; 5] = [
        &["--begin", "+3us", "--end", "1.03ms"],
        &["--event", "en*", "--drop-event", "enter_from"],
        &["--where", "function == 0x8000024"],
        &["--where", "function >= 0x8000034", "--begin", "1.01ms"],
        &["--thread", "0x20000200"],
    ];
    for (number, selection) in selections.into_iter().enumerate() {
        let into = scratch.path().join(number.to_string());
        let into = into.to_str().expect("UTF-8");
        let mut arguments = vec!["export", "--to", "ctf2", "-o", into, &source];
        arguments.extend(selection);
        done(&arguments);
        // Not compared: gaps, because they are reported behind the event before them, which may be another one in a
        // part; events without a time (at 0), and those that opened calls before the part, because a part always has
        // them.
        let wanted = shown(&source, selection);
        let first = wanted.iter().filter(|line| line["type"] == "event");
        let first = first
            .filter_map(|line| line["time_ns"].as_i64())
            .find(|time| *time != 0);
        let events = |lines: Vec<Value>| -> Vec<Value> {
            let lines = lines.into_iter();
            let events = lines.filter(|line| line["type"] == "event");
            let timed = events.filter(|line| line["time_ns"] != 0);
            timed
                .filter(|line| line["time_ns"].as_i64() >= first)
                .collect()
        };
        let (found, wanted) = (events(shown(into, &[])), events(wanted));
        assert!(!wanted.is_empty(), "{selection:?}");
        assert_eq!(found, wanted, "{selection:?}");
    }
}

/// Calls that are open at the begin of a part are in it, and last up to its end.
#[test]
fn a_part_has_the_calls_of_the_window() {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let source = exported(scratch.path());
    let report = |trace: &str, more: &[&str]| {
        let mut arguments = vec!["report", "--format", "json", "--symbols", "demo.nm", trace];
        arguments.extend(more);
        String::from_utf8(run(&arguments).stdout).expect("UTF-8")
    };
    let windows: [&[&str]; 4] = [
        &["--begin", "+3us", "--end", "1.03ms"],
        &["--begin", "1.01ms"],
        &["--end", "1.02ms"],
        &["--begin", "+3us", "--cpu", "0"],
    ];
    for (number, window) in windows.into_iter().enumerate() {
        // Parts of a Kymo recording that is converted to CTF, of a CTF trace that is copied, and of another part.
        let part = |name: &str, trace: &str, window: &[&str]| {
            let into = scratch.path().join(format!("{name}{number}"));
            let into = into.to_str().expect("UTF-8").to_owned();
            let mut arguments = vec!["export", "--to", "ctf", "-o", &into, trace];
            arguments.extend(window);
            done(&arguments);
            into
        };
        for (name, trace) in [("written", "demo"), ("as it stands", &source)] {
            let wanted = report(trace, window);
            assert!(wanted.contains("\"function\""), "{window:?}: {wanted}");
            let into = part(name, trace, window);
            assert_eq!(report(&into, &[]), wanted, "{name} {window:?}");
            let again = part(&format!("{name} again"), &into, &[]);
            assert_eq!(report(&again, &[]), wanted, "{name} {window:?}");
        }
    }
}

#[test]
fn a_cut_trace_is_an_error_unless_it_is_to_be_repaired() {
    let scratch = tempfile::tempdir().expect("scratch folder");
    let source = exported(scratch.path());
    let streams = fs::read_dir(&source).expect("a directory");
    let names = streams.map(|entry| entry.expect("an entry").path());
    let cut = names
        .filter(|path| path.file_name() != Some("metadata".as_ref()))
        .max_by_key(|path| fs::metadata(path).expect("a file").len())
        .expect("a stream");
    let bytes = fs::read(&cut).expect("a stream");
    fs::write(&cut, &bytes[..bytes.len() - 5]).expect("own file");
    let into = |name: &str| {
        scratch
            .path()
            .join(name)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    };

    let output = run(&["export", "--to", "ctf", "-o", &into("as it is"), &source]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("help: what comes before the damage is written; --repair"),
        "{printed}"
    );

    let printed = done(&[
        "export",
        "--to",
        "ctf",
        "--repair",
        "-o",
        &into("whole"),
        &source,
    ]);
    assert!(printed.contains("of that packet kept"), "{printed}");
    // The result is undamaged and records the loss.
    let output = run(&["info", "--format", "json", &into("whole")]);
    assert_eq!(output.status.code(), Some(0));
    let info: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(info["errors"], Value::Array(Vec::new()));
    assert!(info["lost"].is_null(), "{info}");
}

#[test]
fn only_what_becomes_ctf_is_repaired() {
    let output = run(&["export", "--to", "csv", "--repair", "demo"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.starts_with("error: only a CTF trace of another tracer"),
        "{printed}"
    );
}

/// LTTng may write a stream file for each processor of each process, more than the limit of open files.
#[cfg(unix)]
#[test]
fn there_may_be_more_streams_than_open_files() {
    const STREAMS: usize = 200;
    let scratch = tempfile::tempdir().expect("scratch folder");
    let source = exported(scratch.path());
    let events = |lines: &[Value]| lines.iter().filter(|line| line["type"] == "event").count();
    let one = events(&shown(&source, &[]));
    let many = scratch.path().join("many");
    fs::create_dir(&many).expect("a folder");
    fs::copy(format!("{source}/metadata"), many.join("metadata")).expect("a copy");
    for number in 0..STREAMS {
        for entry in fs::read_dir(&source).expect("a folder") {
            let entry = entry.expect("a file");
            let name = entry.file_name().into_string().expect("UTF-8");
            if name != "metadata" {
                fs::copy(entry.path(), many.join(format!("{name}_{number}"))).expect("a copy");
            }
        }
    }
    let limited_to = |limit: &str, arguments: &[&str]| {
        Command::new("sh")
            .args(["-c", "ulimit -n $0 && exec \"$@\"", limit])
            .arg(env!("CARGO_BIN_EXE_kymo"))
            .args(arguments)
            .arg(&many)
            .env("NO_COLOR", "1")
            .output()
            .expect("it runs")
    };
    let limited = |arguments: &[&str]| {
        let output = limited_to("64", arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {printed}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let json = limited(&["show", "--events", "--format", "json"]);
    let count = json.matches("{\"type\":\"event\"").count();
    assert_eq!(count, one * STREAMS);
    let text = limited(&["show", "--format", "babeltrace"]);
    assert!(text.lines().count() > STREAMS);
    limited(&["info"]);
    let converted = scratch.path().join("converted");
    let converted = converted.to_str().expect("UTF-8");
    limited(&["export", "--to", "ctf2", "-o", converted]);
    assert_eq!(events(&shown(converted, &[])), one * STREAMS);
    // If the limit leaves no room at all, the help says what to do.
    let refused = limited_to("16", &["info"]);
    assert_eq!(refused.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(printed.contains("help: `ulimit -n` tells"), "{printed}");
}
