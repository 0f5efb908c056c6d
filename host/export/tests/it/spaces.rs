//! Functions, threads and interrupts of two spaces remain separate in every format, even with equal names and numbers.

use std::collections::BTreeSet;

use crate::common::timeline::{Timeline, ViewerRow, spans};
use crate::common::{json, proto, traces};
use kymo_event::{Cpu, EventKind, InterruptKind, Irq, StreamInfo};
use kymo_export::Options;
use kymo_read::{Events, OpenOptions, open};
use serde_json::Value;

/// The rows of a process, by name.
fn of_process<'t>(timeline: &'t Timeline, process: &str) -> Vec<&'t ViewerRow> {
    let rows = timeline.rows.values();
    rows.filter(|row| row.process == process).collect()
}

/// Checks a timeline of two machines.
fn check(timeline: &Timeline) {
    timeline.check();
    let processes: Vec<&String> = timeline.processes.values().collect();
    assert_eq!(processes, ["alpha", "beta"]);
    for (process, thread, function, irq, offset) in [
        ("alpha", "main", "read", "SysTick (irq 15) on CPU 0", 0),
        (
            "beta",
            "main (42)",
            "read [beta]",
            "SysTick (irq 15) on CPU 1",
            1,
        ),
    ] {
        let rows = of_process(timeline, process);
        let row = |name: &str| {
            let found = rows.iter().find(|row| row.name == name);
            found
                .unwrap_or_else(|| panic!("no {name} in {process}"))
                .slices()
        };
        let calls = [0, 100, 110].map(|begin| (function, begin + offset, begin + offset + 5));
        assert_eq!(spans(&row(thread)), calls);
        assert_eq!(row(irq).len(), 3);
    }
}

#[test]
fn timelines_have_a_process_for_each() {
    let trace = traces::two_machines();
    check(&proto::read(&trace.export("perfetto").0).timeline);
    check(&json::read(&trace.export("trace-event").0));
    crate::perfetto::check_with_schema("two machines", &trace.export("perfetto").0);
}

/// Two machines with one CPU each, both with the same number.
fn one_processor_each() -> crate::common::Trace {
    let mut trace = traces::two_machines();
    for stream in &mut trace.info.streams {
        (stream.machine, stream.cpu) = (stream.space, Some(Cpu(0)));
    }
    for event in &mut trace.events {
        event.cpu = Some(Cpu(0));
    }
    trace
}

#[test]
fn timelines_have_a_processor_of_each_machine() {
    let trace = one_processor_each();
    let json = json::read(&trace.export("trace-event").0);
    let rows = json.rows.values().map(|row| row.name.as_str());
    let cpus: BTreeSet<&str> = rows.filter(|name| name.starts_with("CPU")).collect();
    assert_eq!(cpus, BTreeSet::from(["CPU 0 [alpha]", "CPU 0 [beta]"]));
    let states = proto::read(&trace.export("perfetto").0).states;
    let ran: Vec<_> = states.iter().map(|it| (it.time, it.cpu)).collect();
    assert_eq!(ran, [(0, 0), (1, 1)]);
}

#[test]
fn ctf_has_a_trace_of_each_machine() {
    let trace = one_processor_each();
    for format in ["ctf", "ctf2"] {
        let directory = tempfile::tempdir().expect("a folder");
        trace.export_to(format, directory.path());
        let mut source = open(directory.path(), &OpenOptions::default()).expect("a trace");
        let events: Result<Vec<_>, _> = Events::new(&mut *source).collect();
        assert_eq!(events.expect("whole files").len(), trace.events.len());
        let info = source.info();
        assert!(info.has_machines());
        let names = info.streams.iter().map(|stream| stream.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["alpha/cpu0", "beta/cpu1"]);
    }
}

#[test]
fn stacks_begin_with_the_space() {
    let folded = |thread_roots| {
        let options = Options {
            thread_roots,
            ..Options::default()
        };
        let (text, _) = traces::two_machines().export_with("folded", &options);
        String::from_utf8(text).unwrap()
    };
    assert_eq!(
        folded(true),
        "alpha;SysTick (irq 15) 3\nalpha;main;read 12\nbeta;SysTick (irq 15) 3\nbeta;main (42);read [beta] 12\n"
    );
    assert_eq!(
        folded(false),
        "alpha;SysTick (irq 15) 3\nalpha;read 12\nbeta;SysTick (irq 15) 3\nbeta;read [beta] 12\n"
    );
}

#[test]
fn lists_name_the_space() {
    let trace = traces::two_machines();
    let text = String::from_utf8(trace.export("json").0).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for (line, event) in lines.iter().zip(&trace.events) {
        let space = ["alpha", "beta"][event.stream.0 as usize];
        assert_eq!(line["fields"]["space"], space, "{line}");
        assert_eq!(line["fields"].get("thread_space"), None);
    }
    let text = String::from_utf8(trace.export("csv").0).unwrap();
    let of_beta = text
        .lines()
        .filter(|line| line.contains("space=\"\"beta\"\""));
    assert_eq!(of_beta.count(), trace.events.len() / 2);
    // A trace with one space has no column for it.
    let (text, _) = traces::whole().export("csv");
    assert!(!String::from_utf8(text).unwrap().contains("space"));
}

