//! Contents of exported CTF traces, checked by `kymo-ctf` and by `babeltrace2`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Trace, missing, traces};
use kymo_ctf::{GapKind, Message};
use kymo_event::{Event, EventKind, Gap};
use kymo_export::Summary;
use tempfile::TempDir;

fn exported(trace: &Trace) -> (TempDir, Summary) {
    exported_to("ctf", trace)
}

fn exported_to(format: &str, trace: &Trace) -> (TempDir, Summary) {
    let directory = tempfile::tempdir().unwrap();
    let summary = trace.export_to(format, directory.path());
    (directory, summary)
}

/// An event as `kymo-ctf` reads it back.
#[derive(Debug, PartialEq)]
struct Read {
    time: i64,
    cpu: Option<u64>,
    thread: Option<u64>,
    name: String,
    function: Option<(u64, String)>,
}

/// Everything in a directory: events, and gaps as lost events and lost packets.
fn read(directory: &Path) -> (Vec<Read>, Vec<(GapKind, Option<u64>)>) {
    let trace = kymo_ctf::Trace::open(directory).expect("a trace");
    let mut messages = trace.messages().expect("streams");
    let mut events = Vec::new();
    let mut gaps = Vec::new();
    while let Some((_, message)) = messages.next_message().expect("whole streams") {
        match message {
            Message::Event(event) => {
                let known = |value: i64| (value != -1).then_some(value.cast_unsigned());
                let number = |name| event.field(name).and_then(|value| value.as_i64());
                let function = event.field("function");
                events.push(Read {
                    time: event.time_ns().unwrap(),
                    cpu: event
                        .packet()
                        .info()
                        .cpu_id
                        .or_else(|| known(number("cpu")?)),
                    thread: number("thread").and_then(known),
                    name: event.name().to_owned(),
                    function: function.map(|value| {
                        let label = value.label().unwrap_or_default();
                        (value.as_u64().unwrap(), label.to_owned())
                    }),
                });
            }
            Message::Gap(gap) => gaps.push((gap.kind, gap.count)),
            Message::Packet(_) => {}
        }
    }
    (events, gaps)
}

/// The exported form of an event; `None` if it is not exported as an event.
fn expected(trace: &Trace, event: &Event) -> Option<Read> {
    let (name, function) = match &event.kind {
        EventKind::Enter { function, .. } => ("enter", Some(*function)),
        EventKind::Exit { function } => ("exit", *function),
        EventKind::SwitchedIn => ("switched_in", None),
        EventKind::SwitchedOut => ("switched_out", None),
        EventKind::IsrEnter { .. } => ("isr_enter", None),
        EventKind::IsrExit { .. } => ("isr_exit", None),
        EventKind::Marker { .. } => ("marker", None),
        EventKind::Counter { .. } => ("counter", None),
        EventKind::Context { .. } => ("context", None),
        EventKind::Recording { .. } => ("recording", None),
        EventKind::SetJmp { .. } => ("setjmp", None),
        EventKind::LongJmp { .. } => ("longjmp", None),
        EventKind::WallClock { .. } => ("wall_clock", None),
        EventKind::Gap(Gap::Discarded { .. }) => return None,
        EventKind::Gap(_) => ("gap", None),
        EventKind::Other => ("other", None),
        other => panic!("{other:?} is not in the traces"),
    };
    Some(Read {
        time: event.time.0,
        cpu: event.cpu.map(|cpu| cpu.0.into()),
        thread: event
            .thread
            .map(|thread| trace.info.identities.tid(thread).0),
        name: name.to_owned(),
        function: function.map(|id| {
            let function = trace.info.identities.function(id).unwrap();
            (function.address.unwrap().0, trace.function(id))
        }),
    })
}

#[test]
fn every_event_comes_back() {
    for (name, trace) in traces::all() {
        if name == "backward" {
            continue;
        }
        let mut wanted: Vec<Read> = Vec::new();
        for event in &trace.events {
            wanted.extend(expected(&trace, event));
        }
        for format in ["ctf", "ctf2"] {
            let (directory, summary) = exported_to(format, &trace);
            let (events, _) = read(directory.path());
            assert_eq!(events, wanted, "{name} {format}");
            assert_eq!((summary.held, summary.left_out), (0, 0), "{name} {format}");
        }
    }
}

#[test]
fn losses_are_between_packets_where_ctf_has_a_word_for_them() {
    let mut writer = traces::Writer::new();
    writer.at(10).enter(traces::A);
    writer.gap(Gap::Discarded { events: Some(37) });
    writer.at(20).exit(traces::A);
    writer.gap(Gap::LostPackets { packets: Some(2) });
    writer.at(30).enter(traces::B);
    writer.gap(Gap::Discarded { events: Some(5) });
    let (directory, _) = exported(&writer.trace);
    let (events, gaps) = read(directory.path());
    assert_eq!(events.len(), 3);
    assert_eq!(
        gaps,
        [
            (GapKind::Events, Some(37)),
            (GapKind::Packets, Some(2)),
            (GapKind::Events, Some(5)),
        ]
    );
}

