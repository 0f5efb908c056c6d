//! Meaning of LTTng's events, compared with babeltrace2's text of the same traces: every switch, interrupt, system call
//! and function, in order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_event::{Addr, Cpu, Event, EventKind, InterruptKind, Irq, Tid, Time, TraceInfo};
use kymo_fixtures::captures;
use kymo_fixtures::names::{function_named, meaning, thread};
use kymo_read::{Events, OpenOptions, Source, open};

/// A trace of the collection, with the lines that babeltrace2 prints for it.
struct Case {
    trace: PathBuf,
    lines: Vec<Line>,
    _unpacked: Option<tempfile::TempDir>,
}

/// A line of babeltrace2's output.
#[derive(Debug)]
struct Line {
    time: Time,
    name: String,
    fields: HashMap<String, String>,
}

impl Line {
    /// Parses `[1.000000002] host:ust event: { cpu_id = 0 }, { a = 1, b = "x" }`.
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

    fn thread(&self, field: &str) -> Option<Tid> {
        Some(self.number(field)).filter(|tid| *tid != 0).map(Tid)
    }

    fn cpu(&self) -> Option<Cpu> {
        Some(Cpu(u32::try_from(self.number("cpu_id")).unwrap()))
    }
}

/// A case of the collection; `None`, with a message, if it is missing.
fn case(name: &str, golden: &str) -> Option<Case> {
    let folder = captures::ctf()?.join(name);
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

    fn read(&self) -> (TraceInfo, Vec<Event>) {
        let mut source = self.open();
        let events = Events::new(&mut *source).map(Result::unwrap).collect();
        (source.info().clone(), events)
    }

    fn named(&self, names: &[&str]) -> impl Iterator<Item = &Line> {
        let named = move |line: &&Line| names.contains(&line.name.as_str());
        self.lines.iter().filter(named)
    }
}

/// The compared properties of an event: time, CPU, thread, meaning.
type Fact = (Time, Option<Cpu>, Option<Tid>, String);

fn facts(info: &TraceInfo, events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> Vec<Fact> {
    let wanted = events.iter().filter(|event| wanted(&event.kind));
    wanted
        .map(|event| {
            let thread = event.thread.map(|thread| info.identities.tid(thread));
            let kind = meaning(info, &event.kind);
            (event.time, event.cpu, thread, kind)
        })
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
        // The text that babeltrace2 2.1.3 prints for the old kernel trace ends early.
        assert!(switches.len() >= count, "{name}: {}", switches.len());
        for line in &switches {
            let (from, to) = (line.thread("prev_tid"), line.thread("next_tid"));
            let fact = |thread, kind: EventKind| {
                (line.time, line.cpu(), Some(thread), format!("{kind:?}"))
            };
            expected.extend(from.map(|thread| fact(thread, EventKind::SwitchedOut)));
            expected.extend(to.map(|thread| fact(thread, EventKind::SwitchedIn)));
        }
        let (info, events) = case.read();
        let mut found = facts(&info, &events, |kind| {
            matches!(kind, EventKind::SwitchedIn | EventKind::SwitchedOut)
        });
        // The clock of that old tracer was broken, and babeltrace2 converts its times differently.
        if name.ends_with("pre5") {
            for fact in found.iter_mut().chain(&mut expected) {
                fact.0 = Time(0);
            }
        }
        // The order of different CPUs at equal times is not defined.
        found.sort_by_key(|fact| fact.1);
        expected.sort_by_key(|fact| fact.1);
        let differ = found
            .iter()
            .zip(&expected)
            .find(|(one, other)| one != other);
        assert_eq!(differ, None, "{name}");
        assert_eq!(found.len(), expected.len(), "{name}");
        // The number of records is unchanged, although a switch has two meanings.
        let records = events.iter().filter(|event| event.record);
        assert_eq!(records.count(), case.lines.len(), "{name}");
    }
}

