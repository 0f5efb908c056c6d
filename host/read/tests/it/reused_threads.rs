//! Threads whose numbers are given to other threads after their end: RTEMS recordings and Zephyr's tracing. (SystemView:
//! `systemview_tasks.rs`.)

use std::fs;
use std::path::Path;

use kymo_event::EventKind;
use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use kymo_read::{Events, OpenOptions, open};

/// Names of the threads that were switched in, and how many different threads these are.
fn switched_in(path: &Path) -> (Vec<String>, usize) {
    let mut source = open(path, &OpenOptions::default()).expect("a recording");
    let all: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let switched = all.iter().filter(|it| it.kind == EventKind::SwitchedIn);
    let threads: Vec<_> = switched.filter_map(|it| it.thread).collect();
    let name = |id: &_| source.info().identities.thread_name(*id).map(str::to_owned);
    let names = threads.iter().map(|id| name(id).unwrap_or_default());
    let names = names.collect();
    let mut different = threads;
    different.sort_unstable();
    different.dedup();
    (names, different.len())
}

/// Switches a thread in and out, from and to the idle thread.
fn run(stream: &mut Stream, time: u64, thread: u64) {
    let idle = 0x0901_0001;
    stream.item(time, 306, idle).item(time, 305, thread);
    stream.item(time + 5, 306, thread).item(time + 5, 305, idle);
}

#[test]
fn an_rtems_thread_with_the_id_of_an_earlier_one_is_another() {
    for (layout, version) in [(LAYOUTS[0], 10), (LAYOUTS[3], 10)] {
        let (id, other) = (0x0a01_0001, 0x0a01_0002);
        let mut stream = Stream::new(layout, version, 1, 64, 1_000_000);
        stream.thread(0x0901_0001, "IDLE").thread(id, "FST ");
        stream.processor(0).uptime(1);
        run(&mut stream, 2, id);
        // THREAD_DELETE, THREAD_CREATE, THREAD_NAME.
        stream
            .item(10, 277, id)
            .item(11, 276, id)
            .text(12, "SECOND");
        run(&mut stream, 20, id);
        // Its end was not recorded, and the next one never runs.
        stream.item(30, 276, id).text(12, "THRD");
        stream.item(31, 277, id).item(32, 276, id).text(12, "FOUR");
        run(&mut stream, 40, id);
        // One that the recording has from its creation on is one.
        stream.item(50, 276, other).text(12, "ONLY");
        run(&mut stream, 51, other);
        run(&mut stream, 61, other);
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), &stream.bytes).expect("a file");
        let (names, different) = switched_in(file.path());
        let own: Vec<_> = names.iter().filter(|it| *it != "IDLE/0").collect();
        assert_eq!(own, ["FST ", "SECOND", "FOUR", "ONLY", "ONLY"]);
        assert_eq!(different, 5);
    }
}

/// The processors' clocks differ: the earlier thread leaves one after its successor was created on the other.
#[test]
fn an_rtems_thread_leaves_its_processor_as_itself() {
    let (id, idle) = (0x0a01_0001, 0x0901_0001);
    let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, 1_000_000);
    stream.thread(id, "FST ").thread(idle, "IDLE");
    stream.processor(0).uptime(1).item(2, 305, id);
    stream.item(12, 306, id).item(12, 305, idle);
    stream.processor(1).uptime(1).item(10, 277, id);
    stream.item(11, 276, id).text(12, "SND ").item(20, 305, id);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), &stream.bytes).expect("a file");
    let mut source = open(file.path(), &OpenOptions::default()).expect("a recording");
    let all: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let out = all.iter().find(|it| it.kind == EventKind::SwitchedOut);
    let thread = out.and_then(|it| it.thread).expect("a thread");
    assert_eq!(source.info().identities.thread_name(thread), Some("FST "));
}

