//! Code that switches threads: it enters as one and leaves as the other.

use super::super::threads::SKEW;
use super::*;

#[test]
fn what_switches_threads_returns_although_another_one_runs() {
    let mut trace = Trace::new();
    // The second thread is in the middle of something.
    trace.thread(2).enter(0, C);
    trace.switch(10, 1).enter(11, B);
    trace.enter(12, A).switch(13, 2).exit(14, A);
    trace.exit(20, C).switch(21, 1).exit(22, B);
    let printed = [
        "+0 implied",
        "-0",
        "+1",
        "-1",
        "+0",
        "1 A0 12-14 1/1",
        "0 C0 0-20 17/17",
        "-0",
        "+1",
        "1 B0 11-22 3/2",
    ];
    assert_eq!(trace.finish(), printed);
    let counts = trace.calls.counts();
    assert_eq!((counts.orphans, counts.unwound), (0, 0));
}

#[test]
fn also_where_between_threads_none_is_known() {
    let mut trace = Trace::new();
    trace
        .enter(0, C)
        .enter(1, A)
        .push(2, EventKind::SwitchedOut);
    trace.thread = None;
    trace.exit(3, A).enter(4, B);
    trace.thread(2).push(5, EventKind::SwitchedIn).exit(6, B);
    trace.enter(7, A).exit(8, A);
    trace.switch(9, 1).exit(10, C);
    let ends: Vec<_> = trace.finish();
    let ends: Vec<_> = ends
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(
        ends,
        [
            "0 A0 1-3 1/1",
            "1 B0 4-6 1/1",
            "2 A0 7-8 1/1",
            "0 C0 0-10 3/2"
        ]
    );
    assert_eq!(trace.calls.counts().orphans, 0);
}

/// Two threads can be in the same function: what the trace has not seen begin, may have.
#[test]
fn a_call_from_before_the_trace_is_not_taken_for_the_other_threads() {
    let mut trace = Trace::new();
    trace.enter(0, A).switch(1, 2).exit(2, A);
    trace.switch(3, 1).exit(4, A);
    let ends: Vec<_> = trace.finish();
    let ends: Vec<_> = ends
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(ends, ["1 A0 orphan", "0 A0 0-4 2/2"]);
    // Nor what comes later.
    let mut trace = Trace::new();
    trace.enter(0, A).switch(1, 2).enter(2, B).exit(3, B);
    trace.enter(4, C).exit(5, A).switch(6, 1).exit(7, A);
    let printed = trace.finish();
    assert!(printed.contains(&"1 A0 orphan".to_owned()), "{printed:?}");
    assert_eq!(printed.last().unwrap(), "0 A0 0-7 2/2");
}

/// A thread has two turns on one processor; when it has none again, another processor reports a loss that may have begun when
/// the first turn ended. What of its call is certain.
fn certain_behind_a_late_loss(heard_before: bool) -> Vec<Option<Duration>> {
    let mut trace = Trace::new();
    trace
        .cpu(0)
        .thread(10)
        .enter(0, C)
        .switch(10, 77)
        .enter(100, A);
    if heard_before {
        trace.cpu(1).thread(12).enter(150, B);
    }
    trace
        .cpu(0)
        .thread(77)
        .switch(200, 10)
        .switch(300, 77)
        .switch(500, 10);
    trace.cpu(1).thread(12).gap(600);
    let mut certain = Vec::new();
    trace.calls.finish(&mut |step| match step {
        Step::End(end) if end.callee == Callee::Function(A) => certain.push(end.sure),
        _ => {}
    });
    certain
}

#[test]
fn a_thread_without_a_processor_may_have_been_in_a_loss_elsewhere_before() {
    // Between the turns it may have left the call, and come into another one.
    assert_eq!(certain_behind_a_late_loss(true), [Some(Duration(100))]);
    // Of a processor that was not heard of before, the loss may have begun at any time.
    assert_eq!(certain_behind_a_late_loss(false), [Some(Duration(0))]);
}

/// A trace can have a hundred thousand threads and as many losses.
#[test]
fn losses_walk_only_through_threads_with_open_calls() {
    let mut trace = Trace::new();
    let mut time = 0;
    for thread in 1..=100 {
        trace.switch(time, thread).enter(time + 1, A);
        if thread != 7 {
            trace.exit(time + 2, A);
        }
        time += 10;
    }
    trace.gap(time);
    // Thread 7, which waits in a call, and thread 100, which has the processor.
    assert_eq!(trace.calls.exposed.len(), 2);
    // A thread that comes back is open to the next loss.
    trace.switch(time + 1, 50).enter(time + 2, B);
    trace.switch(time + 3, 51).gap(time + 10);
    trace.switch(time + 20, 50).exit(time + 21, B);
    let lossy: Vec<_> = trace.finish();
    assert!(
        lossy
            .iter()
            .any(|line| line.contains("B0") && line.contains("doubtful")),
        "{lossy:?}"
    );
}

