//! Dumps of Zephyr's instrumentation subsystem captured from a device, compared with the output of zaru (the
//! subsystem's own tool) for the same bytes.

use kymo_event::{Cpu, Duration, Event, EventKind, Gap, Tid, Time, TraceInfo, Value, Wanted};
use kymo_fixtures::captures;
use kymo_fixtures::names::{address, meaning, named_threads};
use kymo_read::zephyr_instrumentation::{FORMAT, decode_profile, open_bytes};
use kymo_read::{Events, OpenOptions, Summary, open};
use kymo_zephyr_instrumentation::Hints;
use std::collections::HashMap;
use std::path::Path;

fn read(path: &Path) -> (TraceInfo, Vec<Event>) {
    let mut source = open(path, &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

fn read_bytes(bytes: &[u8]) -> (TraceInfo, Vec<Event>) {
    let mut source = open_bytes("dump", bytes.to_vec(), &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

/// Traces: the capture, zaru's output, and the numbers of records, pairs of switches, and steps back in time.
const TRACES: [(&str, &str, &str, usize, usize, usize); 3] = [
    (
        "instr_default",
        "cap1/11_dump_trace.bin",
        "zaru_cap1",
        222,
        1,
        1,
    ),
    (
        "instr_big",
        "cap_big/04_dump_trace.bin",
        "zaru_cap_big",
        3_390,
        17,
        10,
    ),
    (
        "instr_trace_only",
        "cap_to/04_dump_trace.bin",
        "zaru_cap_to",
        4_416,
        17,
        10,
    ),
];

#[test]
fn captures_have_the_records_that_are_in_them() {
    let data = captures::zephyr_instrumentation();
    for (folder, file, _, records, switches, back) in TRACES {
        let path = data.join(folder).join(file);
        let (info, events) = read(&path);
        assert_eq!(info.format, FORMAT);
        assert_eq!(info.damage, []);
        let gap = |event: &Event| matches!(event.kind, EventKind::Gap(Gap::TimeBackward { .. }));
        assert_eq!(events.iter().filter(|event| !gap(event)).count(), records);
        assert_eq!(events.iter().filter(|event| gap(event)).count(), back);
        let kinds: Vec<_> = events.iter().map(|event| &event.kind).collect();
        let pairs = kinds
            .windows(2)
            .filter(|pair| matches!(pair, [EventKind::SwitchedOut, EventKind::SwitchedIn]));
        assert_eq!(pairs.count(), switches, "{folder}");
        assert!(
            events
                .iter()
                .all(|event| gap(event) || event.cpu == Some(Cpu(0)))
        );
        // An event has the time of its record, and a step back in time is reported before it.
        let mut last = Time(i64::MIN);
        let mut reported = None;
        for event in &events {
            match &event.kind {
                EventKind::Gap(Gap::TimeBackward { by }) => reported = Some(*by),
                _ => {
                    let back = last.since(event.time).filter(|by| *by > Duration(0));
                    assert_eq!(back.filter(|_| last != Time(i64::MIN)), reported.take());
                    last = event.time;
                }
            }
        }
        let summary = Summary::of(
            &mut *open(
                &path,
                &OpenOptions {
                    wanted: Wanted::Meaning,
                    ..OpenOptions::default()
                },
            )
            .unwrap(),
        );
        assert_eq!(
            (summary.events, summary.gaps),
            (records as u64, back as u64)
        );
        assert_eq!(summary.lost, Some(0));
    }
}

/// The names of a firmware's functions as zaru assigns them: by exact address; the last one wins.
fn names(folder: &Path) -> HashMap<u64, String> {
    let text = std::fs::read_to_string(folder.join("symbols.nm.txt")).unwrap();
    let lines = text.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let address = u64::from_str_radix(words.first()?, 16).ok()?;
        let kind = words.get(words.len() - 2)?;
        let code = kind.eq_ignore_ascii_case("t") || kind.eq_ignore_ascii_case("w");
        code.then(|| (address & !1, (*words.last().unwrap()).to_owned()))
    });
    lines.collect()
}

#[test]
fn calls_and_switches_are_those_that_zaru_exports() {
    let data = captures::zephyr_instrumentation();
    for (folder, file, zaru, ..) in TRACES {
        let folder = data.join(folder);
        let (info, events) = read(&folder.join(file));
        let names = names(&folder);
        let text = std::fs::read_to_string(folder.join(zaru).join("zaru_tef.json")).unwrap();
        let exported: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = exported["traceEvents"].as_array().unwrap();

        // zaru also writes switches as calls of the hook, but not all of them.
        let theirs = all.iter().filter_map(|event| {
            let phase = event["ph"].as_str()?;
            let name = event["name"].as_str()?;
            let call = matches!(phase, "B" | "E") && !name.starts_with("z_thread_mark_");
            // The field for microseconds contains nanoseconds.
            call.then(|| {
                (
                    event["ts"].as_i64(),
                    event["tid"].as_u64(),
                    phase == "B",
                    name,
                )
            })
        });
        let ours = events.iter().filter_map(|event| {
            let (enter, function) = match &event.kind {
                EventKind::Enter { function, .. } => (true, *function),
                EventKind::Exit { function } => (false, function.unwrap()),
                _ => return None,
            };
            let name = names
                .get(&address(&info, function).0)
                .map_or("", String::as_str);
            Some((
                Some(event.time.0),
                event.thread.map(|thread| info.identities.tid(thread).0),
                enter,
                name,
            ))
        });
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.collect(), theirs.collect());
        assert!(ours.len() > 200);
        assert_eq!(ours, theirs);

        let named = all.iter().filter(|event| event["ph"] == "M").map(|event| {
            let name = event["args"]["name"].as_str().unwrap().to_owned();
            (Tid(event["tid"].as_u64().unwrap()), name)
        });
        let mut named: Vec<_> = named.collect();
        named.sort();
        assert_eq!(named_threads(&info), named);

        // zaru keeps the low 16 bits of the next thread, and the time in milliseconds.
        let switches = exported["systemTraceEvents"].as_str().unwrap();
        let theirs: Vec<_> = switches
            .lines()
            .filter(|line| line.contains("sched_switch"))
            .collect();
        let mut out = None;
        let mut ours = Vec::new();
        let tid = |event: &Event| info.identities.tid(event.thread.unwrap()).0;
        for event in &events {
            match event.kind {
                EventKind::SwitchedOut => out = Some((event.time, tid(event))),
                EventKind::SwitchedIn => ours.extend(out.take().map(|(time, from)| {
                    let (ms, rest) = (time.0 / 1_000_000, time.0 % 1_000_000);
                    let to = tid(event) & 0xFFFF;
                    (
                        format!(" {ms}.{rest:06}: "),
                        format!("prev_pid={from} "),
                        format!("next_pid={to} "),
                    )
                })),
                _ => {}
            }
        }
        assert_eq!(ours.len(), theirs.len());
        for ((time, from, to), line) in ours.iter().zip(theirs) {
            assert!(
                line.contains(time) && line.contains(from) && line.contains(to),
                "{line}"
            );
        }
    }
}

#[test]
fn profiles_are_those_that_zaru_shows_but_for_times_that_are_none() {
    let data = captures::zephyr_instrumentation();
    let profiles = [
        (
            "instr_default",
            "cap1/10_dump_profile.bin",
            "zaru_cap1",
            160,
            6,
        ),
        (
            "instr_default",
            "cap2/10_dump_profile.bin",
            "zaru_cap2",
            124,
            7,
        ),
        (
            "instr_big",
            "cap_big/03_dump_profile.bin",
            "zaru_cap_big",
            160,
            15,
        ),
    ];
    for (folder, file, zaru, entries, negative) in profiles {
        let bytes = std::fs::read(data.join(folder).join(file)).unwrap();
        let profile = decode_profile(file, &bytes, &Hints::default()).unwrap();
        assert_eq!(profile.functions.len(), entries);
        assert_eq!(profile.damage, []);
        let none = profile
            .functions
            .iter()
            .filter(|function| function.total.is_none());
        assert_eq!(none.count(), negative, "{file}");
        // Functions without a total are last in our table. In zaru's they are first, each with nearly 2^64 ns.
        assert!(
            profile
                .functions
                .is_sorted_by_key(|function| std::cmp::Reverse(function.total))
        );
        let mut raw = profile.functions.clone();
        raw.sort_by_key(|function| std::cmp::Reverse(function.raw_total_ns));
        let text = std::fs::read_to_string(data.join(folder).join(zaru).join("zaru_profile.txt"));
        let text = text.unwrap();
        let sum: u128 = raw
            .iter()
            .map(|function| u128::from(function.raw_total_ns))
            .sum();
        let names = names(&data.join(folder));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 100);
        let mut theirs: Vec<(u64, String)> = Vec::new();
        for (line, function) in lines.iter().zip(&raw) {
            let plain = line.replace("\x1b[32m", "").replace("\x1b[37m", "");
            let mut words = plain.split_whitespace();
            let share: f64 = words.next().unwrap().trim_end_matches('%').parse().unwrap();
            let ours = function.raw_total_ns as f64 * 100.0 / sum as f64;
            assert!((share - ours).abs() < 0.006, "{file}: {line}: {ours}");
            let address = words.next().unwrap().parse().unwrap();
            theirs.push((address, words.next().unwrap().to_owned()));
        }
        for (address, name) in theirs {
            let function = raw
                .iter()
                .find(|function| function.address.0 == address & !1);
            assert!(function.is_some(), "{name}");
            assert_eq!(names.get(&(address & !1)), Some(&name));
        }
    }
}

