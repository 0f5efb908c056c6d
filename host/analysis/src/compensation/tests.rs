//! What recording cost, taken off small traces that are made up.

use kymo_event::{Addr, Batch, Cpu, Event, FunctionId, InterruptId, ThreadId};

use super::*;
use crate::calls::{Calls, Options};

const A: FunctionId = FunctionId(0xA0);
const B: FunctionId = FunctionId(0xB0);

const fn cost(recorded: Recorded, from: u64, before: u64, after: u64) -> RecordingCost {
    RecordingCost {
        recorded,
        from: Duration(from),
        before: Picoseconds(before * 1000),
        after: Picoseconds(after * 1000),
        uncertainty: Picoseconds(500),
    }
}

fn info() -> TraceInfo {
    TraceInfo {
        clock_hz: Some(1_000_000_000),
        costs: vec![
            cost(Recorded::Exit, 0, 5, 15),
            cost(Recorded::Enter, 150, 10, 30),
            cost(Recorded::Enter, 0, 10, 20),
            cost(Recorded::IsrEnter, 0, 3, 7),
            cost(Recorded::IsrExit, 0, 2, 4),
        ],
        ..TraceInfo::default()
    }
}

fn enter(function: FunctionId) -> EventKind {
    EventKind::Enter {
        function,
        call_site: None,
    }
}

fn exit(function: FunctionId) -> EventKind {
    EventKind::Exit {
        function: Some(function),
    }
}

/// What is left: of each end its function (or interrupt), duration and self time.
fn compensated(events: &[(i64, EventKind)]) -> (Vec<(Callee, u64, u64)>, Compensation) {
    compensated_with(&info(), events)
}

fn compensated_with(
    info: &TraceInfo,
    events: &[(i64, EventKind)],
) -> (Vec<(Callee, u64, u64)>, Compensation) {
    compensated_with_all(info, events, &mut |_| {})
}

/// The same; `before` sees each step before anything is taken off.
fn compensated_with_all(
    info: &TraceInfo,
    events: &[(i64, EventKind)],
    before: &mut dyn FnMut(&Step<'_>),
) -> (Vec<(Callee, u64, u64)>, Compensation) {
    let mut compensation = Compensation::new(info).unwrap();
    let mut calls = Calls::new(info, Options::default());
    let mut ends = Vec::new();
    let mut take = |mut step: Step<'_>, stream, compensation: &mut Compensation| {
        before(&step);
        compensation.step(stream, &mut step);
        if let Step::End(end) = step {
            let ns = |duration: Option<Duration>| duration.unwrap_or_default().0;
            ends.push((end.callee, ns(end.duration), ns(end.self_time)));
        }
    };
    let stream = StreamId(0);
    for (time, kind) in events {
        let event = Event {
            time: Time(*time),
            stream,
            cpu: Some(Cpu(0)),
            thread: Some(ThreadId(1)),
            kind: kind.clone(),
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        };
        for event in Batch::from_iter([event]).iter() {
            compensation.event(event);
            calls.push(event, &mut |step| {
                take(step, Some(stream), &mut compensation);
            });
        }
    }
    calls.finish(&mut |step| take(step, None, &mut compensation));
    (ends, compensation)
}

#[test]
fn callers_and_callees_pay_their_parts() {
    let (ends, compensation) = compensated(&[
        (0, enter(A)),
        (100, enter(B)),
        (200, exit(B)),
        (300, exit(A)),
    ]);
    // B: 100 less 20 after its enter and 5 before its exit.
    // A: of its own 200, 20 after its enter, 10 before B's, 15 after B's exit, 5 before its own.
    let (a, b) = (Callee::Function(A), Callee::Function(B));
    assert_eq!(ends, [(b, 75, 75), (a, 225, 150)]);
    let charged = compensation.charged(a);
    assert_eq!(charged.self_time.cost(), Duration(50));
    assert_eq!(charged.total.cost(), Duration(75));
    assert_eq!(charged.self_time.parts(), 4);
    // Four parts of half a nanosecond, and two spans rounded to the nanosecond.
    assert_eq!(compensation.bound(&charged.self_time), Duration(2 + 2));
    assert_eq!(compensation.below_zero(), 0);
    // The first enter's before and the last exit's after are nobody's.
    assert_eq!(compensation.whole().cost(), Duration(10 + 75 + 15));
    let pair = (Picoseconds(50_000), Picoseconds(2_000));
    assert_eq!(compensation.pair(), Some(pair));
}

