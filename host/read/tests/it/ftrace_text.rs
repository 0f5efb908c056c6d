//! The kernel's text, read as events: every layout of the captures, compared with a simple parse of the same lines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kymo_event::{Event, EventKind, TraceInfo, Wanted};
use kymo_fixtures::captures;
use kymo_ftrace::text::{Line, TextKind, line};
use kymo_read::{Events, OpenOptions};

fn text(name: &str, to: &Path) -> Option<PathBuf> {
    let bytes = captures::unpacked(&captures::ftrace()?.join("amd64").join(name))?;
    let path = to.join(name.replace('/', "-"));
    std::fs::write(&path, bytes).unwrap();
    Some(path)
}

pub(crate) fn read(path: &Path) -> (Vec<Event>, TraceInfo) {
    let mut source = kymo_read::open(path, &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (events, source.info().clone())
}

pub(crate) fn name(info: &TraceInfo, function: kymo_event::FunctionId) -> String {
    let function = info.identities.function(function).unwrap();
    function.name.clone().unwrap().into()
}

/// The complete calls: function, begin and duration.
pub(crate) fn calls(events: &[Event], info: &TraceInfo) -> Vec<(String, i64, i64)> {
    let mut stacks: HashMap<_, Vec<_>> = HashMap::new();
    let mut calls = Vec::new();
    for event in events {
        let place = event
            .thread
            .map_or((None, event.cpu), |thread| (Some(thread), None));
        let stack = stacks.entry(place).or_default();
        match event.kind {
            EventKind::Called { function, .. } => {
                calls.push((name(info, function), event.time.0, 0));
            }
            EventKind::Enter { function, .. } => stack.push((function, event.time.0)),
            EventKind::Exit { function } => {
                let is_open = |(open, _): &mut (_, _)| function.is_none_or(|it| it == *open);
                if let Some((open, begin)) = stack.pop_if(is_open) {
                    calls.push((name(info, open), begin, event.time.0 - begin));
                }
            }
            _ => {}
        }
    }
    calls
}

const TEXTS: [&str; 13] = [
    "text/fg-default.txt",
    "text/fg-abstime-proc-tail.txt",
    "text/fg-thresh10.txt",
    "text/fg-thresh100.txt",
    "text/fg-thresh1000.txt",
    "text/fg-sched-sleeptime.txt",
    "text/fg-sched-nosleeptime.txt",
    "text/fg-vfsread-depth3.txt",
    "text/function.txt",
    "text/fg-stop-traceoff.txt",
    "boot/boot-thresh200.txt",
    "duration/dur-thr10.txt",
    "raw/trace.txt",
];

#[test]
fn every_line_of_every_text_is_understood() {
    let scratch = tempfile::tempdir().unwrap();
    for name in TEXTS {
        let Some(path) = text(name, scratch.path()) else {
            return;
        };
        let (events, info) = read(&path);
        assert_eq!(info.format, "ftrace", "{name}");
        assert_eq!(info.damage, [], "{name}");
        let lines = std::fs::read_to_string(&path).unwrap();
        let mut records = 0;
        for text in lines.lines() {
            match line(text) {
                // The exit of a leaf call is not a separate record.
                Line::Event(_) => records += 1,
                Line::Unknown => panic!("{name}: {text}"),
                _ => {}
            }
        }
        let ours = events.iter().filter(|event| event.record).count();
        assert_eq!(ours, records, "{name}");
    }
}

#[test]
fn text_is_the_same_without_its_header_and_through_a_pipe() {
    let scratch = tempfile::tempdir().unwrap();
    for name in [
        "text/fg-sched-sleeptime.txt",
        "text/function.txt",
        "text/fg-default.txt",
    ] {
        let Some(path) = text(name, scratch.path()) else {
            return;
        };
        let (events, _) = read(&path);
        let content = std::fs::read_to_string(&path).unwrap();
        let bare: String = content
            .split_inclusive('\n')
            .filter(|line| !line.starts_with('#'))
            .collect();
        let bare_path = scratch.path().join("bare");
        std::fs::write(&bare_path, bare).unwrap();
        assert_eq!(read(&bare_path).0, events, "{name}");
        #[cfg(unix)]
        {
            let pipe = scratch.path().join(format!("pipe-{}", events.len()));
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            let writer = std::thread::spawn({
                let pipe = pipe.clone();
                move || std::fs::write(pipe, content).unwrap()
            });
            let (piped, _) = read(&pipe);
            writer.join().unwrap();
            assert_eq!(piped.len(), events.len(), "{name}");
        }
    }
}

#[test]
fn a_report_of_trace_cmd_may_have_its_header_and_lines_of_a_console() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("report.txt");
    let events =
        "  ls-7  [001]    34.896920: sched_wakeup: comm=sh pid=8 prio=120 target_cpu=001\n"
            .repeat(8);
    let header = "version = 6\nCPU 0 is empty\ncpus=2\n";
    std::fs::write(&path, format!("{header}{events}")).unwrap();
    let (found, info) = read(&path);
    assert_eq!((found.len(), info.damage.len()), (8, 0));

    std::fs::write(&path, format!("$ trace-cmd report\n{header}{events}$ \n")).unwrap();
    let (found, info) = read(&path);
    // Lines that are not part of a trace are reported.
    assert_eq!((found.len(), info.damage.len()), (8, 2));

    // Prose that contains a line of a trace is no trace.
    std::fs::write(&path, format!("{}{events}", "Dear reader,\n".repeat(8))).unwrap();
    assert!(kymo_read::open(&path, &OpenOptions::default()).is_err());
}

