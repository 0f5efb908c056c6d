//! Lines of ftrace's text that say who a task is, and lines that are none of it.

use kymo_event::{EventKind, Gap};

use crate::ftrace_text::read_lines;

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

/// Calls of a task, a line each at the given times in microseconds.
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

/// Where the events of a text are, and by how much its clock steps back where it does.
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
        // The line before it, by its call's duration.
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
    // A pause is none.
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
    // Of `-V`, `-w`, `-l -R` and `--raw-ts`.
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

/// `trace_pipe` reports what its CPU lost before the first line.
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
