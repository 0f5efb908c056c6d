//! Contents of Perfetto's protobuf, read back by the tests' own decoder, and in Python by Perfetto's schema if it is
//! available.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::common::proto::{self, Perfetto, TaskState};
use crate::common::python::{self, Environment};
use crate::common::timeline::{expected_calls, spans};
use crate::common::{Trace, missing, skipped, traces};
use kymo_event::EventKind;
use kymo_export::{Destination, Options};
use kymo_symbols::Symbols;

fn read(trace: &Trace) -> Perfetto {
    let (bytes, _) = trace.export("perfetto");
    let perfetto = proto::read(&bytes);
    perfetto.timeline.check();
    let processes: Vec<_> = perfetto.timeline.processes.iter().collect();
    assert_eq!(processes, [(&1, &"program".to_owned())]);
    perfetto
}

#[test]
fn every_call_is_a_slice_with_its_times_and_how_it_ended() {
    for (name, trace) in traces::all() {
        if name == "backward" {
            continue;
        }
        assert_eq!(
            read(&trace).timeline.calls(),
            expected_calls(&trace),
            "{name}"
        );
    }
}

#[test]
fn threads_and_interrupts_are_tracks_of_their_own() {
    let perfetto = read(&traces::whole());
    let names: Vec<String> = perfetto.threads.values().cloned().collect();
    for name in ["worker", "worker (0x20000200)", "thread 0x20000300", "main"] {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    assert_eq!(
        perfetto.threads[&42], "main",
        "a number like Linux's is kept"
    );
    let tick = perfetto.timeline.row("SysTick (irq 15) on CPU 0").slices();
    let tick = spans(&tick);
    assert_eq!(tick, [("c", 142, 150), ("SysTick (irq 15)", 140, 152)]);
    let nested = perfetto.timeline.row("irq 16 on CPU 0").slices();
    let nested = spans(&nested);
    assert_eq!(nested, [("0x9000", 145, 148), ("irq 16", 144, 148)]);
    let marker = perfetto.timeline.row("thread 0x20000300").instants();
    assert_eq!(marker, [(221, "half way")]);
}

#[test]
fn counters_are_tracks_with_values() {
    let perfetto = read(&traces::whole());
    let values = perfetto.timeline.row("counter queued").counters();
    assert_eq!(values, [(222, "3"), (225, "-2.5")]);
}

#[test]
fn switches_are_states_of_threads() {
    let perfetto = read(&traces::whole());
    let on_cpu_0: Vec<(i64, &str, u64)> = perfetto
        .states
        .iter()
        .filter(|state| state.cpu == 0)
        .map(
            |TaskState {
                 time, name, state, ..
             }| (*time, name.as_str(), *state),
        )
        .collect();
    let (running, stopped) = (3, 6);
    assert_eq!(
        on_cpu_0,
        [
            (100, "worker", running),
            (160, "worker", stopped),
            (160, "worker (0x20000200)", running),
            (210, "worker (0x20000200)", stopped),
            (210, "thread 0x20000300", running),
            (240, "thread 0x20000300", stopped),
            (240, "worker", running),
        ]
    );
    for TaskState { tid, name, .. } in &perfetto.states {
        assert_eq!(perfetto.threads.get(tid), Some(name));
    }
}

#[test]
fn gaps_last_until_the_next_event_of_their_stream() {
    let (bytes, summary) = traces::broken().export("perfetto");
    let perfetto = proto::read(&bytes);
    let gaps = perfetto.timeline.row("gaps of cpu0");
    let slices = gaps.slices();
    let slices = spans(&slices);
    assert_eq!(
        slices,
        [
            ("3 earlier packets overwritten", 100, 100),
            ("packets lost", 155, 170),
            ("37 events discarded", 155, 170),
            (
                "the rest from offset 4096 could not be read: bad magic",
                2030,
                2030
            ),
        ]
    );
    let instants = gaps.instants();
    assert_eq!(instants.len(), 1, "{instants:?}");
    assert!(instants[0].1.starts_with("clock uncertain"));
    assert!(
        perfetto.dropped["gaps of cpu0"] >= 3,
        "{:?}",
        perfetto.dropped
    );
    assert_eq!(summary.gaps, 5);
    assert_eq!(summary.lost_events, 37);
    assert_eq!(summary.unknown_losses, 3);
}

#[test]
fn exits_without_a_begin_are_instants_that_say_so() {
    let (bytes, summary) = traces::broken().export("perfetto");
    let timeline = proto::read(&bytes).timeline;
    let instants = timeline.row("worker").instants();
    assert!(instants.contains(&(100, "return from c")), "{instants:?}");
    assert!(instants.contains(&(105, "return from b")), "{instants:?}");
    assert_eq!(summary.orphans, 2);
    assert!(instants.contains(&(1210, "recording off")));
    assert!(instants.contains(&(2025, "tick")));
    let tick = timeline
        .row("worker")
        .entries
        .iter()
        .find(|entry| entry.time == 2025);
    let notes = &tick.unwrap().notes;
    assert_eq!(notes["count"], "5");
    assert_eq!(notes["what"], "a \"thing\"");
    assert_eq!(notes["where"], 0xE000_E010_u32.to_string());
}

#[test]
fn time_that_goes_back_is_held_and_counted() {
    let (bytes, summary) = traces::backward().export("perfetto");
    let perfetto = proto::read(&bytes);
    perfetto.timeline.check();
    assert_eq!(summary.shifted_ns, 50);
    assert!(summary.held >= 2, "{summary:?}");
    let calls = perfetto.timeline.calls();
    let found = spans(&calls);
    // 40 ns after the origin at -50 is at 90. c ran from -20 to -15, and is clamped there.
    assert_eq!(
        found,
        [("a", 0, 110), ("b", 30, 90), ("c", 40, 120), ("c", 90, 90)]
    );
}

#[test]
fn an_event_takes_few_bytes() {
    let mut writer = traces::Writer::new();
    for i in 0..20_000 {
        writer.at(i * 400).enter(traces::A);
        writer.at(i * 400 + 200).exit(traces::A);
    }
    let trace = writer.trace;
    let (bytes, _) = trace.export("perfetto");
    let each = bytes.len() as f64 / trace.events.len() as f64;
    assert!(each < 16.0, "{each} bytes an event");
}

#[test]
fn a_call_says_where_its_function_is_in_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let code = "\n\nint twice(int x) {\n    return 2 * x;\n}\n";
    std::fs::write(file("twice.c"), code).unwrap();
    let run = Command::new("cc")
        .args(["-g", "-shared", "-fPIC", "-o", "twice.so", "twice.c"])
        .current_dir(folder.path())
        .output();
    if run.is_err() {
        return missing("there is no C compiler (cc)");
    }
    let symbols = Symbols::open(&file("twice.so")).unwrap();
    let function = symbols.by_name("twice")[0].address();
    let mut writer = traces::Writer::new();
    writer.at(10).enter(function).at(20).exit(function);
    writer.at(30).enter(function).at(40).exit(function);
    writer.at(50).enter(traces::NAMELESS).exit(traces::NAMELESS);
    let mut bytes = Vec::new();
    let destination = Destination::Writer(Box::new(&mut bytes));
    let written = writer.trace.write(
        "perfetto",
        &symbols.into(),
        destination,
        &Options::default(),
    );
    written.unwrap();
    let calls = proto::read(&bytes).timeline.calls();
    let sources: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.name.as_str(),
                call.notes.get("source").map(String::as_str),
            )
        })
        .collect();
    let (name, source) = sources[1];
    assert_eq!(name, "twice");
    assert!(
        source.is_some_and(|source| source.ends_with("twice.c:3")),
        "{source:?}"
    );
    assert_eq!(sources, [("0x9000", None), (name, source), (name, source)]);
    check_with_schema("source", &bytes);
}

