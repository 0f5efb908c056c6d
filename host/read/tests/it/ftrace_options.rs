//! The kernel's text with options of the tracers, and with what other programs write around it.

use kymo_event::{EventKind, TimeUnit, Value};
use kymo_read::{Events, OpenOptions};

/// The events of a text: names, and for calls `>function` and `<function`.
fn read(text: &str) -> (Vec<String>, kymo_event::TraceInfo) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let options = OpenOptions {
        wanted: kymo_event::Wanted::Everything,
        ..OpenOptions::default()
    };
    let mut source = kymo_read::open(&path, &options).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info = source.info().clone();
    let name = |function| {
        let function = info.identities.function(function).unwrap();
        function.name.clone().unwrap().to_string()
    };
    let shown = events.iter().map(|event| match event.kind {
        EventKind::Enter { function, .. } => format!(">{}", name(function)),
        EventKind::Exit { function } => format!("<{}", function.map_or_else(String::new, name)),
        EventKind::IsrEnter { irq } => {
            format!("irq {}", info.identities.interrupt_name(irq).unwrap_or("?"))
        }
        EventKind::IsrExit { .. } => "irq end".to_owned(),
        _ => event.name.to_string(),
    });
    (shown.collect(), info)
}

#[test]
fn functions_have_their_names_whatever_stands_behind_them() {
    let head = " sh-1 [000] d..1. 1.000001: ";
    for (line, name) in [
        (
            "copy_process.part.5+0x14/0x1acc <-_do_fork+0xc0/0x41c",
            "copy_process.part.5",
        ),
        (
            "kmem_cache_free(s=0x1, x=0x2) <-file_free",
            "kmem_cache_free",
        ),
        (
            "simple_strtoul <ffffffff81067c60> <-kstrtol <ffffffff81067c00>",
            "simple_strtoul",
        ),
        ("nf_hook [nf_tables] <-ip_rcv", "nf_hook"),
        ("sys_close", "sys_close"),
        ("simple_strtoul <ffffffff81067c60>", "simple_strtoul"),
    ] {
        let (events, info) = read(&format!("# tracer: function\n{head}{line}\n"));
        assert_eq!(events, [format!(">{name}"), format!("<{name}")], "{line}");
        assert_eq!(info.damage, []);
    }
    // A text of the user's is none, also with an arrow in it, and without that header a lone word may be one.
    for text in [
        format!("# tracer: function\n{head}work: done\n"),
        format!("# tracer: function\n{head}two words\n"),
        format!("# tracer: function\n{head}two words <-here\n"),
        format!("# tracer: nop\n{head}sys_close\n"),
    ] {
        let (events, _) = read(&text);
        assert!(!events[0].starts_with('>'), "{events:?}");
    }
}

#[test]
fn repeated_calls_count_as_often_as_they_were() {
    let text = "# tracer: function\n \
        sh-1 [000] d..1. 1.000001: foo <-bar\n \
        sh-1 [000] d..1. 1.000009: foo <-bar (repeats: 3, last_ts: 1.000008)\n";
    let (events, _) = read(text);
    assert_eq!(events.iter().filter(|it| *it == ">foo").count(), 4);
    assert_eq!(events.iter().filter(|it| *it == "<foo").count(), 4);
}

#[test]
fn what_has_beginnings_alone_takes_no_time() {
    let line = |at: u32, what: &str| format!(" sh-1 [000] d..1. 1.00000{at}: {what}\n");
    let entry = |at| line(at, "irq_handler_entry: irq=16 name=eth0");
    let three = |at: u32| {
        [
            entry(3 * at),
            line(3 * at + 1, "softirq_entry: vec=3 [action=NET_RX]"),
            line(3 * at + 2, "sys_enter: NR 3 (1, 2, 3, 4, 5, 6)"),
        ]
        .concat()
    };
    let text = [three(0), three(1), three(2)].concat();
    let (events, info) = read(&text);
    let names = ["irq_handler_entry", "softirq_entry", "sys_enter"];
    assert_eq!(events, [names; 3].concat());
    let remark = "the trace has the beginnings alone of interrupts";
    assert!(
        info.remarks.iter().any(|it| it.starts_with(remark)),
        "{:?}",
        info.remarks
    );
    let ended = [text, line(9, "irq_handler_exit: irq=16 ret=handled")].concat();
    let (events, _) = read(&ended);
    assert_eq!(events[0], "irq eth0");
    // One that is open at the end of the trace is an interrupt.
    let (events, _) = read(&entry(1));
    assert_eq!(events, ["irq eth0"]);
}

