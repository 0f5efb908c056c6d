//! Threads with several streams, and streams of several threads.

use kymo_event::Tid;

use super::*;

/// Two machines have processors of the same numbers, and their traces end when they end.
#[test]
fn what_is_open_on_a_machine_ends_with_its_last_event() {
    let stream = |machine| StreamInfo {
        machine: SpaceId(machine),
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: vec![stream(0), stream(1)],
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.enter(0, A).enter(10, B).exit(20, B);
    trace.stream = 1;
    trace.thread(2).recording(90, true).enter(100, A);
    trace.push(105, EventKind::Gap(Gap::Discarded { events: Some(2) }));
    trace
        .exit(110, B)
        .recording(120, false)
        .recording(1000, true);
    let printed = [
        "+0 implied",
        "0 B0 10-20 10/10",
        "+1 implied",
        "1 B0 orphan",
        "1 A0 100-120 20/20 off doubtful",
        "-1 implied",
        "+1 implied",
        "0 A0 0-20 20/10 open",
    ];
    assert_eq!(trace.finish(), printed);
}

/// A thread with a stream of calls and one of items.
fn with_items() -> Trace {
    let stream = |without_calls| StreamInfo {
        thread: Some(ThreadId(1)),
        without_calls,
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: vec![stream(false), stream(true)],
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.cpu = None;
    trace
}

#[test]
fn an_item_in_a_stream_of_its_own_takes_no_time_from_its_thread() {
    let mut trace = with_items();
    trace.enter(0, A).enter(10, B);
    trace.stream = 1;
    trace.push(20, EventKind::Other);
    trace.stream = 0;
    trace.exit(30, B).exit(40, A);
    let printed = ["+0 implied", "0 B0 10-30 20/20", "0 A0 0-40 40/20"];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().implied_switches, 0);
}

#[test]
fn lost_items_are_counted_and_leave_calls_whole_but_damage_may_be_anything() {
    let mut trace = with_items();
    trace.enter(0, A);
    trace.stream = 1;
    let overwritten = EventKind::Gap(Gap::Overwritten { packets: 3 });
    trace.push(5, overwritten).gap(20);
    trace.push(20, EventKind::Gap(Gap::InInterrupt { depth: 2 }));
    trace.push(25, EventKind::Other);
    trace.stream = 0;
    trace.exit(40, A);
    assert_eq!(trace.finish(), ["+0 implied", "0 A0 0-40 40/40"]);
    assert_eq!(trace.calls.counts().losses, 2);

    let mut trace = with_items();
    trace.enter(0, A);
    trace.stream = 1;
    trace.push(
        5,
        EventKind::Gap(Gap::Damage {
            offset: 0,
            bytes: Some(9),
            message: String::new(),
        }),
    );
    trace.stream = 0;
    trace.exit(40, A);
    assert_eq!(trace.finish(), ["+0 implied", "0 A0 0-40 40/40 doubtful"]);
}

#[test]
fn a_gap_lasts_until_its_own_stream_goes_on() {
    let mut trace = Trace::new();
    // Two streams of processor 0, and another processor; thread 2 may run unseen in the gap of stream 0.
    trace.enter(0, A).gap(1);
    trace.stream = 5;
    trace.push(2, EventKind::Other);
    trace.cpu(1).thread(2).enter(3, B);
    trace.push(4, EventKind::SwitchedOut).exit(9, B);
    let printed = ["+0 implied", "+1 implied", "-1", "+1 implied"];
    let end = "1 B0 3-9 1/1 doubtful";
    assert_eq!(trace.finish()[..5], [&printed[..], &[end]].concat());
}

#[test]
fn a_thread_that_goes_on_in_the_streams_of_one_that_ended_is_another_one() {
    let mut trace = with_items();
    trace.enter(0, A).enter(5, C).exit(7, C);
    // It ended in A, and its items were none.
    trace.thread(2).enter(10, B);
    trace.stream = 1;
    trace.push(20, EventKind::Other);
    trace.stream = 0;
    trace.exit(30, B);
    let printed = [
        "+0 implied",
        "0 C0 5-7 2/2",
        "+1 implied",
        "1 B0 10-30 20/20",
        "0 A0 0-7 7/5 open",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().implied_switches, 0);
}

#[test]
fn a_thread_that_switches_itself_keeps_its_stream() {
    let mut trace = with_items();
    trace.enter(0, A).switch(5, 2).enter(6, B);
    trace.stream = 1;
    trace.push(7, EventKind::Other);
    trace.stream = 0;
    trace.exit(8, B).switch(9, 1).exit(10, A);
    let printed = [
        "+0 implied",
        "-0",
        "+1",
        "1 B0 6-8 2/2",
        "-1",
        "+0",
        "0 A0 0-10 6/6",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().implied_switches, 0);
}

#[test]
fn a_thread_that_waits_keeps_its_calls_open_until_the_end_of_the_trace() {
    let deadlocked = || {
        let stream = |thread| StreamInfo {
            thread: Some(ThreadId(thread)),
            ..StreamInfo::default()
        };
        let info = TraceInfo {
            streams: vec![stream(1), stream(2)],
            ..TraceInfo::default()
        };
        let mut trace = Trace::with(&info, Options::default());
        trace.cpu = None;
        trace.enter(0, A).enter(3, B);
        trace.stream = 1;
        trace.thread(2).enter(5, C).exit(100, C);
        trace
    };
    let before = ["+0 implied", "+1 implied", "1 C0 5-100 95/95"];
    let open = ["0 B0 3-100 97/97 open", "0 A0 0-100 100/3 open"];
    assert_eq!(deadlocked().finish(), [&before[..], &open].concat());

    // A window that ends there tells the same, and one that ends before, less.
    for (end, open) in [
        (100, open),
        (50, ["0 B0 3-50 47/47 open", "0 A0 0-50 50/3 open"]),
    ] {
        let mut trace = deadlocked();
        let printed = &mut trace.printed;
        let calls = &mut trace.calls;
        calls.close_window(Time(end), &mut |step| {
            assert!(matches!(&step, Step::End(end) if end.clipped));
            say(&step, printed);
        });
        assert_eq!(trace.printed, [&before[..], &open].concat());
    }
}

/// A program can have many thousand threads, each with a stream and losses of its own.
#[test]
fn a_loss_concerns_the_states_of_its_stream_alone() {
    let stream = |thread| StreamInfo {
        thread: Some(ThreadId(thread)),
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: (0..100).map(stream).collect(),
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.cpu = None;
    for thread in 0..100 {
        trace.stream = thread;
        trace.thread(thread).enter(i64::from(thread), A);
    }
    trace.stream = 7;
    trace.thread(7).gap(200);
    assert_eq!(trace.calls.states_of(StreamId(7)).len(), 1);
    trace.stream = 8;
    trace.thread(8).exit(210, A);
    assert_eq!(trace.calls.in_gap, [StreamId(7)]);
    trace.stream = 7;
    trace.thread(7).exit(220, A);
    assert_eq!(trace.calls.in_gap, []);
    let printed = trace.finish();
    let doubtful = printed.iter().filter(|line| line.contains("doubtful"));
    assert_eq!(doubtful.count(), 1, "{printed:?}");
}

/// Nothing records the end of a thread; that a later one has its number shows that it has ended.
#[test]
fn a_thread_whose_number_a_later_one_has_is_not_charged_to_the_end() {
    let mut info = TraceInfo {
        streams: vec![StreamInfo {
            without_switches: true,
            ..StreamInfo::default()
        }],
        ..TraceInfo::default()
    };
    let first = info.identities.thread(SpaceId(0), Tid(7));
    let second = info.identities.new_thread(SpaceId(0), Tid(7));
    let mut trace = Trace::with(&info, Options::default());
    trace.calls.learn(&info);
    trace.thread(first.0).enter(0, A).enter(10, B).exit(20, B);
    trace.thread(second.0).enter(100, C).exit(200, C);
    let mut printed = trace.finish();
    printed.retain(|line| !line.starts_with(['+', '-']));
    let ends = [
        "0 B0 10-20 10/10",
        "1 C0 100-200 100/100",
        "0 A0 0-20 20/10 open",
    ];
    assert_eq!(printed, ends);
}
