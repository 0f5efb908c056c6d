//! Run times of threads and interrupts in windows, exports and several files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_fixtures::captures;
use serde_json::Value;

/// Runs a command, and parses the lines of its JSON.
fn rows(arguments: &[&str], input: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args(arguments)
        .args(["--format", "json"])
        .arg(input);
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    rows.collect()
}

/// Returns the run times of `kymo report --by`, keyed by name.
fn runs(by: &str, more: &[&str], input: &Path) -> BTreeMap<String, u64> {
    let mut arguments = vec!["report", "--by", by];
    arguments.extend(more);
    let rows = rows(&arguments, input);
    let named = rows.iter().filter_map(|row| {
        let name = &row[by];
        Some((format!("{name} {}", row["id"]), row["run_ns"].as_u64()?))
    });
    named.filter(|(_, run)| *run > 0).collect()
}

fn export(to: &str, input: &Path, folder: &Path) -> PathBuf {
    export_with(to, &[], input, folder)
}

fn export_with(to: &str, more: &[&str], input: &Path, folder: &Path) -> PathBuf {
    let output = folder.join(to);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args(["export", "--to", to, "-o"])
        .arg(&output)
        .args(more);
    let done = command.arg(input).output().expect("it runs");
    assert!(output.exists(), "{done:?}");
    output
}

/// Returns begin and end of a trace, in nanoseconds.
fn span(input: &Path) -> (i64, i64) {
    let info = &rows(&["info"], input)[0];
    let at = |name: &str| info[name].as_i64().expect(name);
    (at("start_ns"), at("end_ns"))
}

#[test]
fn windows_add_up_to_the_whole() {
    let Some(systemview) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let Some(rtems) = captures::rtems_record() else {
        return captures::skipped("no captures of RTEMS");
    };
    for (input, by) in [
        (systemview.join("pro-cpu2.svdat"), "thread"),
        (systemview.join("pro-cpu2.svdat"), "irq"),
        (rtems.join("kernel-smp4-stream/stream.bin"), "irq"),
        (rtems.join("kernel-smp4-stream/stream.bin"), "thread"),
    ] {
        let whole = runs(by, &[], &input);
        assert!(whole.len() > 1, "{input:?}: {whole:?}");
        let (begin, end) = span(&input);
        let cuts = 7;
        let mut sum = BTreeMap::new();
        for part in 0..cuts {
            let at = |part: i64| format!("{}ns", begin + (end - begin) * part / cuts);
            let window = ["--begin", &at(part), "--end", &at(part + 1)];
            for (name, run) in runs(by, &window, &input) {
                *sum.entry(name).or_insert(0) += run;
            }
        }
        // Not compared: IDLE/0 runs at the begin of the trace. Only the first switch shows this, and it may be behind
        // the first window.
        let mut whole = whole;
        for times in [&mut sum, &mut whole] {
            times.retain(|name, _| !name.contains("IDLE/0"));
        }
        assert_eq!(sum, whole, "{input:?} by {by}");
    }
}

#[test]
fn a_window_between_two_events_has_what_runs_through_it() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let file = folder.join("pro-cpu2.svdat");
    let (_, end) = span(&file);
    let window = [
        "--begin",
        &format!("{}ns", end - 100_000_000),
        "--end",
        &format!("{}ns", end - 50_000_000),
    ];
    let rows = rows(&[&["report", "--by", "cpu"], &window[..]].concat(), &file);
    let sum = |name: &str| {
        rows.iter()
            .filter_map(|row| row[name].as_u64())
            .sum::<u64>()
    };
    assert_eq!(
        sum("run_ns") + sum("idle_ns") + sum("idle"),
        50_000_000,
        "{rows:?}"
    );
}

#[test]
fn a_task_that_blocks_gives_its_processor_up() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    // The time from the task's last stop, in a handler that exits to the scheduler, to the next packet (122.257 ms)
    // must not count.
    let runs = runs("thread", &[], &folder.join("pro-cpu2.svdat"));
    let (_, run) = runs
        .iter()
        .find(|(name, _)| name.contains("blink_task2"))
        .expect("its row");
    assert!((14_000_000..15_000_000).contains(run), "{runs:?}");
}

