//! Of what only rows say: calls that are found open, and which function runs behind a loss.

use kymo_event::{EventRef, Row, RowKind, TimeUnit};

use super::*;

/// Takes a row without an event beside it.
fn push_row(trace: &mut Trace, row: Row) {
    let row = row.at(Some(Cpu(0)), Some(ThreadId(1)));
    let printed = &mut trace.printed;
    let event = EventRef {
        row: &row,
        event: None,
    };
    trace.calls.push(event, &mut |step| say(&step, printed));
}

#[test]
fn instructions_behind_a_loss_are_certain_where_it_is_seen_what_runs() {
    let info = TraceInfo {
        unit: TimeUnit::Instructions,
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    let row = |kind, time, function| {
        Row::new(kind, Time(time), StreamId(0)).function(Some(FunctionId(function)))
    };
    trace.enter(0, A).enter(10, B).gap(20);
    // On an unknown path: whose these are is not known.
    push_row(&mut trace, row(RowKind::Other, 25, B.0));
    push_row(&mut trace, row(RowKind::Exit, 60, B.0));
    push_row(&mut trace, row(RowKind::Enter, 70, C.0));
    push_row(&mut trace, row(RowKind::Exit, 75, C.0));
    trace.gap(80);
    // It was not called by A for certain.
    push_row(&mut trace, row(RowKind::Enter, 80, C.0).found(true));
    push_row(&mut trace, row(RowKind::Exit, 90, C.0));
    let mut certain = Vec::new();
    push_row(&mut trace, row(RowKind::Other, 90, A.0));
    let exit = row(RowKind::Exit, 100, A.0).at(Some(Cpu(0)), Some(ThreadId(1)));
    let event = EventRef {
        row: &exit,
        event: None,
    };
    trace.calls.push(event, &mut |step| {
        if let Step::End(end) = step {
            certain.push((end.sure, end.sure_self, end.self_time));
        }
    });
    // A ran 10 + 10 + 5 + 10 by itself; B 10 before the loss, C 5.
    let expected = [50, 35, 35].map(|count| Some(Duration(count)));
    assert_eq!(certain, [expected.into()]);
    assert_eq!(
        trace.printed.last().map(String::as_str),
        Some("0 C0 80-90 10/10")
    );
}

#[test]
fn a_tail_call_of_a_function_found_behind_a_loss_is_not_of_those_open_before() {
    let info = TraceInfo {
        unit: TimeUnit::Instructions,
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    let row = |kind, time, function: FunctionId| {
        Row::new(kind, Time(time), StreamId(0)).function(Some(function))
    };
    trace.enter(0, A).gap(10);
    let found = certain(
        &mut trace,
        &[
            row(RowKind::Enter, 10, B).found(true),
            row(RowKind::Exit, 20, B),
            row(RowKind::Enter, 20, C),
            row(RowKind::Exit, 60, C),
            // A goes on, and calls C itself.
            row(RowKind::Other, 60, A),
            row(RowKind::Enter, 65, C),
            row(RowKind::Exit, 70, C),
            row(RowKind::Exit, 75, A),
        ],
    );
    assert_eq!(
        found,
        [
            (Some(B), 10, 10),
            (Some(C), 40, 40),
            (Some(C), 5, 5),
            (Some(A), 25, 75)
        ]
    );
}

#[test]
fn a_call_that_is_found_open_is_not_whole() {
    let mut trace = Trace::with(&TraceInfo::default(), Options::default());
    let row = Row::new(RowKind::Enter, Time(5), StreamId(0)).function(Some(A));
    push_row(&mut trace, row.found(true));
    let exit = Row::new(RowKind::Exit, Time(8), StreamId(0)).function(Some(A));
    let exit = exit.at(Some(Cpu(0)), Some(ThreadId(1)));
    let event = EventRef {
        row: &exit,
        event: None,
    };
    let mut whole = Vec::new();
    trace.calls.push(event, &mut |step| {
        if let Step::End(end) = step {
            whole.push((end.how, end.is_complete(), end.is_at_least()));
        }
    });
    assert_eq!(whole, [(How::Returned, false, true)]);
}

#[test]
fn each_window_has_the_guesses_of_all_before_it() {
    let mut trace = Trace::new();
    // B's exit is among the lost events.
    trace.enter(0, A).enter(10, B).gap(20).exit(30, A);
    let guessed = trace.calls.counts().lost + trace.calls.counts().unwound;
    let guessed = guessed + trace.calls.counts().doubtful;
    assert!(guessed > 0);
    let mut begins = Vec::new();
    for at in [40, 50] {
        trace.calls.open_window(Time(at), &mut |_| {});
        begins.push(trace.calls.counts().missing_calls);
        assert_eq!(trace.calls.hidden_calls(), Some(2 + guessed));
    }
    assert_eq!(begins, [2 + guessed; 2]);
    // They are as many as can be counted at most.
    let info = TraceInfo {
        cut: kymo_event::Cut {
            hidden_calls: Some(u64::MAX - 1),
            ..kymo_event::Cut::default()
        },
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.enter(0, A).enter(10, B).gap(20).exit(30, A);
    trace.calls.open_window(Time(40), &mut |_| {});
    assert_eq!(trace.calls.counts().missing_calls, u64::MAX);
}

/// What is certain of each call, in the order of their ends.
fn certain(trace: &mut Trace, rows: &[Row]) -> Vec<(Option<FunctionId>, u64, u64)> {
    let mut found = Vec::new();
    for row in rows {
        let row = row.at(Some(Cpu(0)), Some(ThreadId(1)));
        let event = EventRef {
            row: &row,
            event: None,
        };
        trace
            .calls
            .push(event, &mut |step| found.extend(sure(&step)));
    }
    trace.calls.finish(&mut |step| found.extend(sure(&step)));
    found
}

fn sure(step: &Step<'_>) -> Option<(Option<FunctionId>, u64, u64)> {
    let Step::End(end) = step else { return None };
    let function = match end.callee {
        Callee::Function(function) => Some(function),
        _ => None,
    };
    Some((function, end.sure?.0, end.duration?.0))
}

#[test]
fn behind_the_last_time_no_bound_is_certain() {
    let mut trace = Trace::new();
    let row = |kind, time, function| Row::new(kind, Time(time), StreamId(0)).function(function);
    let found = certain(
        &mut trace,
        &[
            row(RowKind::Enter, 0, Some(A)),
            row(RowKind::Time, 10, None).last_time(),
            row(RowKind::Enter, 15, Some(C)),
            row(RowKind::Exit, 20, Some(C)),
            row(RowKind::Enter, 25, Some(B)),
            row(RowKind::Enter, 30, Some(C)),
        ],
    );
    // What has ended keeps the time that was extrapolated.
    assert_eq!(
        found,
        [
            (Some(C), 5, 5),
            (Some(C), 0, 0),
            (Some(B), 0, 5),
            (Some(A), 10, 30)
        ]
    );
    assert_eq!(trace.calls.counts().losses, 0);
}

#[test]
fn a_thread_that_may_run_unseen_has_bounds() {
    let mut trace = Trace::new();
    let row = |kind, time, function| Row::new(kind, Time(time), StreamId(0)).function(function);
    let found = certain(
        &mut trace,
        &[
            row(RowKind::SwitchedIn, 0, None),
            row(RowKind::Enter, 0, Some(A)),
            row(RowKind::Enter, 2, Some(B)),
            row(RowKind::Exit, 5, Some(B)),
            row(RowKind::SwitchedOut, 10, None).unseen(true),
            row(RowKind::SwitchedIn, 20, None),
            row(RowKind::Exit, 30, Some(A)),
        ],
    );
    assert_eq!(found, [(Some(B), 3, 3), (Some(A), 10, 20)]);
}

#[test]
fn the_self_time_over_a_loss_has_an_upper_bound() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(10, B).exit(30, B);
    push_row(
        &mut trace,
        Row::new(RowKind::SwitchedOut, Time(40), StreamId(0)),
    );
    // What ran from 40 to 100 is not known.
    trace.gap(40).switch(100, 1);
    let row = |kind, time, function: FunctionId| {
        Row::new(kind, Time(time), StreamId(0)).function(Some(function))
    };
    push_row(&mut trace, row(RowKind::Enter, 100, C));
    push_row(&mut trace, row(RowKind::Exit, 120, C));
    let mut bounds = Vec::new();
    let exit = row(RowKind::Exit, 130, A).at(Some(Cpu(0)), Some(ThreadId(1)));
    let event = EventRef {
        row: &exit,
        event: None,
    };
    trace.calls.push(event, &mut |step| {
        if let Step::End(end) = step {
            bounds.push((end.sure_self, end.self_max()));
        }
    });
    // All but the 20 of B, which was seen before the loss.
    let of_a = (Some(Duration(20)), Some(Duration(110)));
    assert_eq!(bounds, [of_a]);
}

#[test]
fn calls_that_a_jump_left_have_not_returned() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(10, B).enter(20, B).enter(30, C);
    let left = |time| {
        let row = Row::new(RowKind::Exit, Time(time), StreamId(0));
        row.function(Some(B)).left(true)
    };
    push_row(&mut trace, left(40));
    push_row(&mut trace, left(40));
    trace.exit(50, A);
    let printed = trace.finish();
    let expected = [
        "+0 implied",
        "0 C0 30-40 10/10 unwound",
        "0 B0 20-40 20/10 unwound",
        "0 B0 10-40 30/10 unwound",
        "0 A0 0-50 50/20",
    ];
    let printed: Vec<_> = printed.iter().map(|line| line.replace("  ", " ")).collect();
    assert_eq!(printed, expected);
}
