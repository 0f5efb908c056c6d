//! Lines of ftrace's text that identify a task, and lines that are no part of it.

use kymo_event::{EventKind, Gap};

use crate::ftrace_text::{name, read_lines};

#[test]
fn lines_of_a_console_are_no_calls_in_a_graph_with_columns() {
    let graph = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n \
                 0)               |  vfs_read() {\n \
                 0)   1.500 us    |    rw_verify_area();\n";
    let end = " 0) + 12.000 us   |  }\n";
    let (expected, info) = read_lines(&format!("{graph}{end}"));
    assert_eq!(info.damaged_places(), 0);
    let (found, info) = read_lines(&format!("{graph}some_console_text();\n}}\n{end}"));
    assert_eq!(info.damaged_places(), 2);
    assert_eq!(found, expected);
}

#[test]
fn the_rest_of_a_line_that_was_broken_in_two_has_no_place_in_time() {
    let text = graph(&[5_000_000, 5_000_010, 5_000_020, 5_000_030]);
    let (whole, _) = read_lines(&text);
    let broken = |line: usize| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines[line] = lines[line].replacen("|  ", "|\n  ", 1);
        lines.join("\n") + "\n"
    };
    // In the middle, where the first half is none of ftrace's lines, and at the end.
    for line in [3, 5] {
        let (found, info) = read_lines(&broken(line));
        assert!(!info.untimed, "line {line}: {:?}", info.remarks);
        assert_eq!(info.damaged_places(), 2);
        assert_eq!(found.first(), whole.first());
        assert!(found.iter().all(|event| event.time >= whole[0].time));
    }
    // A text that begins in the middle of a line.
    let begin = text.find("|  vfs_read() {").unwrap();
    let (found, info) = read_lines(&text[begin + 1..]);
    assert!(!info.untimed && info.damaged_places() == 1);
    assert_eq!(found.last(), whole.last());
}

#[test]
fn colours_of_a_terminal_are_no_part_of_lines() {
    let text = graph(&[5_000_000, 5_000_010, 5_000_020, 5_000_030]);
    let (expected, _) = read_lines(&text);
    let mut lines: Vec<_> = text.lines().collect();
    lines.push("\u{1b}[0m");
    let coloured: String = (lines.iter())
        .map(|line| {
            format!(
                "\u{1b}[32m{}\u{1b}[0m\r\n",
                line.replace("vfs", "\u{1b}[1;31mvfs\u{1b}[m")
            )
        })
        .collect();
    let (found, info) = read_lines(&coloured);
    assert_eq!(found, expected);
    assert_eq!(info.damaged_places(), 0);
}

/// Calls of a task, one line for each of the given times in microseconds.
fn graph(times: &[u64]) -> String {
    let mut text = "# tracer: function_graph\n#\n".to_owned();
    for (place, time) in times.iter().enumerate() {
        let call = match place % 2 {
            0 => "              |  vfs_read() {",
            _ => " 10.000 us    |  } /* vfs_read */",
        };
        text += &format!(
            "{:5}.{:06} |   0)    sh-7      |{call}\n",
            time / 1_000_000,
            time % 1_000_000
        );
    }
    text
}

/// The times of a text's events, in microseconds, and the steps by which its clock goes back.
fn times(text: &str) -> (Vec<i64>, Vec<u64>, kymo_event::TraceInfo) {
    let (events, info) = read_lines(text);
    let (mut times, mut steps) = (Vec::new(), Vec::new());
    for event in &events {
        match event.kind {
            kymo_event::EventKind::Gap(kymo_event::Gap::TimeBackward { by }) => {
                steps.push(by.0 / 1000)
            }
            _ => times.push(event.time.0 / 1000),
        }
    }
    (times, steps, info)
}

