//! Handlers and calls that are active behind a loss, their begins among what was lost.

use super::*;

#[test]
fn a_handler_that_began_in_a_loss_may_have_switched_threads() {
    // A thread that another processor had is switched to behind a loss: by a handler, maybe, which goes on.
    let wander = || {
        let mut trace = Trace::new();
        trace.cpu(1).thread(2).enter(0, A).enter(1, B);
        trace.cpu(0).thread(1).gap(2);
        trace.cpu(1).thread(2).push(5, EventKind::SwitchedOut);
        trace.cpu(0).push(10, EventKind::SwitchedIn);
        trace
    };
    let ends = |trace: &mut Trace| -> Vec<_> {
        let printed = trace.finish().into_iter();
        printed.filter(|line| line.contains('/')).collect()
    };
    let mut trace = wander();
    trace
        .enter(11, C)
        .exit(12, C)
        .push(14, EventKind::SwitchedOut);
    trace.cpu(1).push(20, EventKind::SwitchedIn);
    trace.exit(21, B).exit(22, A);
    let printed = [
        "0 C0 11-12 1/1",
        "0 B0 1-21 9/8 doubtful",
        "0 A0 0-22 11/2 doubtful",
    ];
    assert_eq!(ends(&mut trace), printed);

    // Once it has returned there from a call that it had open, no handler is active.
    let mut trace = wander();
    trace.exit(11, B).push(14, EventKind::SwitchedOut);
    trace.cpu(1).thread(3).enter(12, C);
    trace.push(13, EventKind::SwitchedOut);
    trace.cpu(0).push(15, EventKind::SwitchedIn).exit(16, C);
    let printed = [
        "0 B0 1-11 5/5 doubtful",
        "1 C0 12-16 2/2",
        "0 A0 0-16 9/4 open doubtful",
    ];
    assert_eq!(ends(&mut trace), printed);
}

#[test]
fn a_call_whose_enter_was_lost_may_be_open_to_the_end() {
    let ran = |gap: bool| {
        let mut trace = Trace::new();
        trace.cpu(1).thread(2).enter(0, A);
        trace.cpu(0).thread(1).enter(0, B).exit(1, B);
        if gap {
            trace.gap(1);
        }
        trace.enter(3, B).exit(4, B);
        trace.cpu(1).thread(2).exit(10, A);
        trace.finish();
        trace.calls.counts().ran
    };
    assert_eq!((ran(false), ran(true)), (Duration(14), Duration(20)));
}
