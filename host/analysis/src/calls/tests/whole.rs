//! Calls that are one event each, and calls that nobody saw end.

use kymo_event::{CallEnd, Row, WholeCall};

use super::*;

/// A trace of a stream that belongs to one thread.
fn of_thread() -> Trace {
    let stream = StreamInfo {
        thread: Some(ThreadId(1)),
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: vec![stream],
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.cpu = None;
    trace
}

fn push(trace: &mut Trace, (time, row): (i64, impl Fn(Row) -> Row), kind: EventKind) -> Vec<End> {
    let event = Event {
        time: Time(time),
        stream: StreamId(0),
        cpu: None,
        thread: Some(ThreadId(1)),
        kind,
        named: false,
        record: true,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    };
    let mut batch = Batch::default();
    let of = Row::new(RowKind::Rare, event.time, event.stream);
    batch.push_both(&row(of), event);
    let mut ends = Vec::new();
    for event in batch.iter() {
        trace.calls.push(event, &mut |step| {
            if let Step::End(end) = step {
                ends.push(end);
            }
        });
    }
    ends
}

fn call(function: FunctionId, (duration, self_time): (u64, u64), end: CallEnd) -> EventKind {
    EventKind::Call(WholeCall {
        function,
        duration: Duration(duration),
        self_time: Duration(self_time),
        end,
    })
}

#[test]
fn a_whole_call_counts_once_with_its_times() {
    let mut trace = of_thread();
    trace.enter(100, B).exit(110, B).enter(120, B).exit(130, B);
    // A is open around it, and goes on.
    let ends = push(
        &mut trace,
        (135, |row| row),
        call(A, (90, 60), CallEnd::Returned),
    );
    let [end] = ends.as_slice() else {
        panic!("{ends:?}");
    };
    assert_eq!(
        (end.duration, end.sure),
        (Some(Duration(90)), Some(Duration(90)))
    );
    assert_eq!(
        (end.self_time, end.sure_self),
        (Some(Duration(60)), Some(Duration(60)))
    );
    assert!(end.is_complete() && !end.is_at_least(), "{end:?}");
    trace.finish();
    let counts = trace.calls.counts();
    assert_eq!((counts.returned, counts.orphans, counts.unwound), (2, 1, 0));
}

#[test]
fn recursion_within_a_whole_call_counts_once() {
    let mut trace = of_thread();
    trace.enter(100, A).exit(150, A);
    let ends = push(
        &mut trace,
        (160, |row: Row| row.recursive(true)),
        call(A, (90, 40), CallEnd::Returned),
    );
    // The 50 within it are in the total already.
    assert_eq!(
        (ends[0].sure, ends[0].duration),
        (Some(Duration(40)), Some(Duration(90)))
    );
    assert_eq!(ends[0].sure_self, Some(Duration(40)));
}

#[test]
fn a_whole_call_in_a_window_has_what_lies_within() {
    let mut trace = of_thread();
    trace.enter(0, C).exit(10, C);
    trace.calls.open_window(Time(100), &mut |_| {});
    let ends = push(
        &mut trace,
        (130, |row| row),
        call(A, (90, 70), CallEnd::Returned),
    );
    assert_eq!(
        (ends[0].sure, ends[0].duration),
        (Some(Duration(30)), Some(Duration(30)))
    );
    assert_eq!(
        (ends[0].sure_self, ends[0].self_time),
        (Some(Duration(10)), Some(Duration(30)))
    );
    assert!(ends[0].clipped);
}

#[test]
fn a_call_that_nobody_saw_end_took_at_least_what_was_measured() {
    let mut trace = of_thread();
    trace.enter(0, A).enter(10, B).exit(30, B);
    let mut batch = Batch::default();
    let ago = Duration(500);
    let event = Event {
        time: Time(500),
        stream: StreamId(0),
        cpu: None,
        thread: Some(ThreadId(1)),
        kind: EventKind::Gap(Gap::MissingExit { ago }),
        named: false,
        record: true,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    };
    batch.push_exit(event, Duration(7));
    let mut profile = crate::profile::Profile::default();
    for event in batch.iter() {
        trace.calls.push(event, &mut |step| profile.add(&step));
    }
    let row = profile.row(Callee::Function(A)).unwrap();
    assert_eq!((row.total, row.self_time), (Duration(500), Duration(7)));
    assert_eq!((row.count, row.lost, row.unseen_ends), (1, 1, 1));
    let bounds = crate::profile::Bounds::of(trace.calls.counts(), &profile);
    assert_eq!((bounds.total(&row), bounds.self_time(&row)), (None, None));
}
