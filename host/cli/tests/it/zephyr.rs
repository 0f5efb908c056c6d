//! Captures of a device with Zephyr's instrumentation, compared with the output of zaru (Zephyr's own tool) for the
//! same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kymo_fixtures::captures;
use serde_json::Value;

/// Captures: directory, file, directory of zaru's output, and number of thread switches.
const CAPTURES: [(&str, &str, &str, usize); 3] = [
    ("instr_default", "cap1/11_dump_trace.bin", "zaru_cap1", 1),
    ("instr_big", "cap_big/04_dump_trace.bin", "zaru_cap_big", 17),
    (
        "instr_trace_only",
        "cap_to/04_dump_trace.bin",
        "zaru_cap_to",
        17,
    ),
];

/// Runs `kymo` on a capture, and returns its stdout.
fn kymo(arguments: &[&str], folder: &Path, file: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .env("NO_COLOR", "1")
        .args(arguments)
        .arg("--symbols")
        .arg(folder.join("symbols.nm.txt"))
        .arg(folder.join(file))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Removes colours: escape sequences up to their `m`.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

/// Parses the lines of zaru's tree into nanoseconds and text, converted to Kymo's form.
fn of_zaru(text: &str) -> Vec<(u64, String)> {
    let lines = text.lines().filter_map(|line| {
        let (head, tree) = plain(line)
            .split_once(" ns | ")
            .map(|(a, b)| (a.to_owned(), b.to_owned()))?;
        let time = head.rsplit(' ').next()?.parse().ok()?;
        let indent: String = tree.chars().take_while(|c| *c == ' ').collect();
        let words: Vec<_> = tree.split_whitespace().collect();
        let text = match words.as_slice() {
            ["};", "/*", name, "*/"] => format!("}} /* {name} */"),
            ["};", "-->", "orphaned", name] => {
                format!("}} /* {}: entered before */", name.trim_matches('\''))
            }
            other => other.join(" "),
        };
        Some((time, indent + &text))
    });
    lines.collect()
}

/// Parses the lines of Kymo's tree.
fn of_kymo(text: &str) -> Vec<(u64, String)> {
    let lines = text.lines().skip(1).map(|line| {
        let (head, tree) = line.split_once("| ").unwrap();
        let time = head.split_whitespace().next().unwrap().replace('.', "");
        (time.parse().unwrap(), tree.to_owned())
    });
    lines.collect()
}

#[test]
fn trees_are_those_of_zaru() {
    let data = captures::zephyr_instrumentation();
    for (folder, file, zaru, switches) in CAPTURES {
        let folder = data.join(folder);
        let ours = of_kymo(&kymo(&["show"], &folder, file));
        let theirs = fs::read_to_string(folder.join(zaru).join("zaru_trace.txt")).unwrap();
        let theirs = of_zaru(&theirs);
        // Lines that differ in form, and are not compared: thread switches, clocks that step back, and open calls.
        let own = |line: &str| {
            line.starts_with("------")
                || line.starts_with("~~~~~~")
                || line.contains(": still open */")
        };
        let orphans = theirs
            .iter()
            .any(|(_, line)| line.contains("entered before"));
        let calls = |lines: &[(u64, String)]| -> Vec<(u64, String)> {
            let lines = lines
                .iter()
                .filter(|(_, line)| !own(line) && !line.contains("Scheduler"));
            lines
                .map(|(time, line)| match orphans {
                    // At the exit of a call that began before the trace, zaru shifts the earlier lines to the right, so
                    // indentation is not compared.
                    true => (*time, line.trim_start().to_owned()),
                    false => (*time, line.clone()),
                })
                .collect()
        };
        // zaru shows a call as one line if the clock steps back within it and it has no callees.
        let mut joined = ours.clone();
        let mut at = 0;
        while let [(_, open), (_, gap), (_, close), ..] = joined.get(at..).unwrap_or_default() {
            let name = open.trim_start().strip_suffix("() {");
            let leaf = name.is_some_and(|name| close.trim_start() == format!("}} /* {name} */"));
            if leaf && gap.starts_with("~~~~~~") {
                joined[at].1 = open.replace("() {", "();");
                joined.drain(at + 1..at + 3);
            }
            at += 1;
        }
        let found = calls(&joined);
        let wanted = calls(&theirs);
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "{}", folder.display());
        }
        assert_eq!(found.len(), wanted.len());
        let count = |lines: &[(u64, String)], what: &str| {
            lines.iter().filter(|(_, line)| line.contains(what)).count()
        };
        assert_eq!(count(&ours, "------ "), switches);
        assert_eq!(count(&theirs, "Scheduler switched IN"), switches);
    }
}

