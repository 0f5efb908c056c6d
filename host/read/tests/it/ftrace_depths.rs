//! Comparison of the calls that are rebuilt from ftrace's records with the depths that the kernel recorded.

use std::collections::HashMap;

use kymo_analysis::calls::{Calls, How, Options, Repair, Step};
use kymo_event::{Batch, Cpu, Event, EventKind, FunctionId, Gap, ThreadId, Time, Value};
use kymo_fixtures::captures;
use kymo_read::{Events, OpenOptions};

fn number(event: &Event, name: &str) -> u64 {
    let field = event.fields.iter().find(|field| field.name == name);
    match field.map(|field| &field.value) {
        Some(Value::Unsigned(value) | Value::Hex(value)) => *value,
        Some(Value::Signed(value)) => value.cast_unsigned(),
        other => panic!("{name}: {other:?}"),
    }
}

/// A task: a thread, or the execution without a thread on a CPU.
type Task = (Option<ThreadId>, Option<Cpu>);

fn task(event: &Event) -> Task {
    match event.thread {
        Some(thread) => (Some(thread), None),
        None => (None, event.cpu),
    }
}

/// A complete call: the function, begin and end.
type Whole = (FunctionId, Time, Time);

#[test]
fn calls_are_as_deep_as_the_kernel_recorded() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for name in [
        "amd64/dat/fg-sched-v7.dat",
        "amd64/dat/fg-sched-v6.dat",
        "arm64/fg-v6.dat",
        "arm64/fg-v7.dat",
    ] {
        let Some(bytes) = captures::unpacked(&folder.join(name)) else {
            return;
        };
        let path = scratch.path().join(name.replace('/', "-"));
        std::fs::write(&path, bytes).unwrap();
        let mut source = kymo_read::open(&path, &OpenOptions::default()).unwrap();
        let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();

        let mut calls = Calls::new(source.info(), Options::default());
        // For each task, the depth, function and time of each entry whose call may be open.
        let mut open: HashMap<Task, Vec<(u64, FunctionId, Time)>> = HashMap::new();
        let (mut begun, mut unfounded, mut lost, mut missing) = (0_u64, 0_u64, 0_u64, 0_u64);
        let (mut plain, mut rebuilt) = (Vec::<Whole>::new(), Vec::<Whole>::new());
        let (mut shallower, mut deeper) = (0_u64, 0_u64);
        for event in &events {
            let batch: Batch = [event.clone()].into_iter().collect();
            let mut depth = None;
            calls.push(batch.get(0).unwrap(), &mut |step| match step {
                Step::Begin(begin) => depth = Some(u64::from(begin.depth)),
                Step::End(end) if end.how == How::Returned => {
                    let kymo_analysis::calls::Callee::Function(function) = end.callee else {
                        panic!("{end:?}");
                    };
                    rebuilt.push((function, end.begin.unwrap(), end.time));
                }
                Step::End(end) if end.how == How::Repaired(Repair::Lost) => lost += 1,
                // No call of these recordings ends by a `longjmp`.
                Step::End(end) => assert_ne!(end.how, How::Repaired(Repair::Unwound), "{name}"),
                _ => {}
            });
            let open = open.entry(task(event)).or_default();
            match event.kind {
                EventKind::Enter { function, .. } => {
                    let recorded = number(event, "depth");
                    open.retain(|(depth, ..)| *depth < recorded);
                    let depth = depth.unwrap();
                    begun += 1;
                    // Calls below that are not known to be open began before the trace or in a loss. An interrupt
                    // between the end of a call and the reading of its time has the call's depth, and lies within the
                    // call by its times.
                    assert!(depth <= open.len() as u64 + 1, "{name}: {event:?}");
                    deeper += u64::from(depth > open.len() as u64);
                    shallower += u64::from(depth < open.len() as u64);
                    unfounded += u64::from(depth < recorded);
                    open.push((recorded, function, event.time));
                }
                EventKind::Exit {
                    function: Some(function),
                } => {
                    let recorded = number(event, "depth");
                    open.retain(|(depth, ..)| *depth <= recorded);
                    if let Some((depth, entered, begin)) = open.last().copied()
                        && depth == recorded
                    {
                        open.pop();
                        // The call began at most 100 us before its entry was recorded.
                        let calltime = i64::try_from(number(event, "calltime")).unwrap();
                        if entered == function && (0..100_000).contains(&(begin.0 - calltime)) {
                            plain.push((function, begin, event.time));
                        }
                    }
                }
                EventKind::Gap(Gap::MissingExit { .. }) => missing += 1,
                _ => {}
            }
        }
        plain.sort();
        rebuilt.sort();
        let more: Vec<_> = rebuilt
            .iter()
            .filter(|it| plain.binary_search(it).is_err())
            .collect();
        let less: Vec<_> = plain
            .iter()
            .filter(|it| rebuilt.binary_search(it).is_err())
            .collect();
        // A call that spans many losses is given up, and a thread can wait between the begin of a call and the record
        // of its entry. Both are rare.
        assert!(more.len() * 1000 < plain.len(), "{name}: {more:?}");
        assert!(less.len() * 1000 < plain.len(), "{name}: {less:?}");
        // A call that is open, although the kernel's depth shows that it is not, is closed as lost. Some have been
        // given up before.
        assert!(lost * 10 >= missing * 9, "{name}: {lost} {missing}");
        assert_eq!(missing > 0, calls.counts().losses > 0, "{name}");
        assert!(
            begun > 0 && unfounded * 2 < begun && shallower <= unfounded && deeper * 100 < begun,
            "{name}"
        );
    }
}
