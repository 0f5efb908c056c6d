//! Captures of ftrace, read as events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use kymo_event::{Cpu, Event, EventKind, Gap, Value, Wanted};
use kymo_fixtures::captures;
use kymo_ftrace::{Lost, Records, Step, Trace};
use kymo_read::{Events, OpenOptions};

/// The trace.dat captures.
const DATS: [&str; 6] = [
    "amd64/dat/events-mono.dat",
    "amd64/dat/function-v7.dat",
    "amd64/dat/fg-sched-v7.dat",
    "amd64/dat/fg-sched-v6.dat",
    "arm64/fg-v6.dat",
    "arm64/fg-v7.dat",
];

/// Writes a capture as a file, and returns its path.
fn file(folder: &Path, name: &str, to: &Path) -> Option<PathBuf> {
    let bytes = captures::unpacked(&folder.join(name))?;
    let path = to.join(name.replace('/', "-"));
    std::fs::write(&path, bytes).unwrap();
    Some(path)
}

fn events(path: &Path) -> (Vec<Event>, kymo_event::TraceInfo) {
    wanted_events(path, Wanted::Everything)
}

fn wanted_events(path: &Path, wanted: Wanted) -> (Vec<Event>, kymo_event::TraceInfo) {
    let options = OpenOptions {
        wanted,
        ..OpenOptions::default()
    };
    let mut source = kymo_read::open(path, &options).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (events, source.info().clone())
}

#[test]
fn every_record_of_a_trace_dat_is_an_event_with_its_fields() {
    let folder = captures::some_ftrace();
    let scratch = tempfile::tempdir().unwrap();
    let is_there = |name: &&str| captures::has(&folder.join(name));
    for name in DATS.into_iter().filter(is_there) {
        let Some(path) = file(&folder, name, scratch.path()) else {
            return;
        };
        let bytes = std::fs::read(&path).unwrap();
        let trace = Trace::parse(&bytes).unwrap();
        let mut records = Records::new(&trace, &bytes);
        let (events, _) = wanted_events(&path, Wanted::Records);
        let mut all = events.iter().filter(|event| event.record);
        let (mut losses, mut count) = (Vec::new(), 0);
        while let Some((place, step)) = records.next(&trace, &bytes) {
            let record = match step {
                Step::Record(record) => record,
                Step::Lost(Lost::Events(events)) => {
                    losses.push(Some(events));
                    continue;
                }
                Step::Lost(_) => {
                    losses.push(None);
                    continue;
                }
                Step::Damage(error, _) => panic!("{name}: {error}"),
            };
            count += 1;
            let event = all.next().expect("an event for each record");
            let time = event.timestamp().0 as u64;
            assert_eq!(time, place.time, "{name}, record {count}");
            assert_eq!(event.cpu, Some(Cpu(place.cpu)));
            let id = u16::from_le_bytes([record.data[0], record.data[1]]);
            let format = trace.formats.get(id).unwrap();
            assert_eq!(event.name, format.name);
            assert_eq!(event.fields.len(), format.fields.len() + 1);
            for (field, format) in event.fields.iter().zip(&format.fields) {
                assert_eq!(field.name, format.name);
                let number = trace.scope().field(format, record.data);
                match &field.value {
                    Value::Unsigned(value) | Value::Hex(value) => assert_eq!(*value, number),
                    Value::Signed(value) => {
                        let unused = 64 - 8 * format.size as u32;
                        assert_eq!(*value << unused >> unused, *value);
                        assert_eq!(*value as u64 & u64::MAX >> unused, number);
                    }
                    Value::Text(text) => assert_eq!(*text, trace.scope().text(format, record.data)),
                    Value::List(_) | Value::Bytes(_) => assert!(format.is_array()),
                    other => panic!("{name}: {other:?}"),
                }
            }
        }
        assert_eq!(all.next(), None, "{name}");
        let reported: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Gap(Gap::Discarded { events }) => Some(*events),
                _ => None,
            })
            .collect();
        assert_eq!(reported, losses, "{name}");
    }
}

#[test]
fn events_happen_in_one_order_whatever_is_wanted_of_them() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let texts = [
        "amd64/text/fg-sched-nosleeptime.txt",
        "amd64/text/fg-default.txt",
    ];
    for name in DATS.iter().chain(&texts) {
        let Some(path) = file(&folder, name, scratch.path()) else {
            return;
        };
        let [few, all] = [Wanted::Meaning, Wanted::Everything].map(|wanted| {
            let events = wanted_events(&path, wanted).0.into_iter();
            let what = |kind: &EventKind| std::mem::discriminant(kind);
            let reported = |event: Event| (event.time, event.cpu, event.thread, what(&event.kind));
            events.map(reported).collect::<Vec<_>>()
        });
        let differs = few.iter().zip(&all).position(|(few, all)| few != all);
        assert_eq!((differs, few.len()), (None, all.len()), "{name}");
    }
}

