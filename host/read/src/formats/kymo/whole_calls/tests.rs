use kymo_event::{Cpu, Duration, Identities};

use super::*;

/// Source that returns all its events in one batch.
struct Scripted {
    info: TraceInfo,
    events: Vec<Event>,
}

impl Source for Scripted {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        self.events
            .drain(..)
            .for_each(|event| batch.push_event(event));
        Ok(!batch.is_empty())
    }
}

/// A call of a thread on CPU 0 from `begin` to `end`.
fn call(thread: u32, begin: i64, end: i64) -> Event {
    let duration = Duration((end - begin).unsigned_abs());
    event(
        Some(ThreadId(thread)),
        end,
        EventKind::Call(WholeCall {
            function: FunctionId(thread),
            duration,
            self_time: duration,
            end: CallEnd::Returned,
        }),
    )
}

fn event(thread: Option<ThreadId>, time: i64, kind: EventKind) -> Event {
    Event {
        time: Time(time),
        stream: StreamId(0),
        cpu: Some(Cpu(0)),
        thread,
        kind,
        named: false,
        record: true,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    }
}

/// The streams of each thread's rows.
fn streams(events: Vec<Event>) -> Vec<(Option<ThreadId>, StreamId)> {
    let mut info = TraceInfo::default();
    let mut identities = Identities::default();
    let space = identities.add_space(kymo_event::Space::default());
    for tid in [1, 2] {
        identities.thread(space, kymo_event::Tid(tid));
    }
    info.identities = identities;
    info.streams.push(StreamInfo {
        name: "cpu0".to_owned(),
        cpu: Some(Cpu(0)),
        ..StreamInfo::default()
    });
    let mut source = WholeCalls::new(Scripted { info, events }, Wanted::Everything);
    let mut batch = Batch::default();
    let mut seen = Vec::new();
    while source.fill(&mut batch).unwrap() {
        seen.extend(batch.rows().iter().map(|row| (row.thread(), row.stream)));
    }
    let names = source.info().streams.iter().map(|it| it.thread);
    assert!(names.skip(1).all(|thread| thread.is_some()));
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn calls_of_threads_that_overlap_are_apart() {
    // Thread 1 waits while thread 0 works: no record shows which of them had the processor.
    let seen = streams(vec![call(0, 10, 20), call(1, 12, 40), call(0, 30, 50)]);
    assert_eq!(
        seen,
        [
            (Some(ThreadId(0)), StreamId(1)),
            (Some(ThreadId(1)), StreamId(2))
        ]
    );
}

#[test]
fn recursion_is_known_though_times_are_rounded() {
    let mut begun = LastBegun::default();
    let mut add = |begin| begun.add(Track::Stream(StreamId(0)), FunctionId(0), Time(begin));
    assert!(!add(100));
    // Its caller, which began in the same tick.
    assert!(add(101));
    // The call after it, which began a tick of 2 ns later; then the caller of both, and a later call.
    assert!(!add(103));
    assert!(add(90));
    assert!(!add(110));
}

#[test]
fn where_switches_are_recorded_they_tell() {
    let switched = event(Some(ThreadId(1)), 25, EventKind::SwitchedIn);
    let seen = streams(vec![call(0, 10, 20), switched, call(1, 26, 40)]);
    assert_eq!(
        seen,
        [
            (Some(ThreadId(0)), StreamId(0)),
            (Some(ThreadId(1)), StreamId(0))
        ]
    );
}

/// A call without a thread that is open when the recording is read out.
fn open_call(stream: u32, begin: i64, end: i64) -> Event {
    let duration = Duration((end - begin).unsigned_abs());
    let call = WholeCall {
        function: FunctionId(0),
        duration,
        self_time: duration,
        end: CallEnd::Open,
    };
    Event {
        stream: StreamId(stream),
        ..event(None, end, EventKind::Call(call))
    }
}

#[test]
fn open_calls_without_threads_are_their_streams() {
    // One function, entered by two processors at the same time, and reported by two readouts.
    let events = vec![
        open_call(0, 10, 20),
        open_call(1, 10, 20),
        open_call(0, 10, 30),
        open_call(1, 10, 30),
    ];
    assert_eq!(
        entries_of(events),
        [(StreamId(0), Time(10)), (StreamId(1), Time(10))]
    );
}

#[test]
fn open_calls_that_begin_at_one_time_are_each_counted() {
    // Recursion, one tick apart, and reported by two readouts; then all but the outermost return.
    let mut events: Vec<Event> = [20, 30]
        .into_iter()
        .flat_map(|end| [10, 10, 11, 11, 12].map(|begin| open_call(0, begin, end)))
        .collect();
    for begin in [12, 11, 11, 10] {
        let mut returned = open_call(0, begin, 40);
        if let EventKind::Call(call) = &mut returned.kind {
            call.end = CallEnd::Returned;
        }
        events.push(returned);
    }
    events.push(open_call(0, 10, 50));
    let entries = entries_of(events);
    assert_eq!(
        entries,
        [10, 10, 11, 11, 12].map(|at| (StreamId(0), Time(at)))
    );
}

/// The entries in the output, sorted.
fn entries_of(events: Vec<Event>) -> Vec<(StreamId, Time)> {
    let info = TraceInfo::default();
    let mut source = WholeCalls::new(Scripted { info, events }, Wanted::Everything);
    let mut batch = Batch::default();
    let mut entries = Vec::new();
    while source.fill(&mut batch).unwrap() {
        let enters = batch.rows().iter().filter(|row| row.kind == RowKind::Enter);
        entries.extend(enters.map(|row| (row.stream, row.time)));
    }
    entries.sort_unstable();
    entries
}

/// A call of thread 0 of this function.
fn of(function: u32, begin: i64, end: i64) -> Event {
    let mut event = call(0, begin, end);
    if let EventKind::Call(call) = &mut event.kind {
        call.function = FunctionId(function);
    }
    event
}

#[test]
fn a_call_that_began_too_early_to_be_put_in_order_stays_one_event() {
    let many = i64::try_from(WAITING).unwrap();
    let mut events: Vec<Event> = (0..many).map(|at| of(1, at * 10, at * 10 + 5)).collect();
    events.push(of(2, -5, many * 10));
    events.push(of(1, -7, many * 10 + 1));
    let mut calls = Splitter::new(Wanted::Everything);
    let mut info = TraceInfo::default();
    info.streams.push(StreamInfo::default());
    let mut batch = Batch::default();
    let (mut late, mut of_late) = (Vec::new(), 0);
    let mut give = |calls: &mut Splitter, most: usize| {
        while calls.waiting.len() > most {
            batch.clear();
            calls.give(&mut info, &mut batch);
            for event in batch.iter() {
                match event.event.map(|event| &event.kind) {
                    Some(EventKind::Call(call)) => {
                        late.push((call.function, call.duration, event.row.is_recursive()));
                    }
                    _ => of_late += u64::from(event.row.of_function() == Some(FunctionId(2))),
                }
            }
        }
    };
    let mut read = Batch::default();
    for event in events {
        read.clear();
        read.push_event(event);
        read.iter().for_each(|event| calls.take(event));
        give(&mut calls, WAITING);
    }
    give(&mut calls, 0);
    let long = Duration(WAITING as u64 * 10);
    assert_eq!(
        late,
        [
            (FunctionId(2), long + Duration(5), false),
            // It contains other calls of its function.
            (FunctionId(1), long + Duration(8), true),
        ]
    );
    assert_eq!((of_late, calls.cut), (0, 2));
}

#[test]
fn an_open_call_that_began_too_early_counts_once() {
    let mut calls = Splitter::new(Wanted::Everything);
    calls.given = Time(100);
    let mut read = Batch::default();
    read.push_event(open_call(0, 10, 120));
    read.push_event(open_call(0, 10, 130));
    let mut ended = open_call(0, 10, 140);
    if let EventKind::Call(call) = &mut ended.kind {
        call.end = CallEnd::Returned;
    }
    read.push_event(ended);
    let mut other = open_call(1, 20, 150);
    other.stream = StreamId(1);
    read.push_event(other);
    read.iter().for_each(|event| calls.take(event));
    calls.end();
    // The call's own record has its full time. For the call that never ended, the last readout's report is used.
    let items = calls.items.iter().flatten();
    let late = items.filter_map(|item| match item {
        Item::Late(event, _) => match &event.kind {
            EventKind::Call(call) => Some((call.duration.0, call.end)),
            _ => None,
        },
        _ => None,
    });
    let late: Vec<_> = late.collect();
    assert_eq!(late, [(130, CallEnd::Returned), (130, CallEnd::Open)]);
    let items = calls.items.iter().flatten();
    let ends = items.filter(|item| matches!(item, Item::Enter(_) | Item::Exit(..)));
    assert_eq!((ends.count(), calls.cut), (0, 2));
}

#[test]
fn open_calls_are_remembered_however_many_others_were_open() {
    // One call is open in all readouts; each also reports a call of another function, which returns before the next.
    let mut events = Vec::new();
    for n in 0..6000 {
        let end = 100 + i64::from(n) * 10;
        let mut short = open_call(0, end - 5, end);
        let mut returned = open_call(0, end - 5, end + 2);
        for (event, how) in [
            (&mut short, CallEnd::Open),
            (&mut returned, CallEnd::Returned),
        ] {
            if let EventKind::Call(call) = &mut event.kind {
                call.function = FunctionId(n + 1);
                call.end = how;
            }
        }
        events.extend([open_call(0, 10, end), short, returned]);
    }
    let entries = entries_of(events);
    let outer = entries.iter().filter(|entry| entry.1 == Time(10));
    assert_eq!((entries.len(), outer.count()), (6001, 1));
}

#[test]
fn a_recording_that_can_be_read_twice_has_all_entries_in_their_places() {
    let many = i64::try_from(WAITING).unwrap();
    // Calls of thread 0 within calls that last the whole time, one of them open at the readout; thread 1 has one, too.
    let mut events: Vec<Event> = (0..many * 2)
        .map(|at| of(1, at * 10, at * 10 + 5))
        .collect();
    let end = many * 20;
    events.push(of(2, 5, end));
    events.push(of(3, -5, end + 1));
    events.push(call(1, 3, end + 2));
    let mut open = of(4, -9, end + 3);
    if let EventKind::Call(call) = &mut open.kind {
        call.end = CallEnd::Open;
    }
    events.push(open);
    let mut info = TraceInfo::default();
    info.streams.push(StreamInfo::default());
    let scripted = || Scripted {
        info: info.clone(),
        events: events.clone(),
    };
    let mut source = WholeCalls::new(scripted(), Wanted::Everything).read_before(scripted());
    let mut batch = Batch::default();
    let (mut long, mut last, mut count) = (Vec::new(), Time(i64::MIN), 0);
    while source.fill(&mut batch).unwrap() {
        for row in batch.rows() {
            assert!(row.time >= last);
            last = row.time;
            count += 1;
            if row.thread() != Some(ThreadId(0)) || row.of_function() != Some(FunctionId(1)) {
                long.push((row.kind, row.of_function().map(|it| it.0), row.time.0));
            }
        }
    }
    assert_eq!(
        long,
        [
            (RowKind::Enter, Some(4), -9),
            (RowKind::Enter, Some(3), -5),
            (RowKind::Enter, Some(1), 3),
            (RowKind::Enter, Some(2), 5),
            (RowKind::Exit, Some(2), end),
            (RowKind::Exit, Some(3), end + 1),
            (RowKind::Exit, Some(1), end + 2),
            (RowKind::Other, None, end + 3),
        ]
    );
    assert_eq!((count, source.info().remarks.len()), (many * 4 + 8, 0));
}

/// The rows in the output of events of stream 0, each by kind, function or thread, and time.
fn in_order(events: Vec<Event>) -> Vec<(RowKind, Option<u32>, i64)> {
    let mut info = TraceInfo::default();
    info.streams.push(StreamInfo::default());
    let mut source = WholeCalls::new(Scripted { info, events }, Wanted::Everything);
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    while source.fill(&mut batch).unwrap() {
        let rest = batch.rows().iter().map(|row| {
            let what = match row.kind {
                RowKind::IsrEnter | RowKind::IsrExit => None,
                RowKind::SwitchedIn | RowKind::Other => row.thread().map(|it| it.0),
                _ => row.of_function().map(|it| it.0),
            };
            (row.kind, what, row.time.0)
        });
        rows.extend(rest);
    }
    rows
}

fn switch(thread: u32, time: i64) -> Event {
    event(Some(ThreadId(thread)), time, EventKind::SwitchedIn)
}

fn interrupt(time: i64, enters: bool) -> Event {
    let irq = kymo_event::InterruptId(0);
    let kind = match enters {
        true => EventKind::IsrEnter { irq },
        false => EventKind::IsrExit { irq: Some(irq) },
    };
    event(Some(ThreadId(0)), time, kind)
}

/// The event, of a call that is open when it is recorded.
fn still_open(mut event: Event) -> Event {
    if let EventKind::Call(call) = &mut event.kind {
        call.end = CallEnd::Open;
    }
    event
}

#[test]
fn events_without_switches_name_no_thread() {
    // The marker's packet was begun by thread 1; which thread made the marker is not recorded.
    let marker = event(Some(ThreadId(1)), 25, EventKind::Other);
    let seen = streams(vec![call(0, 10, 20), marker, call(1, 12, 40)]);
    assert_eq!(
        seen,
        [
            (None, StreamId(0)),
            (Some(ThreadId(0)), StreamId(1)),
            (Some(ThreadId(1)), StreamId(2)),
        ]
    );
}

#[test]
fn a_call_begins_before_the_switch_of_its_tick() {
    use RowKind::{Enter, Exit, SwitchedIn};
    // One call ends later, the other is open when the recording is read, while another thread runs.
    for begin in [10, 11, 9] {
        let events = vec![
            switch(0, 5),
            switch(1, 10),
            switch(0, 20),
            of(7, begin, 30),
            switch(1, 40),
        ];
        let at = begin.min(10);
        let entry = (Enter, Some(7), at);
        let rows = in_order(events);
        let expected = [
            (SwitchedIn, Some(0), 5),
            entry,
            (SwitchedIn, Some(1), 10),
            (SwitchedIn, Some(0), 20),
            (Exit, Some(7), 30),
            (SwitchedIn, Some(1), 40),
        ];
        assert_eq!(rows, expected);
    }
    let rows = in_order(vec![switch(0, 5), switch(1, 10), still_open(of(7, 10, 30))]);
    // The record of the reader belongs to no thread.
    assert_eq!(rows[1], (Enter, Some(7), 10));
    assert_eq!(rows[2], (SwitchedIn, Some(1), 10));
    assert_eq!(rows[3], (RowKind::Other, None, 30));
}

#[test]
fn a_call_begins_after_the_switch_of_its_tick() {
    // Converted from ticks, it begins 1 ns before the switch.
    let rows = in_order(vec![switch(1, 5), switch(0, 10), of(7, 9, 30)]);
    assert_eq!(rows[1], (RowKind::SwitchedIn, Some(0), 10));
    assert_eq!(rows[2], (RowKind::Enter, Some(7), 10));
}

#[test]
fn a_call_begins_where_it_ends_inside_or_outside_an_interrupt() {
    let kinds = |events| {
        let rows = in_order(events).into_iter();
        rows.map(|row| (row.0, row.1)).collect::<Vec<_>>()
    };
    use RowKind::{Enter, Exit, IsrEnter, IsrExit};
    // 7 ends in the thread, 8 in the handler, both begin in the handler's first tick.
    let events = vec![
        interrupt(10, true),
        of(8, 10, 20),
        interrupt(20, false),
        of(7, 10, 30),
    ];
    assert_eq!(
        kinds(events),
        [
            (Enter, Some(7)),
            (IsrEnter, None),
            (Enter, Some(8)),
            (Exit, Some(8)),
            (IsrExit, None),
            (Exit, Some(7)),
        ]
    );
    // The interrupted call returns in the last tick of the handler.
    let events = vec![interrupt(10, true), interrupt(20, false), of(7, 5, 20)];
    assert_eq!(
        kinds(events),
        [
            (Enter, Some(7)),
            (IsrEnter, None),
            (IsrExit, None),
            (Exit, Some(7)),
        ]
    );
}

#[test]
fn open_calls_of_one_tick_are_nested_as_reported() {
    let events = vec![still_open(of(7, 10, 30)), still_open(of(8, 10, 30))];
    let entries: Vec<_> = in_order(events)
        .into_iter()
        .filter_map(|row| row.1)
        .collect();
    assert_eq!(entries[..2], [7, 8]);
}
