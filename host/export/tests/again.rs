//! What `kymo-read` makes of an exported CTF trace: the calls of the trace that was exported.

mod common;

use std::path::{Path, PathBuf};

use common::{Trace, traces};
use kymo_analysis::calls::{self, Calls, Step, TrackInfo};
use kymo_analysis::profile::Profile;
use kymo_event::{Date, Duration, EventKind, Function, Gap, Time, TraceInfo};
use kymo_read::{Events, OpenOptions, open};

/// Everything that an analysis gets out of a trace: tracks, calls, and the table of functions.
fn calls(trace: &Trace) -> (Vec<String>, Vec<String>) {
    let mut calls = Calls::new(&trace.info, calls::Options::default());
    let mut profile = Profile::new();
    let mut steps = Vec::new();
    let mut take = |step: Step<'_>| {
        profile.add(&step);
        match &step {
            Step::Track { track, info } => steps.push(format!("{track:?} {:?}", comparable(info))),
            Step::Begin(begin) => steps.push(format!("{begin:?}")),
            Step::End(end) => steps.push(format!("{end:?}")),
            _ => {}
        }
    };
    for event in &trace.events {
        calls.push(event, &mut take);
    }
    calls.finish(&mut take);
    let rows = profile.rows().map(|row| format!("{row:?}")).collect();
    (steps, rows)
}

/// A track without the number of its stream (the files of an export have an order of their own) and
/// its name (a CTF trace has those that its events give).
fn comparable(info: &TrackInfo) -> TrackInfo {
    TrackInfo {
        stream: kymo_event::StreamId(0),
        name: None,
        ..info.clone()
    }
}

fn read(path: &Path) -> Trace {
    let mut source = open(path, &OpenOptions::default()).expect("a trace");
    let info = source.info().clone();
    let events = Events(&mut *source).collect::<Result<_, _>>();
    Trace {
        info,
        events: events.expect("whole files"),
    }
}

/// Exports a trace and holds what is read back against it.
fn again(name: &str, trace: &Trace) -> Trace {
    let directory = tempfile::tempdir().expect("a folder");
    trace.export_to("ctf", directory.path());
    let read = read(directory.path());
    let ((steps, rows), (wanted, wanted_rows)) = (calls(&read), calls(trace));
    for (at, (step, wanted)) in steps.iter().zip(&wanted).enumerate() {
        assert_eq!(step, wanted, "{name}: step {at}");
    }
    assert_eq!(steps.len(), wanted.len(), "{name}");
    assert_eq!(rows, wanted_rows, "{name}");
    assert_eq!(read.info.build_id, trace.info.build_id, "{name}");
    assert_eq!(read.info.text_base, trace.info.text_base, "{name}");
    read
}

/// The names of functions that are called in a trace.
fn called(trace: &Trace) -> Vec<Function> {
    let info: &TraceInfo = &trace.info;
    let called = |address| {
        trace.events.iter().any(|event| match event.kind {
            EventKind::Enter { function, .. } => function == address,
            EventKind::Exit { function } => function == Some(address),
            _ => false,
        })
    };
    let functions = info.functions.iter();
    functions
        .filter(|function| called(function.address))
        .cloned()
        .collect()
}

#[test]
fn traces_made_by_hand() {
    for (name, trace) in traces::all() {
        // Time cannot go back in CTF.
        if name == "backward" {
            continue;
        }
        let read = again(name, &trace);
        assert_eq!(read.info.functions, called(&trace), "{name}");
        let gaps = |trace: &Trace| {
            let gaps = trace.events.iter().filter_map(|event| match &event.kind {
                // Their times are those of the events before them, in CTF of necessity.
                EventKind::Gap(gap) => Some(gap.clone()),
                _ => None,
            });
            gaps.collect::<Vec<_>>()
        };
        assert_eq!(gaps(&read), gaps(&trace), "{name}");
        let kinds = |trace: &Trace| {
            let records = trace.events.iter().filter(|event| !event.name.is_empty());
            let kinds = records.filter(|event| !matches!(event.kind, EventKind::Gap(_)));
            let kinds =
                kinds.map(|event| (event.time, event.cpu, event.thread, event.kind.clone()));
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(kinds(&read), kinds(&trace), "{name}");
    }
}

#[test]
fn gaps_of_all_kinds() {
    let mut writer = traces::Writer::new();
    writer.at(10).enter(traces::A);
    let gaps = [
        Gap::LostPackets { packets: Some(2) },
        Gap::InInterrupt { depth: 1 },
        Gap::Discarded { events: None },
        Gap::Damage {
            offset: 7,
            bytes: Some(5),
            message: "a hole".to_owned(),
        },
        Gap::TimeBackward { by: Duration(3) },
    ];
    for gap in &gaps {
        writer.gap(gap.clone());
    }
    writer.at(20).exit(traces::A);
    let read = again("gaps", &writer.trace);
    let kinds: Vec<_> = read.events.iter().map(|event| &event.kind).collect();
    let found = kinds.iter().filter_map(|kind| match kind {
        EventKind::Gap(gap) => Some(gap.clone()),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), gaps);
}

#[test]
fn recordings_of_targets() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data");
    for name in [
        "demo",
        "damaged",
        "cut",
        "processors",
        "threads",
        "windows",
        "dates",
    ] {
        let path: PathBuf = data.join(name).with_extension("kymo");
        let trace = read(&path);
        let read = again(name, &trace);
        assert_eq!(read.info.threads, trace.info.threads, "{name}");
        assert_eq!(read.info.interrupts, trace.info.interrupts, "{name}");
        let timeless = |trace: &Trace| trace.info.streams.iter().filter(|s| s.timeless).count();
        assert_eq!(timeless(&read), timeless(&trace), "{name}");
        let date = |trace: &Trace| {
            let wall = trace.info.wall_clock.as_ref()?;
            Some(wall.unix_ns(Time(0)))
        };
        assert_eq!(date(&read), date(&trace), "{name}");
        assert_eq!(date(&read).is_some(), name == "dates");
    }
}

/// The times of an export mean what they meant, and every reader knows the date.
#[test]
fn dates_are_for_other_readers_too() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data");
    let trace = read(&data.join("dates.kymo"));
    let directory = tempfile::tempdir().expect("a folder");
    trace.export_to("ctf", directory.path());
    let exported = kymo_ctf::Trace::open(directory.path()).expect("a trace");
    let mut messages = exported.messages().expect("streams");
    let mut times = Vec::new();
    while let Some((_, message)) = messages.next_message().expect("whole streams") {
        if let kymo_ctf::Message::Event(event) = message {
            times.extend(event.time_ns());
        }
    }
    let first = Date(times[0]).to_string();
    assert_eq!(first, "2026-11-21T17:20:05.000000000Z");
    let events = trace.events.iter();
    let wanted = events.map(|event| event.time.0 + times[0] - trace.events[0].time.0);
    assert!(times.iter().copied().eq(wanted));
    let Ok(output) = std::process::Command::new("babeltrace2")
        .arg(directory.path())
        .args(["--clock-gmt", "--clock-date"])
        .output()
    else {
        return common::missing("babeltrace2 cannot be run");
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("[2026-11-21 17:20:05.000000000]"),
        "{text}"
    );
}