#[test]
fn one_wrong_time_is_told_and_does_not_move_what_follows() {
    let right = [
        5_000_000, 5_000_010, 5_000_020, 5_000_030, 5_000_040, 5_000_050,
    ];
    let (expected, steps, info) = times(&graph(&right));
    assert_eq!((steps.len(), info.remarks.len()), (0, 0));
    assert_eq!(expected[5], 5_000_050);
    for wrong in [0, 1_000, 900_000_000_000, 9_000_000_000_000_000] {
        let mut given = right;
        given[2] = wrong;
        let (found, steps, info) = times(&graph(&given));
        assert_eq!(steps, [wrong.abs_diff(right[1])], "{wrong}");
        let mut placed = expected.clone();
        // The wrong line gets the time of the line before it. The time of the next line depends on its call's duration.
        placed[2] = expected[1];
        placed[3] = found[3];
        assert_eq!(found, placed, "{wrong}");
        assert!(
            info.remarks.iter().any(|it| it.contains("do not fit")),
            "{:?}",
            info.remarks
        );
        assert!(!info.steps_back);
    }
}

#[test]
fn a_clock_that_goes_on_from_an_earlier_time_steps_back() {
    let (found, steps, info) = times(&graph(&[9_000_000, 9_000_010, 5_000_000, 5_000_010]));
    assert_eq!(steps, [4_000_010]);
    assert_eq!(found, [9_000_000, 9_000_010, 5_000_000, 5_000_010]);
    assert!(info.steps_back);
    // A pause is no step.
    let (found, steps, _) = times(&graph(&[5_000_000, 5_000_010, 9_000_000, 9_000_010]));
    assert_eq!((found[2], steps.len()), (9_000_000, 0));
}

#[test]
fn a_last_line_that_may_be_cut_is_shown_and_not_taken_for_what_it_says() {
    let line = "              sh-7       [000] d....     1.000001: sched_switch: prev_comm=sh prev_pid=7 prev_prio=120 \
                prev_state=S ==> next_comm=ls next_pid=1234 next_prio=120\n";
    let text = format!("# tracer: nop\n{line}");
    let (whole, info) = read_lines(&text);
    assert_eq!((whole.len(), info.remarks.len()), (2, 0));
    let (cut, info) = read_lines(&text[..text.len() - 18]);
    assert_eq!(cut.len(), 1);
    assert_eq!(cut[0].kind, kymo_event::EventKind::Other);
    assert_eq!(cut[0].name, "sched_switch");
    assert!(
        info.remarks.iter().any(|it| it.contains("may be cut")),
        "{:?}",
        info.remarks
    );
    let threads = info.identities.threads().iter();
    assert!(!threads.clone().any(|it| it.tid.0 == 12), "{threads:?}");
}

#[test]
fn what_trace_cmd_writes_around_and_of_events_is_read() {
    // Output of the options `-V`, `-w`, `-l -R` and `--raw-ts`.
    let around = [
        "version = 7\nregistering plugin: /usr/lib/traceevent/plugins/plugin_kvm.so\n\
         overriding event (319) sched:sched_switch with new print handler\ncpus=2\n",
        "removing override handler for event (319) sched:sched_switch. Going back to default handler.\n\n\
         Average wakeup latency: 731.021 usecs\n\
         Maximum Latency: 5596.520 usecs at timestamp: 455.888404\n\
         Minimum Latency: 22.440 usecs at timestamp: 455.903114\n\n",
    ];
    let waking = "sched_waking:          comm=sh pid=8 prio=120 target_cpu=001";
    for (front, time) in [
        (
            "       trace-cmd-313   [001]   455.844482: ",
            455_844_482_000,
        ),
        ("trace-cm-313     1-0x9   455.844482: ", 455_844_482_000),
        (
            "       trace-cmd-313   [001]455844482590: ",
            455_844_482_590,
        ),
    ] {
        let line = format!("{front}{waking}\n");
        let (events, info) = read_lines(&[around[0], &line.repeat(4), around[1]].concat());
        assert_eq!((events.len(), info.damaged_places()), (4, 0), "{front}");
        let event = &events[3];
        assert_eq!(
            (event.time.0, event.cpu),
            (time, Some(kymo_event::Cpu(1))),
            "{front}"
        );
        assert_eq!(event.name, "sched_waking", "{front}");
    }
}

