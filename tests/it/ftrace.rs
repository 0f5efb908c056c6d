//! The kernel's tracer, live: `kymo record --ftrace` in a Linux guest, its effect on the kernel's settings, and its
//! files as read by `kymo` and trace-cmd.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use kymo_targets::guest::Kernel;
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// Time-out of a guest on a very busy machine.
const LIMIT: Duration = Duration::from_secs(1200);

/// Output of the guest, and the program that reads it.
struct Guest {
    out: PathBuf,
    kymo: PathBuf,
}

impl Guest {
    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Fails unless a recording ended with this code and messages, and restored the settings.
    fn check(&self, name: &str, code: &str, words: &[&str]) {
        let printed = self.text(&format!("{name}.err"));
        assert_eq!(
            self.text(&format!("{name}.code")).trim(),
            code,
            "{name}: {printed}"
        );
        for word in words {
            assert!(printed.contains(word), "{name}: no {word:?} in: {printed}");
        }
        let settings = self.text(&format!("{name}.settings"));
        assert_eq!(settings, self.text("before.settings"), "{name}");
    }

    /// Output of `kymo` for a recording, one JSON value per line.
    fn look(&self, verb: &[&str], name: &str) -> Vec<Value> {
        let mut command = Command::new(&self.kymo);
        command.args(verb).args(["--format", "json"]);
        let text = run::output(command.arg(self.out.join(format!("{name}.dat")))).unwrap();
        let values = text.lines().map(|line| serde_json::from_str(line).unwrap());
        values.collect()
    }

    /// The number of calls of each function.
    fn counts(&self, name: &str) -> Vec<(String, u64)> {
        let rows = self.look(&["report"], name);
        let count = |row: &Value| {
            let function = row["function"].as_str().unwrap().to_owned();
            (function, row["count"].as_u64().unwrap())
        };
        rows.iter().map(count).collect()
    }

