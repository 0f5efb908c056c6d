//! `kymo show --format trace-cmd`, compared with trace-cmd's own output for the same trace.

use std::path::Path;
use std::process::{Command, Output};

use kymo_fixtures::captures;

fn show(options: &[&str], input: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["show", "--format", "trace-cmd"]);
    command.args(options).arg(input).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_trace_is_shown_as_trace_cmd_reports_it() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let dat = folder.join("amd64/dat/function-v7.dat");
    for (options, golden) in [(&[][..], "report"), (&["--events"], "report-R-t")] {
        let golden = folder.join(format!("golden/amd64-function-v7.{golden}.txt"));
        let Some(golden) = captures::unpacked(&golden) else {
            return;
        };
        let golden = String::from_utf8_lossy(&golden).into_owned();
        let output = show(options, &dat);
        assert!(output.status.success());
        let ours = lines(&output);
        assert_eq!(ours.len(), golden.lines().count());
        for (ours, theirs) in ours.iter().zip(golden.lines()) {
            if options.is_empty() {
                // This version of trace-cmd has different letters for the states of tasks.
                if !ours.contains(": sched_switch: ") {
                    assert_eq!(ours, theirs);
                }
                continue;
            }
            // trace-cmd reads stacks beyond the end of their record.
            if ours.contains(": kernel_stack: ") {
                continue;
            }
            // This golden text has times in nanoseconds, so only the text behind them is compared.
            let body = |line: &str| line.split_once(": ").map(|(_, body)| body.to_owned());
            assert_eq!(body(ours), body(theirs));
        }
    }
}

#[test]
fn records_are_chosen_as_events_are() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let dat = folder.join("amd64/dat/events-mono.dat");
    let all = lines(&show(&[], &dat));
    for (options, part) in [
        (&["--event", "sched_switch"][..], ": sched_switch:"),
        (&["--cpu", "1"], " [001] "),
    ] {
        let chosen = lines(&show(options, &dat));
        let expected: Vec<_> = all.iter().filter(|line| line.contains(part)).collect();
        assert!(expected.len() > 10);
        assert_eq!(
            chosen.iter().skip(1).collect::<Vec<_>>(),
            expected,
            "{part}"
        );
    }
    for thread in ["15", "rcu_preempt"] {
        let chosen = lines(&show(&["--thread", thread], &dat));
        let is_of = |line: &&String| {
            line.contains("rcu_preempt-15 ") || line.contains("==> rcu_preempt:15 ")
        };
        let expected: Vec<_> = all.iter().filter(is_of).collect();
        let switches = expected.iter().filter(|line| line.contains("==> rcu"));
        assert!(switches.count() > 5);
        assert_eq!(chosen.iter().skip(1).collect::<Vec<_>>(), expected);
    }
    let pid = lines(&show(&["--where", "next_pid == 0"], &dat));
    assert!(
        pid.len() > 3 && pid.iter().skip(1).all(|line| line.contains("==> swapper/")),
        "{pid:?}"
    );
}

#[test]
fn what_is_no_such_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "# tracer: function\n").unwrap();
    let output = show(&[], &path);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("expected a trace.dat"), "{errors}");
}

#[test]
fn another_recording_is_refused_and_not_left_out() {
    let folder = tempfile::tempdir().unwrap();
    for layout in ["trace-cmd", "babeltrace"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(["show", "--format", layout, "--with"]);
        command.args([folder.path().join("b.dat"), folder.path().join("a.dat")]);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let expected = format!("--format {layout} shows one recording, not others --with it");
        assert!(printed.contains(&expected), "{printed}");
    }
}
