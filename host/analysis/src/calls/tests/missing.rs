//! Traces that begin or end in the middle, or have gaps.

use super::*;

#[test]
fn longjmp_to_before_the_trace_leaves_nothing_open() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(1, B)
        .exit(10, C)
        .enter(11, A)
        .exit(12, A);
    let printed = [
        "+0 implied",
        "0 B0 1-10 9/9 unwound",
        "0 A0 0-10 10/1 unwound",
        "0 C0 orphan",
        "0 A0 11-12 1/1",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn what_began_before_the_trace_is_an_orphan() {
    let mut trace = Trace::new();
    trace
        .exit(0, A)
        .enter(1, B)
        .exit(2, B)
        .isr_end(3, 15)
        .exit(4, C);
    let printed = [
        "+0 implied",
        "0 A0 orphan",
        "0 B0 1-2 1/1",
        "1 irq15 orphan",
        "0 C0 orphan",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().orphans, 3);
}

#[test]
fn the_end_of_the_trace_closes_the_rest() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .switch(5, 2)
        .enter(6, B)
        .isr(7, 15)
        .enter(8, C)
        .enter(9, C);
    let printed = [
        "+0 implied",
        "-0",
        "+1",
        "2 C0 9-9 0/0 open recursive",
        "2 C0 8-9 1/1 open",
        "2 irq15 7-9 2/1 open",
        "0 A0 0-9 5/5 open",
        "1 B0 6-9 1/1 open",
    ];
    assert_eq!(trace.finish(), printed);
    assert!(trace.finish().is_empty());
    assert!(Trace::new().finish().is_empty());
}

#[test]
fn recording_off_closes_everything_everywhere() {
    let mut trace = Trace::new();
    trace.cpu(1).thread(2).enter(0, C).cpu(0).thread(1);
    trace.enter(1, A).isr(2, 15).recording(10, false);
    let printed = [
        "+0 implied",
        "+1 implied",
        "2 irq15 2-10 8/8 off",
        "0 C0 0-10 10/10 off",
        "1 A0 1-10 1/1 off",
        "-0 implied",
        "-1 implied",
    ];
    assert_eq!(std::mem::take(&mut trace.printed), printed);
    // What passed in between is nobody's; what was open before may return after.
    trace
        .recording(100, true)
        .enter(101, B)
        .exit(102, B)
        .exit(103, A);
    assert_eq!(
        trace.finish(),
        ["+1 implied", "1 B0 101-102 1/1", "1 A0 orphan"]
    );
    let counts = Counts {
        returned: 1,
        recording_off: 3,
        orphans: 1,
        ran: Duration(22),
        ..Counts::default()
    };
    assert_eq!(*trace.calls.counts(), counts);
}

#[test]
fn recording_on_twice_is_a_loss() {
    let mut trace = Trace::new();
    trace
        .recording(0, true)
        .enter(1, A)
        .recording(2, true)
        .exit(3, A);
    assert_eq!(trace.finish(), ["+0 implied", "0 A0 1-3 2/2 doubtful"]);
    assert_eq!(trace.calls.counts().losses, 1);
}

#[test]
fn a_loss_puts_what_is_open_in_doubt() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(1, B)
        .enter(2, C)
        .gap(3)
        .exit(10, B)
        .exit(11, A);
    let printed = [
        "+0 implied",
        "0 C0 2-10 8/8 lost doubtful",
        "0 B0 1-10 9/1 doubtful",
        "0 A0 0-11 11/2 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
    let counts = Counts {
        returned: 2,
        doubtful: 2,
        ran: Duration(11),
        missing_calls: 2,
        lost: 1,
        losses: 1,
        ..Counts::default()
    };
    assert_eq!(*trace.calls.counts(), counts);
}

