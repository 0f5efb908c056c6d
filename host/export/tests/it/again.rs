//! Exported CTF traces read back by `kymo-read`: they must contain the calls of the exported trace.

use std::path::{Path, PathBuf};

use crate::common::{Trace, traces};
use kymo_analysis::calls::{self, Begin, Callee, Calls, End, Step, TrackInfo, TrackKind};
use kymo_analysis::profile::Profile;
use kymo_event::{
    Addr, Date, Duration, EventKind, FunctionId, Gap, Identities, InterruptId, Stack, ThreadId,
    Time, Wanted,
};
use kymo_read::{Events, OpenOptions, open};

/// Names for the numbers in a trace, which are different in another trace.
struct Named<'a>(&'a Identities);

impl Named<'_> {
    fn function(&self, id: FunctionId) -> String {
        let function = self.0.function(id).expect("a function");
        format!("{:?} at {:?}", function.name, function.address)
    }

    fn thread(&self, id: Option<ThreadId>) -> String {
        format!("{:?}", id.map(|id| self.0.tid(id)))
    }

    fn irq(&self, id: InterruptId) -> String {
        format!("IRQ {}", self.0.irq(id))
    }

    fn callee(&self, callee: Callee) -> String {
        match callee {
            Callee::Function(id) => self.function(id),
            Callee::Interrupt(id) => self.irq(id),
            Callee::Unknown => "unknown".to_owned(),
        }
    }

    /// A track without the number of its stream, because an export orders files differently.
    fn track(&self, info: &TrackInfo) -> String {
        let kind = match info.kind {
            TrackKind::Thread { thread } => self.thread(thread),
            TrackKind::Interrupt { irq, thread, level } => {
                format!("{} {} {level}", self.irq(irq), self.thread(thread))
            }
            TrackKind::Span { function } => format!("span {}", self.function(function)),
        };
        format!("{kind} on {:?}", info.cpu)
    }

    fn kind(&self, kind: &EventKind) -> String {
        match kind {
            EventKind::Enter {
                function,
                call_site,
            } => format!("enter {} from {call_site:?}", self.function(*function)),
            EventKind::Exit { function } => {
                format!("exit {:?}", function.map(|id| self.function(id)))
            }
            EventKind::SpanBegin { function, per_cpu } => {
                format!("begin {} {per_cpu}", self.function(*function))
            }
            EventKind::SpanEnd { function, per_cpu } => {
                format!("end {} {per_cpu}", self.function(*function))
            }
            EventKind::IsrEnter { irq } => format!("enter {}", self.irq(*irq)),
            EventKind::IsrExit { irq } => format!("exit {:?}", irq.map(|id| self.irq(id))),
            EventKind::ThreadName { thread, name } => {
                format!("{} is {name}", self.thread(Some(*thread)))
            }
            EventKind::IsrName { irq, name } => format!("{} is {name}", self.irq(*irq)),
            EventKind::Ready { thread } => format!("{} is ready", self.thread(Some(*thread))),
            kind => format!("{kind:?}"),
        }
    }
}

/// Results of all analyses of a trace: tracks, calls, and the table of functions.
fn calls(trace: &Trace) -> (Vec<String>, Vec<String>) {
    let mut calls = Calls::new(&trace.info, calls::Options::default());
    let mut profile = Profile::new();
    let mut steps = Vec::new();
    let named = Named(&trace.info.identities);
    let mut take = |step: Step<'_>| {
        profile.add(&step);
        // Numbers that are only valid in this trace are replaced by names.
        let callee = Callee::Unknown;
        match step {
            // A track is announced again when its name is known later. How often depends on the number of names that a
            // trace has before its first event.
            Step::Track { track, info } => {
                let step = format!("{track:?} {}", named.track(&info));
                if !steps.contains(&step) {
                    steps.push(step);
                }
            }
            Step::Begin(begin) => {
                let of = (named.callee(begin.callee), named.thread(begin.thread));
                let thread = None;
                let begin = Begin {
                    callee,
                    thread,
                    ..begin
                };
                steps.push(format!("{of:?} {begin:?}"));
            }
            Step::End(end) => {
                let of = named.callee(end.callee);
                steps.push(format!("{of} {:?}", End { callee, ..end }));
            }
            _ => {}
        }
    };
    let events: kymo_event::Batch = trace.events.iter().cloned().collect();
    for event in events.iter() {
        calls.push(event, &mut take);
    }
    calls.finish(&mut take);
    let rows = profile.rows();
    let rows = rows.map(|(callee, row)| format!("{} {row:?}", named.callee(callee)));
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    (steps, rows)
}