#[test]
fn what_one_core_lost_is_not_known_of_either() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let (app, pro) = (folder.join("app-cpu1.SVDat"), folder.join("pro-cpu1.SVDat"));
    let alone = [runs("thread", &[], &app), runs("thread", &[], &pro)];
    let with = ["--with", pro.to_str().expect("a name")];
    for (name, together) in runs("thread", &with, &app) {
        let apart: u64 = alone.iter().filter_map(|of| of.get(&name)).sum();
        assert!(
            together <= apart + apart / 50,
            "{name}: {together} of {apart}"
        );
    }
}

#[test]
fn what_is_not_known_of_a_core_is_not_behind_an_export() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let (app, pro) = (folder.join("app-cpu1.SVDat"), folder.join("pro-cpu1.SVDat"));
    let with = ["--with", pro.to_str().expect("a name")];
    let outputs = tempfile::tempdir().expect("a folder");
    let source = runs("cpu", &with, &app);
    for to in ["ctf", "lttng"] {
        let exported = export_with(to, &with, &app, outputs.path());
        for (name, run) in runs("cpu", &[], &exported) {
            let known = source[&name];
            assert!(
                run.abs_diff(known) <= known / 100,
                "{to}, {name}: {run} of {known}"
            );
        }
    }
}

/// An exported part is idle up to its end, although its last event is long before.
#[test]
fn a_part_that_was_exported_goes_on_to_its_end() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let input = folder.join("pro-cpu2.svdat");
    let window = ["--begin", "239377678ns", "--end", "287838991ns"];
    let outputs = tempfile::tempdir().expect("a folder");
    let exported = export_with("ctf", &window, &input, outputs.path());
    let load = |arguments: &[&str], input: &Path| {
        let rows = rows(&[&["report", "--by", "cpu"], arguments].concat(), input);
        (rows[0]["run_ns"].as_u64(), rows[0]["idle_ns"].as_u64())
    };
    let (run, idle) = load(&window, &input);
    assert!(idle > run, "{idle:?}");
    assert_eq!(load(&[], &exported), (run, idle));
}

/// The processors of two machines have the same numbers but separate rows, and the time between the traces does not
/// count.
#[test]
fn processors_of_two_traces_in_one_directory_are_two() {
    let Some(folder) = captures::systemview() else {
        return captures::skipped("no captures of SystemView");
    };
    let both = tempfile::tempdir().expect("a folder");
    let mut apart = Vec::new();
    for name in ["pro-cpu2.svdat", "app-cpu2.svdat"] {
        let input = folder.join(name);
        let place = both.path().join(name.replace('.', "-"));
        std::fs::create_dir(&place).expect("a folder");
        export("ctf", &input, &place);
        apart.extend(runs("cpu", &[], &input).into_values());
    }
    apart.sort_unstable();
    let together = runs("cpu", &[], both.path());
    let mut runs: Vec<_> = together.values().copied().collect();
    runs.sort_unstable();
    assert_eq!(runs, apart, "{together:?}");
}

#[test]
fn a_clock_that_steps_back_makes_nothing_run_longer() {
    let dumps = captures::zephyr_instrumentation();
    let dump = dumps.join("instr_default/cap1/11_dump_trace.bin");
    let runs = runs("thread", &[], &dump);
    let all: u64 = runs.values().sum();
    // The traces have 4.09 ms in all; the 659 ms between them do not count.
    assert!((4_000_000..4_200_000).contains(&all), "{runs:?}");
}

/// Switches from a thread to the idle task and back, without other events.
const IDLE: &str = "\
# tracer: nop
#
              sh-326     [000] d..2.   100.000000: sched_switch: prev_comm=sh prev_pid=326 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.   100.010000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=326 next_prio=120
              sh-326     [000] d..2.   100.015000: sched_switch: prev_comm=sh prev_pid=326 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] d..2.   100.020000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=sh next_pid=326 next_prio=120
              sh-326     [000] d..2.   100.030000: sched_switch: prev_comm=sh prev_pid=326 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";