#[test]
fn a_text_of_whole_calls_begins_when_the_first_began() {
    let text = "# tracer: function_graph\n#\n\
        \x20   5.500000 |   0)    sh-7      | * 20000.00 us |  } /* vfs_read */\n\
        \x20   5.600000 |   0)    sh-7      | @ 500000.0 us |  } /* vfs_write */\n";
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("text");
    std::fs::write(&path, text).unwrap();
    let mut source = kymo_read::open(&path, &kymo_read::OpenOptions::default()).unwrap();
    let summary = kymo_read::Summary::of(&mut *source);
    assert_eq!(summary.start.map(|it| it.0), Some(5_100_000_000));
    assert_eq!(summary.end.map(|it| it.0), Some(5_600_000_000));
    assert_eq!(summary.events, 2);
}

#[test]
fn a_task_has_the_name_that_it_was_given_last() {
    let line = |comm: &str, time: u32, event: &str| {
        format!("{comm:>16}-8       [000] .....     1.{time:06}: {event}\n")
    };
    let wakeup = "sched_wakeup: comm=x pid=10 prio=120 target_cpu=000";
    let rename = "task_rename: pid=8 oldcomm=sh newcomm=ls oom_score_adj=0";
    let exec = "sched_process_exec: filename=/usr/bin/with-a-long-name pid=8 old_pid=8";
    for (second, third, name) in [
        (rename, wakeup, "ls"),
        (wakeup, exec, "with-a-long-nam"),
        (wakeup, rename, "ls"),
    ] {
        let third = line(if third == wakeup { "ls" } else { "sh" }, 3, third);
        let text = [line("sh", 1, wakeup), line("sh", 2, second), third].concat();
        let (_, info) = read_lines(&format!("# tracer: nop\n{text}"));
        let threads = info.identities.threads().iter();
        let mut named = threads.filter(|thread| thread.tid.0 == 8);
        assert_eq!(named.next().unwrap().name.as_deref(), Some(name), "{text}");
    }
}

#[test]
fn times_without_a_point_are_ticks() {
    let line = |time: &str| format!("  sh-7  [001] .....  {time}: sched_yield: x=1\n");
    let (events, info) = read_lines(&format!("# tracer: nop\n{}{}", line("10"), line("12")));
    assert_eq!(info.unit, kymo_event::TimeUnit::Ticks);
    assert_eq!(info.remarks.len(), 1);
    assert!(info.remarks[0].contains("ticks"), "{:?}", info.remarks);
    assert_eq!(events[1].time.0, 12);
    let (_, info) = read_lines(&line("0.000010"));
    assert_eq!(info.unit, kymo_event::TimeUnit::Nanoseconds);
    assert!(info.remarks.is_empty());
}

/// Exits of calls that began before the text, and of a call that the text contains completely.
#[cfg(unix)]
#[test]
fn a_pipe_that_begins_with_exits_is_as_a_file() {
    let begin = "# tracer: function_graph\n#\n \
        5.000010 |   0)    sh-7      |   7.000 us    |    } /* inner */\n \
        5.000020 |   0)    sh-7      |   30.000 us   |  } /* outer */\n";
    let entry = " 5.000030 |   0)    sh-7      |               |  next() {\n \
        5.000040 |   0)    sh-7      |   10.000 us   |  }\n";
    let call = " 5.000030 |   0)    sh-7      |   4.000 us    |    } /* inner */\n";
    for (text, whole) in [
        (format!("{begin}{entry}"), false),
        (format!("{begin}{call}"), true),
        (begin.to_owned(), true),
    ] {
        let (file, of_file) = read_lines(&text);
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, text).unwrap()
        });
        let (piped, of_pipe) = crate::ftrace_text::read(&pipe);
        writer.join().unwrap();
        assert_eq!(piped, file);
        let are_whole = |info: &kymo_event::TraceInfo| info.streams[0].whole_calls;
        assert_eq!((are_whole(&of_file), are_whole(&of_pipe)), (whole, whole));
    }
}