fn read(path: &Path) -> Trace {
    let options = OpenOptions {
        wanted: Wanted::Everything,
        ..OpenOptions::default()
    };
    let mut source = open(path, &options).expect("a trace");
    let events = Events::new(&mut *source).collect::<Result<_, _>>();
    let events = events.expect("whole files");
    Trace {
        info: source.info().clone(),
        events,
    }
}

/// Exports a trace, reads it back and compares both.
fn again(name: &str, trace: &Trace) -> Trace {
    let directory = tempfile::tempdir().expect("a folder");
    trace.export_to("ctf", directory.path());
    let read = read(directory.path());
    let ((steps, rows), (wanted, wanted_rows)) = (calls(&read), calls(trace));
    for (at, (step, wanted)) in steps.iter().zip(&wanted).enumerate() {
        assert_eq!(step, wanted, "{name}: step {at}");
    }
    assert_eq!(steps.len(), wanted.len(), "{name}");
    assert_eq!(rows, wanted_rows, "{name}");
    assert_eq!(read.info.build_id, trace.info.build_id, "{name}");
    assert_eq!(read.info.text_base, trace.info.text_base, "{name}");
    read
}

/// The named functions of a trace, by address; on request only those that are called.
fn functions(trace: &Trace, only_called: bool) -> Vec<(Option<Addr>, String)> {
    let called = |id| {
        trace.events.iter().any(|event| match event.kind {
            EventKind::Enter { function, .. } => function == id,
            EventKind::Exit { function } => function == Some(id),
            _ => false,
        })
    };
    let functions = (0..).zip(trace.info.identities.functions());
    let functions = functions.filter(|(id, _)| !only_called || called(FunctionId(*id)));
    let named = functions.filter_map(|(_, function)| {
        let name = function.name.as_deref()?.to_owned();
        Some((function.address, name))
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    named
}

/// The names of threads and interrupts, by their numbers.
fn names(trace: &Trace) -> (Vec<String>, Vec<String>) {
    let identities = &trace.info.identities;
    let threads = identities.threads().iter();
    let threads = threads.filter(|thread| thread.name.is_some());
    let mut threads: Vec<_> = threads
        .map(|it| format!("{} {:?}", it.tid, it.name))
        .collect();
    threads.sort();
    let interrupts = identities.interrupts().iter();
    let interrupts = interrupts.filter(|interrupt| interrupt.name.is_some());
    let interrupts = interrupts.map(|it| format!("{} {:?}", it.irq, it.name));
    let mut interrupts: Vec<_> = interrupts.collect();
    interrupts.sort();
    (threads, interrupts)
}

#[test]
fn traces_made_by_hand() {
    for (name, trace) in traces::all() {
        // Time cannot go back in CTF.
        if name == "backward" {
            continue;
        }
        let read = again(name, &trace);
        assert_eq!(functions(&read, false), functions(&trace, true), "{name}");
        let gaps = |trace: &Trace| {
            let gaps = trace.events.iter().filter_map(|event| match &event.kind {
                // In CTF the time of a gap must be that of the event before it.
                EventKind::Gap(gap) => Some(gap.clone()),
                _ => None,
            });
            gaps.collect::<Vec<_>>()
        };
        assert_eq!(gaps(&read), gaps(&trace), "{name}");
        let kinds = |trace: &Trace| {
            let records = trace.events.iter().filter(|event| !event.name.is_empty());
            let kinds = records.filter(|event| !matches!(event.kind, EventKind::Gap(_)));
            let named = Named(&trace.info.identities);
            let kinds = kinds.map(|event| {
                let (thread, kind) = (named.thread(event.thread), named.kind(&event.kind));
                (event.time, event.cpu, thread, kind)
            });
            kinds.collect::<Vec<_>>()
        };
        assert_eq!(kinds(&read), kinds(&trace), "{name}");
    }
}

#[test]
fn records_that_are_whole_calls() {
    for whole in [false, true] {
        let mut trace = traces::whole();
        for stream in &mut trace.info.streams {
            stream.whole_calls = whole;
        }
        let streams = again("ctf", &trace).info.streams;
        assert!(streams.iter().all(|stream| stream.whole_calls == whole));
    }
}

/// A trace of a Linux program does not say when its threads run: durations are wall times, in its export, too.
#[test]
fn durations_that_are_wall_times() {
    let mut trace = traces::process();
    for wall_times in [false, true] {
        trace.info.wall_times = wall_times;
        assert_eq!(again("process", &trace).info.wall_times, wall_times);
    }
}

#[test]
fn what_is_known_of_threads() {
    let mut trace = traces::whole();
    let stack = Stack {
        base: Addr(0x2000_0000),
        bytes: 1748,
        used: Some(400),
    };
    let thread = trace.events.iter().find_map(|event| event.thread);
    let thread = thread.expect("a thread");
    trace.info.identities.set_priority(thread, -5);
    trace.info.identities.set_stack(thread, stack);
    let tid = trace.info.identities.tid(thread);
    let read = again("threads", &trace).info.identities;
    let found = read.threads().iter().find(|known| known.tid == tid);
    let found = found.expect("the thread");
    assert_eq!((found.priority, found.stack), (Some(-5), Some(stack)));
}

#[test]
fn gaps_of_all_kinds() {
    let mut writer = traces::Writer::new();
    writer.at(10).enter(traces::A);
    let gaps = [
        Gap::LostPackets { packets: Some(2) },
        Gap::InInterrupt { depth: 1 },
        Gap::MissingExit { ago: Duration(9) },
        Gap::Discarded { events: None },
        Gap::Damage {
            offset: 7,
            bytes: Some(5),
            message: "a hole".to_owned(),
        },
        Gap::TimeBackward { by: Duration(3) },
    ];
    for gap in &gaps {
        writer.gap(gap.clone());
    }
    writer.at(20).exit(traces::A);
    let read = again("gaps", &writer.trace);
    let kinds: Vec<_> = read.events.iter().map(|event| &event.kind).collect();
    let found = kinds.iter().filter_map(|kind| match kind {
        EventKind::Gap(gap) => Some(gap.clone()),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), gaps);
}

#[test]
fn recordings_of_targets() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data");
    for name in [
        "demo",
        "damaged",
        "cut",
        "processors",
        "threads",
        "items",
        "windows",
        "dates",
    ] {
        let path: PathBuf = data.join(name).with_extension("kymo");
        let trace = read(&path);
        let read = again(name, &trace);
        assert_eq!(names(&read), names(&trace), "{name}");
        let timeless = |trace: &Trace| trace.info.streams.iter().filter(|s| s.timeless).count();
        assert_eq!(timeless(&read), timeless(&trace), "{name}");
        let date = |trace: &Trace| {
            let wall = trace.info.wall_clock.as_ref()?;
            Some(wall.unix_ns(Time(0)))
        };
        assert_eq!(date(&read), date(&trace), "{name}");
        assert_eq!(date(&read).is_some(), name == "dates");
    }
}

/// The times of an export are unchanged, and all readers find the date.
#[test]
fn dates_are_for_other_readers_too() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data");
    let trace = read(&data.join("dates.kymo"));
    let directory = tempfile::tempdir().expect("a folder");
    trace.export_to("ctf", directory.path());
    let exported = kymo_ctf::Trace::open(directory.path()).expect("a trace");
    let mut messages = exported.messages().expect("streams");
    let mut times = Vec::new();
    while let Some((_, message)) = messages.next_message().expect("whole streams") {
        if let kymo_ctf::Message::Event(event) = message {
            times.extend(event.time_ns());
        }
    }
    let first = Date(times[0]).to_string();
    assert_eq!(first, "2026-11-21T17:20:05.000000000Z");
    let events = trace.events.iter();
    let wanted = events.map(|event| event.time.0 + times[0] - trace.events[0].time.0);
    assert!(times.iter().copied().eq(wanted));
    let Ok(output) = std::process::Command::new("babeltrace2")
        .arg(directory.path())
        .args(["--clock-gmt", "--clock-date"])
        .output()
    else {
        return crate::common::missing("babeltrace2 cannot be run");
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("[2026-11-21 17:20:05.000000000]"),
        "{text}"
    );
}