#[test]
fn idle_time_is_the_same_behind_an_export() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("idle.txt");
    std::fs::write(&input, IDLE).expect("a file");
    let source = runs("thread", &[], &input);
    assert_eq!(source.values().sum::<u64>(), 15_000_000, "{source:?}");
    for to in ["lttng", "ctf"] {
        let exported = export(to, &input, folder.path());
        assert_eq!(runs("thread", &[], &exported), source, "{to}");
    }
}

#[test]
fn wakeups_are_in_exports() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("woken.txt");
    let waking = "          <idle>-0       [000] dNh2.   100.009000: sched_wakeup: comm=sh pid=326 prio=120 target_cpu=000\n";
    let lines: Vec<&str> = IDLE.split_inclusive('\n').collect();
    let text = [&lines[..3].concat(), waking, &lines[3..].concat()].concat();
    std::fs::write(&input, text).expect("a file");
    let ready = |input: &Path| -> Vec<(String, Option<u64>, Option<u64>)> {
        let columns = [
            "report",
            "--by",
            "thread",
            "--columns",
            "name,readies,ready-avg",
        ];
        let rows = rows(&columns, input);
        let row = |row: &Value| {
            let number = |name: &str| row[name].as_u64();
            (
                row["thread"].to_string(),
                number("readies"),
                number("ready_avg_ns"),
            )
        };
        rows.iter().map(row).collect()
    };
    let source = ready(&input);
    assert_eq!(source.len(), 1, "{source:?}");
    assert_eq!(
        (source[0].1, source[0].2),
        (Some(1), Some(1_000_000)),
        "{source:?}"
    );
    for to in ["lttng", "ctf"] {
        let exported = export(to, &input, folder.path());
        assert_eq!(ready(&exported), source, "{to}");
    }
}

#[test]
fn names_of_threads_are_in_a_ctf_export() {
    let dumps = captures::zephyr_instrumentation();
    let dump = dumps.join("instr_big/cap_big/04_dump_trace.bin");
    let folder = tempfile::tempdir().expect("a folder");
    let exported = export("ctf", &dump, folder.path());
    let threads = |input: &Path| rows(&["info"], input)[0]["threads"].clone();
    assert_eq!(threads(&exported), threads(&dump));
    assert_eq!(runs("thread", &[], &exported), runs("thread", &[], &dump));
}

#[test]
fn a_choice_of_events_says_that_there_are_no_run_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("idle.txt");
    std::fs::write(&input, IDLE).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command
        .args(["report", "--by", "thread", "--event", "*"])
        .arg(&input);
    let output = command.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("run times are of all that happened"),
        "{errors}"
    );
}

/// Unpacks a capture with functions and switches.
fn functions_and_switches(folder: &Path) -> Option<PathBuf> {
    let captured = captures::ftrace()?.join("amd64/dat/fg-sched-v6.dat");
    let path = folder.join("trace.dat");
    std::fs::write(&path, captures::unpacked(&captured)?).expect("a file");
    Some(path)
}

/// If a function has only one caller, its time as that caller's child equals its own total.
#[test]
fn children_have_the_time_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(input) = functions_and_switches(folder.path()) else {
        return captures::skipped("no capture of ftrace");
    };
    for wall in [&[][..], &["--wall"]] {
        let columns = ["report", "--columns", "name,total,callers,child,child-time"];
        let rows = rows(&[&columns[..], wall].concat(), &input);
        let number = |row: &Value, name: &str| row[name].as_u64().expect(name);
        let of_name: BTreeMap<_, _> = rows
            .iter()
            .map(|row| (row["function"].as_str(), row))
            .collect();
        let (mut compared, mut equal) = (0, 0);
        for row in &rows {
            let Some(child) = of_name.get(&row["child"].as_str()) else {
                continue;
            };
            // Bounds may differ between the two, so only exact times are compared.
            let inexact = ["open", "lost", "orphans", "stated", "unwound", "doubtful"];
            let is_exact = inexact
                .iter()
                .all(|name| child[name].as_u64().unwrap_or(0) == 0);
            if number(child, "callers") == 1 && is_exact {
                let (of_child, all) = (number(row, "child_time_ns"), number(child, "total_ns"));
                assert!(of_child <= all, "{wall:?}: {row}");
                // Less if some of its calls have no caller in the trace.
                equal += usize::from(of_child == all);
                compared += 1;
            }
        }
        assert!(
            equal * 100 >= compared * 98,
            "{wall:?}: {equal} of {compared}"
        );
        assert!(compared > 50, "{wall:?}: {compared}");
    }
}

