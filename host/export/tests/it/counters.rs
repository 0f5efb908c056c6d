//! Counters in every format: one for each process, with exact values, and with the current value at the begin of a
//! window.

use crate::common::timeline::Timeline;
use crate::common::{json, proto, traces};
use kymo_analysis::replay::Window;
use kymo_event::{EventKind, Time};
use kymo_export::{Destination, Options};
use kymo_read::{Events, OpenOptions, open};

fn since(begin: i64) -> Options {
    let mut options = Options::default();
    options.replay.window = Window {
        begin: Time(begin),
        ..Window::default()
    };
    options
}

/// The counters of a timeline: the process, and the values with their times.
fn counters(timeline: &Timeline) -> Vec<(&str, Vec<(i64, &str)>)> {
    let rows = timeline.rows.values();
    let rows = rows.map(|row| (row.process.as_str(), row.counters()));
    let mut rows: Vec<_> = rows.filter(|(_, values)| !values.is_empty()).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn perfetto_has_a_track_for_each_process() {
    let (bytes, _) = traces::counters().export("perfetto");
    crate::perfetto::check_with_schema("counters", &bytes);
    let perfetto = proto::read(&bytes);
    let program = &perfetto.timeline.processes[&1];
    let (least, most) = ("-9223372036854775808", "18446744073709552000");
    assert_eq!(
        counters(&perfetto.timeline),
        [
            (
                "process 7",
                vec![(110, "9007199254740993"), (140, "1.5"), (160, "4")]
            ),
            ("process 9", vec![(120, least), (150, "NaN"), (170, "5")]),
            (program.as_str(), vec![(130, most)]),
        ]
    );
    // A process that is only named by counters must not be a thread with the same number.
    let others = perfetto.timeline.processes.keys().filter(|pid| **pid != 1);
    assert!(others.into_iter().all(|pid| *pid >= 1 << 30));
}

#[test]
fn trace_event_has_the_numbers_of_processes() {
    let (bytes, summary) = traces::counters().export("trace-event");
    let timeline = json::read(&bytes);
    assert_eq!(
        counters(&timeline)[..2],
        [
            (
                "process 7",
                vec![
                    (110, "queued = 9007199254740993"),
                    (140, "queued = 1.5"),
                    (160, "queued = 4"),
                ]
            ),
            (
                "process 9",
                vec![(120, "queued = -9223372036854775808"), (170, "queued = 5")]
            ),
        ]
    );
    assert_eq!(timeline.processes.get(&7).unwrap(), "process 7");
    assert_eq!(timeline.processes.get(&9).unwrap(), "process 9");
    // JSON cannot represent NaN.
    assert_eq!(summary.left_out, 1);
}

#[test]
fn ctf_keeps_processes_and_every_bit() {
    let trace = traces::counters();
    let of = |kind: &EventKind| match kind {
        EventKind::Counter { .. } => Some(format!("{kind:?}")),
        _ => None,
    };
    let expected: Vec<_> = trace.events.iter().filter_map(|it| of(&it.kind)).collect();
    for format in ["ctf", "ctf2"] {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::Directory(directory.path());
        let written = trace.write(
            format,
            &Default::default(),
            destination,
            &Options::default(),
        );
        written.unwrap();
        let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
        let events = Events::new(&mut *source).map(Result::unwrap);
        let read: Vec<_> = events.filter_map(|it| of(&it.kind)).collect();
        assert_eq!(read, expected, "{format}");
    }
}

#[test]
fn lists_name_the_process() {
    let (bytes, _) = traces::counters().export("csv");
    let text = String::from_utf8(bytes).unwrap();
    for part in [
        "process=7 value=9007199254740993",
        "process=9 value=-9223372036854775808",
        "\"\"queued\"\" value=18446744073709551615",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_window_begins_with_the_values_that_hold_then() {
    let trace = traces::counters();
    let (perfetto, _) = trace.export_with("perfetto", &since(145));
    let perfetto = proto::read(&perfetto).timeline;
    let values = counters(&perfetto);
    let values: Vec<_> = values.iter().map(|(_, values)| values.clone()).collect();
    assert_eq!(
        values,
        [
            vec![(145, "1.5"), (160, "4")],
            vec![(145, "-9223372036854775808"), (150, "NaN"), (170, "5")],
            vec![(145, "18446744073709552000")],
        ]
    );
    let (json, _) = trace.export_with("trace-event", &since(145));
    let json = json::read(&json);
    let seven = vec![(145, "queued = 1.5"), (160, "queued = 4")];
    assert_eq!(counters(&json)[0], ("process 7", seven));
    // Events that are not selected are not exported.
    let mut options = since(145);
    options.replay.selection.events.conditions = vec!["process == 9".parse().unwrap()];
    let (one, _) = trace.export_with("trace-event", &options);
    let one = json::read(&one);
    let nine = vec![(145, "queued = -9223372036854775808"), (170, "queued = 5")];
    assert_eq!(counters(&one), [("process 9", nine)]);
}

#[test]
fn a_part_of_a_trace_has_the_values_from_before() {
    let trace = traces::counters();
    let directory = tempfile::tempdir().unwrap();
    let destination = Destination::Directory(directory.path());
    let written = trace.write("ctf", &Default::default(), destination, &since(145));
    let summary = written.unwrap();
    // Three records are in the window.
    assert_eq!(summary.events, 3);
    let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap);
    let read: Vec<_> = events
        .filter_map(|event| match event.kind {
            EventKind::Counter { process, value, .. } => {
                Some((event.time.0, process, value.to_string()))
            }
            _ => None,
        })
        .collect();
    let of = |time, process, value: &str| (time, process, value.to_owned());
    assert_eq!(
        read,
        [
            of(144, None, "18446744073709551615"),
            of(144, Some(7), "1.5"),
            of(144, Some(9), "-9223372036854775808"),
            of(150, Some(9), "NaN"),
            of(160, Some(7), "4"),
            of(170, Some(9), "5"),
        ]
    );
}
