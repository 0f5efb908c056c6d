//! Exports in the format of LTTng's kernel tracer, read back by Kymo's own reader and by babeltrace2.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kymo_analysis::schedule::Schedule;
use kymo_event::{Batch, Event, EventKind, StreamId, StreamInfo, Time, TraceInfo};
use kymo_export::{Destination, Export, Formats, Options, Summary};
use kymo_fixtures::captures;
use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use kymo_read::{Events, OpenOptions, open};
use kymo_symbols::Symbols;

use crate::common::{missing, traces};

/// Exports an input.
pub fn export(input: &Path, directory: &Path) -> Summary {
    let mut source = open(input, &OpenOptions::default()).unwrap();
    let (symbols, options) = (Arc::new(Symbols::new()), Options::default());
    let format = Formats::built_in().by_name("lttng").unwrap();
    let destination = Destination::Directory(directory);
    let mut export = Export::new(format, source.info(), &symbols, destination, &options).unwrap();
    let mut batch = Batch::default();
    while source.fill(&mut batch).unwrap() {
        assert!(export.batch(source.info(), &batch).unwrap());
    }
    export.finish(source.info()).unwrap()
}

/// The events of an input.
pub fn read(input: &Path) -> (TraceInfo, Vec<Event>) {
    let mut source = open(input, &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

/// The events in a form that both sides of an export have: time and description, by CPU.
fn happened(info: &TraceInfo, events: &[Event]) -> BTreeMap<u32, Vec<(i64, String)>> {
    let all = &info.identities;
    let mut by_cpu: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for event in events {
        let idle = |name: &str| name.starts_with("IDLE") || name.starts_with("swapper");
        let thread = || match event.thread {
            // A thread without a name has its number instead.
            Some(id) => all
                .thread_name(id)
                .map_or_else(|| format!("{:#x}", all.tid(id).0), str::to_owned),
            None => "idle".to_owned(),
        };
        let what = match &event.kind {
            // LTTng does not treat the idle thread as one.
            EventKind::SwitchedIn if !idle(&thread()) => {
                // The maximum length of a thread name in the kernel.
                format!("{} runs", thread().chars().take(15).collect::<String>())
            }
            EventKind::IsrEnter { irq } => format!("interrupt {}", all.irq(*irq)),
            EventKind::IsrExit { irq } => format!("end of interrupt {}", all.irq(irq.unwrap())),
            _ => continue,
        };
        if what == "idle runs" {
            continue;
        }
        by_cpu
            .entry(event.cpu.unwrap().0)
            .or_default()
            .push((event.time.0, what));
    }
    by_cpu
}

/// The warnings of babeltrace2 for a trace, and the number of lost events that it reports; `None` without babeltrace2.
fn complaints(directory: &Path) -> Option<(String, u64)> {
    let output = Command::new("babeltrace2")
        .arg("--clock-seconds")
        .arg(directory)
        .output();
    let Ok(output) = output else {
        missing("no babeltrace2");
        return None;
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (mut others, mut lost) = (Vec::new(), 0);
    for line in text.lines() {
        let count = line.strip_prefix("WARNING: Tracer discarded ");
        let count = count.and_then(|it| it.split(' ').next()?.parse::<u64>().ok());
        match count {
            Some(count) => lost += count,
            None => others.push(line),
        }
    }
    Some((others.join("\n"), lost))
}

/// The numbers of begins and ends of system calls.
fn calls(info: &TraceInfo, events: &[Event]) -> (usize, usize) {
    let is_call = |id| {
        let function = info.identities.function(id);
        function.is_some_and(|it| it.name.as_ref().is_some_and(|name| !name.contains(' ')))
    };
    let begun = events.iter().filter(|event| match event.kind {
        EventKind::Enter { function, .. } => is_call(function),
        _ => false,
    });
    let ended = events.iter().filter(|event| match event.kind {
        EventKind::Exit { function } => function.is_some_and(is_call),
        _ => false,
    });
    (begun.count(), ended.count())
}

#[test]
fn recordings_of_rtems_are_kernel_traces_and_smaller_than_the_peers() {
    let Some(folder) = captures::rtems_record() else {
        return;
    };
    let index = fs::read_to_string(folder.join("index.json")).unwrap();
    let mut sizes = Vec::new();
    for (name, file) in [
        ("kernel-smp4-stream", "stream.bin"),
        ("kernel-smp4-fatal-zlib", "console.log"),
        ("kernel-smp4-dump-no-uptime", "console.log"),
        ("kernel-up-stream", "stream.bin"),
        ("shim-be32-cpu4", "stream.bin"),
        ("shim-be64-counter-wrap", "stream.bin"),
        ("shim-le32-dump-zlib", "dump.b64"),
        ("shim-le64-dump-base64", "dump.b64"),
        ("shim-le64-overflow", "stream.bin"),
        ("shim-le64-overflow-some", "stream.bin"),
        ("shim-le64-slow-events", "stream.bin"),
        ("shim-le64-uptime-zero", "stream.bin"),
    ] {
        let case = fs::read_to_string(folder.join(name).join("case.json")).unwrap();
        assert!(index.contains(name));
        let bits: u64 = case
            .split("\"content_bits\":")
            .skip(1)
            .map(|rest| {
                rest.trim()
                    .split(|c: char| !c.is_ascii_digit())
                    .next()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            })
            .sum();
        let input = folder.join(name).join(file);
        let directory = tempfile::tempdir().unwrap();
        export(&input, directory.path());
        if let Some((complaints, lost)) = complaints(directory.path()) {
            assert_eq!(complaints, "", "{name}");
            let (_, events) = read(&input);
            let gaps = events.iter().filter_map(|event| match &event.kind {
                EventKind::Gap(gap) => gap.lost_events(),
                _ => None,
            });
            assert_eq!(lost, gaps.sum::<u64>(), "{name}");
        }
        let files = fs::read_dir(directory.path())
            .unwrap()
            .map(|it| it.unwrap());
        let files: Vec<_> = files.collect();
        let names: BTreeSet<_> = files
            .iter()
            .map(|it| it.file_name().into_string().unwrap())
            .collect();
        assert!(
            names
                .iter()
                .all(|it| it == "metadata" || it.starts_with("stream_")),
            "{names:?}"
        );
        let size: u64 = files.iter().map(|it| it.metadata().unwrap().len()).sum();
        let peer = bits / 8
            + fs::metadata(folder.join("peer-metadata.tsdl"))
                .unwrap()
                .len();
        assert!(size < peer, "{name}: {size} bytes, the peer's {peer}");
        sizes.push((size, peer));
        let ((info, events), (again_info, again)) = (read(&input), read(directory.path()));
        let (ours, theirs) = (happened(&info, &events), happened(&again_info, &again));
        let named = |part: &str| again.iter().filter(|it| it.name.starts_with(part)).count();
        let found = (named("syscall_entry_"), named("syscall_exit_"));
        assert_eq!(found, calls(&info, &events), "{name}");
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>()
        );
        for (cpu, ours) in &ours {
            let theirs = &theirs[cpu];
            // If a CPU's first switch identifies the thread before it, that is an additional switch at the start.
            let is_first = |it: &&(_, String)| it.1.ends_with(" runs");
            let first = theirs.first().filter(is_first);
            let added = first.is_some_and(|first| ours.first() != Some(first));
            let theirs = &theirs[usize::from(added)..];
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_eq!(ours, theirs, "{name}: CPU {cpu}");
            }
            assert_eq!(ours.len(), theirs.len(), "{name}: CPU {cpu}");
        }
    }
}

#[test]
fn losses_are_discarded_events_and_streams_that_hold_nothing_have_no_file() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 3, 64, 1_000_000);
    stream
        .processor(0)
        .uptime(10)
        .item(11, 512, 1)
        .overflow(7)
        .item(300_000, 513, 2)
        .uptime(300_001);
    stream
        .processor(2)
        .uptime(20)
        .item(21, 338, 0x1000)
        .item(21, 22, 5)
        .item(21, 23, 9)
        .item(21, 24, 100);
    stream.item(30, 339, 0x1000).item(30, 142, 99).overflow(5);
    let folder = tempfile::tempdir().unwrap();
    let (input, directory) = (folder.path().join("stream"), folder.path().join("trace"));
    fs::write(&input, &stream.bytes).unwrap();
    export(&input, &directory);
    let names = fs::read_dir(&directory)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = names.collect();
    assert_eq!(
        names,
        ["metadata", "stream_0", "stream_1"]
            .map(str::to_owned)
            .into()
    );
    let trace = kymo_ctf::Trace::open(&directory).unwrap();
    let mut messages = trace.messages().unwrap();
    let (mut lost, mut write) = (0, None);
    while let Some((_, message)) = messages.next_message().unwrap() {
        match message {
            kymo_ctf::Message::Gap(gap) => lost += gap.count.unwrap(),
            kymo_ctf::Message::Event(event) if event.name() == "syscall_entry_write" => {
                let number = |name| event.field(name).and_then(|value| value.as_u64());
                write = Some((number("fd"), number("count")));
            }
            _ => {}
        }
    }
    assert_eq!(lost, 12);
    assert_eq!(write, Some((Some(5), Some(100))));
    assert!(complaints(&directory).is_none_or(|(it, _)| it.is_empty()));
}

