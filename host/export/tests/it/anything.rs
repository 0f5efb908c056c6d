//! Exports of random events are well-formed: timelines are balanced, named and in order, and nothing panics.

use crate::common::timeline::expected_calls;
use crate::common::{Trace, proto, traces};
use kymo_event::{
    ClockGap, Cpu, Duration, Event, EventKind, FunctionId, Gap, InterruptId, InterruptKind, Irq,
    Quantity, RecordingCause, SpaceId, StreamId, StreamInfo, ThreadId, Tid, Time,
};
use proptest::prelude::*;

/// The first of three threads that are not used by the synthetic traces of `traces`.
const THREADS: u32 = 3;

fn kind() -> impl Strategy<Value = EventKind> {
    let function = || (0_u32..4).prop_map(FunctionId);
    let irq = || (0_u32..3).prop_map(InterruptId);
    prop_oneof![
        8 => function().prop_map(|function| EventKind::Enter { function, call_site: None }),
        8 => function().prop_map(|function| EventKind::Exit { function: Some(function) }),
        1 => Just(EventKind::Exit { function: None }),
        2 => Just(EventKind::SwitchedIn),
        2 => Just(EventKind::SwitchedOut),
        2 => irq().prop_map(|irq| EventKind::IsrEnter { irq }),
        2 => irq().prop_map(|irq| EventKind::IsrExit { irq: Some(irq) }),
        1 => Just(EventKind::IsrExit { irq: None }),
        1 => (any::<Option<String>>(), any::<u64>())
            .prop_map(|(label, value)| EventKind::Marker { label, value }),
        1 => (any::<String>(), any::<Option<u64>>(), quantity())
            .prop_map(|(name, process, value)| EventKind::Counter { name, process, value }),
        1 => any::<bool>().prop_map(|on| EventKind::Recording { on, cause: RecordingCause::Function }),
        1 => (0_u32..3).prop_map(|thread| EventKind::ThreadName {
            thread: ThreadId(THREADS + thread),
            name: "late".to_owned(),
        }),
        1 => irq().prop_map(|irq| EventKind::IsrName { irq, name: "late".to_owned() }),
        1 => gap().prop_map(EventKind::Gap),
    ]
}

fn quantity() -> impl Strategy<Value = Quantity> {
    prop_oneof![
        any::<u64>().prop_map(Quantity::Unsigned),
        any::<i64>().prop_map(Quantity::Signed),
        any::<f64>().prop_map(Quantity::Real),
    ]
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        any::<Option<u64>>().prop_map(|events| Gap::Discarded { events }),
        any::<Option<u64>>().prop_map(|packets| Gap::LostPackets { packets }),
        any::<u64>().prop_map(|packets| Gap::Overwritten { packets }),
        any::<u32>().prop_map(|depth| Gap::InInterrupt { depth }),
        any::<u64>().prop_map(|ns| Gap::Clock(ClockGap {
            at_least: Duration(ns)
        })),
        (0_u64..200).prop_map(|ns| Gap::MissingExit { ago: Duration(ns) }),
        any::<u64>().prop_map(|ns| Gap::MissingExit { ago: Duration(ns) }),
        any::<u64>().prop_map(|ns| Gap::TimeBackward { by: Duration(ns) }),
    ]
}

/// A trace of random events. Usually time advances by small steps, sometimes it goes back or far forward. In some
/// traces all steps are large: to either end of time and back.
fn trace() -> impl Strategy<Value = Trace> {
    let calm = prop_oneof![20 => 0_i64..50, 1 => -100_i64..0, 1 => any::<i64>()];
    let wild = prop_oneof![Just(i64::MAX), Just(i64::MIN), any::<i64>(), -50_i64..50];
    prop_oneof![4 => events(calm), 1 => events(wild)]
}

/// A trace of random events, in streams of CPUs or of threads, with these time differences.
fn events(step: impl Strategy<Value = i64>) -> impl Strategy<Value = Trace> {
    let place = (
        0_u32..3,
        prop::option::of(0_u32..2),
        prop::option::of(0_u32..3),
    );
    let event = (step, place, kind());
    let events = prop::collection::vec(event, 0..120);
    (events, any::<bool>()).prop_map(|(events, of_threads)| {
        let mut trace = traces::empty();
        let identities = &mut trace.info.identities;
        for number in 0..3 {
            identities.thread(SpaceId(0), Tid(number));
            identities.interrupt(SpaceId(0), InterruptKind::Hard, Irq(15 + number as u32));
        }
        if of_threads {
            // The first thread also has a stream of items.
            let stream = |number: u32, thread| StreamInfo {
                name: format!("stream{number}"),
                thread: Some(ThreadId(THREADS + thread)),
                without_calls: number == 1,
                ..StreamInfo::default()
            };
            trace.info.streams = vec![stream(0, 1), stream(1, 1), stream(2, 2)];
        }
        let mut time = 0_i64;
        for (step, (stream, cpu, thread), kind) in events {
            time = time.saturating_add(step);
            trace.events.push(Event {
                time: Time(time),
                stream: StreamId(stream),
                cpu: cpu.map(Cpu),
                thread: thread.map(|thread| ThreadId(THREADS + thread)),
                // A gap is not a record.
                record: !matches!(kind, EventKind::Gap(_)),
                stamp: None,
                kind,
                named: false,
                name: "any".into(),
                fields: Vec::new(),
            });
        }
        trace
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn perfetto_is_well_formed(trace in trace()) {
        let perfetto = proto::read(&trace.export("perfetto").0);
        perfetto.timeline.check();
        prop_assert_eq!(perfetto.timeline.calls().len(), expected_calls(&trace).len());
        for state in &perfetto.states {
            prop_assert!(perfetto.threads.contains_key(&state.tid));
        }
    }

    #[test]
    fn trace_event_json_is_well_formed(trace in trace()) {
        let timeline = crate::common::json::read(&trace.export("trace-event").0);
        timeline.check();
        prop_assert_eq!(timeline.calls().len(), expected_calls(&trace).len());
    }

    #[test]
    fn ctf_can_be_read(trace in trace()) {
        let directory = tempfile::tempdir().unwrap();
        trace.export_to("ctf", directory.path());
        let read = kymo_ctf::Trace::open(directory.path()).unwrap();
        let mut messages = read.messages().unwrap();
        let mut events = 0;
        while let Some((_, message)) = messages.next_message().unwrap() {
            // A gap is added where time goes back. Other gaps become packet sequence numbers.
            let kymo_ctf::Message::Event(event) = message else {
                continue;
            };
            events += usize::from(event.class().name != "gap");
        }
        let is_gap = |event: &&Event| matches!(event.kind, EventKind::Gap(_));
        let gaps = trace.events.iter().filter(is_gap).count();
        prop_assert_eq!(events, trace.events.len() - gaps);
    }

    #[test]
    fn lists_have_a_line_for_every_event(trace in trace()) {
        let lines = |format| trace.export(format).0.iter().filter(|&&byte| byte == b'\n').count();
        prop_assert_eq!(lines("json"), trace.events.len());
        prop_assert_eq!(lines("csv"), trace.events.len() + 1);
    }

    #[test]
    fn stacks_are_lines_of_frames_and_time(trace in trace()) {
        let (bytes, _) = trace.export("folded");
        let mut seen = std::collections::BTreeSet::new();
        for line in std::str::from_utf8(&bytes).unwrap().lines() {
            let (stack, time) = line.rsplit_once(' ').unwrap();
            prop_assert!(time.parse::<u64>().unwrap() > 0);
            prop_assert!(seen.insert(stack.to_owned()), "{} twice", stack);
        }
    }
}