/// Each thread is listed once, at its last processor, in the place that it knows.
#[test]
fn threads_that_move_are_listed_at_their_last_processor() {
    let mut trace = Trace::new();
    let mut time = 0;
    for round in 0..4 {
        for thread in 1..=50 {
            let trace = trace.cpu((thread * round) % 3).thread(thread);
            trace
                .push(time, EventKind::SwitchedIn)
                .push(time + 5, EventKind::SwitchedOut);
            time += 10;
        }
    }
    let calls = &trace.calls;
    let listed: usize = calls.cpus.iter().map(|cpu| cpu.tracks.len()).sum();
    assert_eq!(listed, calls.tracks.len());
    for (number, track) in calls.tracks.iter().enumerate() {
        let cpu = track.last_on.expect("a processor");
        assert_eq!(calls.cpus[cpu].tracks.get(track.listed_at), Some(&number));
    }
}

/// The streams of two processors can have equal times; either can come first.
#[test]
fn a_thread_that_moves_within_a_tick_keeps_its_time() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    // It runs until 100 there, and until 110 on the other.
    trace.cpu(0).push(100, EventKind::SwitchedIn).enter(100, B);
    trace.cpu(1).push(100, EventKind::SwitchedOut);
    trace.cpu(0).exit(104, B).exit(110, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed.iter().filter(|line| line.contains('-')).collect();
    assert!(
        ends.contains(&&"0 B0 100-104 4/4".to_owned()),
        "{printed:?}"
    );
    assert!(
        ends.contains(&&"0 A0 0-110 110/106".to_owned()),
        "{printed:?}"
    );
}

impl Trace {
    /// The ends of calls, in order.
    fn ends_of_calls(&mut self) -> Vec<String> {
        let mut printed = self.finish();
        printed.retain(|line| !line.starts_with(['+', '-']));
        printed
    }
}

/// The clocks of the processors differ: the switch from the thread comes behind the switch to it.
#[test]
fn a_thread_that_moves_to_a_clock_that_is_behind_keeps_its_time() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    trace.cpu(0).push(1_000, EventKind::SwitchedIn);
    trace.enter(1_010, B).exit(1_015, B).enter(1_020, B);
    trace.cpu(1).push(1_040, EventKind::SwitchedOut);
    trace.cpu(0).exit(1_050, B);
    trace.exit(1_100, A).enter(1_200, C).exit(1_300, C);
    let ends = [
        "0 B0 1010-1015 5/5",
        "0 B0 1020-1050 30/30",
        "0 A0 0-1100 1100/1065",
        "0 C0 1200-1300 100/100",
    ];
    assert_eq!(trace.ends_of_calls(), ends);
}

/// What shows the thread on its earlier processor may come later.
#[test]
fn a_call_that_ends_before_its_thread_is_seen_to_have_moved_is_in_doubt() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    trace.enter(50, B);
    trace.cpu(0).push(1_000, EventKind::SwitchedIn);
    trace.exit(1_010, B);
    trace.cpu(1).push(1_020, EventKind::SwitchedOut);
    trace.cpu(0).exit(1_100, A);
    let ends = [
        "0 B0 50-1010 960/960 doubtful",
        "0 A0 0-1100 1100/140 doubtful",
    ];
    assert_eq!(trace.ends_of_calls(), ends);
}

/// The switch from the thread is not there: it may have left its earlier processor at any time.
#[test]
fn a_thread_that_was_not_seen_to_leave_its_processor_puts_its_calls_in_doubt() {
    let long = SKEW.0.cast_signed() + 1_000;
    for late in [false, true] {
        let mut trace = Trace::new();
        trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
        trace.enter(10, B).exit(30, B);
        trace.cpu(0).push(1_000, EventKind::SwitchedIn);
        match late {
            // Another thread is seen on that processor.
            true => trace.cpu(1).thread(2).push(2_000, EventKind::SwitchedIn),
            false => trace.enter(long, C),
        };
        trace.cpu(0).thread(1);
        if !late {
            trace.exit(long + 10, C);
        }
        let end = 2 * long;
        trace.exit(end, A);
        let sure = trace.profile.row(Callee::Function(A)).map(|it| it.total);
        assert_eq!(sure, Some(Duration(30)), "{late}");
        let ends = trace.ends_of_calls();
        let last = ends.last().cloned().unwrap_or_default();
        assert!(last.ends_with("doubtful"), "{ends:?}");
    }
}

/// A thread's call is found to have ended behind a loss that its earlier processor reports later.
#[test]
fn a_missing_exit_is_certain_up_to_the_thread_s_last_switch_alone() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(5, A);
    trace.push(30, EventKind::SwitchedOut);
    // It was back in between, and returned.
    trace.cpu(0).push(100, EventKind::SwitchedIn);
    let ago = Duration(115);
    trace.push(120, EventKind::Gap(Gap::MissingExit { ago }));
    trace.enter(120, B).exit(130, B);
    let sure = trace.profile.row(Callee::Function(A)).map(|it| it.total);
    assert_eq!(sure, Some(Duration(25)));
    let ends = ["0 A0 5-120 45/45 lost doubtful", "0 B0 120-130 10/10"];
    assert_eq!(trace.ends_of_calls(), ends);
}