#[test]
fn handlers_of_one_line_share_its_name() {
    let line = |at: u32, what: &str| format!(" sh-1 [000] d..1. 1.00000{at}: {what}\n");
    let text = [
        line(1, "irq_handler_entry: irq=21 name=uhci_hcd:usb4"),
        line(2, "irq_handler_exit: irq=21 ret=unhandled"),
        line(3, "irq_handler_entry: irq=21 name=eth0"),
        line(4, "irq_handler_exit: irq=21 ret=handled"),
        line(5, "local_timer_entry: vector=236"),
        line(6, "local_timer_exit: vector=236"),
        line(7, "sys_enter: NR 3 (1, 2, 3, 4, 5, 6)"),
        line(8, "sys_exit: NR 3 = 0"),
    ]
    .concat();
    let (events, _) = read(&text);
    let shared = "irq uhci_hcd:usb4, eth0";
    let expected = [
        shared,
        "irq end",
        shared,
        "irq end",
        "irq local_timer",
        "irq end",
        ">system call 3",
        "<system call 3",
    ];
    assert_eq!(events, expected);
}

#[test]
fn what_programs_write_around_a_trace_is_no_damage() {
    let text = "capturing trace... done\nTRACE:\n# tracer: nop\n \
        sh-1 [000] d..1. 1.000001: binder: flags=0x11 code=7 pad=007\n";
    let (events, info) = read(text);
    assert_eq!(events, ["binder"]);
    assert_eq!(info.damage, []);
}

#[test]
fn flags_of_the_columns_are_no_field_of_the_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let line = " sh-1 [000] d..1. 1.000001: binder: flags=0x11 code=7 pad=007\n";
    std::fs::write(&path, line).unwrap();
    let mut source = kymo_read::open(&path, &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let fields: Vec<_> = events[0]
        .fields
        .iter()
        .map(|it| (&*it.name, &it.value))
        .collect();
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(fields[0], ("flags", &text("0x11")));
    assert_eq!(fields[1], ("code", &Value::Signed(7)));
    assert_eq!(fields[2], ("pad", &text("007")));
    assert_eq!(fields[3].0, "context");
    assert_eq!(source.info().unit, TimeUnit::Nanoseconds);
}

#[test]
fn relative_times_and_names_with_parentheses_are_read() {
    let text = "# tracer: irqsoff\n\
        #   REL TIME      CPU  TASK/PID       DURATION                  FUNCTION CALLS\n        \
        7 us |   0)   bash-1507    |  d... |               |  vfs_read() {\n        \
        9 us |   0)   bash-1507    |  d... |   1.000 us    |    fput();\n       \
        19 us |   0)   bash-1507    |  d... | + 12.000 us   |  } /* vfs_read() */\n";
    let (events, info) = read(text);
    assert_eq!(events, [">vfs_read", ">fput", "<fput", "<vfs_read"]);
    assert!(!info.untimed, "{:?}", info.remarks);
}

#[test]
fn an_exit_without_a_name_is_of_the_function_that_was_entered_last() {
    let text = "# tracer: function_graph\n \
        1)   bash-1    |               |  outer() {\n \
        1)   bash-1    |   1.000 us    |    inner();\n \
        1)   bash-1    |   3.000 us    |  }\n \
        1)   bash-1    |   5.000 us    |  }\n";
    let (events, _) = read(text);
    assert_eq!(events, [">outer", ">inner", "<inner", "<outer", "<outer"]);
}
