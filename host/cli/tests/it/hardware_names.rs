//! Processes that execute another program: names are those of the program at each time. Threads on several processors
//! whose order is unknown.

use std::process::Command;

use kymo_fixtures::etmv4::{Trace, recording, recording_of};
use kymo_fixtures::perf_data::AUX_RAW;

/// Address of the code of both programs.
const HERE: u64 = 0x40_0000;

#[test]
fn names_are_those_at_the_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let nop = 0xd503_201fu32.to_le_bytes();
    let ret = 0xd65f_03c0u32.to_le_bytes();
    std::fs::write(folder.path().join("three"), [nop, nop, ret].concat()).expect("code");
    std::fs::write(folder.path().join("two"), [nop, ret].concat()).expect("code");
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "shell");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(5000).exec(1, "tool");
        perf.at(5100).mapping(1, HERE, 0x1000, 0, "/two");
    });
    let trace = Trace::new(true).time(3000).run(1, HERE).time(4000);
    let trace = trace.run(1, HERE).time(6000).run(1, HERE).time(7000);
    let size = trace.bytes.len() as u64;
    perf.at(9000).aux(0, 0, 0, size, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, perf.file()).expect("a recording");
    let stdout = |words: &[&str]| {
        let (subcommand, options) = words.split_first().expect("a subcommand");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.arg(subcommand).arg(&input);
        command.arg("--symfs").arg(folder.path()).args(options);
        let output = command.output().expect("kymo runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    let objects = |words: &[&str]| -> Vec<serde_json::Value> {
        let text = stdout(&[words, &["--format", "json"]].concat());
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    };
    for row in objects(&["hotspots", "--sort", "command,file"]) {
        let expected = match row["command"].as_str() {
            Some("shell") => (6, "three"),
            Some("tool") => (2, "two"),
            _ => panic!("{row}"),
        };
        let instructions = row["instructions"].as_u64();
        assert_eq!(instructions, Some(expected.0), "{row}");
        let file = row["file"].as_str().expect("a file");
        assert!(file.ends_with(expected.1), "{row}");
    }
    let commands: Vec<String> = objects(&["branches"])
        .iter()
        .filter(|line| line["from"].as_u64().is_some())
        .map(|line| line["command"].as_str().unwrap_or_default().to_owned())
        .collect();
    let (first, last) = (commands.first(), commands.last());
    assert_eq!(first.map(String::as_str), Some("shell"), "{commands:?}");
    assert_eq!(last.map(String::as_str), Some("tool"), "{commands:?}");
    let spaces: Vec<_> = objects(&["report"])
        .iter()
        .map(|row| (row["space"].to_string(), row["total_ns"].as_u64()))
        .collect();
    assert_eq!(spaces.len(), 2, "{spaces:?}");
    let has = |name: &str| spaces.iter().any(|(space, _)| space.contains(name));
    assert!(has("shell") && has("tool"), "{spaces:?}");
    // Each name selects the process.
    for name in ["shell", "tool"] {
        for subcommand in [&["report"][..], &["hotspots", "--sort", "command"]] {
            let rows = objects(&[subcommand, &["--process", name]].concat());
            assert_eq!(rows.len(), 2, "{subcommand:?} {name}: {rows:?}");
        }
    }
}

#[test]
fn calls_of_threads_that_run_in_no_order_are_marked() {
    let folder = tempfile::tempdir().expect("a folder");
    // A loop in a function that never returns.
    let code = [0xd503_201fu32.to_le_bytes(), 0x17ff_ffffu32.to_le_bytes()];
    std::fs::write(folder.path().join("loop"), code.concat()).expect("code");
    let doubtful = |other: u32| -> Vec<(u64, bool)> {
        let mut perf = recording_of(2, true, |perf| {
            for thread in [1, 2, 3] {
                perf.at(1000).comm(thread, "thread");
                perf.at(2000).mapping(thread, HERE, 0x1000, 0, "/loop");
            }
        });
        let first = Trace::new(true).run(1, HERE).run(2, HERE).run(1, HERE);
        let second = Trace::new(true).run(other, HERE);
        for (cpu, trace) in (0..).zip([first, second]) {
            perf.at(9000)
                .aux(0, cpu, 0, trace.bytes.len() as u64, AUX_RAW);
            perf.buffer(None, cpu, 0, &trace.bytes);
        }
        let input = folder.path().join("perf.data");
        std::fs::write(&input, perf.file()).expect("a recording");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.arg("calls").arg(&input).args(["--format", "json"]);
        let output = command.arg("--symfs").arg(folder.path()).output();
        let text = String::from_utf8(output.expect("kymo runs").stdout).expect("text");
        let calls = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let thread = line["thread"].as_u64().expect("a thread");
            (thread, line["doubtful"].as_bool().expect("a mark"))
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_unstable();
        calls
    };
    // Thread 1 may have run on the other processor before it resumed on this one.
    assert_eq!(doubtful(1), [(1, false), (1, true), (2, false)]);
    assert_eq!(doubtful(3), [(1, false), (2, false), (3, false)]);
}

#[test]
fn a_child_s_code_is_its_parent_s_up_to_its_exec() {
    let folder = tempfile::tempdir().expect("a folder");
    let nop = 0xd503_201fu32.to_le_bytes();
    let ret = 0xd65f_03c0u32.to_le_bytes();
    std::fs::write(folder.path().join("three"), [nop, nop, ret].concat()).expect("code");
    std::fs::write(folder.path().join("two"), [nop, ret].concat()).expect("code");
    let counts = |is_timed: bool| {
        let mut perf = recording(true, |perf| {
            perf.at(1000).comm(1, "shell");
            perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
            perf.at(3000).fork(2, 1);
            perf.at(5000).exec(2, "tool");
            perf.at(5100).mapping(2, HERE, 0x1000, 0, "/two");
        });
        let time = |trace: Trace, time| match is_timed {
            true => trace.time(time),
            false => trace,
        };
        // The parent once, the child before and behind its exec, the parent again.
        let trace = time(Trace::new(true), 2500).run(1, HERE);
        let trace = time(trace.at(2, HERE), 3500).run(2, HERE);
        let trace = time(trace, 4000).at(2, HERE);
        let trace = time(trace, 6000).run(2, HERE);
        let trace = time(trace, 7000).run(1, HERE);
        let trace = time(trace, 8000);
        let size = trace.bytes.len() as u64;
        perf.at(9000).aux(0, 0, 0, size, AUX_RAW);
        perf.buffer(None, 0, 0, &trace.bytes);
        let input = folder.path().join("perf.data");
        std::fs::write(&input, perf.file()).expect("a recording");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(["hotspots", "--sort", "thread,file", "--format", "json"]);
        command.arg(&input).arg("--symfs").arg(folder.path());
        let output = command.output().expect("kymo runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let rows = text.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let words = ["thread", "file", "instructions"].map(|it| row[it].to_string());
            words.join(" ").replace('"', "")
        });
        let mut rows: Vec<String> = rows.collect();
        rows.sort();
        (rows, String::from_utf8(output.stderr).expect("text"))
    };
    let (rows, errors) = counts(true);
    assert_eq!(
        rows,
        ["shell 1/1 three 6", "tool 2/2 three 3", "tool 2/2 two 2"],
        "{errors}"
    );
    // Without times, nothing tells which runs were behind the exec.
    let (rows, errors) = counts(false);
    assert!(
        errors.contains("process 2 executed another program"),
        "{rows:?}: {errors}"
    );
}
