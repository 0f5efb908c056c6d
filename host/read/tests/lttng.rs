//! What LTTng's events mean, held against babeltrace2's text of the same traces: every switch, interrupt,
//! system call and function, in order.

mod common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::skip;
use kymo_event::{Addr, Cpu, Event, EventKind, ThreadId, Time};
use kymo_read::{Events, OpenOptions, Source, open};

/// A trace of the collection, with the lines that babeltrace2 prints of it.
struct Case {
    trace: PathBuf,
    lines: Vec<Line>,
    _unpacked: Option<tempfile::TempDir>,
}

/// A line of babeltrace2's.
#[derive(Debug)]
struct Line {
    time: Time,
    name: String,
    fields: HashMap<String, String>,
}

impl Line {
    /// Of `[1.000000002] host:ust event: { cpu_id = 0 }, { a = 1, b = "x" }`.
    fn parse(text: &str) -> Self {
        let (time, rest) = text.split_once("] ").unwrap();
        let (seconds, nanoseconds) = time.trim_start_matches('[').split_once('.').unwrap();
        let ns = |text: &str| text.parse::<i64>().unwrap();
        let (head, fields) = rest.split_once(": {").unwrap();
        let name = head.rsplit(' ').next().unwrap().to_owned();
        let fields = fields.split(['{', '}', ',']);
        let fields = fields.filter_map(|field| {
            let (name, value) = field.split_once(" = ")?;
            Some((
                name.trim().to_owned(),
                value.trim().trim_matches('"').to_owned(),
            ))
        });
        Self {
            time: Time(ns(seconds) * 1_000_000_000 + ns(nanoseconds)),
            name,
            fields: fields.collect(),
        }
    }

    fn number(&self, field: &str) -> u64 {
        let text = &self.fields[field];
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
            None => text.parse().unwrap(),
        }
    }

    fn thread(&self, field: &str) -> Option<ThreadId> {
        Some(self.number(field))
            .filter(|tid| *tid != 0)
            .map(ThreadId)
    }

    fn cpu(&self) -> Option<Cpu> {
        Some(Cpu(u32::try_from(self.number("cpu_id")).unwrap()))
    }
}

/// A case of the collection; `None` (loudly) where it is not there.
fn case(name: &str, golden: &str) -> Option<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/ctf");
    if !folder.join("cases.json").exists() {
        skip("no shared/data/ctf beside the checkout");
        return None;
    }
    let folder = folder.join(name);
    let plain = folder.join(golden);
    let text = if plain.exists() {
        std::fs::read(plain).unwrap()
    } else {
        let mut gzip = Command::new("gzip");
        let packed = folder.join(format!("{golden}.gz"));
        gzip.arg("-dc").arg(packed).output().unwrap().stdout
    };
    let lines = String::from_utf8(text).unwrap();
    let lines = lines.lines().map(Line::parse).collect();
    let mut trace = folder.join("trace");
    let mut unpacked = None;
    if !trace.exists() {
        let scratch = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(folder.join("trace.tar.gz"));
        assert!(
            tar.arg("-C")
                .arg(scratch.path())
                .status()
                .unwrap()
                .success()
        );
        trace = scratch.path().join("trace");
        unpacked = Some(scratch);
    }
    Some(Case {
        trace,
        lines,
        _unpacked: unpacked,
    })
}

impl Case {
    fn open(&self) -> Box<dyn Source> {
        open(&self.trace, &OpenOptions::default()).unwrap()
    }

    fn events(&self) -> Vec<Event> {
        Events(&mut *self.open()).map(Result::unwrap).collect()
    }

    fn named(&self, names: &[&str]) -> impl Iterator<Item = &Line> {
        let named = move |line: &&Line| names.contains(&line.name.as_str());
        self.lines.iter().filter(named)
    }
}

/// What is compared of an event.
type Fact = (Time, Option<Cpu>, Option<ThreadId>, EventKind);