#[test]
fn a_zephyr_thread_with_the_address_of_an_earlier_one_is_another() {
    let number = |size: u32| format!("integer {{ size = {size}; align = 8; signed = false; }}");
    let name = "integer { size = 8; align = 8; signed = false; encoding = ASCII; } name[20]";
    let event = |name: &str, id: u32, fields: &str| {
        format!("event {{ name = {name}; id = {id}; fields := struct {{ {fields} }}; }};\n")
    };
    let thread = format!("{} thread_id; {name};", number(32));
    let metadata = [
        "/* CTF 1.8 */\ntrace { major = 1; minor = 8; byte_order = le; };\n".to_owned(),
        format!(
            "stream {{ event.header := struct {{ {} timestamp; {} id; }}; }};\n",
            number(64),
            number(16)
        ),
        event("thread_switched_out", 0x10, &thread),
        event("thread_switched_in", 0x11, &thread),
        event("thread_create", 0x13, &thread),
        event("thread_abort", 0x14, &thread),
        event("isr_enter", 0x1B, ""),
    ];
    let mut stream = Vec::new();
    let mut add = |time: u64, id: u16, thread: u32, name: &str| {
        stream.extend(time.to_le_bytes());
        stream.extend(id.to_le_bytes());
        stream.extend(thread.to_le_bytes());
        let mut name = name.as_bytes().to_vec();
        name.resize(20, 0);
        stream.extend(name);
    };
    let address = 0x2000_0100;
    // It is there when recording begins.
    add(10, 0x11, address, "first");
    add(20, 0x10, address, "first");
    add(30, 0x14, address, "first");
    add(40, 0x13, address, "unknown");
    add(50, 0x11, address, "second");
    add(60, 0x10, address, "second");
    // Its end was not recorded.
    add(70, 0x13, address, "third");
    add(80, 0x11, address, "third");
    add(90, 0x10, address, "third");
    add(100, 0x11, address, "renamed");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("metadata"), metadata.concat()).expect("a file");
    fs::write(folder.path().join("channel0_0"), stream).expect("a file");
    let (names, different) = switched_in(folder.path());
    assert_eq!(names, ["first", "second", "renamed", "renamed"]);
    assert_eq!(different, 3);
}

/// No record of the processor is behind its name.
#[test]
fn an_rtems_thread_that_is_created_at_the_end_has_its_name() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream.thread(0x0901_0001, "IDLE").processor(0).uptime(1);
    stream.item(10, 276, 0x0a01_0002).text(12, "WORKER");
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), &stream.bytes).expect("a file");
    let mut source = open(file.path(), &OpenOptions::default()).expect("a recording");
    Events::new(&mut *source).for_each(|event| drop(event.unwrap()));
    let identities = &source.info().identities;
    let named = identities
        .threads()
        .iter()
        .any(|thread| thread.name.as_deref() == Some("WORKER"));
    assert!(named);
}

/// An LTTng trace with these records: events of the kernel (`sched_switch`, exit, fork) or of functions.
fn lttng(metadata: &str, stream: &[u8]) -> (Vec<(String, EventKind)>, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("metadata"), metadata).expect("a file");
    fs::write(folder.path().join("channel0_0"), stream).expect("a file");
    let mut source = open(folder.path(), &OpenOptions::default()).expect("a recording");
    let all: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let identities = &source.info().identities;
    let named = all.into_iter().filter_map(|event| {
        let name = identities.thread_name(event.thread?)?.to_owned();
        Some((name, event.kind))
    });
    (named.collect(), identities.threads().len())
}

const INTEGERS: &str = "typealias integer { size = 8; align = 8; } := u8;\n\
    typealias integer { size = 32; align = 8; signed = true; } := i32;\n\
    typealias integer { size = 64; align = 8; } := u64;\n\
    trace { major = 1; minor = 8; byte_order = le; };\n\
    clock { name = monotonic; freq = 1000000000; };\n\
    typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := stamp;\n";

#[test]
fn a_linux_thread_with_the_id_of_an_earlier_one_is_another() {
    let comm = "integer { size = 8; align = 8; encoding = UTF8; }";
    let metadata = format!(
        "/* CTF 1.8 */\n{INTEGERS}env {{ tracer_name = \"lttng-modules\"; domain = \"kernel\"; }};\n\
        stream {{ packet.context := struct {{ u64 timestamp_begin; u64 content_size; u64 packet_size; i32 cpu_id; }};\n\
        event.header := struct {{ u8 id; stamp timestamp; }}; }};\n\
        event {{ id = 0; name = sched_switch; fields := struct {{ {comm} _prev_comm[8]; i32 _prev_tid; u64 _prev_state;\
            {comm} _next_comm[8]; i32 _next_tid; }}; }};\n\
        event {{ id = 1; name = sched_process_exit; fields := struct {{ {comm} _comm[8]; i32 _tid; }}; }};\n\
        event {{ id = 2; name = sched_process_fork; fields := struct {{ {comm} _child_comm[8]; i32 _child_tid; }}; }};\n"
    );
    let text = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(8, 0);
        bytes
    };
    let mut time = 0_u64;
    let mut events = Vec::new();
    let mut add = |id: u8, fields: &[&[u8]]| {
        time += 10;
        events.push(id);
        events.extend(time.to_le_bytes());
        events.extend(fields.concat());
    };
    let (idle, id) = (0_i32.to_le_bytes(), 1000_i32.to_le_bytes());
    let mut run = |name: &str, state: u64, ends: bool, begins: bool| {
        let (name, state) = (text(name), state.to_le_bytes());
        if begins {
            // A thread has its parent's name at first.
            add(2, &[&text("shell"), &id]);
        }
        add(0, &[&text("swapper"), &idle, &[0; 8], &name, &id]);
        if ends {
            add(1, &[&name, &id]);
        }
        add(0, &[&name, &id, &state, &text("swapper"), &idle]);
    };
    run("first", 1, false, false);
    // It sleeps once more, while it exits.
    run("first", 1, true, false);
    run("first", 16, false, false);
    run("second", 1, false, true);
    // Its exit was not recorded.
    run("third", 32, true, true);
    // Its creation was not recorded.
    run("fourth", 1, false, false);
    let mut stream = Vec::new();
    for number in [
        0,
        (events.len() as u64 + 28) * 8,
        (events.len() as u64 + 28) * 8,
    ] {
        stream.extend(number.to_le_bytes());
    }
    stream.extend(0_i32.to_le_bytes());
    stream.extend(events);
    let (events, threads) = lttng(&metadata, &stream);
    let of = |kind: EventKind| {
        let of_kind = events.iter().filter(|(_, it)| *it == kind);
        of_kind.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let expected = ["first", "first", "first", "second", "third", "fourth"];
    assert_eq!(of(EventKind::SwitchedIn), expected);
    assert_eq!(of(EventKind::SwitchedOut), expected);
    assert_eq!(threads, 4);
}

