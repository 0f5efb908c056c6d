//! `info`, `report`, `calls` and all exports have the same counts, for all kinds of source.

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_fixtures::captures;
use serde_json::Value;

/// Runs `kymo`, and returns stdout and stderr. Damaged input is no failure here: the readable parts are counted.
fn kymo(arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Captures of each kind of source.
fn sources() -> Vec<PathBuf> {
    let own = [
        "demo",
        "threads.kymo",
        "processors.kymo",
        "items.kymo",
        "damaged.kymo",
    ];
    let own = own.map(|name| Path::new("tests/data").join(name));
    let mut sources = own.to_vec();
    sources.push(captures::zephyr_instrumentation().join("instr_default/cap1/11_dump_trace.bin"));
    let others = [
        (captures::ctf(), "lttng-recorded/lttng213-ctf1-cyg/trace"),
        (
            captures::ctf(),
            "tracecompass/context-switches-context-switches-ust",
        ),
        (captures::systemview(), "pro-cpu2.svdat"),
        (captures::ftrace(), "amd64/dat/events-mono.dat"),
        (captures::ftrace(), "amd64/dat/function-v7.dat"),
        (captures::rtems_record(), "shim-be32-cpu4/stream.bin"),
    ];
    for (folder, name) in others {
        sources.extend(folder.map(|folder| folder.join(name)));
    }
    sources
}

/// Parses the number before a word in the note of an export.
fn reported(note: &str, word: &str) -> u64 {
    let notes = note.lines().filter(|line| line.starts_with("note: "));
    let parts = notes.flat_map(|line| line.split([',', ':']));
    let mut numbers = parts.filter_map(|part| {
        let (number, rest) = part.trim().split_once(' ')?;
        let is_word = rest == word || rest.strip_suffix('s') == Some(word);
        number.parse().ok().filter(|_| is_word)
    });
    numbers.next().unwrap_or(0)
}

#[test]
fn counts_agree_whoever_counts() {
    for source in sources() {
        let folder = tempfile::tempdir().unwrap();
        let input = source.to_str().unwrap();
        let info = &objects(&kymo(&["info", "--format", "json", input]).0)[0];
        let events = info["events"].as_u64().unwrap();
        assert!(events > 0, "{input}: {info}");
        for format in [
            "csv",
            "json",
            "perfetto",
            "trace-event",
            "folded",
            "ctf",
            "lttng",
        ] {
            let out = folder.path().join(format!("out-{format}"));
            let out = out.to_str().unwrap();
            let (_, note) = kymo(&["export", "--to", format, "-o", out, input]);
            assert_eq!(
                reported(&note, "event"),
                events,
                "{input} to {format}: {note}"
            );
            if format == "json" {
                let text = std::fs::read_to_string(out).unwrap();
                let is = |line: &&Value, what| line["type"] == what;
                let lines = objects(&text);
                let records = lines.iter().filter(|line| is(line, "event"));
                assert_eq!(records.count() as u64, events, "{input}");
                let gaps = lines.iter().filter(|line| is(line, "gap")).count() as u64;
                assert_eq!(gaps, info["gaps"].as_u64().unwrap(), "{input}");
                let named = |line: &&Value| line["type"] != "event" || line["name"] != "";
                assert!(lines.iter().all(|line| named(&line)), "{input}");
            }
        }
        // The table and the list of calls have the same number of calls.
        let count = |options: &[&str]| {
            let rows =
                objects(&kymo(&[&["report", "--format", "json"], options, &[input]].concat()).0);
            let counts = rows.iter().filter_map(|row| row["count"].as_u64());
            counts.sum::<u64>()
        };
        let table = count(&[]);
        let listed = objects(&kymo(&["calls", "--format", "json", input]).0).len() as u64;
        assert_eq!(table, listed, "{input}");
        for by in [
            "file",
            "line",
            "call-site",
            "space",
            "thread,function",
            "cpu,function",
        ] {
            assert_eq!(count(&["--by", by]), table, "{input} by {by}");
        }
    }
}

/// Sorts the rows of a table, because those with equal sort keys have no fixed order.
fn table(input: &str) -> Vec<String> {
    let mut rows: Vec<_> = objects(&kymo(&["report", "--format", "json", input]).0)
        .into_iter()
        .map(|row| row.to_string())
        .collect();
    rows.sort();
    rows
}

#[test]
fn tables_of_ctf_exports_are_those_of_their_sources() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for name in [
        "amd64/dat/fg-sched-v7.dat",
        "amd64/dat/fg-sched-v6.dat",
        "amd64/dat/events-mono.dat",
        "amd64/dat/function-v7.dat",
        "amd64/text/fg-abstime-proc-tail.txt",
        "amd64/text/fg-sched-nosleeptime.txt",
        "amd64/text/fg-thresh100.txt",
        "arm64/fg-v6.dat",
        "arm64/fg-v7.dat",
    ] {
        let Some(bytes) = captures::unpacked(&folder.join(name)) else {
            return;
        };
        let input = scratch.path().join(name.replace('/', "-"));
        std::fs::write(&input, bytes).unwrap();
        let input = input.to_str().unwrap();
        let exported = format!("{input}.ctf");
        kymo(&["export", "--to", "ctf", "-o", &exported, input]);
        let (expected, found) = (table(input), table(&exported));
        assert!(expected.len() > 5, "{name}");
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "{name}");
        }
        assert_eq!(expected.len(), found.len(), "{name}");
    }
}