/// The calls that it was made in were certain up to its begin.
#[test]
fn a_missing_exit_leaves_certain_what_was_before_its_call() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(5, A);
    trace.enter(1_000, B);
    trace.push(1_030, EventKind::SwitchedOut);
    trace.push(1_040, EventKind::SwitchedIn);
    trace.push(1_050, EventKind::SwitchedOut);
    trace.cpu(0).push(1_100, EventKind::SwitchedIn);
    let ago = Duration(120);
    trace.push(1_120, EventKind::Gap(Gap::MissingExit { ago }));
    trace.exit(1_200, A);
    let sure = |of| trace.profile.row(Callee::Function(of)).map(|it| it.total);
    assert_eq!((sure(A), sure(B)), (Some(Duration(995)), Some(Duration(0))));
}

/// The first processor can have other events of the thread at the time of the move.
#[test]
fn events_on_the_earlier_processor_in_the_tick_of_a_move_are_before_it() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    trace.cpu(0).push(100, EventKind::SwitchedIn);
    trace.cpu(1).enter(100, B).exit(100, B);
    trace.push(100, EventKind::Other);
    trace.push(100, EventKind::SwitchedOut);
    trace.cpu(0).exit(110, A).enter(120, C).exit(130, C);
    let mut printed = trace.finish();
    printed.retain(|line| !line.starts_with(['+', '-']));
    let ends = [
        "0 B0 100-100 0/0",
        "0 A0 0-110 110/110",
        "0 C0 120-130 10/10",
    ];
    assert_eq!(printed, ends);
}

/// It comes back to the first processor at once.
#[test]
fn a_thread_that_moves_there_and_back_within_a_tick_stays() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    trace.cpu(0).push(100, EventKind::SwitchedIn);
    trace.push(100, EventKind::SwitchedOut);
    trace.cpu(1).push(100, EventKind::SwitchedOut);
    trace.push(100, EventKind::SwitchedIn);
    trace.enter(105, B).exit(108, B).exit(110, A);
    let mut printed = trace.finish();
    printed.retain(|line| !line.starts_with(['+', '-']));
    assert_eq!(printed, ["0 B0 105-108 3/3", "0 A0 0-110 110/107"]);
}

/// The events that show it on the first processor until then come later.
#[test]
fn a_call_that_ends_in_the_tick_of_a_move_is_in_doubt() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn);
    trace.enter(0, A).enter(10, B).enter(90, C);
    trace.cpu(0).push(100, EventKind::SwitchedIn);
    trace.exit(100, C).exit(100, B);
    trace.cpu(1).push(100, EventKind::SwitchedOut);
    trace.cpu(0).enter(100, C).exit(105, C).exit(110, A);
    let mut printed = trace.finish();
    printed.retain(|line| !line.starts_with(['+', '-']));
    let ends = [
        "0 C0 90-100 10/10 doubtful",
        "0 B0 10-100 90/80 doubtful",
        "0 C0 100-105 5/5",
        "0 A0 0-110 110/15 doubtful",
    ];
    assert_eq!(printed, ends);
}

/// It moves once more in the same tick: the switch from the first processor is still missing.
#[test]
fn a_second_move_within_a_tick_keeps_the_doubt_of_the_first() {
    for (is_out, back) in [(false, 1_000), (true, 1_000), (true, 1_005)] {
        let mut trace = Trace::new();
        trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
        trace.enter(10, B).exit(30, B);
        trace.cpu(0).push(1_000, EventKind::SwitchedIn);
        if is_out {
            trace.push(1_000, EventKind::SwitchedOut);
        }
        trace.cpu(2).push(back, EventKind::SwitchedIn);
        trace.enter(1_010, C).exit(1_015, C);
        let end = 2 * SKEW.0.cast_signed();
        trace.enter(end, C).exit(end + 10, C).exit(end + 20, A);
        let sure = trace.profile.row(Callee::Function(A)).map(|it| it.total);
        assert_eq!(sure, Some(Duration(30)), "{is_out} {back}");
        let ends = trace.ends_of_calls();
        let last = ends.last().cloned().unwrap_or_default();
        assert!(last.ends_with("doubtful"), "{ends:?}");
    }
}

/// The switch from the first processor comes late, behind both moves.
#[test]
fn a_second_move_within_a_tick_keeps_its_time() {
    let mut trace = Trace::new();
    trace.cpu(1).push(0, EventKind::SwitchedIn).enter(0, A);
    trace.cpu(0).push(1_000, EventKind::SwitchedIn);
    trace.cpu(2).push(1_000, EventKind::SwitchedIn);
    trace.cpu(1).push(1_000, EventKind::SwitchedOut);
    trace.cpu(0).push(1_000, EventKind::SwitchedOut);
    trace.cpu(2).enter(1_010, C).exit(1_015, C).exit(1_100, A);
    let ends = ["0 C0 1010-1015 5/5", "0 A0 0-1100 1100/1095"];
    assert_eq!(trace.ends_of_calls(), ends);
}