#[test]
fn an_interrupt_as_deep_as_the_call_that_it_cuts_into_lies_within_it() {
    // As Linux 6.1 wrote it: the interrupt came before the clock was read for the return of _raw_spin_lock.
    let (events, info) = read_lines(
        "# tracer: function_graph\n#\n \
         157.828128 |   0)    find-130    | ! 106.498 us  |      } /* __sysvec_apic_timer_interrupt */\n \
         157.828200 |   0)    find-130    | ! 661.934 us  |      } /* _raw_spin_lock */\n \
         157.828205 |   0)    find-130    | ! 668.604 us  |    } /* kernfs_iop_permission */\n",
    );
    let found: Vec<_> = events
        .iter()
        .map(|event| match event.kind {
            EventKind::Enter { function, .. } => (name(&info, function), "begins", event.time.0),
            EventKind::Exit { function } => (name(&info, function.unwrap()), "ends", event.time.0),
            _ => panic!("{event:?}"),
        })
        .collect();
    let event = |name: &str, what, time| (name.to_owned(), what, time);
    let outer = "kernfs_iop_permission";
    let timer = "__sysvec_apic_timer_interrupt";
    assert_eq!(
        found,
        [
            event(outer, "begins", 157_827_536_396),
            event("_raw_spin_lock", "begins", 157_827_538_066),
            event(timer, "begins", 157_828_021_502),
            event(timer, "ends", 157_828_128_000),
            event("_raw_spin_lock", "ends", 157_828_200_000),
            event(outer, "ends", 157_828_205_000),
        ]
    );
}

#[test]
fn a_dump_in_the_log_of_an_oops_is_read() {
    let log = "[    0.000000] Linux version 6.1.0\n\
        [    0.100000] Kernel command line: ftrace_dump_on_oops\n\
        [  516.125674] Dumping ftrace buffer:\n\
        [  516.125675] ---------------------------------\n\
        [  516.125680]     bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule\n\
        [  516.125681]     bash-1977    0d..1.   14us : sched_wakeup: comm=sh pid=8 prio=120 target_cpu=001\n\
        [  516.125682] CPU:0 [LOST 2 EVENTS]\n\
        [  516.125690] ---------------------------------\n\
        [  516.125700] RIP: 0010:panic+0x1/0x2\n";
    for log in [
        log.to_owned(),
        log.replace("\n[", "\n<4>[").replace("] ", "][   T77] "),
        log.replace("\n[", "\nNov 27 22:00:00 board kernel: ["),
    ] {
        let (events, info) = read_lines(&log);
        assert_eq!((info.damaged_places(), events.len()), (0, 3), "{log}");
        let thread = events[0].thread.unwrap();
        assert_eq!(info.identities.thread_name(thread), Some("bash"));
        assert_eq!(events[0].time.0, 12_000);
    }
}

#[test]
fn a_dump_of_nothing_is_an_empty_trace() {
    let empty = "[  516.125674] Dumping ftrace buffer:\n[  516.125675]    (ftrace buffer empty)";
    for log in [
        empty.to_owned(),
        format!("[    0.0] boot\n{empty}\n[  517.0] sh-7 [000] end\n"),
        empty.replace("[  ", "Nov 27 22:00:00 board kernel: [  "),
    ] {
        let (events, info) = read_lines(&log);
        assert_eq!((info.damaged_places(), events.len()), (0, 0), "{log}");
        assert!(info.remarks[0].contains("empty"), "{:?}", info.remarks);
    }
    // A second dump with an event: the log is not reported as empty.
    let dashes = "[ 518.0] ---------------------------------";
    let event = "[ 518.0]     bash-1977    0d..1.   12us+: _raw_spin_lock <-schedule";
    let log = format!("{empty}\n[ 518.0] Dumping ftrace buffer:\n{dashes}\n{event}\n{dashes}\n");
    let (events, info) = read_lines(&log);
    assert_eq!((info.damaged_places(), events.len()), (0, 1));
    let is_called_empty = info.remarks.iter().any(|it| it.contains("empty"));
    assert!(!is_called_empty, "{:?}", info.remarks);
}

