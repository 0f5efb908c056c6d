//! The demonstration program on this machine, streamed while its threads and signal handlers record.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use kymo_targets::firmware::Hooks;
use kymo_targets::kymo::{self, Profile};
use kymo_targets::native::{self, CompilerKind, Running};
use kymo_targets::run::{self, Background};
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// One JSON object.
fn object(command: &mut Command) -> Value {
    serde_json::from_str(&run::output(command).unwrap()).unwrap()
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs_f64()
}

/// The times of a trace's events in seconds since 1970, according to babeltrace2.
fn seconds_elsewhere(trace: &Path) -> Vec<f64> {
    let output = Command::new("babeltrace2")
        .args(["--clock-seconds"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let second = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.parse().ok();
    text.lines().filter_map(second).collect()
}

#[test]
fn threads_are_streamed_and_dated_and_every_loss_is_told() {
    tools::require(&[Need::Native, Need::Checks]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let program = native::build(CompilerKind::Gcc, Hooks::Kymo).unwrap();
    let folder = run::target_dir().join("native-stream-test");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let running = Running::start(&program).unwrap();
    let ask = |verb: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([verb, "--target", &running.target()]);
        command
    };
    run::run(ask("command").arg("on")).unwrap();

    let trace = folder.join("trace");
    // On a very busy machine the program may not answer in time, or one thread may not run: then repeat.
    let (before, summary, info) = (0..10)
        .find_map(|_| {
            let _ = fs::remove_dir_all(&trace);
            let mut record = ask("record");
            record.args(["--format", "json", "--events", "30000", "--elf"]);
            record.arg(&program).arg("--output").arg(&trace);
            let before = now();
            let text = run::output(&mut record).ok()?;
            let summary: Value = serde_json::from_str(&text).unwrap();
            let mut info = Command::new(&kymo);
            let info = object(info.args(["info", "--format", "json"]).arg(&trace));
            let streams = info["streams"].as_array().unwrap();
            let with_events = |stream: &&Value| stream["events"].as_u64() > Some(100);
            let both = streams.iter().filter(with_events).count() >= 2;
            both.then_some((before, summary, info))
        })
        .expect("both Lua threads are recorded once in ten times");
    let after = now();

    assert_eq!(info["lost"], summary["lost"], "{summary}");
    assert_eq!(summary["lost_packets"], 0, "{summary}");
    assert_eq!(info["errors"].as_array().map(Vec::len), Some(0), "{info}");
    let streams = info["streams"].as_array().unwrap();

    // Names arrive before the clock is known.
    let names = streams.iter().find(|stream| stream["name"] == "target");
    let names = names.unwrap()["events"].as_u64().unwrap() as usize;
    let seconds = seconds_elsewhere(&trace);
    assert_eq!(Some(seconds.len() as u64), info["events"].as_u64());
    // The program measures the clock's rate in a short time, on a machine that may be busy.
    let slack = 60.0 + (after - before) * 0.25;
    let dates = before - slack..after + slack;
    let dated = seconds.iter().filter(|second| dates.contains(second));
    assert!(dated.count() + names >= seconds.len(), "{dates:?}");
}

#[test]
fn a_running_program_is_followed() {
    tools::require(&[Need::Native]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let program = native::build(CompilerKind::Gcc, Hooks::Kymo).unwrap();
    let running = Running::start(&program).unwrap();
    let target = running.target();
    let patient = || {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command
    };
    run::run(patient().args(["command", "on", "--target", &target])).unwrap();
    // On a very busy machine the program may not answer in time: then repeat.
    let followed = (0..5).any(|_| {
        let mut follow = patient();
        follow.args(["show", "--follow", &target, "--elf"]);
        follow.arg(&program).stdout(Stdio::piped());
        let mut follow = Background::start(&mut follow).unwrap();
        let lines = BufReader::new(follow.take_stdout().unwrap()).lines();
        // Calls of both threads, with names.
        let mut missing = vec!["lua-a", "lua-b", "luaH_", "}"];
        for line in lines.take(5_000_000) {
            let line = line.unwrap();
            missing.retain(|part| !line.contains(part));
            if missing.is_empty() {
                break;
            }
        }
        // A reader that closes the pipe ends the output, without an error.
        missing.is_empty() && follow.wait(run::PATIENCE).unwrap().success()
    });
    assert!(followed);
}

#[test]
fn what_recording_took_is_known_before_main_and_taken_off() {
    tools::require(&[Need::Native]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let program = native::build(CompilerKind::Gcc, Hooks::Kymo).unwrap();
    let running = Running::start(&program).unwrap();
    let folder = run::target_dir().join("native-cost-test");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let raw = folder.join("trace.kymo");
    let mut trace = Command::new(&kymo);
    trace.env("KYMO_PATIENCE", "20");
    trace.args(["trace", "--target", &running.target(), "--output"]);
    let done = (0..10).any(|_| run::run(trace.arg(&raw)).is_ok());
    assert!(done, "the program answers once in ten times");

    // The sum of all self times in nanoseconds, and of their uncertainties.
    let times = |options: &[&str]| {
        let mut report = Command::new(&kymo);
        report.args(["report", "--format", "json", "-n", "100000"]);
        let text = run::output(report.args(options).arg(&raw)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.fold((0, 0, 0), |(time, doubt, count), line: Value| {
            (
                time + line["self_ns"].as_u64().unwrap(),
                doubt + line["self_bound_ns"].as_u64().unwrap_or(0),
                count + line["count"].as_u64().unwrap(),
            )
        })
    };
    let (plain, _, calls) = times(&[]);
    let (compensated, doubt, same) = times(&["--compensate"]);
    assert_eq!(calls, same);
    assert!(calls > 1000, "{calls} calls");
    // A call takes at least two readings of the clock, some nanoseconds each. For a program that does more than call
    // hooks, the uncertainty is less than half of the time.
    let taken = plain - compensated;
    assert!(taken > 5 * calls, "{taken} ns of {calls} calls");
    assert!((1..taken).contains(&doubt), "{taken} ± {doubt} ns");
}
