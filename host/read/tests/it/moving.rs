//! Hardware trace of threads that move between CPUs.

use std::collections::BTreeMap;

use kymo_event::{Event, EventKind, TraceInfo};
use kymo_fixtures::etmv4::{Trace, recording_of};
use kymo_fixtures::perf_data::{AUX_RAW, PerfData};
use kymo_read::{Events, OpenOptions, open};

/// Address of the code, which has two instructions.
const HERE: u64 = 0x40_0000;

/// Address of the same code with a wait for interrupts between the instructions.
const IDLE: u64 = HERE + 0x100;

/// The events of two CPUs with these traces.
fn events(traces: [Trace; 2]) -> (Vec<Event>, TraceInfo) {
    events_beside(traces, |_| {})
}

/// As [`events`], with more records of the kernel.
fn events_beside(
    traces: [Trace; 2],
    kernel: impl FnOnce(&mut PerfData),
) -> (Vec<Event>, TraceInfo) {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = |words: &[u32]| -> Vec<u8> {
        let words = words.iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    };
    let mut code = bytes(&[0xd503_201f, 0xd65f_03c0]);
    code.resize(0x100, 0);
    code.extend(bytes(&[0xd503_201f, 0xd503_207f, 0xd65f_03c0]));
    std::fs::write(folder.path().join("two"), code).expect("code");
    let mut perf = recording_of(2, true, |perf| {
        for thread in [1, 2] {
            perf.at(1000).comm(thread, "thread");
            perf.at(2000).mapping(thread, HERE, 0x1000, 0, "/two");
        }
        kernel(perf);
    });
    for (cpu, trace) in (0..).zip(traces) {
        let size = trace.bytes.len() as u64;
        perf.at(90_000).aux(0, cpu, 0, size, AUX_RAW);
        perf.buffer(None, cpu, 0, &trace.bytes);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, perf.file()).expect("a recording");
    let options = OpenOptions {
        symfs: Some(folder.path().to_owned()),
        ..OpenOptions::default()
    };
    let mut source = open(&input, &options).unwrap_or_else(|error| panic!("{error}"));
    let events = Events::new(&mut *source).map(|event| event.expect("an event"));
    let events = events.collect();
    (events, source.info().clone())
}

/// Adds a time slice of a thread: it executes the code `runs` times between two times.
fn slice(mut trace: Trace, thread: u32, times: (u64, u64), runs: u32) -> Trace {
    trace = trace.on().at(thread, HERE).time(times.0);
    for _ in 0..runs {
        trace = trace.run(thread, HERE);
    }
    trace.time(times.1)
}

/// Bytes of a source in formatter frames, 14 in each; the rest is filled with contexts that do not change.
fn framed(id: u8, bytes: &[u8]) -> Vec<u8> {
    let frame = |bytes: &[u8]| {
        let mut frame = [0; 16];
        frame[0] = id << 1 | 1;
        for place in 1..15 {
            let byte = bytes.get(place - 1).copied().unwrap_or(0x80);
            let low = if place % 2 == 0 { byte & 1 } else { 0 };
            frame[place] = byte & !low;
            frame[15] |= low << (place / 2);
        }
        frame
    };
    bytes.chunks(14).flat_map(frame).collect()
}