#[test]
fn a_dump_with_its_marks_lies_beside_the_metadata_of_its_build() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let capture = data.join("instr_big/cap_big/04_dump_trace.bin");
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump");
    std::fs::copy(&capture, &dump).unwrap();
    std::fs::copy(
        data.join("instr_big/ctf_metadata"),
        folder.path().join("metadata"),
    )
    .unwrap();
    let (info, events) = read(&dump);
    assert_eq!(info.format, FORMAT);
    assert_eq!(info.damage, []);
    assert!(events == read(&capture).1);
}

#[test]
fn a_capture_may_begin_inside_of_a_dump() {
    let data = captures::zephyr_instrumentation();
    let path = data.join("instr_default/cap1/11_dump_trace.bin");
    let bytes = std::fs::read(&path).unwrap();
    let (info_whole, whole) = read_bytes(&bytes);
    for from in [17, 30, 45] {
        let (info, events) = read_bytes(&bytes[from..]);
        let [damage] = info.damage.as_slice() else {
            panic!("{:?}", info.damage);
        };
        assert_eq!(damage.offset, 0);
        let same = whole.iter().rev().zip(events.iter().rev());
        let same = same.take_while(|(whole, found)| {
            meaning(&info_whole, &whole.kind) == meaning(&info, &found.kind)
        });
        assert!(same.count() >= 220, "{from}");
    }
}