#[test]
fn what_was_entered_in_a_loss_is_an_orphan_and_proves_nothing_about_the_others() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .gap(1)
        .enter(2, C)
        .exit(3, B)
        .enter(4, C)
        .exit(5, C)
        .exit(6, A);
    let printed = [
        "+0 implied",
        // Entered behind the loss, so inside B.
        "0 C0 2-3 1/1 unwound",
        "0 B0 orphan",
        "0 C0 4-5 1/1",
        "0 A0 0-6 6/4 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn interrupts_are_not_kept_over_a_loss() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .isr(1, 15)
        .enter(2, B)
        .gap(3)
        .enter(4, C)
        .exit(5, C)
        .exit(6, A);
    let printed = [
        "+0 implied",
        "1 B0 2-3 0/0 lost doubtful",
        "1 irq15 1-3 1/1 lost doubtful",
        "0 C0 4-5 1/1",
        "0 A0 0-6 5/4 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn calls_without_a_sign_of_life_are_closed_in_the_end() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(1, B);
    for i in 0..i64::from(LOSSES_SURVIVED) {
        trace.gap(1 + i);
    }
    assert_eq!(std::mem::take(&mut trace.printed), ["+0 implied"]);
    trace.gap(20);
    let printed = ["0 B0 1-20 0/0 lost doubtful", "0 A0 0-20 1/1 lost doubtful"];
    assert_eq!(std::mem::take(&mut trace.printed), printed);

    // The return of a call that was open before the loss tells that its callers are open.
    let mut trace = Trace::new();
    trace.enter(0, A);
    for i in 1..50 {
        trace.enter(i * 10, B).gap(i * 10 + 1).exit(i * 10 + 2, B);
    }
    trace.exit(500, A);
    let printed = trace.finish();
    assert_eq!(
        printed.last().map(String::as_str),
        Some("0 A0 0-500 500/402 doubtful")
    );
    assert_eq!(trace.calls.counts().lost, 0);
}

#[test]
fn calls_outlive_losses_where_missing_exits_are_told() {
    let stream = StreamInfo {
        marks_missing_exits: true,
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: vec![stream],
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.enter(0, A).enter(1, B);
    for i in 0..i64::from(LOSSES_SURVIVED) * 3 {
        trace.gap(2 + i);
    }
    // One call, not a lost one and an orphan.
    trace.exit(50, B);
    let ago = Duration(60);
    trace.push(60, EventKind::Gap(Gap::MissingExit { ago }));
    let printed = [
        "+0 implied",
        "0 B0 1-50 49/49 doubtful",
        "0 A0 0-60 60/11 lost doubtful",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn a_loss_at_the_end_may_have_lasted_for_any_time() {
    for (behind, unbounded) in [(false, 1), (true, 0)] {
        let mut trace = Trace::new();
        trace.enter(0, A).gap(5);
        if behind {
            trace.enter(9, B);
        }
        trace.finish();
        assert_eq!(trace.calls.counts().unbounded_gaps, unbounded);
    }
}

#[test]
fn a_loss_concerns_the_threads_that_may_have_run_there() {
    let mut trace = Trace::new();
    trace.cpu(0).thread(1).enter(0, A);
    trace
        .cpu(1)
        .thread(2)
        .enter(1, B)
        .push(2, EventKind::SwitchedOut);
    trace.cpu(1).thread(3).push(3, EventKind::SwitchedIn).gap(4);
    // Thread 1 was on the other processor all the time, thread 2 may have come back.
    trace.cpu(0).thread(1).exit(10, A);
    trace
        .cpu(1)
        .thread(2)
        .push(11, EventKind::SwitchedIn)
        .exit(12, B);
    let ends: Vec<_> = trace
        .finish()
        .into_iter()
        .filter(|s| s.contains('/'))
        .collect();
    assert_eq!(ends, ["0 A0 0-10 10/10", "1 B0 1-12 2/2 doubtful"]);
}

#[test]
fn a_thread_may_wander_into_a_loss() {
    let mut trace = Trace::new();
    trace.cpu(1).thread(2).enter(0, B).gap(0);
    trace
        .cpu(0)
        .thread(1)
        .enter(1, A)
        .push(2, EventKind::SwitchedOut);
    trace.cpu(1).thread(2).exit(3, B);
    trace
        .cpu(0)
        .thread(1)
        .push(4, EventKind::SwitchedIn)
        .exit(5, A);
    let ends: Vec<_> = trace
        .finish()
        .into_iter()
        .filter(|s| s.contains('/'))
        .collect();
    assert_eq!(ends, ["0 B0 0-3 3/3 doubtful", "1 A0 1-5 2/2 doubtful"]);
}

#[test]
fn a_clock_in_doubt_is_no_loss() {
    let mut trace = Trace::new();
    let gap = Gap::Clock(ClockGap {
        at_least: Duration(5),
    });
    trace
        .enter(0, A)
        .enter(1, B)
        .push(1, EventKind::Gap(gap))
        .exit(8, B)
        .enter(9, C)
        .exit(10, C);
    let printed = ["+0 implied", "0 B0 1-8 7/7 clock", "0 C0 9-10 1/1"];
    assert_eq!(trace.printed, printed);
    let back = Gap::TimeBackward { by: Duration(90) };
    trace
        .enter(100, B)
        .push(100, EventKind::Gap(back))
        .exit(10, B)
        .exit(20, A);
    let printed = trace.finish();
    assert_eq!(
        printed[3..],
        ["0 B0 100-10 0/0 clock", "0 A0 0-20 20/12 clock"]
    );
    assert_eq!(trace.calls.counts().clock_doubts, 2);
    assert_eq!(trace.calls.counts().losses, 0);
}

#[test]
fn a_clock_that_was_ahead_between_two_threads_is_charged_to_neither() {
    let mut trace = Trace::new();
    // The last of the first thread's times is 970 too late, as are none of the second's.
    trace.enter(0, A).enter(10, B).exit(20, B);
    trace.push(1_000, EventKind::SwitchedOut);
    trace.thread(2).push(30, EventKind::SwitchedIn);
    trace.enter(31, C).exit(35, C).switch(40, 1).exit(50, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(
        ends,
        [
            "0 B0 10-20 10/10",
            "1 C0 31-35 4/4",
            "0 A0 0-50 40/30 clock"
        ]
    );
}

/// As Zephyr's timers do where one thread sets them and the next one runs until they are read again.
#[test]
fn a_step_back_is_given_to_whom_the_run_ahead_was_charged() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(10, B)
        .exit(1_020, B)
        .enter(1_030, C);
    trace.switch(1_040, 2).enter(1_050, A).enter(1_060, B);
    // Ahead by 1,000 until here: B of the first thread, which has ended, was charged with it.
    trace.exit(70, B).exit(80, A).switch(90, 1);
    trace.exit(100, C).exit(110, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(
        ends,
        [
            "0 B0 10-1020 1010/1010",
            "0 Function(FunctionId(176)) less 990",
            "1 B0 1060-70 0/0 clock",
            "1 A0 1050-80 20/20 clock",
            "0 C0 1030-100 20/20 clock",
            "0 A0 0-110 70/30 clock",
        ]
    );
    let counts = trace.calls.counts();
    // The step is less than that by the 10 that passed meanwhile.
    assert_eq!(counts.clock_ahead, Duration(990));
    assert_eq!((counts.doubtful, counts.doubtful_time), (4, 4));
    assert_eq!((counts.losses, counts.clock_doubts), (0, 1));

    // It went ahead in two steps, in calls of two threads that are open: both are as if it had not.
    let mut trace = Trace::new();
    trace.enter(0, A).push(500, EventKind::SwitchedOut);
    trace.thread(2).push(500, EventKind::SwitchedIn);
    trace.enter(500, B).enter(1_100, C).exit(100, C);
    trace.exit(200, B).switch(200, 1).exit(300, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(
        ends,
        [
            "1 C0 1100-100 0/0 clock",
            "1 B0 500-200 100/100 clock",
            "0 A0 0-300 200/200 clock"
        ]
    );
    assert_eq!(trace.calls.counts().clock_ahead, Duration(0));
}

/// Where what was recorded while the clock was ahead has been put right, no time falls any more.
#[test]
fn a_step_back_that_is_told_puts_in_doubt_what_is_open() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(10, B).exit(30, B);
    let by = Duration(990);
    trace.push(40, EventKind::Gap(Gap::TimeBackward { by }));
    trace.exit(40, A).enter(50, A).exit(60, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert!(ends.contains(&&"0 B0 10-30 20/20".to_owned()), "{ends:?}");
    assert!(
        ends.contains(&&"0 A0 0-40 40/20 clock".to_owned()),
        "{ends:?}"
    );
    assert!(ends.contains(&&"0 A0 50-60 10/10".to_owned()), "{ends:?}");
    assert_eq!(trace.calls.counts().clock_doubts, 1);
}

#[test]
fn what_is_too_deep_is_counted() {
    let info = TraceInfo::default();
    let mut trace = Trace::with(&info, Options { max_depth: 2 });
    trace
        .enter(0, A)
        .enter(1, B)
        .enter(2, C)
        .enter(3, B)
        .exit(4, B)
        .exit(5, C);
    trace
        .exit(6, B)
        .enter(7, C)
        .exit(8, C)
        .enter(9, B)
        .enter(10, C);
    // Unwound from below the limit.
    trace.exit(11, A).enter(12, C).exit(13, C);
    let printed = [
        "+0 implied",
        "0 B0 1-6 5/5",
        "0 C0 7-8 1/1",
        "0 B0 9-11 2/2 unwound",
        "0 A0 0-11 11/3",
        "0 C0 12-13 1/1",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().too_deep, 3);

    let mut trace = Trace::new();
    for time in 0..1000 {
        trace.isr(time, 15);
    }
    for time in 1000..2000 {
        trace.isr_end(time, 15);
    }
    trace.finish();
    let counts = trace.calls.counts();
    assert_eq!(counts.too_deep, 1000 - NESTED_INTERRUPTS as u64);
    assert_eq!(
        (counts.returned, counts.orphans),
        (NESTED_INTERRUPTS as u64, 0)
    );
}

#[test]
fn an_interrupt_that_began_in_a_loss_is_not_charged_to_the_thread() {
    let inside = |depth| EventKind::Gap(Gap::InInterrupt { depth });
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .gap(5)
        .push(20, inside(1))
        .enter(22, B)
        .exit(25, B)
        .exit(26, C)
        .isr_end(30, 15)
        .exit(40, A);
    let printed = [
        "+0 implied",
        "1 B0 22-25 3/3",
        "1 C0 orphan",
        "2 irq15 orphan",
        "0 A0 0-40 30/30 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
    // One that is seen interrupts two that are not; what is open in them ends with them.
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .gap(1)
        .push(10, inside(2))
        .enter(11, B)
        .isr(12, 3)
        .isr_end(15, 3)
        .isr_end(16, 4)
        .enter(17, C)
        .exit(18, C)
        .isr_end(20, 5)
        .exit(25, A);
    let printed = [
        "+0 implied",
        "2 irq3 12-15 3/3",
        "1 B0 11-16 2/2 unwound",
        "3 irq4 orphan",
        "1 C0 17-18 1/1",
        "4 irq5 orphan",
        "0 A0 0-25 15/15 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
    // Of what is active when recording is turned on, the beginnings are recorded.
    let mut trace = Trace::new();
    trace
        .gap(0)
        .push(1, inside(1))
        .recording(2, true)
        .isr(2, 15)
        .isr_end(4, 15)
        .enter(5, A)
        .exit(6, A);
    let printed = ["2 irq15 2-4 2/2", "1 A0 5-6 1/1"];
    let calls: Vec<_> = trace.finish();
    let calls: Vec<_> = calls.iter().filter(|line| !line.starts_with('+')).collect();
    assert_eq!(calls, printed.iter().collect::<Vec<_>>());
}

#[test]
fn an_interrupt_that_began_before_the_trace_puts_times_in_doubt() {
    let mut trace = Trace::new();
    // A thread that another processor had is switched to in a handler of which the trace has only the end.
    trace.cpu(1).thread(2).enter(0, A);
    trace.push(5, EventKind::SwitchedOut);
    trace.cpu(0).push(10, EventKind::SwitchedIn);
    trace.isr_end(11, 15).exit(11, A).enter(12, B).exit(13, B);
    let printed = trace.finish();
    assert!(
        printed.contains(&"0 A0 0-11 6/6 interrupt".to_owned()),
        "{printed:?}"
    );
    assert!(
        printed.contains(&"0 B0 12-13 1/1".to_owned()),
        "{printed:?}"
    );
    let counts = trace.calls.counts();
    assert_eq!((counts.doubtful, counts.doubtful_time), (1, 1));
}

#[test]
fn where_no_beginnings_of_interrupts_are_told_not_everything_is_in_doubt() {
    let mut trace = Trace::new();
    for time in (0..NESTED_INTERRUPTS as i64 * 8).step_by(4) {
        trace.enter(time, A).isr_end(time + 1, 15).exit(time + 2, A);
    }
    trace.finish();
    assert_eq!(trace.calls.counts().doubtful, NESTED_INTERRUPTS as u64);
}

#[test]
fn a_call_whose_exit_is_told_to_be_missing_ends_there() {
    let missing = |ago| {
        let ago = Duration(ago);
        EventKind::Gap(Gap::MissingExit { ago })
    };
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(2, B)
        .enter(3, B)
        .gap(4)
        // None began then.
        .push(9, missing(8))
        .push(10, missing(7))
        .push(10, missing(8))
        .push(10, missing(10))
        .enter(11, A)
        .exit(13, A);
    trace.finish();
    let counts = trace.calls.counts();
    assert_eq!((counts.lost, counts.returned, counts.open), (3, 1, 0));
    assert_eq!(counts.doubtful, 0);
}

#[test]
fn instructions_up_to_a_loss_are_certain() {
    // By a clock it is not known when in between events were lost; times of instructions pass only with what was seen.
    for (unit, sure) in [(TimeUnit::Nanoseconds, 20), (TimeUnit::Instructions, 100)] {
        let info = TraceInfo {
            unit,
            ..TraceInfo::default()
        };
        let mut trace = Trace::with(&info, Options::default());
        trace.enter(0, A).enter(10, B).exit(20, B).gap(100);
        let mut certain = Vec::new();
        trace.calls.finish(&mut |step| {
            if let Step::End(end) = step {
                certain.push((end.sure, end.sure_self));
            }
        });
        let expected = (Some(Duration(sure)), Some(Duration(sure - 10)));
        assert_eq!(certain, [expected], "{unit:?}");
    }
}