#[test]
fn records_without_a_name_are_called_by_their_tracer() {
    for (tracer, body) in [
        (
            "osnoise",
            "1000000        190  99.98100       9     18      0   1007     18      1",
        ),
        (
            "timerlat",
            "#1     context    irq timer_latency       932 ns",
        ),
        ("blk", "  8,0    Q  WS 1234 + 8 [sh]"),
    ] {
        let text =
            format!("# tracer: {tracer}\n#\n  <...>-859     [000] ....    81.637220: {body}\n");
        let (events, info) = read_lines(&text);
        assert_eq!((events.len(), info.damaged_places()), (1, 0));
        assert_eq!(events[0].name, tracer);
        let body = body.trim();
        assert_eq!(events[0].fields[0], kymo_event::Field::new("text", body));
    }
}

#[test]
fn old_kernels_wrote_two_digits_of_a_cpu() {
    let (events, info) =
        read_lines("# tracer: function\n  bash-4251  [01] 10152.583854: path_put <-path_walk\n");
    assert_eq!((events.len(), info.damaged_places()), (1, 0));
    assert_eq!(events[0].cpu, Some(kymo_event::Cpu(1)));
}

#[test]
fn mmiotrace_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, "# tracer: mmiotrace\n#\nVERSION 20070824\n").unwrap();
    let Err(error) = kymo_read::open(&path, &kymo_read::OpenOptions::default()) else {
        panic!("it is opened");
    };
    assert!(error.to_string().contains("mmiotrace"), "{error}");
}

/// `trace_pipe` reports events lost by its CPU before the first line.
#[test]
fn a_loss_before_the_first_event_has_its_time() {
    let (events, info) = read_lines(
        "CPU:1 [LOST 7 EVENTS]\n\
         CPU:2 [LOST 5 EVENTS]\n\
         CPU:0 [LOST 3 EVENTS]\n\
         \x20 sh-7 [000] .... 10.000000: one: a=1\n\
         \x20 sh-8 [001] .... 10.500000: two: a=1\n",
    );
    let gaps: Vec<_> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Gap(Gap::Discarded { events }) => Some((event.time.0, events)),
            _ => None,
        })
        .collect();
    let (first, second) = (10_000_000_000, 10_500_000_000);
    let lost = [(first, 3), (second, 7), (second, 5)];
    assert_eq!(gaps, lost.map(|(time, events)| (time, Some(events))));
    let starts: Vec<_> = info.streams.iter().filter_map(|it| it.start).collect();
    assert!(starts.iter().all(|start| start.0 >= first), "{starts:?}");
}

#[test]
fn a_dump_with_several_tasks_is_read_to_its_end() {
    let dashes = "[ 12.0] ---------------------------------";
    let switch = "[ 12.3]  ------------------------------------------\n\
        [ 12.3]  0)  t0-100  =>  t3-103 \n\
        [ 12.3]  ------------------------------------------\n\n";
    let call = |name| format!("[ 12.3]  0)   1.000 us    |  {name}();\n");
    let dump = format!(
        "[ 12.0] Dumping ftrace buffer:\n{dashes}\n{}{switch}{}{dashes}\n[ 13.0] end\n",
        call("one"),
        call("two")
    );
    let entries = |events: &[kymo_event::Event]| {
        let entered = |it: &&kymo_event::Event| matches!(it.kind, EventKind::Enter { .. });
        events.iter().filter(entered).count()
    };
    let (events, info) = read_lines(&dump);
    assert_eq!((entries(&events), info.damaged_places()), (2, 0));
    let (events, info) = read_lines(&dump.repeat(3));
    assert_eq!(entries(&events), 2);
    assert!(info.remarks[0].contains("3 dumps"), "{:?}", info.remarks);
}