/// The function, time (of begin or end) and duration in each line that reports a complete call.
fn reported(path: &Path) -> Vec<(String, Option<u64>, i64)> {
    let lines = std::fs::read_to_string(path).unwrap();
    let call = |text: &str| {
        let Line::Event(event) = line(text) else {
            return None;
        };
        let (function, duration) = match event.kind {
            TextKind::Call {
                function, duration, ..
            } => (function, duration),
            TextKind::Exit {
                function, duration, ..
            } => (function?, duration?),
            _ => return None,
        };
        Some((function.to_owned(), event.time, duration as i64))
    };
    lines.lines().filter_map(call).collect()
}

#[test]
fn calls_of_function_duration_begin_and_last_as_the_text_says() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["duration/dur-all.txt", "duration/dur-thr10.txt"] {
        let Some(path) = text(name, scratch.path()) else {
            return;
        };
        let (events, info) = read(&path);
        let mut ours = calls(&events, &info);
        let reported = reported(&path).into_iter();
        let mut theirs: Vec<_> = reported
            .map(|(name, time, duration)| (name, time.unwrap() as i64, duration))
            .collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let differing = ours
            .iter()
            .zip(&theirs)
            .filter(|(ours, theirs)| ours != theirs)
            .count();
        assert_eq!(differing, 0, "{name}");
    }
}

#[test]
fn calls_that_are_told_at_their_ends_are_put_in_order() {
    let scratch = tempfile::tempdir().unwrap();
    for name in [
        "text/fg-thresh10.txt",
        "text/fg-thresh100.txt",
        "text/fg-thresh1000.txt",
    ] {
        let Some(path) = text(name, scratch.path()) else {
            return;
        };
        let (events, info) = read(&path);
        assert!(events.is_sorted_by_key(|event| event.time), "{name}");
        let ours = calls(&events, &info);
        let theirs = reported(&path);
        assert_eq!(ours.len(), theirs.len(), "{name}");
        let totals = |calls: &mut dyn Iterator<Item = (String, i64)>| {
            let mut totals: HashMap<String, (i64, i64)> = HashMap::new();
            for (name, duration) in calls {
                let total = totals.entry(name).or_default();
                total.0 += 1;
                total.1 += duration;
            }
            totals
        };
        let ours = totals(&mut ours.into_iter().map(|(name, _, duration)| (name, duration)));
        let theirs = totals(
            &mut theirs
                .into_iter()
                .map(|(name, _, duration)| (name, duration)),
        );
        for (function, (count, _)) in &theirs {
            assert_eq!(ours[function].0, *count, "{name} {function}");
        }
        // A line's time is the time when it was written, which may have been delayed. A call must contain its callees
        // and begin after the previous one, so that the durations of some calls differ from the text.
        let all = |totals: &HashMap<String, (i64, i64)>| {
            totals.values().map(|(_, total)| total).sum::<i64>()
        };
        let (ours, theirs) = (all(&ours), all(&theirs));
        assert!(
            (ours - theirs).abs() < theirs / 1000,
            "{name}: {ours} {theirs}"
        );
    }
}

