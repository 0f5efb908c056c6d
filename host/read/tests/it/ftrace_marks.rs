//! Marks that programs write into the kernel's trace (`B|pid|name`), as text and in a trace.dat.

use std::io::Write;
use std::path::Path;

use kymo_event::{Event, EventKind, TraceInfo};
use kymo_ftrace::{DatFile, Order};
use kymo_read::{Events, OpenOptions};

use crate::ftrace_text::read_lines;

/// Spans and counters of events, with the time in microseconds; `-` for other events.
fn reported(events: &[Event], info: &TraceInfo) -> Vec<(String, i64, u64)> {
    let name = |function| crate::ftrace_text::name(info, function);
    let one = |event: &Event| {
        let what = match &event.kind {
            EventKind::Enter { function, .. } => format!("+{}", name(*function)),
            EventKind::Exit {
                function: Some(function),
            } => format!("-{}", name(*function)),
            EventKind::Counter {
                name,
                process,
                value,
            } => match process {
                Some(process) => format!("{name}={value} of {process}"),
                None => format!("{name}={value}"),
            },
            EventKind::Other => "text".to_owned(),
            other => format!("{other:?}"),
        };
        let tid = event.thread.map_or(0, |it| info.identities.tid(it).0);
        (what, event.time.0 / 1000, tid)
    };
    events.iter().map(one).collect()
}

/// Marks of thread 8 of a program and of another one, with the time in microseconds.
const WRITTEN: [(u64, u64, &str); 9] = [
    (1, 8, "E|7"),
    (2, 8, "B|7|frame"),
    (3, 8, "B|7|draw: all"),
    (4, 9, "B|7|load"),
    (5, 8, "C|7|queued|3"),
    (6, 8, "E"),
    (7, 8, "S|7|fetch|1"),
    (8, 8, "E|7"),
    (9, 9, "E|7"),
];

fn expected() -> Vec<(String, i64, u64)> {
    [
        ("text", 1, 8),
        ("+frame", 2, 8),
        ("+draw: all", 3, 8),
        ("+load", 4, 9),
        ("queued=3 of 7", 5, 8),
        ("-draw: all", 6, 8),
        ("text", 7, 8),
        ("-frame", 8, 8),
        ("-load", 9, 9),
    ]
    .map(|(what, time, tid)| (what.to_owned(), time, tid))
    .to_vec()
}

fn line(time: u64, tid: u64, text: &str) -> String {
    format!("  app-{tid}  [001] ...1  0.{time:06}: {text}\n")
}

#[test]
fn marks_in_text_are_spans_and_counters() {
    for written in ["tracing_mark_write", "print: tracing_mark_write", "print"] {
        let lines = WRITTEN.map(|(time, tid, text)| line(time, tid, &format!("{written}: {text}")));
        let (events, info) = read_lines(&format!("# tracer: nop\n#\n{}", lines.concat()));
        assert_eq!(reported(&events, &info), expected(), "{written}");
        assert_eq!((info.damaged_places(), info.remarks.len()), (0, 0));
    }
}

#[test]
fn frequencies_and_idle_states_are_counters() {
    let lines = [
        "cpu_frequency: state=1800000 cpu_id=3",
        "cpu_idle: state=2 cpu_id=1",
        "cpu_idle: state=4294967295 cpu_id=1",
        "cpu_idle: state=x cpu_id=1",
    ];
    let lines = lines.map(|text| line(1, 8, text)).concat();
    let (events, info) = read_lines(&format!("# tracer: nop\n#\n{lines}"));
    let reported = reported(&events, &info);
    let reported: Vec<_> = reported.iter().map(|it| it.0.as_str()).collect();
    let idle = ["cpu_idle cpu1=2", "cpu_idle cpu1=-1", "text"];
    assert_eq!(
        reported,
        [&["cpu_frequency cpu3=1800000"][..], &idle].concat()
    );
}

#[test]
fn counters_are_of_the_process_that_their_mark_names() {
    let lines = [
        (1, 8, "C|7|queued|9223372036854775807"),
        (2, 9, "C|9|queued|-1.5"),
        // Another thread of the first process, and a counter without a process.
        (3, 9, "C|7|queued|2"),
        (4, 9, "C|0|queued|1"),
    ];
    let lines = lines.map(|(at, tid, text)| line(at, tid, &format!("tracing_mark_write: {text}")));
    let (events, info) = read_lines(&format!("# tracer: nop\n#\n{}", lines.concat()));
    let reported = reported(&events, &info);
    let reported: Vec<_> = reported.iter().map(|it| it.0.as_str()).collect();
    let expected = [
        "queued=9223372036854775807 of 7",
        "queued=-1.5 of 9",
        "queued=2 of 7",
        "queued=1",
    ];
    assert_eq!(reported, expected);
}