/// With a buffer for each thread, several buffers have trace of one processor.
#[test]
fn a_thread_that_continues_elsewhere_takes_no_processor_from_the_next_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = [0xd503_201f_u32, 0xd65f_03c0].map(u32::to_le_bytes);
    std::fs::write(folder.path().join("two"), words.concat()).expect("code");
    let mut perf = recording_of(2, true, |perf| {
        for thread in [1, 2] {
            perf.at(1000).comm(thread, "thread");
            perf.at(2000).mapping(thread, HERE, 0x1000, 0, "/two");
        }
    });
    for (thread, first, later) in [(1, 0, 15_000), (2, 1, 10_500)] {
        // Both run on one processor, then on the other one; thread 2 leaves its own before thread 1 comes.
        let before = slice(Trace::new(true), thread, (10_000, 10_400), 4);
        let behind = slice(Trace::new(true), thread, (later, later + 4000), 40);
        let bytes = [
            framed(0x10 + first, &before.bytes),
            framed(0x11 - first, &behind.bytes),
        ]
        .concat();
        let size = bytes.len() as u64;
        perf.at(90_000).aux(thread, 0, 0, size, 0);
        perf.buffer(Some(thread), 0, 0, &bytes);
    }
    let input = folder.path().join("perf.data");
    std::fs::write(&input, perf.file()).expect("a recording");
    let options = OpenOptions {
        symfs: Some(folder.path().to_owned()),
        ..OpenOptions::default()
    };
    let mut source = open(&input, &options).unwrap_or_else(|error| panic!("{error}"));
    let events: Vec<_> = Events::new(&mut *source)
        .map(|event| event.expect("an event"))
        .collect();
    let mut running = BTreeMap::new();
    let mut comes = 0;
    for event in &events {
        match event.kind {
            EventKind::SwitchedIn => {
                running.insert(event.cpu, event.thread);
                comes += 1;
            }
            EventKind::SwitchedOut => {
                assert_eq!(running.remove(&event.cpu), Some(event.thread), "{event:?}");
            }
            _ => {}
        }
    }
    assert!(comes >= 4, "{events:?}");
}

#[test]
fn threads_that_swap_processors_keep_the_times_of_the_trace() {
    let first = slice(Trace::new(true), 1, (10_000, 10_020), 10);
    let first = slice(first, 2, (10_300, 10_320), 10);
    let second = slice(Trace::new(true), 2, (10_000, 10_020), 10);
    let second = slice(second, 1, (10_200, 21_200), 1000);
    let (events, _) = events([first, second]);
    let mut seen: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for event in &events {
        if matches!(event.kind, EventKind::Enter { .. }) {
            let key = (event.cpu.map(|cpu| cpu.0), event.thread);
            seen.entry(key).or_default().push(event.time.0);
        }
    }
    let bounds = |times: &Vec<i64>| {
        let (first, last) = (times.iter().min(), times.iter().max());
        (first.copied().unwrap_or(0), last.copied().unwrap_or(0))
    };
    let mut bounds: Vec<_> = seen.values().map(bounds).collect();
    bounds.sort_unstable();
    // In each slice after a first one, the first run belongs to the call that was already open.
    let [
        (10_000, one),
        (10_000, other),
        (long, end),
        (short, short_end),
    ] = bounds[..]
    else {
        panic!("{bounds:?}");
    };
    assert!(one < 10_020 && other < 10_020, "{bounds:?}");
    assert!(
        (10_200..10_250).contains(&long) && end > 21_000,
        "{bounds:?}"
    );
    assert!(short >= 10_300 && short_end < 10_320, "{bounds:?}");
}

#[test]
fn threads_on_several_processors_without_times_are_warned_of() {
    let trace = || Trace::new(true).run(1, HERE).run(2, HERE).run(1, HERE);
    let (_, info) = events([trace(), Trace::new(true).run(1, HERE)]);
    let warnings = info.remarks.iter();
    let warnings: Vec<_> = warnings.filter(|it| it.contains("several CPUs")).collect();
    assert_eq!(warnings.len(), 1, "{:?}", info.remarks);
    assert!(warnings[0].starts_with("1 thread "), "{warnings:?}");
    let (_, info) = events([trace(), Trace::new(true).run(3, HERE)]);
    let is_there = info.remarks.iter().any(|it| it.contains("several CPUs"));
    assert!(!is_there, "{:?}", info.remarks);
}

#[test]
fn time_that_passes_in_a_wait_is_the_wait_s() {
    let first = slice(Trace::new(true), 1, (10_000, 10_020), 10);
    let first = first.run(1, HERE).run(1, IDLE).run(1, HERE).time(20_020);
    let (events, info) = events([first, Trace::new(true)]);
    let name = |event: &Event| {
        let EventKind::Enter { function, .. } = event.kind else {
            return None;
        };
        let address = info.identities.function(function)?.address?;
        Some((address.0, event.time.0))
    };
    let entered: Vec<_> = events.iter().filter_map(name).collect();
    let waits = entered.iter().position(|(address, _)| *address == IDLE);
    let waits = waits.expect("it waits");
    assert!(entered[waits].1 < 10_030, "{entered:?}");
    let (_, behind) = entered[waits + 1];
    assert!(behind > 20_000, "{entered:?}");
}

