//! Code that switches threads: it enters as one and leaves as the other.

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
