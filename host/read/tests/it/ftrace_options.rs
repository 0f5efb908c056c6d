//! The kernel's text with options of the tracers, and with output of other programs around it.

use kymo_event::{EventKind, TimeUnit, Value};
use kymo_read::{Events, OpenOptions};

/// The events of a text: their names, and `>function` and `<function` for calls.
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
        EventKind::Called { function, .. } => format!("*{}", name(function)),
        EventKind::Exit { function } => format!("<{}", function.map_or_else(String::new, name)),
        EventKind::IsrEnter { irq } => {
            format!("irq {}", info.identities.interrupt_name(irq).unwrap_or("?"))
        }
        EventKind::IsrExit { .. } => "irq end".to_owned(),
        EventKind::Gap(ref gap) => format!("gap {}", gap.name()),
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
        assert_eq!(events, [format!("*{name}")], "{line}");
        assert_eq!(info.damage, []);
    }
    // A text that a user wrote is no call, also if it contains an arrow. Without the `function` header, a lone word may
    // be such a text.
    for text in [
        format!("# tracer: function\n{head}work: done\n"),
        format!("# tracer: function\n{head}two words\n"),
        format!("# tracer: function\n{head}two words <-here\n"),
        format!("# tracer: nop\n{head}sys_close\n"),
    ] {
        let (events, _) = read(&text);
        assert!(!events[0].starts_with('*'), "{events:?}");
    }
}

#[test]
fn repeated_calls_count_as_often_as_they_were() {
    let text = "# tracer: function\n \
        sh-1 [000] d..1. 1.000001: foo <-bar\n \
        sh-1 [000] d..1. 1.000009: foo <-bar (repeats: 3, last_ts: 1.000008)\n";
    let (events, _) = read(text);
    assert_eq!(events.iter().filter(|it| *it == "*foo").count(), 4);
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
    // One that is still open at the end of the trace is also an interrupt.
    let (events, _) = read(&entry(1));
    assert_eq!(events, ["irq eth0"]);
}

