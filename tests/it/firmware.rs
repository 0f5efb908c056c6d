//! The demonstration firmware in QEMU, examined by `kymo`: the trace, the target's own profile table and babeltrace2
//! agree on the same run; trigger and stopper survive a reboot.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

use crate::ended_calls::{self, Figures};

/// The running firmware, and the path of `kymo`.
struct Bench {
    kymo: PathBuf,
    elf: PathBuf,
    qemu: Qemu,
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        tools::require(&[Need::Firmware, Need::Checks]).unwrap();
        let kymo = kymo::build(Profile::Debug).unwrap();
        let elf = firmware::build(Hooks::Kymo, &BareRust::find().unwrap()).unwrap();
        let folder = run::target_dir().join("firmware-test").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let qemu = Qemu::boot(&elf, &folder, false).unwrap();
        Self {
            kymo,
            elf,
            qemu,
            folder,
        }
    }

    /// A command for the target.
    fn ask(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args([verb, "--target", &self.qemu.target(), "--elf"]);
        command.arg(&self.elf);
        command
    }

    /// A command that reads a file.
    fn look(&self, verb: &str, input: &Path) -> Command {
        let mut command = Command::new(&self.kymo);
        command.args([verb, "--format", "json", "--elf"]);
        command.arg(&self.elf).arg(input);
        command
    }

    /// Waits until the target has recorded this many bytes.
    fn wait_for_bytes(&self, enough: u64) {
        let deadline = Instant::now() + Duration::from_secs(1800);
        loop {
            let status = lines(self.ask("status").args(["--format", "json"])).remove(0);
            let bytes = status["recorded_bytes"].as_u64().unwrap();
            if bytes >= enough {
                return;
            }
            assert!(Instant::now() < deadline, "only {bytes} bytes");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Fetches the trace into a new directory.
    fn trace(&self, name: &str, options: &[&str]) -> PathBuf {
        let trace = self.folder.join(name);
        let mut command = self.ask("trace");
        run::run(command.args(options).arg("--output").arg(&trace)).unwrap();
        trace
    }
}

/// The trace and the report of `kymo record` on a recording with a limit, which is in `options`.
fn record(bench: &Bench, name: &str, options: &[&str]) -> (PathBuf, Value) {
    let trace = bench.folder.join(name);
    let mut command = bench.ask("record");
    command.args(["--format", "json"]).args(options);
    let summary = lines(command.arg("--output").arg(&trace)).remove(0);
    (trace, summary)
}

/// The number of events that babeltrace2 finds in a trace, without warnings.
fn events_elsewhere(trace: &Path) -> u64 {
    let other = Command::new("babeltrace2").arg(trace).output().unwrap();
    let complaints = String::from_utf8_lossy(&other.stderr);
    let complaints: Vec<&str> = complaints
        .lines()
        // babeltrace2 is expected to report losses.
        .filter(|line| !line.contains("discarded") && !line.trim().is_empty())
        .collect();
    assert!(
        other.status.success() && complaints.is_empty(),
        "{complaints:?}"
    );
    let lines = other.stdout.iter().filter(|byte| **byte == b'\n').count();
    lines as u64
}

/// One JSON value per line.
fn lines(command: &mut Command) -> Vec<Value> {
    let text = run::output(command).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Profile figures by function address. Interrupts have none; the target's table has only functions.
fn profile(lines: &[Value]) -> BTreeMap<u64, Figures> {
    let row = |line: &Value| {
        let number = |name: &str| line[name].as_u64().unwrap_or_default();
        let figures = Figures {
            count: number("count"),
            total: number("total_ns"),
            self_time: number("self_ns"),
            min: number("min_ns"),
            max: number("max_ns"),
        };
        Some((line["address"].as_u64()?, figures))
    };
    lines.iter().filter_map(row).collect()
}

/// Averages by function address, for functions that have one.
fn averages(lines: &[Value]) -> BTreeMap<u64, u64> {
    let row = |line: &Value| Some((line["address"].as_u64()?, line["avg_ns"].as_u64()?));
    lines.iter().filter_map(row).collect()
}

#[test]
fn trace_and_profile_and_babeltrace_agree() {
    let bench = Bench::new("agree");
    let trace = bench.trace("trace", &[]);

    let info = lines(&mut bench.look("info", &trace)).remove(0);
    assert_eq!(info["lost"], 0, "{info}");
    let other = Command::new("babeltrace2").arg(&trace).output().unwrap();
    let warnings = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.success() && warnings.is_empty(), "{warnings}");
    let events = other.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(info["events"], events as u64);

    let mut table = bench.ask("profile");
    let table = lines(table.args(["--format", "json", "-n", "100000"]));
    let report = lines(bench.look("report", &trace).args(["-n", "100000"]));
    assert!(table.len() > 500, "{} functions", table.len());
    let calls = lines(&mut bench.look("calls", &trace));
    assert_eq!(profile(&table), ended_calls::of(&calls));
    // For functions without truncated calls the report has the same figures, to the tick.
    let plain = |line: &&Value| {
        ["open", "orphans", "left_by_longjmp"]
            .iter()
            .all(|name| line[name] == 0)
    };
    let plain: Vec<Value> = report.iter().filter(plain).cloned().collect();
    assert!(plain.len() > 400, "{} functions", plain.len());
    let of_plain = |all: BTreeMap<u64, Figures>, plain: &BTreeMap<u64, Figures>| {
        let mut all = all;
        all.retain(|address, _| plain.contains_key(address));
        all
    };
    let reported = profile(&plain);
    assert_eq!(of_plain(profile(&table), &reported), reported);

    // The target has no average for recursive functions; for all others it equals that of the trace.
    let (known, all) = (averages(&table), averages(&plain));
    let differs =
        |(address, average): (&u64, &u64)| known.get(address).is_some_and(|known| known != average);
    assert!(!all.iter().any(differs), "{known:?} is not {all:?}");
    let recursive = table.len() - known.len();
    assert!((10..100).contains(&recursive), "{recursive} functions");
}

#[test]
fn trigger_and_stopper_are_kept_over_a_reboot() {
    let bench = Bench::new("reboot");
    let limits = ["--trigger", "luaH_resize", "--stopper", "luaH_resize"];
    run::run(bench.ask("trace").args(limits).arg("--list")).unwrap();
    let mut reboot = Command::new(&bench.kymo);
    reboot.env("KYMO_PATIENCE", "20");
    run::run(reboot.args(["reboot", "--target", &bench.qemu.target()])).unwrap();
    bench.wait_for_bytes(400_000);
    let first = bench.trace("first", &[]);

    // Each entry of that function turns recording on, and each exit turns it off. In between other threads may run and
    // are recorded too; and an interrupt may preempt between entry and exit, after which another thread turns recording
    // off again.
    let show = lines(&mut bench.look("show", &first));
    let events: Vec<&Value> = show.iter().filter(|line| line["type"] == "event").collect();
    let mut interrupts = 0;
    let mut calls = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match event["name"].as_str() {
            Some("isr_enter") => interrupts += 1,
            Some("isr_exit") => interrupts -= 1,
            Some("enter" | "exit") if interrupts == 0 => calls.push((place, *event)),
            _ => {}
        }
    }
    let turns = (0..events.len()).filter(|place| events[*place]["name"] == "recording");
    let turns: Vec<usize> = turns.collect();
    let (mut times_on, mut overtaken) = (0, 0);
    for (number, place) in turns.iter().enumerate() {
        let turn = events[*place];
        let is_on = turn["fields"]["on"] == 1;
        let (from, to) = if is_on {
            let next = turns.get(number + 1);
            (*place, next.map_or(events.len(), |next| *next))
        } else {
            let previous = number.checked_sub(1).map(|previous| turns[previous]);
            (previous.unwrap_or(0), *place)
        };
        let mut between = calls
            .iter()
            .filter(|(at, call)| (from..to).contains(at) && call["thread"] == turn["thread"]);
        let found = if is_on {
            between.next()
        } else {
            between.next_back()
        };
        let Some((_, call)) = found else {
            overtaken += 1;
            continue;
        };
        let edge = if is_on { "enter" } else { "exit" };
        assert_eq!(call["name"], edge, "at {place}: {call}");
        assert_eq!(call["function"], "luaH_resize", "at {place}: {call}");
        times_on += usize::from(is_on);
    }
    assert!(overtaken * 20 < times_on, "{overtaken} of {times_on}");
    assert!(times_on > 100, "recording went on {times_on} times");
}