/// Of functions alone, the process says so. Two containers may have threads with one number at the same time.
#[test]
fn a_thread_number_in_another_process_is_that_of_another_thread() {
    let metadata = format!(
        "/* CTF 1.8 */\n{INTEGERS}env {{ tracer_name = \"lttng-ust\"; domain = \"ust\"; }};\n\
        stream {{ event.header := struct {{ u8 id; stamp timestamp; }};\n\
        event.context := struct {{ i32 _vtid; i32 _vpid; string _procname; }}; }};\n\
        event {{ id = 0; name = \"lttng_ust_cyg_profile:func_entry\"; fields := struct {{ u64 addr; u64 call_site; }}; }};\n"
    );
    let mut stream = Vec::new();
    for (time, process, name) in [
        (1, 1, "a"),
        (2, 1, "a"),
        (3, 2, "b"),
        (4, 1, "a"),
        (5, 2, "b"),
    ] {
        stream.push(0);
        stream.extend(u64::to_le_bytes(time));
        stream.extend(i32::to_le_bytes(7));
        stream.extend(i32::to_le_bytes(process));
        stream.extend([name.as_bytes()[0], 0]);
        stream.extend([0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    let (events, threads) = lttng(&metadata, &stream);
    let entered = events
        .iter()
        .filter(|it| matches!(it.1, EventKind::Enter { .. }));
    let names: Vec<_> = entered.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "a", "b", "a", "b"]);
    assert_eq!(threads, 2);
}

#[test]
fn a_pid_of_an_earlier_task_in_a_text_is_that_of_another_thread() {
    let line =
        |task: &str, time: u32, event: &str| format!("{task} [000] d..2. 1.{time:06}: {event}\n");
    let switch = |before: &str, time: u32, state: &str, behind: &str| {
        let (comm, pid) = before.split_once('-').unwrap();
        let (next, next_pid) = behind.split_once('-').unwrap();
        let event = format!(
            "sched_switch: prev_comm={comm} prev_pid={pid} prev_prio=120 prev_state={state} ==> next_comm={next} \
             next_pid={next_pid} next_prio=120"
        );
        line(before, time, &event)
    };
    let idle = "swapper/0-0";
    let text = [
        "# tracer: nop\n#\n".to_owned(),
        switch(idle, 1, "R", "first-7"),
        line("first-7", 2, "tracing_mark_write: B|7|work"),
        line(
            "first-7",
            3,
            "sched_process_exit: comm=first pid=7 prio=120",
        ),
        switch("first-7", 4, "X", idle),
        line(
            "sh-1",
            5,
            "task_newtask: pid=7 comm=sh clone_flags=0 oom_score_adj=0",
        ),
        line(
            "sh-1",
            6,
            "sched_wakeup_new: comm=sh pid=7 prio=120 target_cpu=000",
        ),
        switch("sh-1", 7, "S", "second-7"),
        line("second-7", 8, "tracing_mark_write: B|7|work"),
        line(
            "second-7",
            9,
            "sched_process_exit: comm=second pid=7 prio=120",
        ),
        switch("second-7", 10, "0x10 (16)", "third-7"),
    ];
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), text.concat()).expect("a file");
    let (names, different) = switched_in(file.path());
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(different, 3);
}
