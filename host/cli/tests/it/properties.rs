//! Properties that hold for all traces.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_fixtures::captures;
use serde_json::Value;

/// Small captures of each kind; packed ones are unpacked into `folder`.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    let mut add = |root: Option<PathBuf>, names: &[&str]| {
        for path in root
            .iter()
            .flat_map(|root| names.iter().map(|name| root.join(name)))
        {
            if path.is_file() {
                inputs.push(path);
            } else if let Some(text) = captures::unpacked(&path) {
                let unpacked = folder.join(path.file_name().expect("a name"));
                std::fs::write(&unpacked, text).expect("a file");
                inputs.push(unpacked);
            }
        }
    };
    add(
        captures::ftrace(),
        &[
            "amd64/dat/events-mono.dat",
            "amd64/duration/dur-thr10.txt",
            "amd64/text/fg-abstime-proc-tail.txt",
            "amd64/text/fg-sched-sleeptime.txt",
            "arm64/fg-v7.dat",
        ],
    );
    add(
        captures::systemview(),
        &["pro-cpu2.svdat", "app-cpu1.SVDat"],
    );
    add(
        captures::rtems_record(),
        &[
            "kernel-smp4-fatal-zlib/console.log",
            "shim-be64-counter-wrap/stream.bin",
            "shim-le64-overflow-some/stream.bin",
        ],
    );
    if inputs.is_empty() {
        captures::missing("no captures");
    }
    inputs
}

/// Lists the calls of an input.
fn calls(input: &Path, more: &[&str]) -> Vec<Value> {
    lines("calls", input, more)
}

/// Runs a subcommand on an input, and parses the lines of its JSON.
fn lines(subcommand: &str, input: &Path, more: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args([subcommand, "--format", "json"])
        .args(more)
        .arg(input);
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    lines.collect()
}

#[test]
fn no_call_runs_for_longer_than_it_lasts() {
    let folder = tempfile::tempdir().expect("a folder");
    for input in inputs(folder.path()) {
        let calls = calls(&input, &[]);
        assert!(!calls.is_empty(), "{}", input.display());
        for call in calls {
            let time = |name: &str| call[name].as_u64();
            if let (Some(duration), Some(wall)) = (time("duration_ns"), time("wall_ns")) {
                assert!(duration <= wall, "{}: {call}", input.display());
            }
        }
    }
}

#[test]
fn any_number_of_threads_tells_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    for input in inputs(folder.path()) {
        let (one, four) = (
            calls(&input, &["--threads", "1"]),
            calls(&input, &["--threads", "4"]),
        );
        assert!(!one.is_empty() && one == four, "{}", input.display());
    }
}

#[test]
fn views_agree_on_times_by_the_wall() {
    let folder = tempfile::tempdir().expect("a folder");
    for input in inputs(folder.path()) {
        let mut of_calls = HashMap::new();
        for call in calls(&input, &["--wall"]) {
            assert_eq!(call["duration_ns"], call["wall_ns"], "{call}");
            let name = call["function"].as_str().expect("a name").to_owned();
            // Trees don't have calls whose begin was not recorded.
            if call["ended"] != "orphan" {
                *of_calls.entry(name).or_insert(0) += call["self_ns"].as_u64().unwrap_or(0);
            }
        }
        let mut of_graph = HashMap::new();
        for line in lines("graph", &input, &["--wall", "--min-share", "0"]) {
            if let Some(name) = line["function"].as_str() {
                *of_graph.entry(name.to_owned()).or_insert(0) +=
                    line["self_ns"].as_u64().expect("a time");
            }
        }
        assert!(!of_calls.is_empty());
        for (name, time) in &of_calls {
            let of_graph = of_graph.get(name);
            assert_eq!(of_graph, Some(time), "{name} of {}", input.display());
        }
    }
}