#[test]
fn a_thread_that_is_woken_before_it_runs_again_was_blocked() {
    const OUT: u32 = 306;
    const IN: u32 = 305;
    const START: u32 = 302;
    let [a, b, c] = [0x0a01_0001, 0x0a01_0002, 0x0a01_0003];
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(10);
    let mut time = 11;
    let mut switch = |stream: &mut Stream, from: u64, to: u64| {
        time += 1;
        stream.item(time, OUT, from).item(time, IN, to);
        time
    };
    // A is woken while B runs. B is not woken before it runs again. C is waiting when the trace ends.
    switch(&mut stream, c, a);
    switch(&mut stream, a, b);
    let now = switch(&mut stream, b, c);
    // More events than fit into one packet.
    for step in 0..40_000 {
        stream.item(now, 512 + step % 16, 7);
    }
    stream.item(now, START, a);
    switch(&mut stream, c, b);
    switch(&mut stream, b, a);
    let folder = tempfile::tempdir().unwrap();
    let (input, directory) = (folder.path().join("stream"), folder.path().join("trace"));
    fs::write(&input, &stream.bytes).unwrap();
    export(&input, &directory);
    assert!(complaints(&directory).is_none_or(|(it, _)| it.is_empty()));
    let trace = kymo_ctf::Trace::open(&directory).unwrap();
    let mut messages = trace.messages().unwrap();
    let mut found = Vec::new();
    while let Some((_, message)) = messages.next_message().unwrap() {
        if let kymo_ctf::Message::Event(event) = message
            && event.name() == "sched_switch"
        {
            let number = |name| event.field(name).and_then(|value| value.as_i64()).unwrap();
            found.push((
                number("prev_tid") & 15,
                number("prev_state"),
                number("next_tid") & 15,
            ));
        }
    }
    // The first switch, to C, shows that C ran when the trace began. In the next one C remains runnable, because it
    // runs again without a wakeup. In the last one from C it waits until the end.
    assert_eq!(
        found,
        [
            (0, 0, 3),
            (3, 0, 1),
            (1, 1, 2),
            (2, 0, 3),
            (3, 1, 2),
            (2, 1, 1)
        ]
    );
}

