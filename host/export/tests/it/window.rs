//! A window and a selection have the same meaning in every format.

use std::collections::BTreeMap;

use crate::common::timeline::{Timeline, spans};
use crate::common::{Trace, json, proto, traces};
use kymo_analysis::calls::{Callee, Step, TrackKind};
use kymo_analysis::replay::{self, Replay, Window};
use kymo_analysis::schedule::Schedule;
use kymo_analysis::selection::FunctionChoice;
use kymo_event::{
    Batch, Cpu, Duration, Event, EventKind, Gap, Pattern, Row, RowKind, StreamId, ThreadChoice,
    ThreadId, Tid, Time, TraceInfo,
};
use kymo_export::{Destination, Export, ExportError, Formats, Options, Summary};
use kymo_read::{Events, OpenOptions, open};
use serde_json::Value;

fn window(begin: i64, end: i64) -> Options {
    let mut options = Options::default();
    options.replay.window = Window {
        begin: Time(begin),
        end: Time(end),
    };
    options
}

/// The timelines of a trace in both timeline formats.
fn timelines(trace: &Trace, options: &Options) -> [(Timeline, Summary); 2] {
    let (bytes, summary) = trace.export_with("perfetto", options);
    let perfetto = proto::read(&bytes).timeline;
    let (bytes, same) = trace.export_with("trace-event", options);
    let json = json::read(&bytes);
    perfetto.check();
    json.check();
    [(perfetto, summary), (json, same)]
}

fn folded(trace: &Trace, options: &Options) -> BTreeMap<String, u64> {
    let (bytes, _) = trace.export_with("folded", options);
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().map(|line| {
        let (stack, ns) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), ns.parse().unwrap())
    });
    lines.collect()
}

#[test]
fn a_window_clips_calls_at_its_bounds() {
    let options = window(141, 178);
    for (timeline, summary) in timelines(&traces::whole(), &options) {
        let slices = timeline.row("worker").slices();
        let odd = traces::ODD_NAME;
        assert_eq!(spans(&slices), [(odd, 141, 178), ("a", 141, 178)]);
        for slice in &slices {
            assert_eq!(
                slice.notes["clipped"],
                "it began before this part of the trace"
            );
        }
        let tick = timeline.row("SysTick (irq 15) on CPU 0").slices();
        assert_eq!(
            spans(&tick),
            [("c", 142, 150), ("SysTick (irq 15)", 141, 152)]
        );
        assert_eq!(spans(&timeline.row("main").slices()), [("a", 141, 178)]);
        assert_eq!(summary.events, 11);
    }
}

#[test]
fn stacks_of_two_windows_add_up_to_those_of_both() {
    let trace = traces::whole();
    let mut sum = BTreeMap::new();
    for part in [window(i64::MIN, 175), window(175, i64::MAX)] {
        for (stack, ns) in folded(&trace, &part) {
            *sum.entry(stack).or_insert(0) += ns;
        }
    }
    assert_eq!(sum, folded(&trace, &Options::default()));
}

#[test]
fn lists_have_the_events_of_the_window() {
    let (bytes, summary) = traces::whole().export_with("json", &window(141, 178));
    let text = String::from_utf8(bytes).unwrap();
    let times = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["time_ns"].as_i64().unwrap()
    });
    let times: Vec<_> = times.collect();
    assert_eq!(times.len(), 11);
    assert!(times.iter().all(|time| (141..=178).contains(time)));
    assert_eq!(summary.events, 11);
    let directory = tempfile::tempdir().unwrap();
    let destination = Destination::Directory(directory.path());
    let options = window(141, 178);
    let written = traces::whole().write("ctf", &Default::default(), destination, &options);
    assert_eq!(written.unwrap().events, 11);
}

/// The calls of a trace in a window, independent of the numbers in the trace.
fn calls(info: &TraceInfo, events: &[Event], window: Window) -> Vec<String> {
    let options = replay::Options {
        window,
        ..replay::Options::default()
    };
    let mut replay = Replay::new(info, &Default::default(), options);
    let identities = &info.identities;
    let (mut threads, mut calls) = (BTreeMap::new(), Vec::new());
    let mut take = |_, step: Step<'_>| match step {
        Step::Track { track, info } => {
            if let TrackKind::Thread { thread } = info.kind {
                threads.insert(track, thread.map(|thread| identities.tid(thread)));
            }
        }
        Step::End(end) => {
            let callee = match end.callee {
                Callee::Function(id) => {
                    let function = identities.function(id).unwrap();
                    format!("{:?} {:?}", function.address, function.name)
                }
                Callee::Interrupt(irq) => format!("IRQ {}", identities.irq(irq)),
                Callee::Unknown => "unknown".to_owned(),
            };
            calls.push(format!(
                "{:?} {callee} {:?} {:?} {:?} {:?} {}",
                threads.get(&end.track),
                (end.begin, end.time, end.depth),
                end.duration,
                end.self_time,
                end.how,
                end.clipped,
            ));
        }
        _ => {}
    };
    let batch: Batch = events.iter().cloned().collect();
    replay.batch(info, &batch, &mut take);
    replay.finish(info, &mut take);
    // Tracks are numbered in order of occurrence.
    calls.sort();
    calls
}

