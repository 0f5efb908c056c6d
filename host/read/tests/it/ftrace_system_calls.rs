//! System calls in raw pages.

use std::fs;
use std::path::Path;

use kymo_event::EventKind;
use kymo_read::{Events, OpenOptions};

const COMMON: &str = "format:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

const NUMBER: &str = "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\n";

/// Writes raw pages of one CPU with these events: their tasks, their ids and the numbers of their calls. Formats of all
/// events are there, as tracefs has them.
fn tracefs(directory: &Path, events: &[(i32, u16, i64)]) {
    for (system, name, id) in [
        ("raw_syscalls", "sys_enter", 1),
        ("raw_syscalls", "sys_exit", 2),
        ("syscalls", "sys_enter_read", 3),
        ("syscalls", "sys_exit_read", 4),
    ] {
        let folder = directory.join("events").join(system).join(name);
        fs::create_dir_all(&folder).unwrap();
        let format =
            format!("name: {name}\nID: {id}\n{COMMON}{NUMBER}print fmt: \"NR %ld\", REC->id\n");
        fs::write(folder.join("format"), format).unwrap();
    }
    let header = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    fs::write(directory.join("events/header_page"), header).unwrap();
    let mut pages = Vec::new();
    let mut time = 5_000_u64;
    for events in events.chunks(4080 / 20) {
        let mut data = Vec::new();
        for (task, id, number) in events {
            // Four words, 1,000 ns behind the record before.
            data.extend((4_u32 | 1_000 << 5).to_le_bytes());
            data.extend(id.to_le_bytes());
            data.extend([0, 0]);
            data.extend(task.to_le_bytes());
            data.extend(number.to_le_bytes());
        }
        let mut page = time.to_le_bytes().to_vec();
        page.extend((data.len() as u64).to_le_bytes());
        page.extend(data);
        page.resize(4096, 0);
        pages.extend(page);
        time += 1_000 * events.len() as u64;
    }
    let cpu = directory.join("per_cpu/cpu0");
    fs::create_dir_all(&cpu).unwrap();
    fs::write(cpu.join("trace_pipe_raw"), pages).unwrap();
}

/// The names of the calls' beginnings and ends in one task, and of other events.
fn read(events: &[(u16, i64)]) -> Vec<String> {
    read_tasks(&by(7, events))
}

/// The events, of a task.
fn by(task: i32, events: &[(u16, i64)]) -> Vec<(i32, u16, i64)> {
    events.iter().map(|it| (task, it.0, it.1)).collect()
}

/// The names of the calls' beginnings and ends, and of other events.
fn read_tasks(events: &[(i32, u16, i64)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    tracefs(folder.path(), events);
    let options = OpenOptions {
        wanted: kymo_event::Wanted::Everything,
        ..OpenOptions::default()
    };
    let mut source = kymo_read::open(folder.path(), &options).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info = source.info();
    assert_eq!(info.damage, []);
    let name = |function| {
        let function = info.identities.function(function).unwrap();
        function.name.clone().unwrap().to_string()
    };
    (events.iter())
        .map(|event| match event.kind {
            EventKind::Enter { function, .. } => format!(">{}", name(function)),
            EventKind::Exit { function } => format!("<{}", function.map_or_else(String::new, name)),
            _ => event.name.to_string(),
        })
        .collect()
}

#[test]
fn a_system_call_with_a_number_and_a_name_is_one_call() {
    assert_eq!(
        read(&[(1, 0), (2, 0)]),
        [">system call 0", "<system call 0"]
    );
    // The first record of an entry and the first one of an exit are the call's.
    let both = read(&[(1, 0), (3, 0), (4, 0), (2, 0)]);
    assert_eq!(both, [">read", "sys_enter_read", "<read", "sys_exit"]);
    let both = read(&[(3, 0), (1, 0), (2, 0), (4, 0)]);
    assert_eq!(both, [">read", "sys_enter", "<read", "sys_exit_read"]);
    // Of an exit, either one may be missing.
    let both = read(&[
        (1, 0),
        (3, 0),
        (2, 0),
        (3, 0),
        (1, 0),
        (4, 0),
        (1, 0),
        (3, 0),
    ]);
    let expected = [
        ">read",
        "sys_enter_read",
        "<read",
        ">read",
        "sys_enter",
        "<read",
    ];
    assert_eq!(both[..6], expected);
    assert_eq!(both[6..], [">read", "sys_enter_read"]);
}

/// Named events may be enabled for some calls, or later.
#[test]
fn other_system_calls_keep_their_numbers() {
    let one = [(1, 0), (3, 0), (4, 0), (2, 0)];
    let other = [(1, 39), (2, 39)];
    let named = [">read", "sys_enter_read", "<read", "sys_exit"];
    let numbered = [">system call 39", "<system call 39"];
    let all = read(&[&one[..], &other, &one, &other, &other].concat());
    assert_eq!(
        all,
        [&named[..], &numbered, &named, &numbered, &numbered].concat()
    );
    // Later calls of this task have numbers alone.
    let again = read(&[&one[..], &[(1, 0), (2, 0)], &[(1, 0), (2, 0)], &one].concat());
    assert_eq!(again[4..8], [">read", "<read", ">read", "<read"]);
}

/// More records than are examined beforehand come first.
#[test]
fn names_that_come_late_are_those_of_calls() {
    let pairs = |count: usize| [(1, 0), (2, 0)].repeat(count);
    let one = [(1, 0), (3, 0), (4, 0), (2, 0)];
    let all = read(&[pairs(10_100), one.to_vec(), one.to_vec()].concat());
    let calls = all.iter().filter(|it| it.starts_with(['>', '<']));
    assert_eq!(calls.count(), 2 * 10_102);
    let last = &all[all.len() - 8..];
    assert_eq!(
        last[..4],
        [
            ">system call 0",
            "sys_enter_read",
            "<system call 0",
            "sys_exit"
        ]
    );
    assert_eq!(last[4..], [">read", "sys_enter_read", "<read", "sys_exit"]);
}

/// A task of 32 bits has numbers alone, which are those of other calls in tasks of 64 bits.
#[test]
fn the_first_call_of_a_task_of_another_abi_is_not_named() {
    let alone = [(1, 0), (2, 0)];
    for one in [
        [(1, 0), (3, 0), (4, 0), (2, 0)],
        [(3, 0), (1, 0), (2, 0), (4, 0)],
    ] {
        let events = [
            by(7, &one),
            by(32, &alone),
            by(32, &alone),
            // A single one may have lost its name, and so may some of a task that has names.
            by(8, &alone),
            by(9, &alone),
            by(9, &alone),
            by(9, &one),
            by(7, &alone),
        ];
        let all = read_tasks(&events.concat());
        let numbered = [">system call 0", "<system call 0"];
        assert_eq!(all[4..8], [numbered, numbered].concat());
        assert_eq!(all[8..10], [">read", "<read"]);
        assert_eq!(all[10..12], [">read", "<read"]);
        assert_eq!(all[all.len() - 2..], [">read", "<read"]);
    }
}
