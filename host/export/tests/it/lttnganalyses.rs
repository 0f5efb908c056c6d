//! Reports of lttnganalyses on an exported trace, compared with a simple computation from the exported events.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kymo_event::{Event, EventKind, InterruptKind, ThreadId, TraceInfo};
use kymo_fixtures::captures;
use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use serde_json::Value;

use crate::common::python::{self, Environment};
use crate::common::skipped;
use crate::lttng::{export, read};

/// A Python with lttnganalyses and Debian's reader of CTF; `None` if they can't be installed.
static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let has_reader = Command::new("babeltrace").output().is_ok();
    python::with(&Environment {
        name: "lttnganalyses",
        // The interpreter for which Debian's packages are installed.
        python: "/usr/bin/python3",
        has_system_packages: true,
        packages: &["lttnganalyses==0.6.1"],
        imports: "import babeltrace, importlib.util as u; assert u.find_spec('lttnganalyses')",
    })
    .filter(|_| has_reader)
});

/// The tables printed by a command: title or class, and rows.
fn tables(python: &Path, command: &str, session: &Path) -> Vec<(String, Vec<Vec<Value>>)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run_lttnganalyses.py");
    let run = Command::new(python)
        .args([script.as_os_str(), command.as_ref()])
        // Otherwise times at which not all CPUs were recorded are omitted.
        .arg("--no-intersection")
        .arg(session)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout).into_owned();
    let failed = || {
        format!(
            "{command}: {printed}\n{}",
            String::from_utf8_lossy(&run.stderr)
        )
    };
    assert!(run.status.success(), "{}", failed());
    let found: Value = serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{}", failed()));
    let tables = found["results"]
        .as_array()
        .unwrap_or_else(|| panic!("{}", failed()));
    let name = |table: &Value| match &table["class"] {
        Value::String(class) => class.clone(),
        class => class["title"].as_str().unwrap().to_owned(),
    };
    let rows = |table: &Value| serde_json::from_value(table["data"].clone()).unwrap();
    tables
        .iter()
        .map(|table| (name(table), rows(table)))
        .collect()
}

/// The number in a cell.
fn number(cell: &Value) -> f64 {
    cell["value"].as_f64().unwrap_or_else(|| panic!("{cell}"))
}

/// Results of a simple pass over the events.
#[derive(Debug, Default)]
struct Plain {
    /// For each interrupt: number of handler calls, shortest and longest time in ns.
    interrupts: BTreeMap<u64, (u64, i64, i64)>,
    /// Run time of each thread, by name.
    ran: BTreeMap<String, i64>,
    /// Times from wakeup to running in ns, by thread name.
    latencies: BTreeMap<String, Vec<i64>>,
    /// Number of completed system calls, by thread name.
    calls: BTreeMap<String, u64>,
}

fn plain(info: &TraceInfo, events: &[Event]) -> Plain {
    let mut plain = Plain::default();
    let identities = &info.identities;
    let name = |thread: ThreadId| {
        let name = identities.thread_name(thread).unwrap_or("");
        name.chars().take(15).collect::<String>()
    };
    let is_idle = |name: &str| {
        let name = name.to_lowercase();
        name.starts_with("idle") || name.starts_with("swapper")
    };
    let (mut handler, mut running, mut woken) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut begun: HashMap<(ThreadId, _), u64> = HashMap::new();
    for event in events {
        let (cpu, time) = (event.cpu, event.time.0);
        match event.kind {
            EventKind::IsrEnter { irq } if is_hard(info, irq) => {
                _ = handler.insert(cpu, (irq, time));
            }
            EventKind::IsrExit { irq } => {
                let is_open = |open: &(_, i64)| irq.is_none_or(|irq| irq == open.0);
                if handler.get(&cpu).is_some_and(is_open)
                    && let Some((entered, since)) = handler.remove(&cpu)
                {
                    let number = identities.interrupts()[entered.0 as usize].irq.0.into();
                    let (count, least, most) =
                        plain.interrupts.entry(number).or_insert((0, i64::MAX, 0));
                    *count += 1;
                    *least = (*least).min(time - since);
                    *most = (*most).max(time - since);
                }
            }
            EventKind::Ready { thread } => _ = woken.insert(thread, time),
            EventKind::SwitchedIn => {
                let Some(thread) = event.thread else {
                    continue;
                };
                // Some switches of this kernel show a thread on two CPUs for a short time: the later one is used.
                running.insert(thread, time);
                if let Some(since) = woken.remove(&thread) {
                    plain
                        .latencies
                        .entry(name(thread))
                        .or_default()
                        .push(time - since);
                }
            }
            EventKind::SwitchedOut => {
                let Some(thread) = event.thread else {
                    continue;
                };
                if let Some(since) = running.remove(&thread) {
                    *plain.ran.entry(name(thread)).or_default() += time - since;
                }
            }
            EventKind::Enter { function, .. } if is_call(info, function) => {
                // Calls before the first switch belong to no thread.
                if let Some(thread) = event.thread {
                    *begun.entry((thread, function)).or_default() += 1;
                }
            }
            EventKind::Exit {
                function: Some(function),
            } if is_call(info, function) => {
                if let Some(thread) = event.thread
                    && let Some(open) = begun.get_mut(&(thread, function)).filter(|open| **open > 0)
                {
                    *open -= 1;
                    *plain
                        .calls
                        .entry(name(thread).trim().to_owned())
                        .or_default() += 1;
                }
            }
            _ => {}
        }
    }
    for (thread, since) in running {
        *plain.ran.entry(name(thread)).or_default() += events[events.len() - 1].time.0 - since;
    }
    plain.ran.retain(|name, _| !is_idle(name));
    // Linux does not wake an idle thread.
    plain.latencies.retain(|name, _| !is_idle(name));
    plain
}