/// Count and total time of each function. Only calls within one task are matched.
type Totals = HashMap<String, (u64, i64)>;

fn recomputed(trace: &Trace, bytes: &[u8]) -> Totals {
    let (enter, exit) = ["funcgraph_entry", "funcgraph_exit"]
        .map(|name| trace.formats.named(name).unwrap())
        .into();
    let mut totals = Totals::new();
    let mut stacks: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    let mut records = Records::new(trace, bytes);
    while let Some((place, step)) = records.next(trace, bytes) {
        let Step::Record(record) = step else {
            stacks.clear();
            continue;
        };
        let number = |name: &str| {
            let field = enter.field(name).unwrap();
            trace.scope().field(field, record.data)
        };
        let stack = stacks.entry(number("common_pid")).or_default();
        if number("common_type") == u64::from(enter.id) {
            stack.push((number("func"), place.time));
        } else if number("common_type") == u64::from(exit.id)
            && stack
                .last()
                .is_some_and(|(func, _)| *func == number("func"))
        {
            let (func, entered) = stack.pop().unwrap();
            let name = trace.symbols.find(func).unwrap().name.to_owned();
            let time = |name: &str| {
                let field = exit.field(name).unwrap();
                trace.scope().field(field, record.data)
            };
            let (begin, end) = (time("calltime"), time("rettime"));
            // The exit belongs to another call, or its entry was recorded long after the call began.
            if !(0..100_000).contains(&entered.wrapping_sub(begin)) {
                continue;
            }
            let total = totals.entry(name).or_default();
            total.0 += 1;
            total.1 += (end - begin) as i64;
        }
    }
    totals
}

#[test]
fn calls_are_those_of_a_plain_recomputation() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for name in ["amd64/dat/fg-sched-v7.dat", "arm64/fg-v6.dat"] {
        let Some(path) = file(&folder, name, scratch.path()) else {
            return;
        };
        let bytes = std::fs::read(&path).unwrap();
        let trace = Trace::parse(&bytes).unwrap();
        let expected = recomputed(&trace, &bytes);
        let (events, info) = events(&path);
        let mut totals = Totals::new();
        let mut stacks: HashMap<_, Vec<_>> = HashMap::new();
        for event in &events {
            let place = event
                .thread
                .map_or((None, event.cpu), |thread| (Some(thread), None));
            match &event.kind {
                EventKind::Gap(gap) if gap.lost_events() != Some(0) => stacks.clear(),
                EventKind::Enter { function, .. } => {
                    stacks
                        .entry(place)
                        .or_default()
                        .push((*function, event.time));
                }
                EventKind::Exit { function } => {
                    let stack = stacks.entry(place).or_default();
                    let Some((open, begin)) = stack.pop_if(|(open, _)| Some(*open) == *function)
                    else {
                        continue;
                    };
                    let name = info
                        .identities
                        .function(open)
                        .unwrap()
                        .name
                        .clone()
                        .unwrap();
                    let total = totals.entry(name.into()).or_default();
                    total.0 += 1;
                    total.1 += event.time.0 - begin.0;
                }
                _ => {}
            }
        }
        // The simple count loses some calls of the idle tasks, because all CPUs' idle tasks share one number and so one
        // stack.
        for (function, (count, total)) in &expected {
            let ours = totals.get(function).copied().unwrap_or_default();
            // If an interrupt occurred before the entry was recorded, the call begins after it.
            assert!(
                ours.0 >= *count && ours.1 + 100_000 >= *total,
                "{name} {function}: {ours:?}"
            );
        }
        let differing = expected
            .iter()
            .filter(|(name, total)| totals.get(*name) != Some(total));
        assert!(differing.count() * 5 < expected.len(), "{name}");
    }
}