fn facts(events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> Vec<Fact> {
    let wanted = events.iter().filter(|event| wanted(&event.kind));
    wanted
        .map(|event| (event.time, event.cpu, event.thread, event.kind.clone()))
        .collect()
}

#[test]
fn a_switch_of_the_kernel_is_the_end_of_one_thread_and_the_beginning_of_another() {
    let golden = [
        (
            "babeltrace/ctf1-succeed-lttng-tracefile-rotation",
            "golden-bt20.txt",
            4687,
        ),
        (
            "babeltrace/ctf2-succeed-lttng-tracefile-rotation",
            "golden-bt21.txt",
            4687,
        ),
        (
            "ctf-testsuite/stream-pass-lttng-modules-2.0-pre5",
            "golden-bt21.txt",
            1371,
        ),
    ];
    for (name, golden, count) in golden {
        let Some(case) = case(name, golden) else {
            return;
        };
        let mut expected = Vec::new();
        let switches: Vec<&Line> = case.named(&["sched_switch"]).collect();
        // (2.1.3's text of the old kernel trace ends early.)
        assert!(switches.len() >= count, "{name}: {}", switches.len());
        for line in &switches {
            let (from, to) = (line.thread("prev_tid"), line.thread("next_tid"));
            let fact = |thread, kind| (line.time, line.cpu(), Some(thread), kind);
            expected.extend(from.map(|thread| fact(thread, EventKind::SwitchedOut)));
            expected.extend(to.map(|thread| fact(thread, EventKind::SwitchedIn)));
        }
        let events = case.events();
        let mut found = facts(&events, |kind| {
            matches!(kind, EventKind::SwitchedIn | EventKind::SwitchedOut)
        });
        // That old tracer's clock was broken, and babeltrace2 makes other times of it than it says.
        if name.ends_with("pre5") {
            for fact in found.iter_mut().chain(&mut expected) {
                fact.0 = Time(0);
            }
        }
        // In which order processors come at equal times is nobody's to say.
        found.sort_by_key(|fact| fact.1);
        expected.sort_by_key(|fact| fact.1);
        let differ = found
            .iter()
            .zip(&expected)
            .find(|(one, other)| one != other);
        assert_eq!(differ, None, "{name}");
        assert_eq!(found.len(), expected.len(), "{name}");
        // One record remains one record.
        let records = events.iter().filter(|event| !event.name.is_empty());
        assert_eq!(records.count(), case.lines.len(), "{name}");
    }
}

#[test]
fn what_runs_on_a_processor_is_what_was_switched_to() {
    let name = "babeltrace/ctf1-succeed-lttng-tracefile-rotation";
    let Some(case) = case(name, "golden-bt20.txt") else {
        return;
    };
    let events = case.events();
    let records: Vec<&Event> = events
        .iter()
        .filter(|event| !event.name.is_empty())
        .collect();
    assert_eq!(records.len(), case.lines.len());
    let mut running = HashMap::new();
    let mut checked = 0;
    for (line, record) in case.lines.iter().zip(records) {
        assert_eq!(line.name, record.name);
        if line.name == "sched_switch" {
            running.insert(line.cpu(), line.thread("next_tid"));
        } else if let Some(thread) = running.get(&line.cpu()) {
            assert_eq!(record.thread, *thread, "{line:?}");
            checked += 1;
        }
        if line.name == "sched_wakeup" {
            let thread = line.thread("tid").unwrap();
            assert_eq!(record.kind, EventKind::Ready { thread });
        }
    }
    assert!(checked > 7000, "{checked}");
}

#[test]
fn interrupts_and_system_calls_of_the_kernel() {
    let name = "ctf-testsuite/stream-pass-lttng-modules-2.0-pre5";
    let Some(case) = case(name, "golden-bt21.txt") else {
        return;
    };
    let events = case.events();
    let count = |wanted: fn(&EventKind) -> bool| facts(&events, wanted).len();
    let entries = ["irq_handler_entry", "softirq_entry"];
    let exits = ["irq_handler_exit", "softirq_exit"];
    assert_eq!(
        count(|kind| matches!(kind, EventKind::IsrEnter { .. })),
        case.named(&entries).count()
    );
    assert_eq!(
        count(|kind| matches!(kind, EventKind::IsrExit { .. })),
        case.named(&exits).count()
    );
    assert_eq!(
        count(|kind| matches!(kind, EventKind::Enter { .. })),
        case.named(&["sys_enter"]).count()
    );
    // Lines that devices share have all their names.
    let mut names = events.iter().filter_map(|event| match &event.kind {
        EventKind::IsrName { irq, name } if irq.0 == 19 => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(names.next_back(), Some("ahci, uhci_hcd:usb3, eth1"));
    let info = case.open().info().clone();
    let write = info.functions.iter().find(|it| it.name == "system call 1");
    assert_eq!(write.unwrap().address, Addr::stand_in(1));
}

#[test]
fn functions_of_user_space_are_of_the_thread_in_the_context() {
    let cases = [
        ("lttng-recorded/lttng213-ctf1-cyg", "golden-bt20.txt"),
        ("lttng-recorded/lttng213-ctf1-cyg-fast", "golden-bt20.txt"),
        ("lttng-recorded/lttng216-ctf2-cyg", "golden-bt21.txt"),
        ("lttng-recorded/lttng216-ctf2-cyg-fast", "golden-bt21.txt"),
        (
            "tracecompass/context-switches-context-switches-ust",
            "golden-bt20.txt",
        ),
    ];
    for (name, golden) in cases {
        let Some(case) = case(name, golden) else {
            return;
        };
        let address = |line: &Line, field| {
            let known = line.fields.contains_key(field);
            known.then(|| Addr(line.number(field)))
        };
        let mut expected = Vec::new();
        for line in &case.lines {
            let kind = match line.name.rsplit_once(':').unwrap() {
                (tracer, "func_entry") if tracer.starts_with("lttng_ust_cyg_profile") => {
                    EventKind::Enter {
                        function: address(line, "addr").unwrap(),
                        call_site: address(line, "call_site"),
                    }
                }
                (tracer, "func_exit") if tracer.starts_with("lttng_ust_cyg_profile") => {
                    EventKind::Exit {
                        function: address(line, "addr"),
                    }
                }
                _ => continue,
            };
            expected.push((line.time, line.cpu(), line.thread("vtid"), kind));
        }
        assert!(expected.len() > 200, "{name}: {}", expected.len());
        let found = facts(&case.events(), |kind| {
            matches!(kind, EventKind::Enter { .. } | EventKind::Exit { .. })
        });
        let differ = found
            .iter()
            .zip(&expected)
            .find(|(one, other)| one != other);
        assert_eq!(differ, None, "{name}");
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}

#[test]
fn where_the_program_was_loaded_is_found() {
    let name = "lttng-recorded/lttng213-ctf1-cyg";
    let Some(case) = case(name, "golden-bt20.txt") else {
        return;
    };
    let lines = case.named(&["lttng_ust_statedump:bin_info"]);
    let mut programs = lines.filter(|line| line.fields["path"].ends_with("/cyg"));
    let base = programs.next().unwrap().number("baddr");
    let info = case.open().info().clone();
    assert_eq!(info.text_base, Some(Addr(base)));
    assert!(info.numbered_threads);
}