fn is_hard(info: &TraceInfo, irq: kymo_event::InterruptId) -> bool {
    info.identities.interrupts()[irq.0 as usize].kind == InterruptKind::Hard
}

fn is_call(info: &TraceInfo, function: kymo_event::FunctionId) -> bool {
    let name = info
        .identities
        .function(function)
        .and_then(|it| it.name.as_ref());
    name.is_some_and(|name| !name.contains(' '))
}

/// Exports a trace as a session of LTTng's, and compares the reports of lttnganalyses with a simple pass over the
/// events. Returns the result of that pass.
fn agrees(python: &Path, input: &Path) -> Plain {
    let session = tempfile::tempdir().unwrap();
    // lttnganalyses looks for a folder of this name in a session.
    export(input, &session.path().join("kernel"));
    let (info, events) = read(input);
    let expected = plain(&info, &events);
    let tables = |command: &str| tables(python, command, session.path());

    let mut interrupts = BTreeMap::new();
    for (_, rows) in tables("irq:runstats_mi") {
        for row in rows.into_iter().filter(|row| row[0]["hard"] == true) {
            let found = (
                number(&row[1]) as u64,
                number(&row[2]) as i64,
                number(&row[4]) as i64,
            );
            interrupts.insert(row[0]["nr"].as_u64().unwrap(), found);
        }
    }
    assert_eq!(interrupts, expected.interrupts, "{}", input.display());

    let (name, rows) = tables("cputop:run_mi").swap_remove(0);
    assert_eq!(name, "per-process");
    let all = (events.last().unwrap().time.0 - events[0].time.0) as f64;
    let mut seen = 0;
    for row in rows {
        let thread = row[0]["name"].as_str().unwrap();
        if let Some(ran) = expected.ran.get(thread) {
            seen += 1;
            // Relative to its own time range, which begins with the first switch or interrupt.
            let share = *ran as f64 / all;
            assert!(
                (number(&row[3]) - share).abs() < 0.01,
                "{thread}: {row:?}, {share}"
            );
        }
    }
    assert_eq!(seen, expected.ran.len(), "{}", input.display());

    let mut latencies = BTreeMap::new();
    for (_, rows) in tables("sched:runstats_mi") {
        for row in rows {
            let thread = row[0]["name"].as_str().unwrap().to_owned();
            latencies.insert(thread, [1, 2, 4].map(|cell| number(&row[cell]) as i64));
        }
    }
    let few = |all: &Vec<i64>| {
        [
            all.len() as i64,
            *all.iter().min().unwrap(),
            *all.iter().max().unwrap(),
        ]
    };
    let own: BTreeMap<_, _> = expected
        .latencies
        .iter()
        .map(|(name, all)| (name.clone(), few(all)))
        .collect();
    assert_eq!(latencies, own, "{}", input.display());

    let mut calls = BTreeMap::new();
    for (title, rows) in tables("syscallstats:run_mi") {
        // The total table has no thread.
        let Some((_, thread)) = title.split_once('[') else {
            continue;
        };
        let thread = thread.split(" (").next().unwrap().trim().to_owned();
        let count: f64 = rows.iter().map(|row| number(&row[1])).sum();
        *calls.entry(thread).or_default() += count as u64;
    }
    assert_eq!(calls, expected.calls, "{}", input.display());
    expected
}

fn python() -> Option<&'static Path> {
    if PYTHON.is_none() {
        skipped(
            "lttnganalyses (PyPI) with Debian's python3-babeltrace and babeltrace could not be had: kernel traces were \
             checked by babeltrace2 only",
        );
    }
    PYTHON.as_deref()
}

#[test]
fn lttnganalyses_finds_what_happened_in_a_recording_of_rtems() {
    let (Some(folder), Some(python)) = (captures::rtems_record(), python()) else {
        return;
    };
    let found = agrees(python, &folder.join("kernel-smp4-stream/stream.bin"));
    assert!(found.interrupts.len() >= 2);
    assert!(found.calls.values().sum::<u64>() > 50);
}