#[test]
fn records_of_a_kymo_target_that_only_carry_its_clock_on_are_not_shown() {
    let mut trace = traces::broken();
    let instants = |trace: &Trace| {
        let timeline = proto::read(&trace.export("perfetto").0).timeline;
        let instants = timeline.row("worker").instants();
        instants.iter().filter(|(_, name)| *name == "tick").count()
    };
    assert_eq!(instants(&trace), 1);
    // Records of the target's program (items, records in place) are exported. Records that only continue the clock, or
    // describe the target, are not.
    trace.info.format = "kymo".to_owned();
    assert_eq!(instants(&trace), 1);
    for kind in [EventKind::Time, EventKind::Fact] {
        let ticks = trace.events.iter_mut().filter(|event| event.name == "tick");
        ticks.for_each(|event| event.kind = kind.clone());
        assert_eq!(instants(&trace), 0);
    }
}

#[test]
fn a_name_that_comes_late_is_told_and_a_track_without_events_is_not() {
    let mut writer = traces::Writer::new();
    writer.at(10).enter(traces::A);
    writer.on(0, traces::UNNAMED);
    let thread = writer.thread(traces::WORKER_1);
    writer.at(20).event(
        "thread_name",
        kymo_event::EventKind::ThreadName {
            thread,
            name: "boss".to_owned(),
        },
    );
    writer.on(0, traces::WORKER_1).at(30).exit(traces::A);
    let perfetto = read(&writer.trace);
    let names: Vec<&String> = perfetto.threads.values().collect();
    assert_eq!(names, ["boss"]);
}

/// A Python with Perfetto's schema; `None` if it can't be installed.
fn python() -> Option<PathBuf> {
    python::with(&Environment {
        name: "perfetto-schema",
        python: "python3",
        has_system_packages: false,
        packages: &["perfetto==0.59.1", "protobuf"],
        imports: "from perfetto.protos.perfetto.trace import perfetto_trace_pb2",
    })
}

#[test]
fn the_schema_of_perfetto_agrees() {
    for (name, trace) in traces::all() {
        check_with_schema(name, &trace.export("perfetto").0);
    }
}

/// Reads a file with Perfetto's own schema, and checks that it finds the same content.
pub fn check_with_schema(name: &str, bytes: &[u8]) {
    static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(python);
    let Some(python) = &*PYTHON else {
        return skipped(
            "Perfetto's schema (PyPI package perfetto) could not be installed; \
             the traces were checked by the tests' own decoder only",
        );
    };
    let perfetto = proto::read(bytes);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check_perfetto.py");
    let run = Command::new(python).arg(&script).arg(file.path()).output();
    let run = run.unwrap();
    let printed = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {printed}");
    let found: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let rows = perfetto.timeline.rows.values();
    let slices: usize = rows.clone().map(|row| row.slices().len()).sum();
    let instants: usize = rows.clone().map(|row| row.instants().len()).sum();
    let counters: usize = rows.map(|row| row.counters().len()).sum();
    assert_eq!(found["counters"], counters, "{name}");
    assert_eq!(found["slices"], slices, "{name}");
    assert_eq!(found["instants"], instants, "{name}");
    assert_eq!(found["states"], perfetto.states.len(), "{name}");
    assert_eq!(found["threads"], perfetto.threads.len(), "{name}");
}