/// All subcommands use the repaired times of a clock that was ahead.
#[test]
fn a_trace_ends_at_the_same_time_for_all() {
    let input = captures::zephyr_instrumentation().join("instr_default/cap1/11_dump_trace.bin");
    let input = input.to_str().unwrap();
    let info = &objects(&kymo(&["info", "--format", "json", input]).0)[0];
    let (_, warning) = kymo(&["show", "--begin", "100", input]);
    let span = "the trace runs from 0.160779320 s to 0.164865400 s";
    assert!(warning.contains(span), "{warning}");
    assert_eq!(info["start_ns"], 160_779_320);
    assert_eq!(info["end_ns"], 164_865_400);
    assert_eq!(info["streams"][0]["end_ns"], 164_865_400);
}

/// No total exceeds the wall time, even if calls were lost that contain other calls of the same function.
#[test]
fn no_total_exceeds_the_wall() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let input = folder.join("arm64/fg-v7.dat");
    let input = input.to_str().unwrap();
    let columns = ["--columns", "name,total,wall,self", "--format", "csv"];
    let (table, _) = kymo(&[&["report", input], &columns[..]].concat());
    let mut rows = 0;
    for line in table.lines().skip(1) {
        let mut fields = line
            .split(',')
            .skip(1)
            .map(|field| field.parse::<u64>().ok());
        let (total, wall) = (fields.next().flatten(), fields.next().flatten());
        let own = fields.next().flatten();
        if let Some((total, wall)) = total.zip(wall) {
            assert!(total <= wall && own <= Some(total), "{line}");
            rows += 1;
        }
    }
    assert!(rows > 1_000, "{rows}");
}

/// The self times in parts of a trace add up to those of the whole, although the durations stated by the kernel differ
/// from the times of its lines.
#[test]
fn self_times_of_parts_add_up() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("trace.txt");
    for (name, cut) in [
        ("fg-sched-sleeptime.txt", "243.188828347"),
        ("fg-sched-nosleeptime.txt", "270.368965797"),
    ] {
        let bytes = captures::unpacked(&folder.join("amd64/text").join(name)).unwrap();
        std::fs::write(&input, bytes).unwrap();
        let input = input.to_str().unwrap();
        let own = |part: &[&str]| -> u64 {
            let (rows, _) = kymo(&[&["report", "--format", "json", input], part].concat());
            let rows = objects(&rows).into_iter();
            rows.filter_map(|row| row["self_ns"].as_u64()).sum()
        };
        let front = own(&["--end", cut]);
        let parts = front + own(&["--begin", cut]);
        assert_eq!(parts, own(&[]), "{name}");
    }
}

/// Uses two recordings of programs that have functions of the same names.
#[test]
fn functions_of_one_name_are_told_apart_by_their_space() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["one", "two"] {
        let to = folder.path().join(name);
        let to = to.to_str().expect("text");
        kymo(&["export", "--to", "ctf", "-o", to, "tests/data/dates.kymo"]);
    }
    let path = folder.path().to_str().expect("text");
    let elf = data.join("demo.elf");
    let elf = elf.to_str().expect("text");
    let (table, _) = kymo(&["report", "--elf", elf, path]);
    assert!(
        table
            .lines()
            .next()
            .is_some_and(|line| line.contains("SPACE")),
        "{table}"
    );
    let (csv, _) = kymo(&["report", "--format", "csv", "--elf", elf, path]);
    assert!(
        csv.lines()
            .next()
            .is_some_and(|line| line.contains("space")),
        "{csv}"
    );
    let (json, _) = kymo(&["report", "--format", "json", "--elf", elf, path]);
    let of_leaf: Vec<_> = json
        .lines()
        .filter(|line| line.contains("\"leaf\""))
        .collect();
    assert!(
        of_leaf.len() == 2 && of_leaf.iter().all(|line| line.contains("\"space\":")),
        "{json}"
    );
    // One recording has only one function of each name, so the table needs no column for spaces.
    let (table, _) = kymo(&["report", "--elf", elf, &format!("{path}/one")]);
    assert!(!table.contains("SPACE"), "{table}");
}

/// An export reports the number of its events that are no records of the trace, so that the counts agree.
#[test]
fn events_that_an_export_adds_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for (name, added) in [("demo.kymo", 0), ("damaged.kymo", 1), ("duration.kymo", 3)] {
        let into = folder.path().join(name);
        let into = into.to_str().unwrap();
        let source = format!("tests/data/{name}");
        let (_, note) = kymo(&["export", "--to", "ctf", &source, "-o", into]);
        let counts = [&*source, into].map(|input| {
            let info = &objects(&kymo(&["info", "--format", "json", input]).0)[0];
            let count = |member: &str| info[member].as_u64().unwrap_or(0);
            (count("events"), count("added_events"))
        });
        assert_eq!(counts[0], (reported(&note, "event"), 0), "{name}");
        assert_eq!(counts[1], (counts[0].0 + added, added), "{name}");
    }
}