/// The time in which no thread ran, of all processors, in nanoseconds.
fn idle(info: &TraceInfo, events: &[Event]) -> Option<u64> {
    let mut schedule = Schedule::default();
    schedule.batch(info, &events.iter().cloned().collect());
    schedule.finish(info);
    schedule.idle().map(|idle| idle.0)
}

#[test]
fn a_processor_that_begins_idle_is_idle_behind_an_export() {
    let (thread, own_idle) = (0x0a01_0001, 0x0901_0001);
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream.thread(own_idle, "IDLE").thread(thread, "UI1 ");
    stream.processor(0).uptime(10).item(10, 305, own_idle);
    stream.item(50, 306, own_idle).item(50, 305, thread);
    stream.item(80, 306, thread).item(80, 305, own_idle);
    stream.item(100, 306, own_idle).item(100, 305, thread);
    let folder = tempfile::tempdir().unwrap();
    let (input, exported) = (folder.path().join("idle.bin"), folder.path().join("ctf"));
    fs::write(&input, &stream.bytes).unwrap();
    export(&input, &exported);
    let (info, events) = read(&input);
    assert_eq!(idle(&info, &events), Some(60_000));
    let (info, events) = read(&exported);
    assert_eq!(idle(&info, &events), Some(60_000));
}

