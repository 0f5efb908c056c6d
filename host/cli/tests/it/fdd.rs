//! `kymo report --fdd`, compared with the output of fdd for the same calls.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use kymo_fixtures::captures;

/// Reads the output of fdd, without its comments.
fn golden(name: &str) -> Option<Vec<String>> {
    let folder = captures::ftrace()?.join("amd64/duration");
    let packed = folder.join(format!("{name}.xz"));
    let bytes = match packed.exists() {
        true => captures::unpacked(&folder.join(name))?,
        false => std::fs::read(folder.join(name)).unwrap(),
    };
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().skip(1);
    // Lines that the option -z adds.
    let added = [
        "# Trace stats",
        "total functions",
        "missing callers",
        "not-a-caller",
    ];
    let lines = lines.filter(|line| !added.iter().any(|added| line.contains(added)));
    Some(lines.map(|line| line.trim_end().to_owned()).collect())
}

/// Unpacks the input of fdd into a file.
fn input(name: &str, folder: &tempfile::TempDir) -> Option<PathBuf> {
    let packed = captures::ftrace()?.join("amd64/duration").join(name);
    let path = folder.path().join(name);
    std::fs::write(&path, captures::unpacked(&packed)?).unwrap();
    Some(path)
}

fn ours(input: &PathBuf, options: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["report", "--fdd"]).args(options).arg(input);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Asserts that two listings have the same rows and the same order of sort keys. Rows with equal keys may differ in
/// order: fdd keeps that of its input.
fn agree(golden: &[String], ours: &[String], what: &str) {
    assert_eq!(golden.len(), ours.len(), "{what}");
    assert_eq!(golden[..2], ours[..2], "{what}");
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    let (theirs, mine) = (sorted(golden), sorted(ours));
    let differ = theirs
        .iter()
        .zip(&mine)
        .filter(|(theirs, mine)| theirs != mine);
    let differ: Vec<_> = differ.take(5).collect();
    assert!(differ.is_empty(), "{what}: {differ:#?}");
}

#[test]
fn the_table_is_that_of_fdd() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(all), Some(some)) = (
        input("dur-all.txt", &folder),
        input("dur-thr10.txt", &folder),
    ) else {
        return;
    };
    for (name, input, options) in [
        ("fdd-all.txt", &all, &[][..]),
        ("fdd-all-n-15.txt", &all, &["-n", "15"]),
        (
            "fdd-all-e-cpu1--n-30.txt",
            &all,
            &["-e", "cpu==1", "-n", "30"],
        ),
        ("fdd-all-s-c--n-40.txt", &all, &["-s", "c", "-n", "40"]),
        (
            "fdd-all-s-l--f-fclmn--n-60.txt",
            &all,
            &["-s", "l", "-f", "fclmn", "-n", "60"],
        ),
        ("fdd-all-t-50000000.txt", &all, &["-t", "50000000"]),
        ("fdd-all-l.txt", &all, &["-l"]),
        ("fdd-thr10.txt", &some, &[]),
        ("fdd-thr10-l.txt", &some, &["-l"]),
    ] {
        assert_eq!(golden(name).unwrap(), ours(input, options), "{name}");
    }
    let (theirs, mine) = (golden("fdd-thr10-d.txt").unwrap(), ours(&some, &["-d"]));
    assert_eq!(theirs.len(), mine.len());
    let differ = theirs
        .iter()
        .zip(&mine)
        .filter(|(theirs, mine)| theirs != mine);
    assert_eq!(differ.take(5).collect::<Vec<_>>(), []);
}

/// The CPU of a line is the one on which the call returned. Calls of other tasks there must not shorten it.
#[test]
fn whole_calls_last_as_long_as_their_lines_say() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(input), Some(golden)) = (input("dur-all.txt", &folder), golden("fdd-all.txt")) else {
        return;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let output = command.args(["report", "--format", "json"]).arg(&input);
    let output = output.output().unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap());
    let us = |row: &serde_json::Value| row["total_ns"].as_u64().unwrap() / 1000;
    let totals: HashMap<_, _> = rows
        .map(|row: serde_json::Value| (row["function"].as_str().unwrap().to_owned(), us(&row)))
        .collect();
    let mut compared = 0;
    for line in golden.iter().skip(2) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [function, count, total, ..] = words[..] else {
            continue;
        };
        // fdd counts the time of recursive calls twice, and rounds the time of each call down.
        let (count, total): (u64, u64) = (count.parse().unwrap(), total.parse().unwrap());
        compared += usize::from((total..=total + count).contains(&totals[function]));
        assert!(totals[function] <= total + count, "{line}");
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn the_table_of_a_trace_dat_is_that_of_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let Some(data) = captures::ftrace() else {
        return;
    };
    let Some(bytes) = captures::unpacked(&data.join("amd64/dat/fg-sched-v6.dat")) else {
        return;
    };
    let input = folder.path().join("trace.dat");
    std::fs::write(&input, bytes).unwrap();
    for (name, options) in [
        ("fdd-all.txt", &[][..]),
        ("fdd-all-e-cpu1--n-30.txt", &["-e", "cpu==1", "-n", "30"]),
        ("fdd-all-t-50000000.txt", &["-t", "50000000"]),
    ] {
        agree(&golden(name).unwrap(), &ours(&input, options), name);
    }
}

/// In text, a call without callees is one line.
#[test]
fn calls_of_one_line_count() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("trace.txt");
    let text = "# tracer: function_graph\n\
        #\n\
        #     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS\n\
        #      |          |     |    |           |   |                     |   |   |   |\n   \
        60.000100 |   1)     ls-113     |               |  outer() {\n   \
        60.000101 |   1)     ls-113     |   1.642 us    |    leaf();\n   \
        60.000103 |   1)     ls-113     |   2.000 us    |    leaf();\n   \
        60.000110 |   1)     ls-113     | + 10.000 us   |  }\n   \
        60.000120 |   1)     ls-113     |   3.000 us    |  top();\n";
    std::fs::write(&input, text).unwrap();
    let rows = ours(&input, &["-f", "fctl"]);
    let rows: Vec<Vec<_>> = rows
        .iter()
        .map(|row| row.split_whitespace().collect())
        .collect();
    for row in [
        ["outer", "1", "10", "6"],
        ["leaf", "2", "3", "3"],
        ["top", "1", "3", "3"],
    ] {
        assert!(rows.iter().any(|it| it[..] == row), "{row:?}: {rows:?}");
    }
}

#[test]
fn letters_and_names_of_columns_do_not_mix() {
    let refused = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = command.arg("report").args(options).arg("/nowhere").output();
        assert_eq!(output.unwrap().status.code(), Some(2), "{options:?}");
    };
    refused(&["-s", "l"]);
    refused(&["--fdd", "--columns", "name"]);
    refused(&["-t", "5"]);
    refused(&["--fdd", "-e", "comm==find"]);
    refused(&["--fdd", "-f", "fx"]);
}

#[test]
fn options_of_fdd_go_with_it_alone() {
    for (option, long) in [
        (&["-t", "5"][..], "--fdd-total"),
        (&["-e", "cpu==0"], "--fdd-expression"),
        (&["-f", "fc"], "--fdd-format"),
        (&["-l"], "--fdd-long"),
        (&["-d"], "--fdd-calls"),
    ] {
        let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = kymo
            .arg("report")
            .args(option)
            .arg("trace")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.contains("--fdd\n") && errors.contains(long),
            "{errors}"
        );
    }
}