#[test]
fn durations_have_more_digits_than_times() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(path) = text("text/fg-abstime-proc-tail.txt", scratch.path()) else {
        return;
    };
    let (events, info) = read(&path);
    let ours = calls(&events, &info);
    let leaf = ours
        .iter()
        .find(|(name, ..)| name == "kmem_cache_free")
        .unwrap();
    assert_eq!((leaf.1, leaf.2), (60_702_473_000, 1642));
}

/// Reads the text of a function graph without times, as a file.
pub(crate) fn read_lines(lines: &str) -> (Vec<Event>, TraceInfo) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace");
    std::fs::write(&path, lines).unwrap();
    read(&path)
}

#[test]
fn calls_without_times_are_as_long_as_the_text_says() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(path) = text("boot/boot-thresh200.txt", scratch.path()) else {
        return;
    };
    let (events, info) = read(&path);
    assert!(info.untimed);
    assert!(info.remarks.iter().any(|it| it.contains("has no times")));
    let mut ours: Vec<_> = calls(&events, &info)
        .into_iter()
        .map(|(name, _, duration)| (name, duration))
        .collect();
    let reported = reported(&path).into_iter();
    let mut theirs: Vec<_> = reported
        .map(|(name, _, duration)| (name, duration))
        .collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours.len(), theirs.len());
    // An interrupt between the end of a call and the writing of its exit makes the call seem longer.
    let longer = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| (ours.1 - theirs.1).abs() > 1_000);
    assert!(longer.count() * 50 < ours.len());
    assert!(
        ours.iter()
            .map(|it| &it.0)
            .eq(theirs.iter().map(|it| &it.0))
    );
    let sum = |calls: &[(String, i64)]| calls.iter().map(|(_, it)| it).sum::<i64>();
    assert!((sum(&ours) - sum(&theirs)).abs() * 1_000 < sum(&theirs));
}