#[test]
fn what_runs_on_a_processor_is_what_was_switched_to() {
    let name = "babeltrace/ctf1-succeed-lttng-tracefile-rotation";
    let Some(case) = case(name, "golden-bt20.txt") else {
        return;
    };
    let (info, events) = case.read();
    let records: Vec<&Event> = events.iter().filter(|event| event.record).collect();
    assert_eq!(records.len(), case.lines.len());
    let mut running = HashMap::new();
    let mut checked = 0;
    for (line, record) in case.lines.iter().zip(records) {
        assert_eq!(line.name, record.name);
        if line.name == "sched_switch" {
            running.insert(line.cpu(), line.thread("next_tid"));
        } else if let Some(thread) = running.get(&line.cpu()) {
            let found = record.thread.map(|thread| info.identities.tid(thread));
            assert_eq!(found, *thread, "{line:?}");
            checked += 1;
        }
        if line.name == "sched_wakeup" {
            let thread = thread(&info, line.thread("tid").unwrap().0);
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
    let (info, events) = case.read();
    let count = |wanted: fn(&EventKind) -> bool| facts(&info, &events, wanted).len();
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
    // Before a CPU's first switch its thread is unknown: its system calls may end on another CPU.
    let mut switched = std::collections::HashSet::new();
    let mut entries = 0;
    for line in &case.lines {
        match &*line.name {
            "sched_switch" => drop(switched.insert(line.cpu())),
            "sys_enter" => entries += usize::from(switched.contains(&line.cpu())),
            _ => {}
        }
    }
    assert!(entries > 2000, "{entries}");
    assert_eq!(
        count(|kind| matches!(kind, EventKind::Enter { .. })),
        entries
    );
    // An interrupt line shared by several devices has all their names.
    let shared = |irq| {
        let interrupt = &info.identities.interrupts()[irq as usize];
        (interrupt.kind, interrupt.irq) == (InterruptKind::Hard, Irq(19))
    };
    let mut names = events.iter().filter_map(|event| match &event.kind {
        EventKind::IsrName { irq, name } if shared(irq.0) => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(names.next_back(), Some("ahci, uhci_hcd:usb3, eth1"));
    let write = function_named(&info, "system call 1");
    assert_eq!(info.identities.function(write).unwrap().address, None);
    // Softirqs are numbered separately.
    let mut softirqs = info.identities.interrupts().iter();
    let timer = softirqs.find(|it| (it.kind, it.irq) == (InterruptKind::Soft, Irq(1)));
    assert_eq!(timer.unwrap().name.as_deref(), Some("softirq TIMER"));
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
                    let function = address(line, "addr").unwrap();
                    format!("enter {function} from {:?}", address(line, "call_site"))
                }
                (tracer, "func_exit") if tracer.starts_with("lttng_ust_cyg_profile") => {
                    let function = address(line, "addr").map(|it| it.to_string());
                    format!("exit {function:?}")
                }
                _ => continue,
            };
            expected.push((line.time, line.cpu(), line.thread("vtid"), kind));
        }
        assert!(expected.len() > 200, "{name}: {}", expected.len());
        let (info, events) = case.read();
        let found = facts(&info, &events, |kind| {
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

/// Writes a kernel's trace of one CPU, in which one thread makes one system call. The identity of the clock is that of
/// the machine's boot.
fn kernel(folder: &Path, call: &str, (clock, session): (&str, &str), begin: u64) {
    let word = "integer { size = 32; }";
    let text = format!(
        "/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = le;
            packet.header := struct {{ {word} magic; {word} stream_id; }}; }};
        env {{ tracer_name = \"lttng-modules\"; domain = \"kernel\"; {session} }};
        clock {{ name = monotonic; {clock} freq = 1000000000; }};
        stream {{ id = 0;
            packet.context := struct {{ {word} cpu_id; }};
            event.header := struct {{ {word} id;
                integer {{ size = 64; map = clock.monotonic.value; }} timestamp; }};
            event.context := struct {{ {word} tid; }};
        }};
        event {{ id = 0; stream_id = 0; name = \"syscall_entry_{call}\";
            fields := struct {{ {word} ret; }}; }};
        event {{ id = 1; stream_id = 0; name = \"syscall_exit_{call}\";
            fields := struct {{ {word} ret; }}; }};"
    );
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("metadata"), text).unwrap();
    let mut stream = [0xC1FC_1FC1_u32, 0, 0].map(u32::to_le_bytes).concat();
    for (id, time) in [(0_u32, begin), (1, begin + 10)] {
        stream.extend(id.to_le_bytes());
        stream.extend(time.to_le_bytes());
        // The thread, and the field.
        stream.extend([7_u32, 0].map(u32::to_le_bytes).concat());
    }
    std::fs::write(folder.join("chan_0"), stream).unwrap();
}

/// Traces of two kernels share only names, unless they have the same clock and were recorded by the same session.
#[test]
fn traces_of_two_kernels_share_nothing() {
    let uuid = |digit| format!("uuid = \"{digit}a6422d0-6cee-11e0-8c08-cb07d7b3a564\";");
    let [one, other] = ["T09", "T10"]
        .map(|time| format!("trace_name = \"s\"; trace_creation_datetime = \"20261127{time}\";"));
    for (first, second, machines) in [
        ((String::new(), ""), (String::new(), ""), 2),
        ((uuid(1), ""), (uuid(2), ""), 2),
        ((uuid(1), ""), (uuid(1), ""), 1),
        ((uuid(1), &*one), (uuid(1), &*one), 1),
        ((uuid(1), &*one), (uuid(1), &*other), 2),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [&first, &second].map(|(clock, session)| (&**clock, *session));
        kernel(&folder.path().join("a"), "openat", first, 1_000);
        kernel(&folder.path().join("b"), "read", second, 2_000);
        let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
        let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
        let identities = &source.info().identities;
        let calls: Vec<_> = events
            .iter()
            .map(|event| match event.kind {
                EventKind::Enter { function, .. }
                | EventKind::Exit {
                    function: Some(function),
                } => {
                    let function = identities.function(function).unwrap();
                    (function.name.as_deref().unwrap(), function.space)
                }
                ref other => panic!("{other:?}"),
            })
            .collect();
        let [a, b] = [0, 1].map(|stream| source.info().streams[stream].space);
        assert_ne!(a, b);
        let [one, other] = [0, 1].map(|stream| source.info().streams[stream].machine);
        assert_eq!(one == other, machines == 1);
        assert_eq!(
            calls,
            [("openat", a), ("openat", a), ("read", b), ("read", b)]
        );
        let mut threads: Vec<_> = events.iter().map(|event| event.thread.unwrap()).collect();
        threads.dedup();
        assert_eq!(threads.len(), machines);
        assert!(
            threads
                .iter()
                .all(|thread| identities.tid(*thread) == Tid(7))
        );
    }
}

/// Programs with different code at the same address in several processes, and a library that is mapped over a program.
#[test]
fn addresses_of_user_space_are_those_of_a_process() {
    let word = "integer { size = 64; align = 8; base = 16; }";
    let text = format!(
        "/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = le; }};
        env {{ tracer_name = \"lttng-ust\"; domain = \"ust\"; }};
        clock {{ name = monotonic; freq = 1000000000; }};
        stream {{ event.header := struct {{ integer {{ size = 8; }} id;
                integer {{ size = 64; align = 8; map = clock.monotonic.value; }} timestamp; }};
            event.context := struct {{ integer {{ size = 64; align = 8; }} vpid; }}; }};
        event {{ id = 0; name = \"lttng_ust_statedump:bin_info\"; fields := struct {{
            {word} baddr; {word} memsz; string path; }}; }};
        event {{ id = 1; name = \"lttng_ust_cyg_profile:func_entry\";
            fields := struct {{ {word} addr; }}; }};
        event {{ id = 2; name = \"lttng_ust_dl:dlopen\"; fields := struct {{
            {word} baddr; {word} memsz; string path; }}; }};"
    );
    let mut stream = Vec::new();
    let mut time = 0_u64;
    let mut record = |id: u8, pid: u64, fields: &[u64], path: &str| {
        time += 5;
        stream.push(id);
        for number in [&[time, pid], fields].concat() {
            stream.extend(number.to_le_bytes());
        }
        stream.extend(path.as_bytes());
    };
    // A function may be entered before the mapping of its process is recorded.
    record(1, 1, &[0x1010], "");
    record(0, 1, &[0x1000, 0x100], "/bin/one\0");
    record(1, 2, &[0x1010], "");
    record(0, 2, &[0x1000, 0x100], "/bin/two\0");
    record(1, 1, &[0x1010], "");
    record(2, 2, &[0x1000, 0x100], "/lib/three.so\0");
    record(1, 2, &[0x1010], "");
    // Recording a mapping again adds no mapping, not even if the tracer does not know its size.
    for _ in 0..3 {
        record(0, 2, &[0x9000, 0], "[linux-vdso.so.1]\0");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    std::fs::write(folder.path().join("stream"), stream).unwrap();
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let identities = &source.info().identities;
    let functions = events.iter().filter_map(|event| match event.kind {
        EventKind::Enter { function, .. } => identities.function(function),
        _ => None,
    });
    let files: Vec<_> = functions
        .map(|function| {
            assert_eq!(function.address, Some(Addr(0x1010)));
            let space = identities.space(function.space).unwrap();
            let mapping = &space.mappings[function.mapping.unwrap() as usize];
            (space.pid.unwrap(), mapping.path.as_str(), mapping.since)
        })
        .collect();
    let expected = [
        (1, "/bin/one", None),
        (2, "/bin/two", None),
        (1, "/bin/one", None),
        (2, "/lib/three.so", Some(Time(30))),
    ];
    assert_eq!(files, expected);
    assert_eq!(source.info().text_base, Some(Addr(0x1000)));
    let mappings = identities.spaces().iter().flat_map(|space| &space.mappings);
    let paths: Vec<_> = mappings.map(|mapping| mapping.path.as_str()).collect();
    let expected = ["/bin/one", "/bin/two", "[linux-vdso.so.1]", "/lib/three.so"];
    assert_eq!(paths, expected);
}

/// The name in a context is used whenever it differs from the thread's last one, even if that came from another stream.
#[test]
fn a_thread_has_the_name_of_its_last_context() {
    let text = "/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        env { tracer_name = \"lttng-ust\"; domain = \"ust\"; };
        clock { name = monotonic; freq = 1000000000; };
        typealias integer { size = 8; align = 8; encoding = UTF8; } := char;
        stream { event.header := struct { integer { size = 8; align = 8; } id;
                integer { size = 64; align = 8; map = clock.monotonic.value; } timestamp; };
            event.context := struct { integer { size = 32; align = 8; } vtid; char procname[5]; }; };
        event { id = 0; name = \"lttng_ust_cyg_profile:func_entry\"; fields := struct {
            integer { size = 64; align = 8; } addr; }; };
        event { id = 1; name = \"lttng_ust_cyg_profile:func_exit\"; };";
    let record = |(id, time, thread, name): &(u8, u64, u32, &str)| {
        let mut bytes = vec![*id];
        bytes.extend(time.to_le_bytes());
        bytes.extend(thread.to_le_bytes());
        bytes.extend(format!("{name:\0<5}").as_bytes());
        bytes.extend(0x1000_u64.to_le_bytes().iter().filter(|_| *id == 0));
        bytes
    };
    let one: Vec<u8> = [
        (0, 5, 7, "one"),
        (0, 10, 7, "one"),
        (1, 11, 8, "other"),
        (1, 12, 8, "other"),
        (1, 20, 7, "one"),
        (1, 25, 7, "one"),
        (1, 30, 7, ""),
        (1, 35, 8, "other"),
    ]
    .iter()
    .flat_map(record)
    .collect();
    let two: Vec<u8> = [(0, 15, 7, "two"), (1, 16, 7, "two")]
        .iter()
        .flat_map(record)
        .collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    std::fs::write(folder.path().join("one"), one).unwrap();
    std::fs::write(folder.path().join("two"), two).unwrap();
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let identities = &source.info().identities;
    let named = events.iter().filter_map(|event| match &event.kind {
        EventKind::ThreadName { thread, name } => {
            Some((event.time.0, identities.tid(*thread).0, name.as_str()))
        }
        _ => None,
    });
    let expected = [
        (5, 7, "one"),
        (11, 8, "other"),
        (15, 7, "two"),
        (20, 7, "one"),
    ];
    assert_eq!(named.collect::<Vec<_>>(), expected);
    assert_eq!(events.iter().filter(|event| event.record).count(), 10);
}

/// In a kernel's trace, the process in a context does not identify the thread; the switches do.
#[test]
fn threads_of_a_kernel_are_those_that_switches_tell() {
    let word = "integer { size = 32; }";
    let text = format!(
        "/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = le;
            packet.header := struct {{ {word} magic; {word} stream_id; }}; }};
        env {{ tracer_name = \"lttng-modules\"; domain = \"kernel\"; }};
        clock {{ name = monotonic; freq = 1000000000; }};
        stream {{ id = 0;
            packet.context := struct {{ {word} cpu_id; }};
            event.header := struct {{ {word} id;
                integer {{ size = 64; map = clock.monotonic.value; }} timestamp; }};
            event.context := struct {{ {word} vpid; }};
        }};
        event {{ id = 0; stream_id = 0; name = \"sched_switch\";
            fields := struct {{ {word} prev_tid; {word} next_tid; }}; }};
        event {{ id = 1; stream_id = 0; name = \"syscall_entry_read\";
            fields := struct {{ {word} fd; }}; }};"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    let mut stream = [0xC1FC_1FC1_u32, 0, 0].map(u32::to_le_bytes).concat();
    // The process 7 has the threads 7 and 8.
    for (id, time, fields) in [(0_u32, 10_u64, &[7_u32, 8][..]), (1, 20, &[3])] {
        stream.extend(id.to_le_bytes());
        stream.extend(time.to_le_bytes());
        stream.extend(7_u32.to_le_bytes());
        stream.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    }
    std::fs::write(folder.path().join("chan_0"), stream).unwrap();
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let call = events
        .iter()
        .find(|event| matches!(event.kind, EventKind::Enter { .. }));
    let thread = call.unwrap().thread.unwrap();
    assert_eq!(source.info().identities.tid(thread), Tid(8));
}