#[test]
fn a_part_of_a_trace_has_the_calls_of_the_window() {
    for (name, trace) in [
        ("whole", traces::whole()),
        ("process", traces::process()),
        ("jumps", traces::jumps()),
        ("scheduled", traces::scheduled()),
    ] {
        let times = trace.events.iter().map(|event| event.time.0);
        let times: Vec<i64> = times.collect();
        let last = times.iter().max().unwrap();
        for begin in times.iter().flat_map(|time| [*time, time + 1]) {
            for end in [begin + 5, begin + 60, last + 10] {
                let options = window(begin, end);
                for format in ["ctf", "ctf2"] {
                    let directory = tempfile::tempdir().unwrap();
                    let destination = Destination::Directory(directory.path());
                    let written = trace.write(format, &Default::default(), destination, &options);
                    written.unwrap();
                    let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
                    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
                    let info = source.info();
                    let whole = Window::default();
                    let part = Window {
                        begin: info.cut.begin.unwrap_or(whole.begin),
                        end: info.cut.end.unwrap_or(whole.end),
                    };
                    assert_eq!(
                        calls(info, &events, part),
                        calls(&trace.info, &trace.events, options.replay.window),
                        "{name} as {format} from {begin} to {end}"
                    );
                }
            }
        }
    }
}

/// Exports a window of a file as CTF, and reads it.
fn part_of(source: &std::path::Path, options: &Options) -> (TraceInfo, Batch) {
    let directory = tempfile::tempdir().unwrap();
    let mut source = open(source, &OpenOptions::default()).unwrap();
    let (symbols, format) = (Default::default(), Formats::built_in());
    let format = format.by_name("ctf").unwrap();
    let destination = Destination::Directory(directory.path());
    let mut export = Export::new(format, source.info(), &symbols, destination, options).unwrap();
    let mut batch = Batch::default();
    while source.fill(&mut batch).unwrap() {
        export.batch(source.info(), &batch).unwrap();
    }
    export.finish(source.info()).unwrap();
    let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
    let mut rows = Batch::default();
    while source.fill(&mut batch).unwrap() {
        batch.iter().for_each(|event| rows.push_ref(event));
    }
    (source.info().clone(), rows)
}

#[test]
fn a_stated_duration_does_not_win_over_a_window() {
    let text = "# tracer: function_graph\n#\n \
        1000.000000 |   0)    a-1    |               |  outer() {\n \
        1000.000030 |   0)    a-1    |               |    inner() {\n \
        1000.500010 |   0)    a-1    | $ 499980.4 us |    }\n \
        1000.500020 |   0)    a-1    |   0.700 us    |    leaf();\n \
        1000.500050 |   0)    a-1    | $ 500050.0 us |  }\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    std::fs::write(&path, text).unwrap();
    let options = window(1_000_400_000_000, 1_000_600_000_000);
    let (info, rows) = part_of(&path, &options);
    let part = replay::Options {
        window: Window {
            begin: info.cut.begin.unwrap(),
            ..Window::default()
        },
        ..replay::Options::default()
    };
    let mut replay = Replay::new(&info, &Default::default(), part);
    let mut found = Vec::new();
    let mut take = |_, step: Step<'_>| {
        if let Step::End(end) = step {
            found.push(end.wall.unwrap().0);
        }
    };
    replay.batch(&info, &rows, &mut take);
    replay.finish(&info, &mut take);
    assert_eq!(found, [100_010_400, 700, 100_050_000]);
}

/// The run times of threads in a window, independent of the numbers in the trace.
fn run_times(info: &TraceInfo, events: &[Event], window: Window) -> Vec<String> {
    let mut schedule = Schedule::new(window);
    let batch: Batch = events.iter().cloned().collect();
    schedule.batch(info, &batch);
    schedule.finish(info);
    let threads = (0..).zip(info.identities.threads());
    let threads = threads.filter_map(|(id, thread)| {
        let run = schedule.thread(ThreadId(id))?;
        Some(format!("{:?} {run:?}", thread.tid))
    });
    let cpus = schedule.cpus();
    let cpus = cpus.map(|(_, cpu, run)| format!("{cpu:?} {run:?}"));
    let mut all: Vec<_> = threads.chain(cpus).collect();
    all.sort();
    all
}

