//! Exits without an entry, of which the source states how long their calls took.

use kymo_event::Row;

use super::*;
use crate::by_wall::ByWall;

impl Trace {
    fn exit_took(&mut self, time: i64, function: FunctionId, wall: u64) -> &mut Self {
        let row = Row::new(RowKind::Exit, Time(time), StreamId(self.stream))
            .at(self.cpu.map(Cpu), self.thread.map(ThreadId))
            .function(Some(function))
            .took(Duration(wall));
        let printed = &mut self.printed;
        let event = EventRef {
            row: &row,
            event: None,
        };
        self.calls.push(event, &mut |step| say(&step, printed));
        self
    }
}

#[test]
fn a_call_that_began_before_the_trace_took_what_it_called_at_least() {
    let mut trace = Trace::new();
    trace
        .enter(100, C)
        .exit(110, C)
        .exit_took(115, B, 500)
        .exit_took(120, A, 700);
    let printed = [
        "+0 implied",
        "0 C0 100-110 10/10",
        "0 B0 10ns..500ns/490 of 500ns orphan doubtful",
        "0 A0 10ns..700ns/200 of 700ns orphan doubtful",
    ]
    .map(|line| line.replace("ns", ""));
    let found = trace.finish();
    assert_eq!(
        found
            .iter()
            .map(|it| it.replace("ns", ""))
            .collect::<Vec<_>>(),
        printed
    );
    assert_eq!(trace.calls.counts().orphans, 2);
}

#[test]
fn what_began_in_a_loss_does_not_end_what_was_open_before_it() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(10, B)
        .gap(20)
        .enter(50_000_000, C)
        .exit(50_000_010, C)
        // It began 30 ms ago, and not 50 as the one that is open.
        .exit_took(50_000_020, B, 30_000_000)
        .exit(50_000_030, B)
        .exit(50_000_040, A);
    let found = trace.finish();
    let ends: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(ends[1], "0 C0 50000000-50000010 10/10");
    assert!(
        ends[2].starts_with("0 B0 ") && ends[2].contains("orphan recursive"),
        "{ends:?}"
    );
    assert!(ends[3].starts_with("0 B0 10-50000030"), "{ends:?}");
    assert!(ends[4].starts_with("0 A0 0-50000040"), "{ends:?}");
}

#[test]
fn a_call_that_took_as_long_as_it_was_open_is_no_other_one_behind_a_loss() {
    for (took, sure) in [(50_000_000, 50_000_000), (49_900_000, 0)] {
        let mut trace = Trace::new();
        trace.enter(0, B).gap(20);
        let mut by_wall = ByWall::default();
        let mut ends = Vec::new();
        by_wall.begin(TrackId(0));
        let row = Row::new(RowKind::Exit, Time(50_000_000), StreamId(0))
            .at(Some(Cpu(0)), Some(ThreadId(1)))
            .function(Some(B))
            .took(Duration(took));
        let event = EventRef {
            row: &row,
            event: None,
        };
        trace.calls.push(event, &mut |step| {
            if let Step::End(end) = by_wall.step(step) {
                ends.push((end.duration, end.sure, end.doubt.loss));
            }
        });
        let expected = (Some(Duration(50_000_000)), Some(Duration(sure)), true);
        assert_eq!(ends, [expected]);
    }
}

#[test]
fn a_window_has_what_of_such_a_call_lies_within() {
    let mut trace = Trace::new();
    trace.enter(0, C).exit(10, C);
    let printed = &mut trace.printed;
    trace
        .calls
        .open_window(Time(100), &mut |step| say(&step, printed));
    trace.exit_took(130, A, 500).exit_took(140, B, 7);
    let mut ends = Vec::new();
    let found = trace.finish();
    ends.extend(found.iter().filter(|line| line.contains("orphan")));
    assert!(ends[0].contains("/30 of 30"), "{ends:?}");
    assert!(ends[1].contains(" of 7"), "{ends:?}");
}

/// How long all calls took, and they themselves, within a window: of a call that took 110 although its entry was written 8
/// late, and of one within it that took 93 in place of 90, during which another thread ran for 20.
fn sums(begin: Option<i64>, end: Option<i64>) -> (u64, u64) {
    let mut trace = Trace::new();
    let (mut total, mut own) = (0, 0);
    let count = |step: Step<'_>, total: &mut u64, own: &mut u64| {
        if let Step::End(end) = step {
            *total += end.duration.unwrap_or_default().0;
            *own += end.self_time.unwrap_or_default().0;
            assert!(end.duration <= end.wall, "{end:?}");
        }
    };
    let row = |kind, time, thread, function| {
        Row::new(kind, Time(time), StreamId(0))
            .at(Some(Cpu(0)), Some(ThreadId(thread)))
            .function(function)
    };
    let rows = [
        row(RowKind::Enter, 8, 1, Some(A)),
        row(RowKind::Enter, 13, 1, Some(B)),
        row(RowKind::SwitchedOut, 40, 1, None),
        row(RowKind::SwitchedIn, 40, 2, None),
        row(RowKind::SwitchedOut, 60, 2, None),
        row(RowKind::SwitchedIn, 60, 1, None),
        row(RowKind::Exit, 103, 1, Some(B)).took(Duration(93)),
        row(RowKind::Exit, 110, 1, Some(A)).took(Duration(110)),
    ];
    let mut opens = begin;
    for row in rows
        .iter()
        .filter(|row| end.is_none_or(|end| row.time.0 < end))
    {
        if let Some(at) = opens.take_if(|at| *at <= row.time.0) {
            trace.calls.open_window(Time(at), &mut |_| {});
            total = 0;
            own = 0;
        }
        let event = EventRef { row, event: None };
        let calls = &mut trace.calls;
        calls.push(event, &mut |step| count(step, &mut total, &mut own));
    }
    let mut count = |step: Step<'_>| count(step, &mut total, &mut own);
    match end {
        Some(end) => trace.calls.close_window(Time(end), &mut count),
        None => trace.calls.finish(&mut count),
    }
    (total, own)
}

#[test]
fn windows_add_up_to_the_whole_where_durations_are_stated() {
    let whole = sums(None, None);
    assert_eq!(whole, (110 - 20 + 93 - 20, 110 - 20));
    for cut in 9..110 {
        let (front, back) = (sums(None, Some(cut)), sums(Some(cut), None));
        assert_eq!((front.0 + back.0, front.1 + back.1), whole, "cut at {cut}");
    }
}