#[test]
fn each_trace_has_a_uuid_of_its_own_and_always_the_same_one() {
    let uuid = |counter: u64| {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("stream.bin");
        let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
        stream
            .processor(0)
            .uptime(counter)
            .item(counter + 1, 512, 1);
        fs::write(&input, &stream.bytes).unwrap();
        let directory = folder.path().join("kernel");
        export(&input, &directory);
        let metadata = fs::read_to_string(directory.join("metadata")).unwrap();
        let line = metadata.lines().find(|line| line.contains("uuid = "));
        line.unwrap().to_owned()
    };
    assert_eq!(uuid(100), uuid(100));
    assert_ne!(uuid(100), uuid(200));
}

#[test]
fn priorities_are_those_that_the_target_told() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    export(&folder.join("pro-cpu2.svdat"), directory.path());
    let (info, events) = read(directory.path());
    let of_task = |event: &&Event| {
        let name = event.thread.and_then(|it| info.identities.thread_name(it));
        event.kind == EventKind::SwitchedIn && name == Some("blink_task2")
    };
    let first = events.iter().find(of_task).unwrap();
    let priority = first.fields.iter().find(|field| field.name == "next_prio");
    assert_eq!(priority.unwrap().value.to_string(), "5");
}

#[test]
fn any_source_is_a_kernel_trace() {
    for (name, trace) in traces::all() {
        let directory = tempfile::tempdir().unwrap();
        trace.export_to("lttng", directory.path());
        if let Some((complaints, _)) = complaints(directory.path()) {
            assert_eq!(complaints, "", "{name}");
        }
        kymo_ctf::Trace::open(directory.path()).expect("a trace");
    }
}

/// Functions in a text of a function graph have no addresses, like system calls, but are none.
#[test]
fn functions_of_a_text_are_no_system_calls() {
    for text in [
        "# tracer: function_graph\n\
         10.000100 |   0)    find-298    | + 12.000 us   |  } /* vfs_read */\n\
         10.000200 |   0)    find-298    | + 20.000 us   |  } /* vfs_write */\n",
        "# tracer: function_graph\n\
         10.000100 |   0)    find-298    |               |  vfs_read() {\n\
         10.000200 |   0)    find-298    |   5.000 us    |    rw_verify_area();\n\
         10.000300 |   0)    find-298    | + 20.000 us   |  }\n",
        // Spans marked by a program.
        "# tracer: nop\n\
         \x20          a-10 [001] ...1  10.001000: tracing_mark_write: B|10|read\n\
         \x20          a-10 [001] ...1  10.001500: tracing_mark_write: E|10\n",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let input = directory.path().join("graph.txt");
        fs::write(&input, text).unwrap();
        let out = directory.path().join("out");
        export(&input, &out);
        let (_, events) = read(&out);
        let names: BTreeSet<_> = events.iter().map(|event| event.name.as_ref()).collect();
        assert!(
            names.contains("func_entry") && names.contains("func_exit"),
            "{names:?}"
        );
        assert!(
            !names.iter().any(|name| name.starts_with("syscall")),
            "{names:?}"
        );
    }
}