#[test]
fn a_part_of_a_trace_tells_who_has_the_processors() {
    for (name, trace) in [
        ("whole", traces::whole()),
        ("woken", traces::woken()),
        ("scheduled", traces::scheduled()),
    ] {
        let times = trace.events.iter().map(|event| event.time.0);
        let last = times.clone().max().unwrap();
        let begins = times.flat_map(|time| [time, time + 1]);
        for begin in begins.filter(|begin| *begin < last) {
            let options = window(begin, last);
            let directory = tempfile::tempdir().unwrap();
            let destination = Destination::Directory(directory.path());
            let written = trace.write("ctf", &Default::default(), destination, &options);
            written.unwrap();
            let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
            let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
            let info = source.info();
            let part = Window {
                begin: info.cut.begin.unwrap_or(Time(i64::MIN)),
                ..Window::default()
            };
            assert_eq!(
                run_times(info, &events, part),
                run_times(&trace.info, &trace.events, options.replay.window),
                "{name} from {begin}"
            );
        }
    }
}

#[test]
fn calls_of_sleeping_threads_leave_the_processor_to_the_one_that_runs() {
    let Some(folder) = kymo_fixtures::captures::ftrace() else {
        return;
    };
    let path = folder.join("amd64/dat/fg-sched-v7.dat");
    // How long the CPUs ran threads, in microseconds.
    let ran = |info: &TraceInfo, batches: &[Batch], window: Window| -> Vec<u64> {
        let mut schedule = Schedule::new(window);
        batches.iter().for_each(|batch| schedule.batch(info, batch));
        schedule.finish(info);
        let cpus = schedule.cpus();
        cpus.map(|(_, _, run)| run.run.0 / 1000).collect()
    };
    let mut source = open(&path, &OpenOptions::default()).unwrap();
    let mut batches = vec![Batch::default()];
    while source.fill(batches.last_mut().unwrap()).unwrap() {
        batches.push(Batch::default());
    }
    // The second and the fourth begin in a loss, behind which exits are said to be missing.
    for begin in [
        374_500_000_000,
        374_450_000_000,
        374_700_000_000,
        374_550_000_000,
        374_800_000_000,
    ] {
        let options = window(begin, begin + 100_000_000);
        let expected = ran(source.info(), &batches, options.replay.window);
        let (info, rows) = part_of(&path, &options);
        let part = Window {
            begin: info.cut.begin.unwrap(),
            end: info.cut.end.unwrap(),
        };
        assert_eq!(ran(&info, &[rows], part), expected, "from {begin}");
    }
}

#[test]
fn a_part_of_a_trace_says_who_waits_for_a_processor() {
    for (begin, expected) in [(15, 1), (30, 1), (45, 0)] {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::Directory(directory.path());
        let options = window(begin, 100);
        let written = traces::woken().write("ctf", &Default::default(), destination, &options);
        written.unwrap();
        let mut source = open(directory.path(), &OpenOptions::default()).unwrap();
        let events = Events::new(&mut *source).map(Result::unwrap);
        let ready = events.filter(|event| matches!(event.kind, EventKind::Ready { .. }));
        assert_eq!(ready.count(), expected, "from {begin}");
    }
}

#[test]
fn no_more_events_are_needed_behind_the_window() {
    use kymo_export::{Export, Formats};
    let trace = traces::whole();
    let (symbols, options) = (Default::default(), window(0, 150));
    for format in ["perfetto", "trace-event", "folded", "flamegraph"] {
        let format = Formats::built_in().by_name(format).unwrap();
        let mut out = Vec::new();
        let destination = Destination::Writer(Box::new(&mut out));
        let export = Export::new(format, &trace.info, &symbols, destination, &options);
        let mut export = export.unwrap();
        let early = trace
            .events
            .iter()
            .take_while(|event| event.time <= Time(150));
        let count = early.clone().count();
        let early = early.cloned().collect();
        assert!(export.batch(&trace.info, &early).unwrap(), "{format:?}");
        // Another CPU's event may be late, but not by this much.
        let mut late: Batch = trace.events[count..].iter().cloned().collect();
        late.push(Row::new(RowKind::Other, Time(30_000_000), StreamId(0)));
        assert!(!export.batch(&trace.info, &late).unwrap(), "{format:?}");
        assert_eq!(export.finish(&trace.info).unwrap().events, count as u64);
    }
}

/// A trace with losses from 20 to 50 and from 60 to 70.
fn gaps() -> Trace {
    let mut writer = traces::Writer::new();
    writer.at(10).enter(traces::A).at(20).enter(traces::B);
    writer.gap(Gap::Discarded { events: Some(2) });
    writer.at(50).exit(traces::A).at(60).enter(traces::C);
    writer.gap(Gap::Discarded { events: Some(1) });
    writer.at(70).exit(traces::C);
    writer.trace
}