#[test]
fn a_stream_that_the_link_can_carry_loses_nothing() {
    let limits = ["--trigger", "luaH_resize", "--stopper", "luaH_resize"];
    // If this machine has no time for `kymo`, the link transfers nothing. Then the test is repeated with a new target,
    // which has lost nothing yet.
    let attempt = |_| {
        let bench = Bench::new("stream");
        run::run(bench.ask("trace").args(limits).arg("--list")).unwrap();
        let (trace, summary) = record(&bench, "trace", &["--events", "5000"]);
        (summary["lost"] == 0).then_some((bench, trace, summary))
    };
    let (bench, trace, summary) = (0..10).find_map(attempt).expect("once in ten times");
    assert_eq!(summary["lost_packets"], 0, "{summary}");
    let info = lines(&mut bench.look("info", &trace)).remove(0);
    assert_eq!(info["lost"], 0, "{info}");
    // Gaps of the clock are permitted, because the emulator's ticks are late on a slow machine.
    assert!(info["events"].as_u64() >= Some(5000), "{info}");
    assert_eq!(info["events"], events_elsewhere(&trace));
    // The target continues to record: a dump contains the events since then.
    bench.wait_for_bytes(1000);
    let dump = bench.trace("dump", &[]);
    assert_eq!(lines(&mut bench.look("info", &dump)).remove(0)["lost"], 0);
}

