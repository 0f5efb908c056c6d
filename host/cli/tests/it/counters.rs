//! Counter events: selected by name, process and value, and printed with them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Text of ftrace with counters of the same name in two processes.
const TEXT: &str = "# tracer: nop\n#
 app-100 [000] ..... 10.000000: tracing_mark_write: C|100|queued|5
 bpp-200 [001] ..... 10.000100: tracing_mark_write: C|200|queued|9223372036854775807
 app-100 [000] ..... 10.000200: tracing_mark_write: C|100|load|1.5
 app-100 [000] ..... 10.000300: tracing_mark_write: C|100|queued|8
";

fn input(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let file = folder.path().join("trace.txt");
    std::fs::write(&file, text).unwrap();
    file
}

/// Runs `kymo` on a text, and returns its stdout.
fn run(arguments: &[&str], text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let output = command.args(arguments).arg(input(&folder, text)).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The process, label and value of each event that `show --format json` prints.
fn shown(more: &[&str]) -> Vec<(u64, String, String)> {
    let out = run(&[&["show", "--format", "json"], more].concat(), TEXT);
    let lines = out.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        (
            line["process"].as_u64().unwrap(),
            line["label"].as_str().unwrap().to_owned(),
            line["value"].to_string(),
        )
    });
    lines.collect()
}

#[test]
fn counters_are_chosen_by_name_process_and_value() {
    let of = |process, label: &str, value: &str| (process, label.to_owned(), value.to_owned());
    let all = [
        of(100, "queued", "5"),
        of(200, "queued", "9223372036854775807"),
        of(100, "load", "1.5"),
        of(100, "queued", "8"),
    ];
    assert_eq!(shown(&[]), all);
    let some = |places: &[usize]| -> Vec<_> { places.iter().map(|at| all[*at].clone()).collect() };
    assert_eq!(shown(&["--event", "queued"]), some(&[0, 1, 3]));
    assert_eq!(shown(&["--drop-event", "queued"]), some(&[2]));
    assert_eq!(shown(&["--where", "value > 7"]), some(&[1, 3]));
    assert_eq!(shown(&["--where", "label == load"]), some(&[2]));
    let both = ["--where", "process == 100", "--event", "q*"];
    assert_eq!(shown(&both), some(&[0, 3]));
    // The tree of calls has the same events.
    let tree = run(&["show", "--where", "value > 7"], TEXT);
    assert_eq!(tree.matches("queued = ").count(), 2, "{tree}");
    assert!(tree.contains("queued = 9223372036854775807"), "{tree}");
}

#[test]
fn other_processors_switches_are_not_shown() {
    let switch = |(cpu, at, from, to): (u32, u32, u32, u32)| {
        format!(
            " app-{from} [00{cpu}] ..... 10.000{at}00: sched_switch: prev_comm=app prev_pid={from} prev_prio=120 \
             prev_state=R ==> next_comm=app next_pid={to} next_prio=120\n"
        )
    };
    let switches = [
        (0, 0, 1, 2),
        (1, 1, 3, 4),
        (0, 2, 2, 1),
        (1, 3, 4, 3),
        (0, 4, 1, 2),
    ];
    let text = switches.map(switch).concat();
    let text = format!("# tracer: nop\n#\n{text}");
    // The first switch of each processor only shows which thread was running; the tree has the others.
    let all = run(&["show"], &text);
    assert_eq!(all.matches("=>").count(), 3, "{all}");
    let one = run(&["show", "--cpu", "1"], &text);
    assert_eq!(one.matches("=>").count(), 1, "{one}");
    assert!(one.contains("app:4 => app:3"), "{one}");
}