#[test]
fn exported_times_are_right_and_threads_are_small_numbers() {
    let data = captures::zephyr_instrumentation();
    for (folder, file, zaru, _) in CAPTURES {
        let folder = data.join(folder);
        let text = kymo(&["export", "--to", "trace-event", "-o", "-"], &folder, file);
        let exported: Value = serde_json::from_str(&text).unwrap();
        let theirs = fs::read_to_string(folder.join(zaru).join("zaru_tef.json")).unwrap();
        let theirs: Value = serde_json::from_str(&theirs).unwrap();
        let events = |file: &Value, phase: &str| -> Vec<Value> {
            let all = file["traceEvents"].as_array().unwrap().iter();
            all.filter(|event| event["ph"] == phase).cloned().collect()
        };
        let mut names = BTreeMap::new();
        for event in events(&exported, "M") {
            if event["name"] == "thread_name" {
                names.insert(
                    event["tid"].as_u64().unwrap(),
                    event["args"]["name"].clone(),
                );
            }
        }
        for event in events(&theirs, "M") {
            assert!(names.values().any(|name| *name == event["args"]["name"]));
        }
        assert!(names.keys().all(|tid| *tid < 1 << 16), "{names:?}");
        // Begins of calls by thread, at their recorded times: in microseconds in Kymo's export, and in nanoseconds in
        // zaru's. Where the clock was ahead, Kymo's export has the recorded time in a member.
        let mut shown = BTreeSet::new();
        let ours: BTreeSet<_> = events(&exported, "B")
            .iter()
            .filter_map(|event| {
                let name = names.get(&event["tid"].as_u64()?)?.as_str()?;
                let ns = (event["ts"].as_f64()? * 1_000.0).round() as u64;
                shown.insert(ns);
                let ns = event["recorded_ns"].as_u64().unwrap_or(ns);
                Some((ns, name.to_owned(), event["name"].as_str()?.to_owned()))
            })
            .collect();
        let threads: BTreeMap<_, _> = events(&theirs, "M")
            .iter()
            .map(|event| {
                (
                    event["tid"].as_u64().unwrap(),
                    event["args"]["name"].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        let mut different = BTreeSet::new();
        for event in events(&theirs, "B") {
            let function = event["name"].as_str().unwrap().to_owned();
            let thread = threads[&event["tid"].as_u64().unwrap()].clone();
            let ns = event["ts"].as_u64().unwrap();
            if function.starts_with("z_thread_mark_") {
                continue;
            }
            different.insert(ns);
            assert!(
                ours.contains(&(ns, thread.clone(), function.clone())),
                "{ns} {thread} {function}"
            );
        }
        // The repaired times are nearly as many different ones, so calls are not squeezed into one time.
        assert!(
            shown.len() * 100 > different.len() * 98,
            "{} of {}",
            shown.len(),
            different.len()
        );
    }
}

/// Runs `kymo` with a file on its standard input, through a pipe.
fn piped(arguments: &[&str], input: &Path, folder: &Path) -> Output {
    let mut cat = Command::new("cat")
        .arg(input)
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat runs");
    let pipe = cat.stdout.take().expect("it has a pipe");
    let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .env("NO_COLOR", "1")
        .args(arguments)
        .arg("--symbols")
        .arg(folder.join("symbols.nm.txt"))
        .stdin(pipe)
        .output()
        .expect("it runs");
    cat.wait().expect("it ends");
    output
}

#[test]
fn a_pipe_gives_what_the_file_gives() {
    let data = captures::zephyr_instrumentation();
    let folder = data.join("instr_default");
    for (file, rows) in [("10_dump_profile.bin", 160), ("11_dump_trace.bin", 1)] {
        let file = format!("cap1/{file}");
        let by_name = kymo(&["profile", "-n", "0"], &folder, &file);
        let output = piped(&["profile", "-", "-n", "0"], &folder.join(&file), &folder);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), by_name);
        assert!(by_name.lines().count() > rows, "{by_name}");
    }

    let place = tempfile::tempdir().unwrap();
    let dump = folder.join("cap1/11_dump_trace.bin");
    let (raw, directory) = (place.path().join("x.kymo"), place.path().join("x"));
    for to in [&raw, &directory] {
        let output = piped(&["trace", "-", "-o", to.to_str().unwrap()], &dump, &folder);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(fs::read(&raw).unwrap(), fs::read(&dump).unwrap());
    let calls = |input: &Path| {
        let shown = kymo(&["show"], &folder, input.to_str().unwrap());
        shown.lines().filter(|line| line.contains("()")).count()
    };
    assert_eq!(calls(&directory), calls(&dump));
    assert!(calls(&dump) > 100);
}

#[test]
fn a_capture_is_never_written_over_itself() {
    let data = captures::zephyr_instrumentation();
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("capture.kymo");
    let bytes = fs::read(data.join("instr_default/cap1/11_dump_trace.bin")).unwrap();
    fs::write(&capture, &bytes).unwrap();
    let linked = place.path().join("linked.kymo");
    fs::hard_link(&capture, &linked).unwrap();
    // The input itself, a hard link to it, and a path through `.`.
    let detour = place.path().join(".").join("capture.kymo");
    for to in [&capture, &linked, &detour] {
        for arguments in [&["trace"][..], &["export", "--to", "folded"]] {
            let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
                .args(arguments)
                .args([&capture, Path::new("-o"), to])
                .output()
                .expect("it runs");
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(printed.contains("is the input itself"), "{printed}");
            assert_eq!(fs::read(&capture).unwrap(), bytes, "{arguments:?} {to:?}");
        }
    }
    // A copy is writable even if the input is read-only.
    let mut kept = fs::metadata(&capture).unwrap().permissions();
    kept.set_readonly(true);
    fs::set_permissions(&capture, kept).unwrap();
    let copy = place.path().join("copy.kymo");
    for _ in 0..2 {
        let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
            .args([Path::new("trace"), &capture, Path::new("-o"), &copy])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    assert!(!fs::metadata(&copy).unwrap().permissions().readonly());
}

/// The clock of this target runs ahead by up to 650 ms in one thread and steps back in the next.
#[test]
fn self_times_add_up_to_the_time_that_passed() {
    let data = captures::zephyr_instrumentation();
    let folder = data.join("instr_big");
    let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .args(["report", "--format", "json", "--symbols"])
        .arg(folder.join("symbols.nm.txt"))
        .arg(folder.join("cap_big/04_dump_trace.bin"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let whole: u64 = rows.iter().filter_map(|row| row["self_ns"].as_u64()).sum();
    // No call lasts longer than the capture, including those that had ended when the clock stepped back.
    for row in &rows {
        for member in ["max_ns", "avg_ns"] {
            assert!(row[member].as_u64() < Some(260_000_000), "{row}");
        }
        // Total times of one function in two threads do not overlap, because the waiting thread is preempted.
        assert!(row["total_ns"].as_u64() < Some(260_000_000), "{row}");
    }
    // The time from the first event to the last one, whose time is repaired.
    assert!((200_000_000..260_000_000).contains(&whole), "{whole}");
    let main = rows.iter().find(|row| row["function"] == "main").unwrap();
    assert!(main["total_ns"].as_u64() > Some(50_000_000), "{main}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("may be wrong: during"), "{printed}");
    assert!(printed.contains("the clock was uncertain"), "{printed}");
    assert!(printed.contains("that did not pass"), "{printed}");
    assert!(!printed.contains("lost, and in no row"), "{printed}");
}

/// The clock went ahead by 660 ms in calls that had returned when it stepped back.
#[test]
fn shown_durations_are_those_that_passed_and_times_those_recorded() {
    let data = captures::zephyr_instrumentation();
    let text = kymo(
        &["show"],
        &data.join("instr_big"),
        "cap_big/04_dump_trace.bin",
    );
    let ends: Vec<_> = text
        .lines()
        .filter(|line| line.contains("0.830835880") && line.contains(" idle "))
        .filter(|line| line.contains("} /* sys_clock_"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .collect();
    assert_eq!(ends.len(), 3, "{ends:?}");
    for end in ends {
        let milliseconds: f64 = end[1].parse().unwrap();
        // The durations are computed from repaired times, and marked.
        assert!(end[2] == "ms?" && milliseconds < 30.0, "{end:?}");
    }
    // Nothing lasts longer than the capture.
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().take(3).collect();
        if let [_, number, "ms" | "ms?"] = words.as_slice() {
            assert!(number.parse::<f64>().unwrap() < 260.0, "{line}");
        }
    }
}

#[test]
fn an_empty_dump_says_why() {
    let data = captures::zephyr_instrumentation();
    let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .arg("profile")
        .arg(data.join("instr_default/cap1/12_dump_trace_again.bin"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("was dumped before"), "{printed}");
}

#[test]
fn an_empty_trace_says_why() {
    let data = captures::zephyr_instrumentation();
    let output = Command::new(env!("CARGO_BIN_EXE_kymo"))
        .arg("trace")
        .arg(data.join("instr_default/cap1/12_dump_trace_again.bin"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("the dump is empty"), "{printed}");
}