/// Arguments that were not recorded are omitted, except those that lttnganalyses requires.
#[test]
fn lttnganalyses_reads_calls_whose_arguments_were_not_recorded() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream
        .thread(0x0901_0001, "IDLE")
        .thread(0x0a01_0001, "UI1 ");
    stream.processor(0).uptime(10);
    stream.item(11, 306, 0x0901_0001).item(11, 305, 0x0a01_0001);
    // The entries from ACCEPT to WRITEV; each exit has the next number.
    let entries = [
        17, 32, 40, 42, 51, 53, 59, 81, 106, 113, 117, 125, 129, 133, 135, 137, 218, 220, 222, 238,
        338, 340,
    ];
    for (entry, at) in entries.into_iter().zip((20..).step_by(10)) {
        stream
            .item(at, entry, 0x1000)
            .item(at + 5, entry + 1, 0x1000);
    }
    stream
        .item(400, 306, 0x0a01_0001)
        .item(400, 305, 0x0901_0001);
    let folder = tempfile::tempdir().unwrap();
    let (input, session) = (folder.path().join("stream"), folder.path().join("session"));
    std::fs::write(&input, &stream.bytes).unwrap();
    export(&input, &session.join("kernel"));

    let trace = kymo_ctf::Trace::open(session.join("kernel")).unwrap();
    let mut messages = trace.messages().unwrap();
    let (mut calls, mut unknown) = (0, Vec::new());
    while let Some((_, message)) = messages.next_message().unwrap() {
        let kymo_ctf::Message::Event(event) = message else {
            continue;
        };
        let Some(call) = event.name().strip_prefix("syscall_") else {
            continue;
        };
        calls += 1;
        for name in ["fd", "cmd", "offset", "addr", "arg"] {
            let value = event
                .field(name)
                .and_then(|it| it.as_i64().or(it.as_u64().map(|it| it as i64)));
            unknown.extend(value.map(|value| format!("{call} {name} {value}")));
        }
    }
    assert_eq!(calls, 2 * entries.len());
    for call in ["read", "write", "close", "fcntl", "fsync", "sendmsg"] {
        let none = match call {
            "sendmsg" => -1,
            _ => i64::from(u32::MAX),
        };
        assert!(
            unknown.contains(&format!("entry_{call} fd {none}")),
            "{call}: {unknown:?}"
        );
    }
    for call in ["lseek", "mmap", "ioctl", "bind", "accept", "recv"] {
        let is_of = |it: &&String| it.contains(&format!("_{call} "));
        assert_eq!(unknown.iter().find(is_of), None);
    }
    let Some(python) = python() else { return };
    let found = agrees(python, &input);
    assert_eq!(found.calls["UI1"], entries.len() as u64);
}

#[test]
fn lttnganalyses_finds_what_happened_in_recordings_of_systemview() {
    let (Some(folder), Some(python)) = (captures::systemview(), python()) else {
        return;
    };
    for name in ["pro-cpu2.svdat", "app-cpu2.svdat"] {
        let found = agrees(python, &folder.join(name));
        assert!(found.interrupts.len() >= 2, "{name}");
        assert!(!found.ran.is_empty(), "{name}");
    }
}

#[test]
fn lttnganalyses_finds_what_happened_in_traces_of_zephyr() {
    let (Some(folder), Some(python)) = (captures::zephyr_with_metadata(), python()) else {
        return;
    };
    let found = agrees(python, &folder.join("ctf_native_sample/trace"));
    assert!(!found.ran.is_empty());
}

/// On Linux threads change their names, and are woken by other CPUs, which the simple pass does not handle. Only
/// certain results are compared.
#[test]
fn lttnganalyses_reads_a_trace_of_linux() {
    let (Some(folder), Some(python)) = (captures::ftrace(), python()) else {
        return;
    };
    let input = folder.join("amd64/dat/events-mono.dat");
    let session = tempfile::tempdir().unwrap();
    export(&input, &session.path().join("kernel"));
    let tables = |command: &str| tables(python, command, session.path());
    let (info, events) = read(&input);
    let expected = plain(&info, &events);
    let rows = |command: &str| tables(command).into_iter().flat_map(|(_, rows)| rows);
    let hard = rows("irq:runstats_mi").filter(|row| row[0]["hard"] == true);
    let hard: BTreeMap<_, _> = hard
        .map(|row| (row[0]["nr"].as_u64().unwrap(), number(&row[1]) as u64))
        .collect();
    let counts = expected.interrupts.iter();
    assert_eq!(hard, counts.map(|(nr, it)| (*nr, it.0)).collect());
    for command in ["cputop:run_mi", "sched:runstats_mi"] {
        assert!(
            rows(command).any(|row| row[0]["name"] == "find"),
            "{command}"
        );
    }
    // One table for each thread: calls by name.
    let calls = tables("syscallstats:run_mi").into_iter();
    let of_threads = calls.filter(|(title, _)| title.contains('['));
    let calls: f64 = of_threads
        .flat_map(|(_, rows)| rows)
        .map(|row| number(&row[1]))
        .sum();
    assert_eq!(calls as u64, expected.calls.values().sum::<u64>());
    assert!(calls > 500.0);
}