/// ftrace's text contains the thread of each event. In LTTng's events only switches identify it.
#[test]
fn threads_are_known_before_the_first_switch_as_the_source_tells_them() {
    let text = "# tracer: nop\n\
        \x20          a-10 [001] ...1  10.001000: sys_enter_read: fd: 0\n\
        \x20          a-10 [001] ...1  10.001500: sys_exit_read: 0x1\n\
        \x20          c-12 [001] ...1  10.002000: sys_enter_write: fd: 0\n\
        \x20          c-12 [001] ...1  10.002500: sys_exit_write: 0x1\n\
        \x20          a-10 [001] d..3  10.003000: sched_switch: prev_comm=a prev_pid=10 prev_prio=110 \
        prev_state=D ==> next_comm=b next_pid=11 next_prio=120\n\
        \x20          b-11 [001] d..3  10.004000: sched_switch: prev_comm=b prev_pid=11 prev_prio=120 \
        prev_state=R+ ==> next_comm=a next_pid=10 next_prio=110\n";
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("a.txt"), directory.path().join("out"));
    fs::write(&input, text).unwrap();
    fs::create_dir(&output).unwrap();
    export(&input, &output);
    let (info, events) = read(&output);
    let name = |event: &Event| {
        let thread = event.thread.expect("a thread");
        info.identities.thread_name(thread).unwrap_or("").to_owned()
    };
    let of_calls =
        |event: &&Event| matches!(event.kind, EventKind::Enter { .. } | EventKind::Exit { .. });
    let threads: Vec<String> = events.iter().filter(of_calls).map(name).collect();
    assert_eq!(threads, ["a", "a", "c", "c"]);
    let switches = events
        .iter()
        .filter(|event| event.kind == EventKind::SwitchedIn);
    let states: Vec<String> = switches
        .map(|event| {
            let state = event.fields.iter().find(|field| field.name == "prev_state");
            format!("{} {}", state.unwrap().value, name(event))
        })
        .collect();
    // State D is 2. The first two switches are generated by the export.
    assert_eq!(states, ["0 a", "0 c", "2 b", "0 a"]);
}

/// LTTng records a processor's switches in the kernel's stream, and its functions in those of processes.
#[test]
fn switches_in_one_stream_hold_for_the_others_of_the_processor() {
    let mut w = traces::Writer::new();
    let calls = StreamInfo {
        name: "calls".to_owned(),
        ..w.trace.info.streams[0].clone()
    };
    w.trace.info.streams.extend([calls.clone(), calls]);
    // Before the first switch, both other streams name the thread that runs.
    w.on(0, traces::MAIN).at(1).enter(traces::A);
    w.at(2).enter(traces::B).at(3).exit(traces::B);
    w.at(4).event("switched_out", EventKind::SwitchedOut);
    w.on(0, traces::UNNAMED).at(4);
    w.event("switched_in", EventKind::SwitchedIn);
    w.at(5).enter(traces::A).at(6).exit(traces::A);
    w.at(7).event("switched_out", EventKind::SwitchedOut);
    w.on(0, traces::MAIN).at(7);
    w.event("switched_in", EventKind::SwitchedIn);
    w.at(9).exit(traces::A);
    for event in &mut w.trace.events {
        match (&event.kind, event.time) {
            (EventKind::Enter { .. } | EventKind::Exit { .. }, Time(2 | 3)) => {
                event.stream = StreamId(3);
            }
            (EventKind::Enter { .. } | EventKind::Exit { .. }, _) => event.stream = StreamId(2),
            _ => {}
        }
    }
    let directory = tempfile::tempdir().unwrap();
    w.trace.export_to("lttng", directory.path());
    let (info, events) = read(directory.path());
    let switches = events
        .iter()
        .filter(|event| event.kind == EventKind::SwitchedIn);
    let switches: Vec<_> = switches
        .map(|event| (event.time.0, info.identities.tid(event.thread.unwrap())))
        .collect();
    let times: Vec<_> = switches.iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [1, 4, 7], "{switches:?}");
    assert_eq!(switches[0].1, switches[2].1);
}

#[test]
fn each_machine_is_a_trace_of_its_own() {
    let mut trace = traces::two_machines();
    for stream in &mut trace.info.streams {
        stream.machine = stream.space;
    }
    let directory = tempfile::tempdir().unwrap();
    trace.export_to("lttng", directory.path());
    for name in ["alpha", "beta"] {
        let (info, events) = read(&directory.path().join(name));
        assert!(info.streams.iter().all(|stream| !stream.name.is_empty()));
        let handlers = events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::IsrEnter { .. }));
        assert_eq!(handlers.count(), 3, "{name}");
        let metadata = fs::read_to_string(directory.path().join(name).join("metadata")).unwrap();
        assert!(
            metadata.contains(&format!("hostname = \"{name}\"")),
            "{name}"
        );
    }
    assert!(!directory.path().join("metadata").exists());
}