#[test]
fn a_thread_takes_its_open_calls_to_another_cpu() {
    let (events, info) = read_lines(
        "# tracer: function_graph\n\
         0)               |  outer() {\n\
         0)   1.000 us    |    first();\n\
         1)  700.000 us   |  other();\n\
         ------------------------------------------\n\
         0)    work-7     =>    next-8   \n\
         ------------------------------------------\n\
         0)   5.000 us    |  next();\n\
         ------------------------------------------\n\
         1)    <idle>-0   =>    work-7   \n\
         ------------------------------------------\n\
         1)   2.000 us    |    second();\n\
         1)   9.000 us    |  }\n",
    );
    assert!(info.untimed);
    let mut calls = calls(&events, &info);
    calls.sort();
    let calls: Vec<_> = calls
        .iter()
        .map(|(name, _, duration)| (name.as_str(), *duration))
        .collect();
    let expected = [
        ("first", 1_000),
        ("next", 5_000),
        ("other", 700_000),
        ("outer", 9_000),
        ("second", 2_000),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn depths_show_what_a_loss_hides() {
    let (events, info) = read_lines(
        "# tracer: function_graph\n\
         5.000000 |   0)   work-7   |               |  outer() {\n\
         5.000010 |   0)   work-7   |               |    inner() {\n\
         CPU:0 [LOST 3 EVENTS]\n\
         5.000100 |   0)   work-7   | ! 100.000 us  |  }\n",
    );
    let missing = events
        .iter()
        .filter(|it| matches!(it.kind, EventKind::Gap(kymo_event::Gap::MissingExit { .. })));
    assert_eq!(missing.count(), 1);
    let exit = events.iter().find_map(|it| match it.kind {
        EventKind::Exit { function } => function,
        _ => None,
    });
    assert_eq!(name(&info, exit.unwrap()), "outer");
}

/// A page as systrace writes it: the viewer, the data of another tracer, the kernel's text.
fn page(text: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html>\n<script>\nvar parts = document.querySelectorAll('script[class=\"trace-data\"]');\n\
         </script>\n<!-- BEGIN TRACE -->\n  <script class=\"trace-data\" type=\"application/text\">\n\
         {{\"controllerTraceDataKey\":\"systraceController\"}}\n  </script>\n\
         \x20 <script class=\"trace-data\" type=\"application/text\">\n{text}\n  </script>\n\
         <!-- END TRACE -->\n</body>\n</html>\n"
    )
}

#[test]
fn the_text_in_a_page_of_systrace_is_read() {
    let text = "# tracer: nop\n#\n\
        #           TASK-PID    TGID   CPU#  ||||    TIMESTAMP  FUNCTION\n\
        \x20         <idle>-0     (-----) [001] d..2  2784.356000: sched_switch: prev_comm=swapper/1 prev_pid=0 \
        prev_prio=120 prev_state=R ==> next_comm=sh next_pid=1204 next_prio=120\n\
        \x20             sh-1204  ( 1200) [001] ...1  2784.356100: tracing_mark_write: B|1200|draw\n\
        \x20             sh-1204  ( 1200) [001] d..2  2784.357000: sched_switch: prev_comm=sh prev_pid=1204 \
        prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let (plain, _) = read(&write("trace.txt", text));
    let (embedded, info) = read(&write("trace.html", &page(text)));
    assert_eq!(embedded, plain);
    assert_eq!(embedded.len(), 3);
    assert!(info.damage.is_empty());
    let thread = info.identities.threads().iter().find(|it| it.tid.0 == 1204);
    assert_eq!(thread.unwrap().name.as_deref(), Some("sh"));

    // The format of older systrace versions, and text whose line ends are not escaped.
    for (name, end) in [("legacy.html", "\\n\\\n"), ("raw.html", "\n")] {
        let string = text.replace('\n', end);
        let page = format!(
            "<!DOCTYPE HTML>\n<html>\n<script>\n  var linuxPerfData = \"\\\n{string}\\n\";\n</script>\n</html>\n"
        );
        let (legacy, info) = read(&write(name, &page));
        assert_eq!(legacy, plain, "{name}");
        assert!(info.damage.is_empty());
    }

    // A page without kernel text is refused.
    let other = write(
        "other.html",
        "<html>\n<script class=\"trace-data\">\n{}\n</script>\n",
    );
    assert!(kymo_read::open(&other, &OpenOptions::default()).is_err());
    // A truncated page is read up to its end.
    let whole = page(text);
    let cut = &whole[..whole.find("  </script>\n<!-- END").unwrap() - 40];
    let (cut, _) = read(&write("cut.html", cut));
    assert_eq!(cut.len(), 3);
}

/// The threads that became ready and that ran, in order.
fn scheduling(text: &str) -> Vec<(&'static str, u64, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let (events, info) = read(&path);
    let of = |what, thread| {
        let identities = &info.identities;
        let name = identities.thread_name(thread).unwrap_or_default();
        (what, identities.tid(thread).0, name.to_owned())
    };
    let reported = events.iter().filter_map(|event| match event.kind {
        EventKind::Ready { thread } => Some(of("ready", thread)),
        EventKind::SwitchedIn => Some(of("in", event.thread?)),
        _ => None,
    });
    reported.collect()
}

#[test]
fn switches_of_latency_tracers_and_of_trace_cmd_are_switches() {
    let latency = "# tracer: wakeup\n#\n# wakeup latency trace v1.1.5 on 3.8.0\n\
        #                |||| /     delay\n\
        #  cmd     pid   ||||| time  |   caller\n\
        #     \\   /      |||||  \\    |   /\n\
        \x20 <idle>-0       3dNs7    0us :      0:120:R   + [003]   312:100:R kworker/3:1H\n\
        \x20 <idle>-0       3dNs7    1us+: ttwu_do_activate.constprop.87 <-try_to_wake_up\n\
        \x20 <idle>-0       3d..3   15us :      0:120:R ==> [003]   312:100:R kworker/3:1H\n";
    let reported = |what, pid, name: &str| (what, pid, name.to_owned());
    let kworker = [
        reported("ready", 312, "kworker/3:1H"),
        reported("in", 312, "kworker/3:1H"),
    ];
    assert_eq!(scheduling(latency), kworker);

    let report = "cpus=2\n\
        \x20         <idle>-0     [001]    12.000100: sched_wakeup:         kworker/3:1H:312 [100] success=1 CPU:001\n\
        \x20         <idle>-0     [001]    12.000115: sched_switch:         swapper/1:0 [120] R ==> kworker/3:1H:312 [100]\n";
    assert_eq!(scheduling(report), kworker);
}

/// Run time of each thread, in nanoseconds.
fn ran(text: &str) -> HashMap<u64, i64> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let options = OpenOptions {
        wanted: Wanted::Meaning,
        ..OpenOptions::default()
    };
    let mut source = kymo_read::open(&path, &options).unwrap();
    let events: Vec<Event> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info = source.info();
    let (mut ran, mut running) = (HashMap::new(), None);
    for event in &events {
        let thread = event.thread.map(|it| info.identities.tid(it).0);
        match event.kind {
            EventKind::SwitchedIn => running = Some((thread.unwrap(), event.time.0)),
            EventKind::SwitchedOut if running.is_some_and(|(it, _)| Some(it) == thread) => {
                let (thread, since) = running.take().unwrap();
                *ran.entry(thread).or_default() += event.time.0 - since;
            }
            EventKind::SwitchedOut => {}
            // Only the running thread records events.
            _ if running.is_some() => assert_eq!(thread, running.map(|(it, _)| it), "{event:?}"),
            _ => {}
        }
    }
    ran
}

