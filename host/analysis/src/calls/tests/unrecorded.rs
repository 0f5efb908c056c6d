//! Calls of a process whose switches are in a stream of the kernel's that covers less, or has lost events.

use super::*;

/// Per processor, stream 0 and 1 with calls and stream 2 and 3 with switches, recorded in these times.
fn session(switches: [Option<(i64, i64)>; 2]) -> Trace {
    let stream = |cpu, switches: Option<(i64, i64)>| StreamInfo {
        cpu: Some(Cpu(cpu)),
        switches: switches.map(|(begin, end)| (Time(begin), Time(end))),
        ..StreamInfo::default()
    };
    let streams = vec![
        stream(0, None),
        stream(1, None),
        stream(0, switches[0]),
        stream(1, switches[1]),
    ];
    let info = TraceInfo {
        streams,
        ..TraceInfo::default()
    };
    Trace::with(&info, Options::default())
}

impl Trace {
    fn of_kernel(&mut self, event: impl FnOnce(&mut Self)) -> &mut Self {
        self.stream += 2;
        event(self);
        self.stream -= 2;
        self
    }

    fn ends(&mut self) -> Vec<String> {
        let mut lines = self.finish();
        lines.retain(|line| !line.starts_with(['+', '-']));
        lines
    }
}

#[test]
fn calls_before_and_behind_the_records_of_switches_are_in_doubt() {
    let mut trace = session([Some((50, 100)), None]);
    trace.enter(10, A).enter(11, B).exit(20, B).exit(30, A);
    trace.enter(40, A).exit(60, A);
    trace.enter(70, A).enter(80, B).exit(90, B);
    trace.enter(95, C).exit(100, C).enter(100, C).exit(105, C);
    trace.exit(110, A).enter(120, B).exit(130, B);
    let ends = [
        "0 B0 11-20 9/9 doubtful",
        "0 A0 10-30 20/11 doubtful",
        "0 A0 40-60 20/20 doubtful",
        "0 B0 80-90 10/10",
        "0 C0 95-100 5/5",
        "0 C0 100-105 5/5 doubtful",
        "0 A0 70-110 40/20 doubtful",
        "0 B0 120-130 10/10 doubtful",
    ];
    assert_eq!(trace.ends(), ends);
}

#[test]
fn a_thread_that_waits_may_run_where_switches_are_not_recorded() {
    // Those of processor 1 are recorded up to 100.
    let mut trace = session([Some((0, 1000)), Some((0, 100))]);
    trace.enter(10, A);
    trace.of_kernel(|trace| {
        trace.switch(50, 2).switch(60, 1);
    });
    trace.exit(70, A).enter(80, B);
    trace.of_kernel(|trace| {
        trace.switch(90, 2).switch(200, 1);
    });
    trace.exit(210, B).enter(220, C);
    trace.of_kernel(|trace| {
        trace.switch(230, 2).switch(240, 1);
    });
    trace.exit(250, C).enter(260, A).exit(270, A);
    let ends = [
        "0 A0 10-70 50/50",
        "0 B0 80-210 20/20 doubtful",
        "0 C0 220-250 20/20 doubtful",
        "0 A0 260-270 10/10",
    ];
    assert_eq!(trace.ends(), ends);
}

#[test]
fn calls_that_begin_while_switches_are_lost_are_in_doubt() {
    let mut trace = session([Some((0, 1000)), Some((0, 1000))]);
    trace.of_kernel(|trace| {
        trace.push(5, EventKind::SwitchedIn);
    });
    trace.enter(6, C).exit(7, C);
    trace.of_kernel(|trace| {
        trace.gap(7);
    });
    trace.enter(10, A).enter(20, B).exit(30, B).exit(40, A);
    trace.of_kernel(|trace| {
        trace.push(50, EventKind::Other);
    });
    trace.enter(60, A).exit(70, A);
    let ends = [
        "0 C0 6-7 1/1",
        "0 B0 20-30 10/10 doubtful",
        "0 A0 10-40 30/20 doubtful",
        "0 A0 60-70 10/10",
    ];
    assert_eq!(trace.ends(), ends);
}

#[test]
fn a_processor_without_a_stream_of_switches_has_none_recorded() {
    let mut trace = session([Some((0, 1000)), None]);
    trace.cpu(1).enter(10, A).exit(20, A);
    trace.cpu(0).thread(2).enter(30, B).exit(40, B);
    assert_eq!(
        trace.ends(),
        ["0 A0 10-20 10/10 doubtful", "1 B0 30-40 10/10"]
    );
}