#[test]
fn text_inside_a_profile_is_no_entry_of_it() {
    let data = captures::zephyr_instrumentation();
    let bytes = std::fs::read(data.join("instr_default/cap1/10_dump_profile.bin")).unwrap();
    let whole = decode_profile("", &bytes, &Hints::default()).unwrap();
    let text = [&bytes[..1_007], b"hello app\r\n", &bytes[1_007..]].concat();
    let profile = decode_profile("", &text, &Hints::default()).unwrap();
    assert_eq!(profile.functions.len(), 159);
    let known = |function| whole.functions.contains(function);
    assert!(profile.functions.iter().all(known));
    assert_eq!(profile.damage.len(), 1);
}

#[test]
fn profile_entries_are_events_that_happened_at_no_moment() {
    let data = captures::zephyr_instrumentation();
    let (info, events) = read(&data.join("instr_big/cap_big/03_dump_profile.bin"));
    assert_eq!(events.len(), 160);
    assert!(info.streams.iter().any(|stream| stream.timeless));
    let doubts = events.iter().filter(|event| {
        let mut fields = event.fields.iter();
        fields.any(|field| field.name == "doubt")
    });
    assert_eq!(doubts.count(), 15);
    assert_eq!(events[0].name, "profile");
    assert!(matches!(events[0].fields[0].value, Value::Hex(address) if address & 1 == 0));
}

#[test]
fn what_the_metadata_says_decides_only_where_bytes_do_not() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let capture = data.join("instr_big/cap_big/04_dump_trace.bin");
    let (info, events) = read(&capture);
    // The metadata of the capture's own build, and that of another one with longer names.
    for build in ["instr_big", "instr_default"] {
        let options = OpenOptions {
            metadata: Some(data.join(build).join("ctf_metadata")),
            // A program for another processor: this test itself.
            program: std::env::current_exe().ok(),
            ..OpenOptions::default()
        };
        let mut source = open(&capture, &options).unwrap();
        let again: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
        assert!(again == events, "{build}");
        assert_eq!(*source.info(), info);
    }
}