#[test]
fn what_other_cpus_do_during_a_call_of_one_line_comes_before_its_end() {
    let text = "# tracer: function_graph\n\
        \x20 1.000100 |   1)   t1-101   | ! 800.000 us  |  long();\n\
        \x20 1.000200 |   0)   t0-100   |   1.000 us    |  early();\n\
        \x20 1.000210 |   0)   t0-100   |               |  a() {\n\
        \x20 1.000320 |   0)   t0-100   | ! 110.000 us  |  }\n\
        \x20 1.000950 |   1)   t1-101   |   1.000 us    |  late();\n";
    let (events, _) = read_lines(text);
    let times: Vec<_> = events.iter().map(|event| event.time.0).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times.len(), 8);
    assert_eq!(times[5], 1_000_900_000);
}

#[test]
fn an_interrupt_as_deep_as_a_call_behind_a_loss_ends_no_call() {
    let text = "# tracer: function_graph\n\
        \x20 1.000100 |   0)   t0-100   |   1.000 us    |  before();\n\
        CPU:0 [LOST 100 EVENTS]\n\
        \x20 1.000200 |   0)   t0-100   |               |  outer() {\n\
        \x20 1.000210 |   0)   t0-100   |               |    inner() {\n\
        \x20 1.000300 |   0)   t0-100   |   9.000 us    |    timer();\n\
        \x20 1.000320 |   0)   t0-100   | ! 110.000 us  |    } /* inner */\n\
        \x20 1.000330 |   0)   t0-100   | ! 130.000 us  |  }\n";
    let (events, info) = read_lines(text);
    let is_missing =
        |it: &&kymo_event::Event| matches!(it.kind, EventKind::Gap(Gap::MissingExit { .. }));
    assert_eq!(events.iter().filter(is_missing).count(), 0);
    let exits = events.iter().filter_map(|event| match event.kind {
        EventKind::Exit { function } => Some(name(&info, function.unwrap())),
        _ => None,
    });
    assert_eq!(
        exits.collect::<Vec<_>>(),
        ["before", "timer", "inner", "outer"]
    );
}