#[test]
fn a_thread_is_in_one_system_call_at_a_time() {
    let line = |at: u32, what: &str| format!(" sh-1 [000] d..1. 1.00000{at}: {what}\n");
    // Identified by names as the kernel and trace-cmd write them, and by numbers.
    for (signal, [read_begins, read_ends], name) in [
        (
            ["sys_rt_sigreturn()", ""],
            ["sys_read(fd: 3)", "sys_read -> 0x1"],
            ["rt_sigreturn", "read"],
        ),
        (
            ["sys_enter_rt_sigreturn: ", ""],
            ["sys_enter_read: fd: 3", "sys_exit_read: 0x1"],
            ["rt_sigreturn", "read"],
        ),
        (
            ["sys_enter: NR 15 (1, 2)", ""],
            ["sys_enter: NR 0 (3)", "sys_exit: NR 0 = 1"],
            ["system call 15", "system call 0"],
        ),
        (
            ["sys_enter: NR 15 (1, 2)", "sys_exit: NR -1 = 1"],
            ["sys_enter: NR 0 (3)", "sys_exit: NR 0 = 1"],
            ["system call 15", "system call 0"],
        ),
    ] {
        let [signal, returns] = signal;
        let mut text = line(1, signal);
        if !returns.is_empty() {
            text += &line(2, returns);
        }
        text += &line(3, read_begins);
        text += &line(4, read_ends);
        let (events, _) = read(&text);
        let [first, second] = name;
        let end = match returns {
            "" => "gap missing_exit".to_owned(),
            _ => format!("<{first}"),
        };
        let expected = [
            format!(">{first}"),
            end,
            format!(">{second}"),
            format!("<{second}"),
        ];
        assert_eq!(events, expected, "{text}");
    }
    // Events of these names begin calls. If a trace has only beginnings, no call ends.
    let text = [
        line(1, "sys_openat(dfd: 1)"),
        line(2, "sys_openat -> 0x3"),
        line(3, "sys_exit_group(error_code: 0)"),
    ]
    .concat();
    let (events, _) = read(&text);
    assert_eq!(events, [">openat", "<openat", ">exit_group"]);
    let begin = |at| line(at, "sys_exit_group(error_code: 0)");
    let (events, _) = read(&[begin(1), begin(2), begin(3)].concat());
    assert_eq!(events, ["sys_enter_exit_group"; 3]);
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

/// OP-TEE's graph of a trusted application: depths in a separate column, and leaf calls without a semicolon.
#[test]
fn graphs_of_trusted_applications_are_read() {
    let text = "TEE load address @ 0x5ab04000\n\
        Function graph for TA: cb3e5ba0-adf1-11e0-998b-0002a5d5c51b @ 80085000\n             \
                 |   1 |  entry() {\n   \
        43.840 us |   2 |   get_header()\n             \
                 |   2 |   add_pool() {\n   \
        46.032 us |   3 |    pool()\n  \
        398.720 us |   2 |   }\n  \
        500.000 us |   1 |  }\n";
    let (events, info) = read(text);
    let expected = [
        ">entry",
        ">get_header",
        "<get_header",
        ">add_pool",
        ">pool",
        "<pool",
        "<add_pool",
        "<entry",
    ];
    assert_eq!(
        (events, info.damaged_places()),
        (expected.map(str::to_owned).to_vec(), 0)
    );
    let (events, info) = crate::ftrace_text::read_lines(text);
    let calls = crate::ftrace_text::calls(&events, &info);
    let durations: Vec<_> = calls
        .iter()
        .map(|(name, _, took)| (&**name, *took))
        .collect();
    let expected = [
        ("get_header", 43_840),
        ("pool", 46_032),
        ("add_pool", 398_720),
        ("entry", 500_000),
    ];
    assert_eq!(durations, expected);
}

/// NuttX writes CPU numbers without leading zeros.
#[test]
fn events_of_nuttx_are_read() {
    let (events, info) = crate::ftrace_text::read_lines(
        "<noname>-1   [0]   7.640000000: sched_switch: prev_comm=a prev_pid=1 prev_state=S ==> next_comm=b next_pid=2\n\
         b-2   [0]   7.650000000: irq_handler_entry: irq=11\n\
         b-2   [0]   7.660000000: irq_handler_exit: irq=11\n",
    );
    assert_eq!(info.damaged_places(), 0);
    assert_eq!(events.last().unwrap().time.0, 7_660_000_000);
}

/// An interrupt between the begin of a call and the record of its entry delays the record.
#[test]
fn an_entry_that_was_written_late_does_not_move_what_follows() {
    let (events, _) = crate::ftrace_text::read_lines(
        "# tracer: function_graph\n \
         60.788100 |   1)    cat-112  |               |  outer() {\n \
         60.788158 |   1)    cat-112  |               |    late() {\n \
         60.788418 |   1)    cat-112  | ! 885.977 us  |    } /* late */\n \
         60.788430 |   1)    cat-112  |   1.000 us    |    next();\n \
         60.788440 |   1)    cat-112  | ! 950.000 us  |  } /* outer */\n",
    );
    let times: Vec<_> = events
        .iter()
        .map(|event| event.time.0 - 60_788_000_000)
        .collect();
    assert_eq!(
        times,
        [100_000, 100_000, 418_000, 430_000, 431_000, 440_000]
    );
}

#[test]
fn values_of_the_option_fields_are_the_numbers_in_brackets() {
    let line = |at: u32, what: &str| format!(" sh-1 [000] d..1. 1.00000{at}: {what}\n");
    let text = [
        "irq_handler_entry: irq=0x18 (24) name=eth0",
        "irq_handler_exit: irq=0x18 (24) ret=0x1 (1)",
        "local_timer_entry: vector=0xec (236)",
        "local_timer_exit: vector=0xec (236)",
        "sys_enter: id=0x0 (0) args=0x3,0x0",
        "sys_exit: id=0x0 (0) ret=0xfffffffffffffff7 (-9)",
        "sys_exit_clone: __syscall_nr=0x38 (56) ret=0x0 (0)",
        // As `trace-cmd report -R` writes it.
        "sys_exit_vfork: __syscall_nr=58 ret=0x0",
        "sched_switch: prev_comm=sh prev_pid=0x1 (1) prev_prio=0x78 (120) prev_state=0x100 (256) next_comm=ls next_pid=0x16 (22) next_prio=0x78 (120)",
    ];
    let text: String = (1..).zip(text).map(|(at, what)| line(at, what)).collect();
    let (events, info) = read(&text);
    let expected = [
        "irq eth0",
        "irq end",
        "irq local_timer",
        "irq end",
        ">system call 0",
        "<system call 0",
        "sys_exit_clone",
        "sys_exit_vfork",
    ];
    assert_eq!(events[..8], expected);
    let threads = info.identities.threads();
    assert!(
        threads
            .iter()
            .any(|it| it.tid.0 == 22 && it.name.as_deref() == Some("ls"))
    );
}
