//! `kymo calls` for texts of function graphs: each call has the duration that the kernel wrote.

use std::collections::HashMap;
use std::process::Command;

use kymo_fixtures::captures;
use serde_json::Value;

/// Number of calls, keyed by function and duration in nanoseconds.
type Durations = HashMap<(String, u64), u32>;

/// Parses a duration such as ` + 19.960 us ` into nanoseconds.
fn nanoseconds(column: &str) -> Option<u64> {
    let number = column.trim().strip_suffix(" us")?;
    let number = number.trim_start_matches(|character: char| !character.is_ascii_digit());
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    Some(whole.parse::<u64>().ok()? * 1000 + format!("{part:0<3}").parse::<u64>().ok()?)
}

/// Parses the pid of a task such as `rcu_pre-15`.
fn pid(task: &str) -> Option<u32> {
    task.trim().rsplit_once('-')?.1.parse().ok()
}

/// Parses the durations in a text without Kymo's reader. Exits without a name get that of their entry.
fn stated(text: &str) -> Durations {
    let mut durations = Durations::new();
    let mut stacks: HashMap<(Option<u32>, &str), Vec<&str>> = HashMap::new();
    let mut running: HashMap<&str, u32> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (head, mut rest) = match line.split_once(')') {
            Some(parts) => parts,
            None => continue,
        };
        let cpu = head.rsplit('|').next().unwrap().trim();
        if cpu.parse::<u32>().is_err() {
            continue;
        }
        if let Some((_, next)) = rest.split_once("=>").filter(|_| !line.contains('|')) {
            running.insert(cpu, pid(next).unwrap());
            continue;
        }
        let first = rest.split('|').next().unwrap();
        let mut task = running.get(cpu).copied();
        if let Some(named) = pid(first) {
            task = Some(named);
            rest = rest.split_once('|').unwrap().1;
        }
        let Some((duration, function)) = rest.split_once('|') else {
            continue;
        };
        let (duration, function) = (nanoseconds(duration), function.trim());
        let task = task.filter(|task| *task > 0);
        let stack = stacks
            .entry((task, if task.is_some() { "" } else { cpu }))
            .or_default();
        let name = function.split('(').next().unwrap();
        let ended = match function {
            comment if comment.starts_with("/*") => None,
            entry if entry.ends_with('{') => {
                stack.push(name);
                None
            }
            exit if exit.starts_with('}') => {
                let open = stack.pop();
                exit.split(' ').nth(2).or(open)
            }
            _ => Some(name),
        };
        if let Some((name, duration)) = ended.zip(duration) {
            *durations.entry((name.to_owned(), duration)).or_default() += 1;
        }
    }
    durations
}

#[test]
fn calls_last_as_long_as_texts_state() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for (name, calls) in [
        ("amd64/text/fg-abstime-proc-tail.txt", 28_664),
        ("amd64/text/fg-default.txt", 28_432),
        // These durations do not include the time in which tasks slept.
        ("amd64/text/fg-sched-nosleeptime.txt", 21_504),
        ("amd64/text/fg-sched-sleeptime.txt", 21_570),
        ("amd64/text/fg-thresh10.txt", 29_444),
        ("amd64/text/fg-thresh100.txt", 27_936),
        ("amd64/text/fg-thresh1000.txt", 19_064),
        ("arm64/fg-default.txt", 14_457),
        ("arm64/fg-thresh100.txt", 18_877),
    ] {
        let bytes = captures::unpacked(&folder.join(name)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let input = scratch.path().join("trace.txt");
        std::fs::write(&input, &text).unwrap();
        let expected = stated(&text);
        assert_eq!(expected.values().sum::<u32>(), calls, "{name}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let command = command.args(["calls", "-n", "1000000", "--format", "json"]);
        let output = command.arg(&input).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let member = match name.contains("nosleeptime") {
            false => &["wall_ns"][..],
            true => &["wall_ns", "duration_ns"],
        };
        let mut ours = Durations::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let call: Value = serde_json::from_str(line).unwrap();
            let function = call["function"].as_str().unwrap_or("");
            let mut durations: Vec<_> = member.iter().filter_map(|it| call[*it].as_u64()).collect();
            durations.dedup();
            for duration in durations {
                *ours.entry((function.to_owned(), duration)).or_default() += 1;
            }
        }
        let missing: Vec<_> = expected
            .iter()
            .filter(|(call, count)| ours.get(*call) < Some(count))
            .collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}