/// The minimum share of a graph is relative to the requested function, not to the whole trace.
#[test]
fn a_graph_of_a_small_function_has_its_callers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(input) = functions_and_switches(folder.path()) else {
        return captures::skipped("no capture of ftrace");
    };
    let lines = rows(&["graph", "--callers-of", "__fdget"], &input);
    let levels = lines.iter().map(|line| line["depth"].as_u64());
    assert!(levels.flatten().max() > Some(1), "{lines:?}");
}

/// Each switch of the kernel has priorities; 120 is the default of tasks.
#[test]
fn threads_have_the_priorities_that_switches_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(input) = functions_and_switches(folder.path()) else {
        return captures::skipped("no capture of ftrace");
    };
    let rows = rows(&["report", "--by", "thread"], &input);
    // The row without an id is that of events outside of threads.
    let threads = rows.iter().filter(|row| !row["id"].is_null());
    let priorities: Vec<_> = threads.map(|row| row["priority"].as_i64()).collect();
    assert!(priorities.contains(&Some(120)), "{priorities:?}");
    assert!(priorities.iter().all(Option::is_some), "{priorities:?}");
}

#[test]
fn a_thread_that_waits_when_a_window_begins_does_not_run_behind_an_export() {
    let Some(zephyr) = captures::zephyr_with_metadata() else {
        return captures::skipped("no captures of Zephyr");
    };
    let (trace, window) = (
        zephyr.join("ctf_uart_mps2/trace"),
        ["--begin", "+2s", "--end", "+6s"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let exported = export_with("lttng", &window, &trace, folder.path());
    let mut of_window = vec!["report", "--by", "thread"];
    of_window.extend(window);
    let source = rows(&of_window, &trace);
    let mut compared = 0;
    for row in rows(&["report", "--by", "thread"], &exported) {
        let thread = &row["thread"];
        let run = |row: &Value| row["run_ns"].as_u64().expect("a time");
        let Some(known) = source.iter().find(|known| known["thread"] == *thread) else {
            continue;
        };
        // In Zephyr's trace, the scheduler runs between the two records of a switch. An LTTng trace can't represent
        // this.
        let scheduler = 10_000 * row["runs"].as_u64().expect("a count");
        assert!(run(&row) <= run(known) + scheduler, "{known} is {row}");
        compared += 1;
    }
    assert!(compared >= 3);
}

#[test]
fn an_interrupt_that_runs_since_before_a_window_has_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.txt");
    let switch = |at: &str, (from, to): (u32, u32)| {
        format!(
            " app-{from} [000] ..... {at}: sched_switch: prev_comm=app prev_pid={from} prev_prio=120 prev_state=R ==> \
             next_comm=app next_pid={to} next_prio=120\n"
        )
    };
    let irq = |at: &str, event: &str| format!(" app-2 [000] d.h.. {at}: irq_handler_{event}\n");
    let text = [
        "# tracer: nop\n#\n".to_owned(),
        switch("10.000000", (1, 2)),
        irq("10.000100", "entry: irq=40 name=usb"),
        " app-2 [000] d.h.. 10.000300: tracing_mark_write: now\n".to_owned(),
        irq("10.000500", "exit: irq=40 ret=handled"),
        switch("10.000600", (2, 1)),
    ];
    std::fs::write(&file, text.concat()).unwrap();
    let interrupts = |more: &[&str]| {
        let by = runs("thread", more, &file);
        let found = by.iter().find(|(name, _)| name.contains("(interrupts)"));
        found.map(|(_, run)| *run)
    };
    assert_eq!(interrupts(&[]), Some(400_000));
    let window = ["--begin", "10.0002", "--end", "10.0004"];
    assert_eq!(interrupts(&window), Some(200_000));
}