#[test]
fn gaps_are_clipped_too() {
    for (begin, end, wanted) in [
        (0, 100, vec![(20, 50), (60, 70)]),
        (30, 100, vec![(30, 50), (60, 70)]),
        (30, 65, vec![(30, 50), (60, 65)]),
        (0, 40, vec![(20, 40)]),
        (50, 55, vec![(50, 50)]),
        (55, 100, vec![(60, 70)]),
        (70, 100, vec![(70, 70)]),
    ] {
        for (timeline, _) in timelines(&gaps(), &window(begin, end)) {
            let rows = timeline.rows.values();
            let gaps = rows.filter(|row| row.name.starts_with("gaps of"));
            let gaps = gaps.flat_map(|row| row.slices());
            let gaps: Vec<_> = gaps.map(|gap| (gap.begin, gap.end)).collect();
            assert_eq!(gaps, wanted, "from {begin} to {end}");
        }
    }
}

#[test]
fn a_selection_changes_no_time() {
    let trace = traces::whole();
    let whole = folded(&trace, &Options::default());
    let mut options = Options::default();
    let named = ThreadChoice::Named(Pattern::new("main"));
    options.replay.selection.events.threads = vec![named];
    let main = folded(&trace, &options);
    assert_eq!(
        main,
        BTreeMap::from([("main;a".to_owned(), whole["main;a"])])
    );
    let mut options = Options::default();
    options.replay.selection.functions = vec![FunctionChoice::new("b")];
    for (timeline, _) in timelines(&trace, &options) {
        let calls = timeline.calls();
        let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["b", "b", "b", "c"]);
    }
}

/// The times of the events in a list.
fn listed(trace: &Trace, options: &Options) -> Vec<i64> {
    let (bytes, summary) = trace.export_with("csv", options);
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().skip(1);
    let times = lines.map(|line| line.split(',').next().unwrap().parse().unwrap());
    let times: Vec<i64> = times.collect();
    assert_eq!(summary.events + summary.gaps, times.len() as u64);
    let records = trace.events.iter().filter(|event| event.record).count() as u64;
    assert_eq!(summary.excluded, records - summary.events);
    times
}

#[test]
fn lists_have_the_events_that_are_selected() {
    let trace = traces::whole();
    let select = |change: &dyn Fn(&mut kymo_event::Filter)| {
        let mut options = Options::default();
        change(&mut options.replay.selection.events);
        listed(&trace, &options)
    };
    let of_main = [135, 135, 185];
    assert_eq!(
        select(&|filter| filter.threads = vec![ThreadChoice::Id(Tid(42))]),
        of_main
    );
    assert_eq!(select(&|filter| filter.cpus = vec![Cpu(1)]), of_main);
    let cpu1 = || Pattern::new("cpu1");
    assert_eq!(
        select(&|filter| filter.streams.keep = vec![cpu1()]),
        of_main
    );
    let markers = select(&|filter| filter.events.keep = vec![Pattern::new("*marker")]);
    assert_eq!(markers, [221]);
    // A function is selected by its name or its address.
    for condition in ["function == c", "function == 0x1200"] {
        let condition: kymo_event::Condition = condition.parse().unwrap();
        let calls = select(&|filter| filter.conditions = vec![condition.clone()]);
        assert_eq!(calls, [120, 120, 142, 150]);
    }
    let gaps = gaps();
    let mut options = Options::default();
    options.replay.selection.events.events.keep = vec![Pattern::new("exit")];
    // Losses between them are still reported.
    assert_eq!(listed(&gaps, &options), [20, 50, 60, 70]);
}

#[test]
fn what_only_calls_have_is_refused_where_events_are_listed() {
    let change: [&dyn Fn(&mut kymo_analysis::replay::Options); 5] = [
        &|replay| replay.selection.depth = Some(1),
        &|replay| replay.selection.functions = vec![FunctionChoice::new("a")],
        &|replay| replay.selection.hide = vec![FunctionChoice::new("a")],
        &|replay| replay.selection.min_duration = Duration(1),
        &|replay| replay.compensate = true,
    ];
    for change in change {
        let mut options = Options::default();
        change(&mut options.replay);
        for format in ["csv", "json"] {
            let destination = Destination::Writer(Box::new(Vec::new()));
            let written = traces::whole().write(format, &Default::default(), destination, &options);
            assert!(matches!(written, Err(ExportError::Selection { .. })));
        }
        traces::whole().export_with("folded", &options);
    }
}

#[test]
fn a_window_before_the_trace_or_behind_it_is_empty() {
    for options in [window(0, 50), window(1_000, 2_000)] {
        for (timeline, summary) in timelines(&traces::whole(), &options) {
            assert_eq!(timeline.calls(), []);
            assert_eq!(summary.events, 0);
        }
        assert!(listed(&traces::whole(), &options).is_empty());
    }
}