#[test]
fn time_that_goes_back_is_held_and_times_below_zero_are_kept() {
    let (directory, summary) = exported(&traces::backward());
    let (events, _) = read(directory.path());
    let times: Vec<i64> = events.iter().map(|event| event.time).collect();
    assert_eq!(times, [-50, -20, -10, 40, 40, 40, 40, 60, 70]);
    assert_eq!(summary.held, 2);
}

#[test]
fn a_text_ends_at_a_zero_and_that_is_said() {
    let mut writer = traces::Writer::new();
    writer.at(1).event(
        "named_marker",
        EventKind::Marker {
            label: Some("half\0way".to_owned()),
            value: 1,
        },
    );
    let (directory, summary) = exported(&writer.trace);
    assert_eq!(read(directory.path()).0.len(), 1);
    assert_eq!(summary.fields_left_out, 1);
}

#[test]
fn long_streams_are_many_packets() {
    let mut writer = traces::Writer::new();
    for i in 0..10_000 {
        writer.at(i).enter(traces::A).exit(traces::A);
    }
    let (directory, _) = exported(&writer.trace);
    let (events, gaps) = read(directory.path());
    assert_eq!(events.len(), 20_000);
    assert_eq!(gaps, []);
}

#[test]
fn babeltrace_2_0_reads_it_without_a_warning() {
    let command = Path::new("babeltrace2");
    match Command::new(command).arg("--version").output() {
        Ok(_) => babeltrace_reads_everything(command, "ctf"),
        Err(error) => missing(&format!("babeltrace2 cannot be run: {error}")),
    }
}

#[test]
fn babeltrace_2_1_reads_it_without_a_warning() {
    // `cargo xtask setup` downloads it.
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let command = home.join(".cache/kymo/babeltrace21/babeltrace2");
    if command.exists() {
        babeltrace_reads_everything(&command, "ctf");
        babeltrace_reads_everything(&command, "ctf2");
    } else {
        missing("babeltrace2 2.1 is not there (cargo xtask test fetches it)");
    }
}

/// Exports every trace and reads it with this babeltrace2.
fn babeltrace_reads_everything(command: &Path, format: &str) {
    for (name, trace) in traces::all() {
        let (directory, _) = exported_to(format, &trace);
        let run = Command::new(command)
            .args(["--clock-seconds", "--no-delta", "--fields=all"])
            .arg(directory.path())
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{name}: {printed}");
        let warnings: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        if name == "broken" {
            // The export must make it warn of discarded events.
            assert!(
                matches!(&warnings[..], [line] if line.contains("discarded 37 events")),
                "{printed}"
            );
        } else {
            assert!(warnings.is_empty(), "{name}: {printed}");
        }
        let text = String::from_utf8(run.stdout).unwrap();
        let wanted: Vec<Read> = trace
            .events
            .iter()
            .filter_map(|event| expected(&trace, event))
            .collect();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), wanted.len(), "{name}: {text}");
        if name == "backward" {
            // Its times are clamped, which another test checks.
            continue;
        }
        for (line, wanted) in lines.iter().zip(&wanted) {
            check_line(line, wanted);
        }
    }
}

/// Compares a line of babeltrace's text with the event that it must show.
fn check_line(line: &str, wanted: &Read) {
    let (time, _) = line.strip_prefix('[').unwrap().split_once(']').unwrap();
    let digits = time.replace('.', "");
    assert_eq!(digits.parse::<i64>().unwrap(), wanted.time, "{line}");
    let of_name = format!("name = \"{}\"", wanted.name);
    let by_name = line.contains(&of_name) || line.contains(&format!(" {}: ", wanted.name));
    assert!(by_name, "{} in {line}", wanted.name);
    if let Some((address, name)) = &wanted.function {
        let hex = format!("container = 0x{address:X}");
        assert!(
            line.contains(&hex) || name.starts_with("0x"),
            "{hex} in {line}"
        );
        let label = name.replace('\\', "\\\\").replace('"', "\\\"");
        assert!(line.contains(&label), "{label} in {line}");
    }
}

#[test]
fn functions_of_any_name_are_labels() {
    let names: BTreeMap<u64, String> = ["a\\b", "tab\there", "line\nbreak", "ünïcode", "{}", ""]
        .into_iter()
        .zip(1_u64..)
        .map(|(name, number)| (number * 0x100, name.to_owned()))
        .collect();
    let mut writer = traces::Writer::new();
    for (address, name) in &names {
        let address = kymo_event::Addr(*address);
        let function = writer.function(address);
        let identities = &mut writer.trace.info.identities;
        identities.name_function(function, name);
        writer.at(1).enter(address);
    }
    let (directory, _) = exported(&writer.trace);
    let (events, _) = read(directory.path());
    let found: BTreeMap<u64, String> = events
        .into_iter()
        .filter_map(|event| event.function)
        .collect();
    assert_eq!(found, names);
}