#[test]
fn what_the_scheduler_calls_behind_a_switch_is_of_the_task_that_leaves() {
    let line = |who: &str, time: &str, what: &str| {
        format!("  {who:>14}  [000] d..2.   100.{time}: {what}\n")
    };
    let switch = |from: &str, pid: u32, to: &str, next: u32| {
        format!(
            "sched_switch: prev_comm={from} prev_pid={pid} prev_prio=120 prev_state=S ==> next_comm={to} \
             next_pid={next} next_prio=120"
        )
    };
    for tail in [
        "enter_lazy_tlb <-__schedule",
        "tlb_flush: pages=0 reason=0",
        "<stack trace>",
    ] {
        let text = [
            "# tracer: function\n#\n".to_owned(),
            line("sh-326", "000000", &switch("sh", 326, "sed", 328)),
            line("sh-326", "000002", tail),
            line("sed-328", "000004", "finish_task_switch <-__schedule"),
            line("sed-328", "010000", &switch("sed", 328, "swapper/0", 0)),
            line("sed-328", "010001", tail),
            line("<idle>-0", "020000", &switch("swapper/0", 0, "sed", 328)),
            line("<idle>-0", "020001", tail),
            line("sed-328", "030000", &switch("sed", 328, "swapper/0", 0)),
        ]
        .concat();
        let microsecond = 1000;
        // From the end of one tail to the end of the next.
        let expected = (10_001 - 2 + 30_000 - 20_001) * microsecond;
        assert_eq!(ran(&text), HashMap::from([(328, expected)]), "{tail}");
    }
}