#[test]
fn a_host_that_is_killed_costs_what_found_no_room_and_that_is_counted() {
    let bench = Bench::new("killed");
    let target = bench.qemu.target();
    let mut all = Command::new(&bench.kymo);
    all.env("KYMO_PATIENCE", "20");
    all.args([
        "trace", "--list", "-t", "none", "-s", "none", "--target", &target,
    ]);
    run::run(&mut all).unwrap();
    let first = bench.folder.join("first");
    let mut killed = bench.ask("record");
    killed.arg("--output").arg(&first);
    let killed = Background::start(&mut killed).unwrap();
    let size = || fs::metadata(first.join("cpu0")).map_or(0, |file| file.len());
    wait_until("the recording has begun", || size() > 100_000);
    // Kills it, like `kill -9`.
    drop(killed);
    let of_first = lines(&mut bench.look("info", &first)).remove(0);
    assert_eq!(
        of_first["errors"].as_array().map(Vec::len),
        Some(0),
        "{of_first}"
    );
    assert_eq!(of_first["events"], events_elsewhere(&first));

    // It continues to record without a host.
    wait_until("the buffer is full", || {
        let status = lines(bench.ask("status").args(["--format", "json"])).remove(0);
        assert_eq!(status["mode"], "stream");
        status["discarded"].as_u64() > Some(0)
    });
    // The packets in the buffer arrive, then later ones, and the loss in between is reported.
    let (second, summary) = record(&bench, "second", &["--size", "2500k"]);
    assert!(summary["lost"].as_u64() > Some(0), "{summary}");
    let info = lines(&mut bench.look("info", &second)).remove(0);
    assert_eq!(info["lost"], summary["lost"], "{info}");
    assert_eq!(info["events"], events_elsewhere(&second));
}

/// Waits for a condition, on a machine of any speed.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(1800);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}