    /// The lines of `trace-cmd report`.
    fn report(&self, name: &str) -> Vec<String> {
        let path = self.out.join(format!("{name}.dat"));
        let text = run::output(Command::new("trace-cmd").args(["report", "-t"]).arg(path)).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// Number of lines that contain a text.
fn times(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

#[test]
fn a_kernel_is_recorded_and_left_as_it_was() {
    use std::io::Write as _;
    if !cfg!(target_arch = "x86_64") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the guest is an x86-64 machine");
        return;
    }
    tools::require(&[Need::Guest]).unwrap();
    let Some(kernel) = Kernel::find() else {
        let why = "no Linux kernel for QEMU: cargo xtask setup fetches one";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        return;
    };
    let kymo = kymo::build(Profile::Debug).unwrap();
    let mut print = Command::new(&kymo);
    print.args(["record", "--ftrace", "--boot", "--threshold", "1ms"]);
    // Tracing all functions is too slow for an emulated boot.
    print.args(["--function", "do_one_initcall", "--function", "*_init"]);
    let words = run::output(&mut print).unwrap();
    let started = Instant::now();
    let folder = run::target_dir().join("ftrace-test");
    let script = include_str!("ftrace/script.sh");
    let out = kernel
        .run(script, &[&kymo], words.trim(), (&folder, LIMIT))
        .unwrap();
    println!(
        "the guest ran for {:?}:\n{}",
        started.elapsed(),
        fs::read_to_string(out.join("times")).unwrap()
    );
    let guest = Guest { out, kymo };
    refusals(&guest);
    recordings(&guest);
    losses(&guest);
    full_disk(&guest);
    ends(&guest);
    kills(&guest);
    boot(&guest);
}

/// A full disk ends a recording; everything recorded before is saved.
fn full_disk(guest: &Guest) {
    let words = [
        "No space left on device",
        "/small/full.dat has what was recorded before",
    ];
    guest.check("full", "2", &words);
    let size = fs::metadata(guest.out.join("full.dat")).unwrap().len();
    // 20 MiB minus the reserve for texts, and their copy beside the pages.
    assert!((3 << 20..12 << 20).contains(&size), "{size} bytes");
    let counts = guest.counts("full");
    let reads = counts
        .iter()
        .find(|(name, _)| name == "vfs_read")
        .unwrap()
        .1;
    assert!((1000..60_000).contains(&reads), "{reads} calls");
}

/// Impossible requests are reported with the next step, and change nothing.
fn refusals(guest: &Guest) {
    let failed = |name: &str, words: &[&str]| {
        let printed = guest.text(&format!("{name}.err"));
        assert_eq!(
            guest.text(&format!("{name}.code")).trim(),
            "2",
            "{name}: {printed}"
        );
        for word in words {
            assert!(printed.contains(word), "{name}: no {word:?} in: {printed}");
        }
        assert!(!guest.out.join(format!("{name}.dat")).exists(), "{name}");
    };
    failed("unmounted", &["tracefs is not mounted", "mount -t tracefs"]);
    failed(
        "busy",
        &["in use: tracer function_graph", "--boot -o boot.dat"],
    );
    failed("empty", &["holds no event", "--boot"]);
    failed("user", &["no permission", "as root"]);
    failed(
        "nothing",
        &["matches no_such_function", "available_filter_functions"],
    );
    failed(
        "nobody",
        &["no event sched:no_such_event", "available_events"],
    );
    failed("missing", &["cannot run no-such-program"]);
    for name in ["empty", "nothing", "nobody", "missing"] {
        guest.check(name, "2", &[]);
    }
}

/// The files contain exactly what was requested, as read by `kymo` and trace-cmd.
fn recordings(guest: &Guest) {
    guest.check(
        "command",
        "3",
        &["calls of at least 200 us (function_graph) in the top buffer"],
    );
    let calls = guest.look(&["calls"], "command");
    let names: Vec<&str> = calls
        .iter()
        .filter_map(|call| call["thread_name"].as_str())
        .collect();
    // The command, and its children. Calls of other tasks may occur around a switch: the kernel's filter changes to the
    // next task while the previous one still runs.
    let of = |name: &str| names.iter().filter(|it| **it == name).count();
    assert!(of("ls") > 10 && of("sh") > 10, "{names:?}");
    let others = names.len() - of("ls") - of("sh");
    assert!(others * 50 <= names.len(), "{names:?}");
    // The kernel's own list of names lags behind, but each name is recorded when it is set.
    let events = guest.look(&["show", "--events"], "command");
    let renamed: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "task_rename")
        .filter_map(|event| event["fields"]["newcomm"].as_str())
        .collect();
    assert!(renamed.contains(&"ls"), "{renamed:?}");
    long_alone(guest, "command", 200_000);

    guest.check(
        "functions",
        "0",
        &[
            "functions (function_graph) in the top buffer",
            "functions.dat:",
        ],
    );
    let counts = guest.counts("functions");
    let of = |name: &str| {
        counts
            .iter()
            .find(|(function, _)| function == name)
            .map_or(0, |it| it.1)
    };
    // dd reads and writes 500 times, besides being loaded and printing its statistics.
    assert!((500..600).contains(&of("vfs_read")), "{counts:?}");
    assert!((500..600).contains(&of("vfs_write")), "{counts:?}");
    assert!((500..600).contains(&of("ksys_read")), "{counts:?}");
    for (name, _) in &counts {
        assert!(name.starts_with("vfs_") || name == "ksys_read", "{name}");
    }
    let theirs = guest.report("functions");
    for (name, count) in &counts {
        let calls = times(&theirs, &format!("{name}()"));
        assert_eq!(calls as u64, *count, "{name}");
    }

    guest.check("events", "0", &["recording events in instance kymo-"]);
    let shown = guest.look(&["show", "--events"], "events");
    let theirs = guest.report("events");
    for name in [
        "sched_switch",
        "sys_enter_openat",
        "sys_exit_openat",
        "sched_process_exec",
    ] {
        let ours = shown.iter().filter(|event| event["name"] == name).count();
        assert!(ours > 0, "{name}");
        assert_eq!(ours, times(&theirs, &format!(" {name}:")), "{name}");
    }
    let info = guest.look(&["info"], "events").remove(0);
    assert_eq!(info["lost"], 0, "{info}");

    guest.check("pid", "0", &[]);
    let opened = guest.look(&["show", "--events"], "pid");
    let opens = opened
        .iter()
        .filter(|event| event["name"] == "sys_enter_openat");
    // Each belongs to a `cat` that the loop has started after the recording began.
    assert!(opens.clone().count() > 2, "{opened:?}");
}

/// Checks that the recording has no call below the threshold.
fn long_alone(guest: &Guest, name: &str, threshold: u64) {
    let events = guest.look(&["show", "--events"], name);
    let exits = events.iter().filter(|it| it["name"] == "funcgraph_exit");
    assert!(exits.clone().count() > 10, "{name}");
    for exit in exits {
        let time = |field: &str| exit["fields"][field].as_u64().unwrap();
        assert!(time("rettime") - time("calltime") >= threshold, "{exit}");
    }
}

/// A buffer of two pages is too small for so many calls. Overwritten events are counted, and located in the trace.
fn losses(guest: &Guest) {
    guest.check(
        "lost",
        "0",
        &["lost because they came faster than they were read"],
    );
    let info = guest.look(&["info"], "lost").remove(0);
    let printed = guest.text("lost.err");
    let number = |before: &str| -> u64 {
        let (_, behind) = printed.split_once(before).unwrap();
        behind.split(' ').next().unwrap().parse().unwrap()
    };
    let (events, lost) = (number("lost.dat: "), number("warning: "));
    assert_eq!(info["events"], events, "{info}");
    // dd reads and writes 2000 times, each with an entry and an exit, besides being loaded and printing its statistics.
    assert!((8000..8200).contains(&(events + lost)), "{printed}");
    // Full pages have no room for a count: the trace has the position of the loss, and its statistics the number.
    assert!(lost > 0 && info["gaps"].as_u64().unwrap() > 0, "{info}");
}

/// However a recording ends, its file is complete.
fn ends(guest: &Guest) {
    guest.check(
        "stop",
        "0",
        &["recording stopped at do_unlinkat", "stop.dat:"],
    );
    let counts = guest.counts("stop");
    // The function was called within it, but its callees are no longer recorded.
    assert!(
        counts.iter().any(|(name, _)| name == "vfs_open"),
        "{counts:?}"
    );
    assert!(
        counts.iter().all(|(name, _)| name != "vfs_unlink"),
        "{counts:?}"
    );

    guest.check("int", "0", &["int.dat:"]);
    let shown = guest.look(&["show", "--events"], "int");
    assert!(shown.iter().any(|event| event["name"] == "sched_switch"));
    // The command gets SIGTERM, and its exit code is that of a signal.
    guest.check("int-command", "143", &["int-command.dat:"]);
    guest.check(
        "term",
        "0",
        &["functions (function) in instance", "term.dat:"],
    );
    let counts = guest.counts("term");
    assert!(
        counts.iter().any(|(name, _)| name == "vfs_read"),
        "{counts:?}"
    );
}

/// The next recording restores the settings that a killed one had changed.
fn kills(guest: &Guest) {
    let during = guest.text("during.settings");
    for line in ["tracing_thresh 200", "current_tracer function_graph"] {
        assert!(during.contains(line), "{during}");
    }
    assert!(during.contains("panic:traceoff"), "{during}");
    // Nothing was restored. The kernel itself removes an ended process from its filter.
    let without = |settings: &str| {
        let lines = settings.lines();
        let ended = ["set_ftrace_notrace_pid", "set_event_notrace_pid"];
        let lines = lines.filter(|line| !ended.iter().any(|name| line.starts_with(name)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without(&guest.text("left.settings")), without(&during));
    guest.check(
        "after",
        "0",
        &["an earlier recording was killed", "restored"],
    );
    // Its recording up to then can be read.
    let counts = guest.counts("killed");
    assert!(
        !counts.is_empty() && counts.iter().all(|(name, _)| name.starts_with("vfs_")),
        "{counts:?}"
    );
    let printed = guest.text("pid.err");
    assert!(
        printed.contains("killed-instance.dat.pages: kymo report"),
        "{printed}"
    );
    let left = guest.text("left-instance.settings");
    assert!(left.contains("instances kymo-"), "{left}");
    guest.check("pid", "0", &["an earlier recording was killed"]);
}

/// The boot's own buffer, and the initcalls in it.
fn boot(guest: &Guest) {
    let printed = guest.text("boot.err");
    assert_eq!(guest.text("boot.code").trim(), "0", "{printed}");
    assert!(
        printed.contains("function_graph still records"),
        "{printed}"
    );
    long_alone(guest, "boot", 1_000_000);
    let theirs = guest.report("boot");
    let initcalls = guest.look(&["report", "--initcalls"], "boot");
    let ended = initcalls.iter().filter(|it| !it["result"].is_null());
    assert_eq!(ended.count(), times(&theirs, "initcall_finish:"));
    assert!(initcalls.len() > 300, "{}", initcalls.len());
    let named = |name: &str| initcalls.iter().find(|it| it["initcall"] == name).unwrap();
    for (name, level) in [
        ("acpi_init", "subsys"),
        ("tracer_init_tracefs", "fs"),
        ("serial8250_init", "device"),
    ] {
        assert_eq!(named(name)["level"], level, "{initcalls:?}");
        assert_eq!(named(name)["result"], 0);
        // The clock of an early boot has a resolution of some milliseconds: a short initcall may have duration 0.
        assert!(named(name)["duration_ns"].is_u64(), "{initcalls:?}");
    }
}

#[test]
fn a_command_line_for_the_boot_is_printed_anywhere() {
    let kymo = kymo::build(Profile::Debug).unwrap();
    let print = |options: &[&str]| {
        let mut command = Command::new(&kymo);
        command.args(["record", "--ftrace", "--boot"]).args(options);
        run::output(&mut command).unwrap()
    };
    assert_eq!(
        print(&[
            "--tracer",
            "function_graph",
            "--threshold",
            "200us",
            "--function",
            "acpi_*"
        ]),
        "trace_clock=global ftrace=function_graph tracing_thresh=200 ftrace_filter=acpi_* trace_buf_size=3907k \
         trace_event=initcall:*\n"
    );
}