#[test]
fn a_function_of_a_thread_in_another_space_says_both() {
    let mut writer = traces::Writer::new();
    writer.space = writer.trace.info.identities.add_space(Default::default());
    writer.at(1).enter(traces::A).at(2).exit(traces::A);
    let text = String::from_utf8(writer.trace.export("json").0).unwrap();
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["fields"]["space"], "space 1");
    assert_eq!(line["fields"]["thread_space"], "space 0");
}

#[test]
fn ctf_gives_each_a_number_of_its_own() {
    for format in ["ctf", "ctf2"] {
        let trace = traces::two_machines();
        let directory = tempfile::tempdir().unwrap();
        let summary = trace.export_to(format, directory.path());
        assert_eq!(summary.left_out, 0);
        let read = kymo_ctf::Trace::open(directory.path()).expect("a trace");
        let mut messages = read.messages().expect("streams");
        let (mut functions, mut threads, mut interrupts) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while let Some((_, message)) = messages.next_message().expect("whole streams") {
            let kymo_ctf::Message::Event(event) = message else {
                continue;
            };
            let stream = event.packet().info().cpu_id.unwrap();
            let labelled = |name| {
                let value = event.field(name)?;
                Some((stream, value.as_u64()?, value.label()?.to_owned()))
            };
            functions.extend(labelled("function"));
            interrupts.extend(labelled("irq"));
            threads.extend(event.field("thread").and_then(|value| value.as_i64()));
        }
        let instead = |id: u64| (0x6b79_6d6f << 32) | id;
        let function = |stream, number, name: &str| (stream, number, name.to_owned());
        // Without the four functions and three threads of the first space that have no calls.
        let both = [
            function(0, 0x1000, "read"),
            function(1, instead(5), "read [beta]"),
        ];
        assert_eq!(functions.into_iter().collect::<Vec<_>>(), both);
        let threads: Vec<_> = threads.into_iter().collect();
        assert_eq!(threads, [42, instead(4).cast_signed()]);
        let both = [
            function(0, 15, "IRQ 15 SysTick"),
            function(1, 0x6b00_0002, "IRQ 1795162114 SysTick"),
        ];
        assert_eq!(interrupts.into_iter().collect::<Vec<_>>(), both);
    }
}

#[test]
fn interrupts_of_two_kinds_with_one_number_are_two() {
    let mut writer = traces::Writer::new();
    writer.at(1).isr_enter(3).at(4).isr_exit(3);
    let identities = &mut writer.trace.info.identities;
    let soft = identities.interrupt(writer.space, InterruptKind::Soft, Irq(3));
    identities.name_interrupt(soft, "softirq NET_RX");
    writer.at(4).event("in", EventKind::IsrEnter { irq: soft });
    let irq = Some(soft);
    writer.at(9).event("out", EventKind::IsrExit { irq });
    let (text, _) = writer.trace.export("folded");
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "irq 3 3\nsoftirq NET_RX (softirq 3) 5\n"
    );
    let directory = tempfile::tempdir().unwrap();
    writer.trace.export_to("ctf", directory.path());
    let read = kymo_read::open(directory.path(), &Default::default());
    let mut source = read.unwrap();
    let mut batch = kymo_event::Batch::default();
    while source.fill(&mut batch).unwrap() {}
    let interrupts = source.info().identities.interrupts();
    let names: Vec<_> = interrupts
        .iter()
        .filter_map(|it| it.name.as_deref())
        .collect();
    assert_eq!(interrupts.len(), 2);
    assert_eq!(names, ["softirq NET_RX"]);
}

/// A trace of threads without CPUs.
fn without_cpus(streams: usize) -> crate::common::Trace {
    let mut writer = traces::Writer::new();
    let stream = StreamInfo {
        name: "channel0_0".to_owned(),
        ..StreamInfo::default()
    };
    writer.trace.info.streams = vec![stream; streams];
    for (time, thread) in [(10, traces::WORKER_1), (20, traces::WORKER_2)] {
        writer.on(0, thread);
        writer.at(time).event("in", EventKind::SwitchedIn);
        writer.at(time + 8).event("out", EventKind::SwitchedOut);
    }
    let mut trace = writer.trace;
    trace.events.iter_mut().for_each(|event| event.cpu = None);
    trace
}

#[test]
fn a_source_of_one_processor_need_not_number_it() {
    let trace = without_cpus(1);
    let (bytes, summary) = trace.export("trace-event");
    let ran = json::read(&bytes).row("CPU 0").slices();
    let wanted = [("worker", 10, 18), ("worker (0x20000200)", 20, 28)];
    assert_eq!(spans(&ran), wanted);
    assert_eq!(summary.left_out, 0);
    let (bytes, summary) = trace.export("perfetto");
    let states = proto::read(&bytes).states;
    assert_eq!(states.len(), 4);
    assert!(states.iter().all(|state| state.cpu == 0));
    assert_eq!(summary.left_out, 0);
    // With several streams the CPU is ambiguous, so the omission is reported.
    for format in ["perfetto", "trace-event"] {
        assert_eq!(without_cpus(2).export(format).1.left_out, 4, "{format}");
    }
}