#[test]
fn an_interrupt_is_paid_for_by_what_it_interrupts() {
    let (ends, _) = compensated(&[
        (0, enter(A)),
        (
            100,
            EventKind::IsrEnter {
                irq: InterruptId(7),
            },
        ),
        (120, enter(B)),
        (160, exit(B)),
        (200, EventKind::IsrExit { irq: None }),
        (300, exit(A)),
    ]);
    let handler = Callee::Interrupt(InterruptId(7));
    let expected = [
        (Callee::Function(B), 40 - 25, 40 - 25),
        // 7 after it began, 10 before B, 15 after it, 2 before it ends.
        (handler, 100 - 34 - 25, 60 - 34),
        // 20 after its enter, 3 and 4 around the interrupt, 5 before its exit.
        (Callee::Function(A), 200 - 32, 200 - 32),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn a_switch_is_paid_for_by_both_threads() {
    let mut info = info();
    info.costs.push(cost(Recorded::SwitchedOut, 0, 11, 1000));
    info.costs.push(cost(Recorded::SwitchedIn, 0, 1000, 13));
    let (ends, _) = compensated_with(
        &info,
        &[
            (0, enter(A)),
            (100, EventKind::SwitchedOut),
            (2000, EventKind::SwitchedIn),
            (2100, exit(A)),
        ],
    );
    // 20 after its enter, 11 before it was switched out, 13 after it was in again, 5 at the end.
    let left = 200 - 49;
    assert_eq!(ends, [(Callee::Function(A), left, left)]);
}

#[test]
fn late_records_have_their_own_cost() {
    let (ends, _) = compensated(&[
        (0, enter(A)),
        (150, enter(B)),
        (200, exit(B)),
        (300, exit(A)),
    ]);
    assert_eq!(ends[0], (Callee::Function(B), 50 - 35, 50 - 35));
}

#[test]
fn a_time_record_makes_none_early() {
    let (ends, _) = compensated(&[
        (0, enter(A)),
        (145, EventKind::Time),
        (150, enter(B)),
        (200, exit(B)),
        (300, exit(A)),
    ]);
    assert_eq!(ends[0], (Callee::Function(B), 50 - 35, 50 - 35));
}

#[test]
fn nothing_comes_out_below_zero_unsaid() {
    let (ends, compensation) = compensated(&[(0, enter(A)), (10, exit(A))]);
    assert_eq!(ends, [(Callee::Function(A), 0, 0)]);
    assert_eq!(compensation.below_zero(), 1);
    // The sum is not falsified by that.
    let charged = compensation.charged(Callee::Function(A));
    assert_eq!(charged.self_time.cost(), Duration(25));
}

/// Of calls that recording made longer than its own cost says, or shorter: what is left of a function.
fn left_of(events: &[(i64, EventKind)], callee: FunctionId) -> (Row, Left) {
    let mut profile = crate::profile::Profile::new();
    let (_, compensation) = compensated_with_all(&info(), events, &mut |step| profile.add(step));
    let callee = Callee::Function(callee);
    let row = profile.row(callee).expect("it was called");
    (row, compensation.charged(callee).left(&row))
}

#[test]
fn what_was_called_took_no_less_than_nothing() {
    // B is charged 25 each time, and takes 10.
    let calls = [
        (0, enter(A)),
        (100, enter(B)),
        (110, exit(B)),
        (200, enter(B)),
        (210, exit(B)),
        (300, exit(A)),
    ];
    let (row, left) = left_of(&calls, A);
    assert_eq!((row.total, row.self_time), (Duration(300), Duration(280)));
    // 20 after its enter, 10 and 15 around each call, one of which is late, 5 before its exit.
    let self_time = Duration(280 - 20 - 25 - 25 - 5);
    let expected = Left {
        self_time,
        total: self_time,
        each: self_time,
        callees_below_zero: true,
    };
    assert_eq!(left, expected);
    // Of B itself there is not even that.
    let (_, left) = left_of(&calls, B);
    assert_eq!((left.total, left.self_time), (Duration(0), Duration(0)));
    // A call that takes longer than is charged for it makes up for one that does not.
    let mut calls = calls;
    calls[4].0 = 270;
    let (row, left) = left_of(&calls, A);
    assert_eq!((row.total, row.self_time), (Duration(300), Duration(220)));
    assert_eq!(left.self_time, self_time - Duration(60));
    assert_eq!(left.total, Duration(left.self_time.0 + 10 + 70 - 50));
    assert!(!left.callees_below_zero);
}

#[test]
fn what_is_open_is_charged_up_to_the_end() {
    let (row, left) = left_of(
        &[
            (0, enter(A)),
            (200, exit(A)),
            (1000, enter(A)),
            (1100, enter(A)),
            (1900, exit(A)),
        ],
        A,
    );
    assert_eq!((row.total, row.self_time), (Duration(1100), Duration(1100)));
    // 20 after two enters and 30 after one that comes late, 5 before two exits; the inner call's 10 and 15 are
    // the outer one's.
    assert_eq!(left.total, Duration(1100 - 70 - 2 * 5 - 25));
    assert_eq!(left.self_time, left.total);
    assert_eq!(left.each, Duration(1000 - 50));
    assert!(!left.callees_below_zero);
}

#[test]
fn calls_within_one_whose_exit_is_lost_are_charged_in_its_place() {
    let lost = EventKind::Gap(kymo_event::Gap::Discarded { events: Some(1) });
    let (row, left) = left_of(
        &[
            (0, enter(A)),
            (100, enter(B)),
            (200, lost),
            (300, enter(A)),
            (400, exit(A)),
            (500, enter(A)),
            (600, exit(A)),
        ],
        A,
    );
    assert_eq!((row.total, row.count, row.open), (Duration(300), 3, 1));
    // 30 after an enter that comes late and 20 after the other, 5 before each exit; and what is certain of the
    // outer one, up to B, is charged 30.
    assert_eq!(left.self_time, Duration(300 - 35 - 25 - 30));
    assert_eq!(left.total, Duration(300 - 35 - 25));
}

#[test]
fn what_jumps_left_and_what_is_open_is_charged_too() {
    let env = Addr(0x1000);
    let (ends, compensation) = compensated(&[
        (0, enter(A)),
        (50, EventKind::SetJmp { env }),
        (100, enter(B)),
        (150, EventKind::LongJmp { env }),
        (200, enter(B)),
        (
            300,
            EventKind::Marker {
                label: None,
                value: 1,
            },
        ),
    ]);
    let (a, b) = (Callee::Function(A), Callee::Function(B));
    // No exit was recorded of the first B; the second is open at the end, and so is A.
    assert_eq!(ends, [(b, 30, 30), (b, 80, 80), (a, 220, 110)]);
    assert_eq!(compensation.charged(b).self_time.cost(), Duration(40));
    let charged = compensation.charged(a);
    assert_eq!(charged.self_time.cost(), Duration(40));
    assert_eq!(charged.total.cost(), Duration(80));
}

#[test]
fn a_trace_without_costs_can_not_be_compensated() {
    assert!(Compensation::new(&TraceInfo::default()).is_none());
}
