//! A real recording: a C program with known calls, recorded by the device library on this machine.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_event::{Addr, Event, EventKind, TraceInfo, Value, Wanted};
use kymo_fixtures::names::{address, function_at, interrupt, meaning};
use kymo_read::kymo::{Program, RawFile, write_trace};
use kymo_read::{Events, OpenOptions, Source, Summary, label_markers, open};

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds the device library and a program, and runs it. Returns the folder with the program and its recording `raw`.
fn record(compiler: &str) -> tempfile::TempDir {
    let (folder, program) = build(compiler, "two_threads.c");
    run(Command::new(&program).env("KYMO_OUTPUT", folder.path().join("raw")));
    folder
}

/// Builds the device library and a program of `tests/programs`. Returns a folder and the program in it.
pub(crate) fn build(compiler: &str, source: &str) -> (tempfile::TempDir, PathBuf) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let device = manifest.join("../../device");
    // A target folder of its own, because the device library is in another workspace.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("device");
    run(Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--package",
            "kymo-c",
            "--manifest-path",
        ])
        .arg(device.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    run(Command::new(compiler)
        .args([
            "-O0",
            "-g",
            "-finstrument-functions",
            "-Wall",
            "-Werror",
            "-pthread",
        ])
        .arg(manifest.join("tests/programs").join(source))
        .arg("-I")
        .arg(device.join("c/include"))
        .arg(target.join("release/libkymo.a"))
        .arg("-o")
        .arg(&program));
    (folder, program)
}

/// Functions of the program by run-time address.
fn functions(program: &Path, info: &TraceInfo) -> BTreeMap<Addr, String> {
    let nm = run(Command::new("nm").arg(program));
    let symbols: Vec<_> = nm
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.nth(1)?))
        })
        .collect();
    let start = symbols
        .iter()
        .find(|(_, name)| *name == "__executable_start")
        .unwrap()
        .0;
    let bias = info.text_base.unwrap().0.wrapping_sub(start);
    symbols
        .iter()
        .map(|(address, name)| (Addr(address.wrapping_add(bias)), (*name).to_owned()))
        .collect()
}

