//! Spans: they overlap calls and threads, and take no time from them.

use super::*;

fn begin(function: FunctionId, per_cpu: bool) -> EventKind {
    EventKind::SpanBegin { function, per_cpu }
}

fn end(function: FunctionId, per_cpu: bool) -> EventKind {
    EventKind::SpanEnd { function, per_cpu }
}

#[test]
fn they_overlap_calls_and_threads() {
    let mut trace = Trace::new();
    trace.enter(0, A).push(1, begin(C, true)).exit(5, A);
    trace.switch(6, 2).enter(7, B).push(9, end(C, true));
    trace.push(10, begin(C, true)).push(11, begin(C, true));
    trace
        .push(12, end(C, true))
        .push(13, end(C, true))
        .exit(15, B);
    let printed = [
        "+0 implied",
        "0 A0 0-5 5/5",
        "-0",
        "+2",
        "1 C0 1-9 8/0",
        "1 C0 11-12 1/0 recursive",
        "1 C0 10-13 3/0",
        "2 B0 7-15 8/8",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn a_name_is_open_on_each_processor_or_once() {
    let mut trace = Trace::new();
    trace.push(0, begin(A, true)).push(0, begin(B, false));
    trace.cpu(1).thread(2).push(1, begin(A, true));
    // What one processor began for the machine another may end.
    trace.push(3, end(B, false)).push(5, end(A, true));
    trace.cpu(0).thread(1).push(6, end(A, true));
    let printed = [
        "+0 implied",
        "+3 implied",
        "2 B0 0-3 3/0",
        "4 A0 1-5 4/0",
        "1 A0 0-6 6/0",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn an_end_without_a_begin_is_of_one_that_began_unseen() {
    let mut trace = Trace::new();
    // Interrupts are enabled that had been enabled before: no span, but for what nobody saw.
    trace.push(1, end(A, true)).push(2, end(A, true));
    trace.push(3, begin(A, true)).push(4, end(A, true));
    trace.push(5, end(A, true)).gap(6).push(9, end(A, true));
    let printed = ["+0 implied", "1 A0 orphan", "1 A0 3-4 1/0", "1 A0 orphan"];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn a_loss_puts_them_in_doubt_on_their_processor() {
    let sure = |cpu: u32| {
        let mut trace = Trace::new();
        trace.push(0, begin(A, true));
        trace.cpu(1).thread(2).push(1, begin(A, true));
        trace.cpu(cpu).thread(cpu + 1).gap(4);
        let mut sure = Vec::new();
        for (cpu, time) in [(0, 10), (1, 11)] {
            trace.cpu(cpu).thread(cpu + 1);
            let event = Event {
                time: Time(time),
                stream: StreamId(cpu),
                cpu: Some(Cpu(cpu)),
                thread: Some(ThreadId(cpu + 1)),
                kind: end(A, true),
                named: false,
                record: true,
                stamp: None,
                name: "".into(),
                fields: Vec::new(),
            };
            for event in Batch::from_iter([event]).iter() {
                trace.calls.push(event, &mut |step| {
                    if let Step::End(end) = step {
                        sure.push((end.sure, end.duration));
                    }
                });
            }
        }
        sure
    };
    let [four, ten] = [4, 10].map(|time| Some(Duration(time)));
    assert_eq!(sure(0), [(four, ten), (ten, ten)]);
    assert_eq!(sure(1), [(ten, ten), (Some(Duration(3)), ten)]);
}

#[test]
fn a_window_clips_them() {
    let mut trace = Trace::new();
    trace.push(0, begin(A, true));
    let mut begun = Vec::new();
    trace.calls.open_window(Time(4), &mut |step| {
        if let Step::Begin(begin) = step {
            begun.push((begin.time, begin.clipped, begin.thread, begin.cpu));
        }
    });
    let here = (Some(ThreadId(1)), Some(Cpu(0)));
    assert_eq!(begun, [(Time(4), true, here.0, here.1)]);
    let rows = trace.calls.open_rows(Time(4));
    let spans = rows
        .iter()
        .filter(|(row, _)| row.kind == RowKind::SpanBegin);
    assert_eq!(spans.count(), 1);
    trace.push(7, end(A, true));
    assert_eq!(trace.finish(), ["+0 implied", "1 A0 4-7 3/0"]);
}

#[test]
fn a_loss_anywhere_puts_those_of_the_machine_in_doubt() {
    let mut trace = Trace::new();
    trace.push(0, begin(B, false));
    trace.cpu(1).thread(2).push(1, begin(A, true)).gap(4);
    trace.push(6, end(A, true));
    trace.cpu(0).thread(1).push(9, end(B, false));
    let printed: Vec<_> = trace.finish();
    let ends: Vec<_> = printed.iter().filter(|line| line.contains('/')).collect();
    assert_eq!(ends, ["3 A0 1-6 5/0 doubtful", "1 B0 0-9 9/0 doubtful"]);
    // So are those of a stream that names no processor.
    let mut trace = Trace::new();
    (trace.cpu, trace.thread) = (None, None);
    trace.push(0, begin(B, false)).gap(4).push(9, end(B, false));
    assert!(trace.finish().contains(&"1 B0 0-9 9/0 doubtful".to_owned()));
}

#[test]
fn they_may_begin_at_any_time() {
    let mut trace = Trace::new();
    trace.push(-100, begin(A, true)).push(50, end(A, true));
    assert_eq!(trace.finish(), ["+0 implied", "1 A0 -100-50 150/0"]);
}