#[test]
fn calls_begin_and_end_when_their_exits_say() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for (name, most) in [
        ("amd64/dat/fg-sched-v6.dat", 150),
        ("amd64/dat/fg-sched-v7.dat", 170),
        ("arm64/fg-v6.dat", 0),
        ("arm64/fg-v7.dat", 950),
    ] {
        let Some(path) = file(&folder, name, scratch.path()) else {
            return;
        };
        let (events, _) = events(&path);
        let mut stacks: HashMap<_, Vec<_>> = HashMap::new();
        let (mut exits, mut others) = (0, 0);
        for event in &events {
            let place = event
                .thread
                .map_or((None, event.cpu), |thread| (Some(thread), None));
            let stack = stacks.entry(place).or_default();
            match &event.kind {
                EventKind::Enter { function, .. } => stack.push((*function, event.time)),
                EventKind::Exit { function } => {
                    let number = |name: &str| {
                        let field = event.fields.iter().find(|field| field.name == name);
                        match field.map(|field| &field.value) {
                            Some(Value::Unsigned(number) | Value::Hex(number)) => *number as i64,
                            other => panic!("{name}: {other:?}"),
                        }
                    };
                    assert!(event.timestamp() >= event.time);
                    let open = stack.iter().rposition(|(open, _)| Some(*open) == *function);
                    let call = open.map(|at| (stack.drain(at..).next().unwrap().1.0, event.time.0));
                    exits += 1;
                    others += usize::from(call != Some((number("calltime"), number("rettime"))));
                }
                _ => {}
            }
        }
        // Calls whose entries are missing, or were recorded long after the call began.
        assert!(
            others <= most && others * 100 < exits + 100,
            "{name}: {others} of {exits}"
        );
    }
}

/// Copies the contents of tracefs from the captures into the layout that `to` requires.
fn tracefs(folder: &Path, to: &Path, raw: impl Fn(u32) -> PathBuf) -> Option<()> {
    let from = folder.join("amd64/raw");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(from.join("events"))
        .arg(to)
        .status();
    assert!(copied.unwrap().success());
    for name in [
        "header_page",
        "kallsyms",
        "printk_formats",
        "saved_cmdlines",
    ] {
        std::fs::write(to.join(name), captures::unpacked(&from.join(name))?).unwrap();
    }
    for cpu in 0..2 {
        let path = to.join(raw(cpu));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(
            path,
            captures::unpacked(&from.join(format!("cpu{cpu}.raw")))?,
        )
        .unwrap();
    }
    Some(())
}

#[test]
fn raw_pages_are_the_text_of_the_same_buffer() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let layouts: [fn(u32) -> PathBuf; 2] = [
        |cpu| format!("cpu{cpu}.raw").into(),
        |cpu| format!("per_cpu/cpu{cpu}/trace_pipe_raw").into(),
    ];
    for raw in layouts {
        let scratch = tempfile::tempdir().unwrap();
        if tracefs(&folder, scratch.path(), raw).is_none() {
            return;
        }
        let (events, info) = events(scratch.path());
        // The kernel's own counts.
        for (cpu, count) in [(0, 15_398), (1, 15_345)] {
            let of_cpu = events
                .iter()
                .filter(|event| event.record && event.cpu == Some(Cpu(cpu)));
            assert_eq!(of_cpu.count(), count);
        }
        let text = captures::unpacked(&folder.join("amd64/raw/trace.txt")).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut entered = HashMap::new();
        for event in &events {
            if let EventKind::Enter { function, .. } = event.kind {
                let name = info
                    .identities
                    .function(function)
                    .unwrap()
                    .name
                    .clone()
                    .unwrap();
                *entered.entry(String::from(name)).or_insert(0) += 1;
            }
        }
        let mut reported = HashMap::new();
        for text in text.lines() {
            use kymo_ftrace::text::{Line, TextKind, line};
            if let Line::Event(event) = line(text)
                && let TextKind::Entry { function, .. } | TextKind::Leaf { function, .. } =
                    event.kind
            {
                *reported.entry(function.to_owned()).or_insert(0) += 1;
            }
        }
        assert_eq!(entered, reported);
    }
}

#[test]
fn the_tracefs_of_a_running_kernel_is_not_read() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("per_cpu/cpu0");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir(scratch.path().join("events")).unwrap();
    std::fs::write(scratch.path().join("events/header_page"), "field").unwrap();
    // Files of tracefs have size 0, even if they can be read.
    for name in ["tracing_on", "per_cpu/cpu0/trace_pipe_raw"] {
        std::fs::write(scratch.path().join(name), "").unwrap();
    }
    let opened = kymo_read::open(scratch.path(), &OpenOptions::default());
    let error = opened.err().expect("an error");
    assert!(
        matches!(error, kymo_read::OpenError::LiveTracefs { .. }),
        "{error}"
    );
}