fn every_call_is_there(compiler: &str) {
    let folder = record(compiler);
    let raw = folder.path().join("raw");
    let source = open(&raw, &OpenOptions::default()).unwrap();
    let functions = functions(&folder.path().join("program"), source.info());
    assert!(
        source
            .info()
            .build_id
            .as_ref()
            .is_some_and(|id| id.len() == 20)
    );
    let mut source = label_markers(source, |_| Some("a name".to_owned()));
    let events: Vec<_> = Events::new(&mut source).map(Result::unwrap).collect();
    let recorded = source.info().clone();
    let mut calls = BTreeMap::<(u32, &str, bool), u32>::new();
    for event in &events {
        let (function, enter) = match &event.kind {
            EventKind::Enter { function, .. } => (function, true),
            EventKind::Exit { function } => (function.as_ref().unwrap(), false),
            EventKind::Gap(gap) => panic!("{gap}"),
            _ => continue,
        };
        *calls
            .entry((
                event.stream.0,
                &functions[&address(&recorded, *function)],
                enter,
            ))
            .or_default() += 1;
    }
    let expected = |stream, name| match (stream, name) {
        (_, "branch") => 10,
        (_, "recurse") => 20,
        (_, "work") => 1,
        (0, "leaf") => 1001,
        (1, "leaf") => 1000,
        (0, "main" | "handler") => 1,
        other => panic!("{other:?}"),
    };
    assert_eq!(calls.len(), 20, "{calls:?}");
    for ((stream, name, enter), count) in calls {
        assert_eq!(
            count,
            expected(stream, name),
            "{name} in stream {stream}, enter: {enter}"
        );
    }
    let ten = interrupt(&recorded, 10);
    let signal = |kind: &EventKind| *kind == EventKind::IsrEnter { irq: ten };
    assert_eq!(events.iter().filter(|event| signal(&event.kind)).count(), 1);
    let marker = EventKind::Marker {
        label: Some("a name".to_owned()),
        value: 42,
    };
    let marker = events.iter().find(|event| event.kind == marker).unwrap();
    assert!(matches!(marker.fields[0].value, Value::Hex(_)));
    assert!(
        events.iter().all(|event| event.cpu.is_none()),
        "streams of threads"
    );

    // The same recording as a trace directory, which contains the names of the functions.
    let file = RawFile::open(&raw).unwrap();
    let directory = folder.path().join("trace");
    let names = functions
        .iter()
        .map(|(address, name)| (*address, name.as_str()));
    let program = Program {
        functions: names.collect(),
        ..Program::default()
    };
    write_trace(&directory, &file.dump(), &program).unwrap();
    let mut source = open(&directory, &OpenOptions::default()).unwrap();
    let identities = &source.info().identities;
    let function = |address| identities.function(function_at(source.info(), address));
    let leaf = functions.iter().find(|(_, name)| *name == "leaf").unwrap();
    assert_eq!(function(*leaf.0).unwrap().name.as_deref(), Some("leaf"));
    let again: Vec<_> = Events::new(&mut source).map(Result::unwrap).collect();
    let plain = |info: &TraceInfo, event: &Event| {
        let thread = event.thread.map(|thread| info.identities.tid(thread));
        (event.time, event.stream, thread, meaning(info, &event.kind))
    };
    let unnamed = |event: &&Event| !matches!(event.kind, EventKind::Marker { .. });
    let before = events.iter().filter(unnamed);
    let before = before.map(|event| plain(&recorded, event));
    let again = again.iter().filter(unnamed);
    assert!(again.map(|event| plain(source.info(), event)).eq(before));
    let summary = Summary::of(
        &mut *open(
            &directory,
            &OpenOptions {
                wanted: Wanted::Meaning,
                ..OpenOptions::default()
            },
        )
        .unwrap(),
    );
    assert_eq!(
        (summary.events, summary.lost),
        (events.len() as u64, Some(0))
    );
    assert_eq!(
        summary
            .streams
            .iter()
            .filter(|stream| stream.thread.is_some())
            .count(),
        2
    );

    // Another reader finds the same events.
    let babeltrace2 = Path::new("babeltrace2");
    match Command::new(babeltrace2).arg("--version").output() {
        Ok(_) => {
            // If a tick is not a whole number of nanoseconds, babeltrace2 rounds in floating point and can differ by
            // one nanosecond, and by another one in the date of the start.
            let records = kymo_fixtures::babeltrace::agrees(babeltrace2, &directory, 2);
            assert_eq!(records, events.len() as u64);
        }
        Err(error) => kymo_fixtures::missing(&format!("babeltrace2 cannot be run: {error}")),
    }
}

#[test]
fn every_call_of_a_program_built_by_gcc() {
    every_call_is_there("gcc");
}

#[test]
fn every_call_of_a_program_built_by_clang() {
    if Command::new("clang").arg("--version").output().is_err() {
        return kymo_fixtures::missing("no clang on this machine");
    }
    every_call_is_there("clang");
}

#[test]
fn a_recording_cut_anywhere_gives_what_is_before_the_cut() {
    let folder = record("gcc");
    let raw = fs::read(folder.path().join("raw")).unwrap();
    let whole =
        Summary::of(&mut *open(&folder.path().join("raw"), &OpenOptions::default()).unwrap());
    let line = raw.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut before = 0;
    for cut in (line..raw.len()).step_by(997) {
        let path = folder.path().join("cut");
        fs::write(&path, &raw[..cut]).unwrap();
        let summary = Summary::of(&mut *open(&path, &OpenOptions::default()).unwrap());
        assert!(
            (before..=whole.events).contains(&summary.events),
            "cut at {cut}"
        );
        assert!(summary.errors.len() <= 1, "{:?}", summary.errors);
        before = summary.events;
    }
    assert!(before > whole.events / 2);
}