/// Time, CPU and thread of each switch, and whether the thread gets the CPU.
fn switches((events, info): &(Vec<Event>, TraceInfo)) -> Vec<(i64, u32, u64, bool)> {
    let switches = events.iter().filter_map(|event| {
        let is_in = match event.kind {
            EventKind::SwitchedIn => true,
            EventKind::SwitchedOut => false,
            _ => return None,
        };
        let thread = info.identities.tid(event.thread?);
        Some((event.time.0, event.cpu?.0, thread.0, is_in))
    });
    switches.collect()
}

#[test]
fn threads_do_not_run_from_where_the_kernel_switched_them_out() {
    let first = slice(Trace::new(true), 1, (10_000, 10_020), 10);
    let first = slice(first, 2, (20_005, 20_025), 10);
    let first = slice(first, 2, (30_005, 30_025), 10);
    let first = slice(first, 1, (40_005, 40_025), 10);
    let found = events_beside([first, Trace::new(true)], |perf| {
        perf.at(9_990).switch_of_cpu((0, 1), 0);
        perf.at(10_030).switch_of_cpu((1, 0), 0);
        perf.at(20_000).switch_of_cpu((0, 2), 0);
        // In a system call.
        perf.at(20_040).switch_of_cpu((2, 0), 0);
        perf.at(30_000).switch_of_cpu((0, 2), 0);
        // The third thread is not traced.
        perf.at(30_030).switch_of_cpu((2, 3), 0);
        perf.at(35_000).switch_of_cpu((3, 0), 0);
        perf.at(40_000).switch_of_cpu((0, 1), 0);
        perf.at(40_040).switch_of_cpu((1, 0), 0);
    });
    assert_eq!(
        switches(&found),
        [
            (10_000, 0, 1, true),
            (10_030, 0, 1, false),
            (20_000, 0, 2, true),
            (20_040, 0, 2, false),
            (30_000, 0, 2, true),
            (30_030, 0, 2, false),
            (30_030, 0, 3, true),
            (35_000, 0, 3, false),
            (40_000, 0, 1, true),
            (40_040, 0, 1, false),
        ]
    );
}

#[test]
fn a_thread_that_the_kernel_moves_runs_on_one_processor() {
    let first = slice(Trace::new(true), 1, (10_000, 10_020), 10);
    let first = slice(first, 2, (40_005, 40_025), 10);
    let second = slice(Trace::new(true), 2, (10_000, 10_020), 10);
    let second = slice(second, 1, (20_005, 20_025), 10);
    let found = events_beside([first, second], |perf| {
        perf.at(9_990).switch(1, 0);
        perf.at(10_030).switch_out(1, 0);
        perf.at(39_990).switch(2, 0);
        perf.at(40_030).switch_out(2, 0);
        perf.at(9_991).switch(2, 1);
        perf.at(10_040).switch_out(2, 1);
        perf.at(19_990).switch(1, 1);
        perf.at(20_030).switch_out(1, 1);
    });
    assert_eq!(
        switches(&found),
        [
            (10_000, 0, 1, true),
            (10_000, 1, 2, true),
            (10_030, 0, 1, false),
            (10_040, 1, 2, false),
            (19_990, 1, 1, true),
            (20_030, 1, 1, false),
            (39_990, 0, 2, true),
            (40_030, 0, 2, false),
        ]
    );
}

#[test]
fn switches_of_threads_with_other_numbers_are_not_used() {
    let first = slice(Trace::new(true), 1, (10_000, 10_020), 10);
    let first = slice(first, 2, (20_005, 20_025), 10);
    // The numbers of another PID namespace than those of the trace.
    let found = events_beside([first, Trace::new(true)], |perf| {
        perf.at(9_990).switch_of_cpu((0, 71), 0);
        perf.at(10_030).switch_of_cpu((71, 0), 0);
        perf.at(20_000).switch_of_cpu((0, 72), 0);
        perf.at(20_040).switch_of_cpu((72, 0), 0);
    });
    let threads: Vec<_> = switches(&found).iter().map(|it| (it.2, it.3)).collect();
    assert_eq!(threads, [(1, true), (1, false), (2, true)]);
}