#[test]
fn marks_stay_text_beside_the_calls_that_hold_them() {
    let system_calls = [
        line(1, 8, "sys_write(fd: 3, buf: 7f, count: 9)"),
        line(2, 8, "tracing_mark_write: B|7|frame"),
        line(3, 8, "sys_write -> 0x9"),
        line(4, 8, "sys_write(fd: 3, buf: 7f, count: 3)"),
        line(5, 8, "tracing_mark_write: E|7"),
        line(6, 8, "sys_write -> 0x3"),
    ];
    let graph = "     0.000001 |   1)    app-8     |               |  vfs_write() {\n     \
        0.000002 |   1)    app-8     |               |    /* B|7|frame */\n     \
        0.000003 |   1)    app-8     |   2.000 us    |  }\n     \
        0.000004 |   1)    app-8     |               |  vfs_write() {\n     \
        0.000005 |   1)    app-8     |               |    /* E|7 */\n     \
        0.000006 |   1)    app-8     |   2.000 us    |  }\n";
    for (text, call) in [
        (system_calls.concat(), "write"),
        (graph.to_owned(), "vfs_write"),
    ] {
        let (events, info) = read_lines(&text);
        let found: Vec<_> = reported(&events, &info)
            .into_iter()
            .map(|it| it.0)
            .collect();
        let (begin, end) = (format!("+{call}"), format!("-{call}"));
        let once = [begin, "text".to_owned(), end];
        assert_eq!(found, [once.clone(), once].concat());
        assert!(info.remarks.iter().any(|it| it.contains("B|pid|name")));
    }
}

/// Writes a trace.dat with `print` records of one CPU.
fn dat(to: &Path) {
    const PAGE: usize = 4096;
    const PRINT: &str = "name: print\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;\n\n\
        print fmt: \"%ps: %s\", (void *)REC->ip, REC->buf\n";
    let header_page = format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:16;\tsize:{};\tsigned:1;\n",
        PAGE - 16
    );
    let mut entries = Vec::new();
    let mut last = 0;
    for (time, tid, text) in WRITTEN {
        let mut data = [5u16.to_le_bytes().to_vec(), vec![0, 1]].concat();
        data.extend((tid as u32).to_le_bytes());
        data.extend(0x1000u64.to_le_bytes());
        data.extend(text.bytes());
        data.extend(b"\n\0");
        data.resize(data.len().next_multiple_of(4), 0);
        let delta = (time * 1000 - last) as u32;
        last = time * 1000;
        entries.extend((delta << 5 | (data.len() / 4) as u32).to_le_bytes());
        entries.extend(data);
    }
    let mut page = [0u64.to_le_bytes(), (entries.len() as u64).to_le_bytes()].concat();
    page.extend(entries);
    page.resize(PAGE, 0);
    let file = DatFile {
        order: Order::Little,
        long_size: 8,
        page_size: PAGE as u32,
        header_page: header_page.into_bytes(),
        systems: vec![("ftrace".to_owned(), vec![PRINT.as_bytes().to_vec()])],
        kallsyms: b"0000000000001000 T tracing_mark_write\n".to_vec(),
        comms: b"8 app\n9 app\n".to_vec(),
        clocks: "[local] global".to_owned(),
        cpus: 2,
        pages: vec![(1, PAGE as u64)],
        ..DatFile::default()
    };
    let mut out = Vec::new();
    file.write(&mut out, |out, _| out.write_all(&page)).unwrap();
    std::fs::write(to, out).unwrap();
}

#[test]
fn marks_in_a_trace_dat_are_spans_and_counters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    dat(&path);
    let mut source = kymo_read::open(&path, &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info = source.info();
    assert_eq!(reported(&events, info), expected());
    assert_eq!(info.damaged_places(), 0);
}

#[test]
fn a_second_file_behind_the_first_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    dat(&path);
    let one = std::fs::read(&path).unwrap();
    let remarks = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let source = kymo_read::open(&path, &OpenOptions::default()).unwrap();
        source.info().remarks.clone()
    };
    assert_eq!(remarks(&one), [""; 0]);
    let offset = format!("another trace.dat begins at offset {:#x}", one.len());
    let [remark] = &remarks(&[&one[..], &one[..]].concat())[..] else {
        panic!("expected one remark");
    };
    assert!(remark.starts_with(&offset), "{remark}");
}