/// trace-cmd omits the names of all exits; the kernel omits those that follow from the entries before.
#[test]
fn an_exit_behind_a_loss_is_of_no_call_that_began_at_another_time() {
    let text = "cpus=1\n\
        \x20 t0-100   [000]     1.000330: funcgraph_entry:                   |  f0() {\n\
        \x20 t0-100   [000]     1.000343: funcgraph_entry:                   |    f3() {\n\
        \x20 t0-100   [000]     1.000348: funcgraph_exit:         5.000 us   |    }\n\
        \x20 t0-100   [000]     1.000368: funcgraph_exit:       + 38.000 us  |  }\n\
        \x20 t0-100   [000]     1.000384: funcgraph_entry:                   |  f0() {\n\
        CPU:0 [3 EVENTS DROPPED]\n\
        \x20 t0-100   [000]     1.000458: funcgraph_entry:                   |      f4() {\n\
        \x20 t0-100   [000]     1.000460: funcgraph_exit:         2.000 us   |      }\n\
        \x20 t0-100   [000]     1.000516: funcgraph_exit:       + 68.000 us  |    }\n\
        \x20 t0-100   [000]     1.000530: funcgraph_exit:       ! 110.000 us |  }\n";
    let (events, info) = read_lines(text);
    let shown = events.iter().filter_map(|event| match &event.kind {
        EventKind::Exit { function } => Some(name(&info, function.unwrap())),
        EventKind::Gap(Gap::MissingExit { .. }) => Some("missing".to_owned()),
        _ => None,
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        ["f3", "f0", "f4", "(unknown)", "missing", "(unknown)"]
    );
}

#[test]
fn lines_of_the_latency_format_are_of_tasks_of_any_name() {
    for task in ["rustc", "dbus-dae", "usb-stor", "kbus", "lto dxoy", "sudo"] {
        let (events, info) = read_lines(&format!(
            "# tracer: nop\n#\n{task:>8}-77        0d.h2. 58286800767us+: timer_cancel: x=1us\n\
             {task:>8}-77        0d.h.. 58286800769us : timer_cancel: x=2\n"
        ));
        assert_eq!(info.damaged_places(), 0, "{task}");
        let times: Vec<_> = events.iter().map(|event| event.time.0).collect();
        assert_eq!(times, [58_286_800_767_000, 58_286_800_769_000], "{task}");
        let thread = events[0].thread.unwrap();
        assert_eq!(
            (
                info.identities.tid(thread).0,
                info.identities.thread_name(thread)
            ),
            (77, Some(task))
        );
    }
}

#[test]
fn lines_of_the_latency_format_may_be_verbose_or_have_ticks() {
    let (events, info) = read_lines(
        "# tracer: nop\n#\n lto f2yjwzufqi9    9236   1 9 00000002 00000016 [d922a040a] 58286801.930ms (+0.006ms): \
         sched_waking: comm=kymo pid=9140 prio=130 target_cpu=001\n            \
         bash    9351   1 1 00000002 00000004 [d9229ffac] 58286801.936ms (+0.004ms): sched_switch: prev_comm=bash \
         prev_pid=9351 prev_prio=120 prev_state=R+ ==> next_comm=ksoftirqd/1 next_pid=22 next_prio=120\n",
    );
    assert_eq!(info.damaged_places(), 0);
    assert_eq!(
        (events[0].time.0, events[0].name.as_ref()),
        (58_286_801_930_000, "sched_waking")
    );
    assert_eq!(events[0].cpu.unwrap().0, 1);
    let thread = events[0].thread.unwrap();
    assert_eq!(
        (
            info.identities.tid(thread).0,
            info.identities.thread_name(thread)
        ),
        (9236, Some("lto f2yjwzufqi9"))
    );
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::SwitchedIn)
    );
    for line in [
        "    bash-9351      1d.h2.  1767: timer_cancel: x=1\n",
        "    bash    9351   1 52 00000001 00000002 [0000000d9229ff9f] 1767 (+10): timer_cancel: x=1\n",
    ] {
        let (events, info) = read_lines(&format!("# tracer: nop\n{line}"));
        assert_eq!(info.unit, kymo_event::TimeUnit::Ticks, "{line}");
        assert_eq!((events.len(), events[0].time.0), (1, 1767), "{line}");
    }
}

#[test]
fn the_difference_of_times_in_a_report_is_no_name() {
    let (events, info) = read_lines(
        "cpus=2\n   kymo0-2752  [000] 57809.461322:          sched_waking:  comm=sh pid=2754 prio=130 target_cpu=000\n   \
         cpu1-2756  [000] 57809.461496: (+170)   sched_switch:  cpu1:2756 [130] S ==> sh:2754 [130]\n     \
         sh-2754    0d...   57809.461526: (+25)    sys_enter_execve:     filename: 0x557af285cba8\n     \
         sh-2754  [000] 57809.461536: (+1)     sys_exit_execve:      0xfffffffffffffffe\n",
    );
    assert_eq!(info.damaged_places(), 0);
    let names: Vec<_> = events.iter().map(|event| event.name.as_ref()).collect();
    assert!(!names.contains(&"print"), "{names:?}");
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::SwitchedIn)
    );
    assert_eq!(crate::ftrace_text::calls(&events, &info).len(), 1);
}