#[test]
fn what_trace_cmd_report_writes_of_functions_is_read() {
    for text in [
        "cpus=2\n\
         \x20             sh-326   [000]   463.261371: function:             vfs_open\n\
         \x20             sh-326   [000]   463.261380: function:                do_dentry_open <-- vfs_open\n",
        "cpus=2\n\
         \x20     sh-326     0.....   463.261371: function:             vfs_open\n\
         \x20     sh-326     0d.h..   463.261380: function:                do_dentry_open\n",
        "cpus=2\n\
         \x20             sh-288   [001]   374.295082: funcgraph_entry:      --> vfs_open (0)\n\
         \x20             sh-288   [001]   374.295151: funcgraph_entry:      --> do_dentry_open (1)\n\
         \x20             sh-288   [001]   374.295152: funcgraph_exit:       <-- do_dentry_open (1) (start: 10  end: 3f8) over: 1\n\
         \x20             sh-288   [001]   374.295158: funcgraph_exit:       <-- vfs_open (0) (start: 10  end: ff) over: 0\n",
        // Raw: trace-cmd report -R.
        "cpus=2\n\
         \x20             sh-326   [000]   463.261371: function:              ip=vfs_open parent_ip=path_openat\n\
         \x20             sh-326   [000]   463.261380: function:              ip=do_dentry_open parent_ip=vfs_open\n",
        "cpus=2\n\
         \x20             sh-288   [001]   374.295082: funcgraph_entry:       func=vfs_open depth=0\n\
         \x20             sh-288   [001]   374.295151: funcgraph_entry:       func=do_dentry_open depth=1\n\
         \x20             sh-288   [001]   374.295152: funcgraph_exit:        func=do_dentry_open depth=1 overrun=0 calltime=5725baadda rettime=5725bab1c2\n\
         \x20             sh-288   [001]   374.295158: funcgraph_exit:        func=vfs_open depth=0 overrun=0 calltime=5725ba9d00 rettime=5725bac928\n",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.txt");
        std::fs::write(&path, text).unwrap();
        let (events, info) = read(&path);
        assert!(info.damage.is_empty(), "{:?}", info.damage);
        let calls = calls(&events, &info);
        let names: Vec<&str> = calls.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names.len(), 2, "{text}");
        assert!(
            names.contains(&"vfs_open") && names.contains(&"do_dentry_open"),
            "{names:?}"
        );
        if text.contains("calltime") {
            // 0x3e8 nanoseconds.
            let inner = calls.iter().find(|(name, ..)| name == "do_dentry_open");
            let (_, begin, duration) = inner.unwrap();
            assert_eq!((*begin, *duration), (374_295_151_000, 1_000));
        }
    }
}

#[test]
fn leaf_calls_without_durations_last_to_the_next_line() {
    let text = "# tracer: function_graph\n#\n\
        #     TIME        CPU               FUNCTION CALLS\n\
        #      |          |                 |   |   |   |\n\
        \x20 162.460118 |   0) vfs_open() {\n\
        \x20 162.460120 |   0)   leaf();\n\
        \x20(Overruns: 3)\n\
        \x20 162.460127 |   0) }\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let (events, info) = read(&path);
    assert!(info.damage.is_empty(), "{:?}", info.damage);
    let calls = calls(&events, &info);
    let of = |name: &str| calls.iter().find(|(it, ..)| it == name).unwrap().2;
    assert_eq!((of("vfs_open"), of("leaf")), (9000, 7000));
    assert!(
        info.remarks.iter().any(|it| it.contains("leaf calls")),
        "{:?}",
        info.remarks
    );
}

#[test]
fn a_graph_without_columns_is_read_if_its_header_says_so() {
    let text = "# tracer: function_graph\n#\n\
        mutex_lock(file=0xffff888103a3c000, count=4096) {\n\
        \x20 vfs_read [x]() {\n\
        \x20   kfree();\n\
        \x20 }\n\
        } /* mutex_lock ret=0x0 */\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let (events, info) = read(&path);
    assert!(info.damage.is_empty(), "{:?}", info.damage);
    let calls = calls(&events, &info);
    let names: Vec<&str> = calls.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["kfree", "vfs_read", "mutex_lock"]);
}
