//! Windows add up to the whole, and what is left out changes nothing of what remains.

use std::collections::HashMap;

use kymo_event::{
    Choice, Cpu, Duration, Event, EventKind, Filter, FunctionId, Gap, Identities, InterruptId,
    InterruptKind, Irq, Pattern, Space, StreamId, ThreadChoice, ThreadId, Tid,
};
use proptest::prelude::*;

use super::*;
use crate::calls::{Callee, End, How};
use crate::profile::Profile;
use crate::selection::FunctionChoice;

/// A trace of two threads on one processor, with functions `f0` to `f3` and two interrupts.
fn info() -> TraceInfo {
    let mut identities = Identities::default();
    let space = identities.add_space(Space::default());
    for number in 0..4 {
        identities.function_named(space, &format!("f{number}"));
    }
    for number in 0..2 {
        let thread = identities.thread(space, Tid(number));
        identities.name_thread(thread, &format!("t{number}"));
        identities.interrupt(space, InterruptKind::Hard, Irq(number as u32));
    }
    TraceInfo {
        identities,
        ..TraceInfo::default()
    }
}

/// What a program does: what, with which function or thread, after how long.
fn trace(actions: &[(u8, u8, u8)]) -> Vec<Event> {
    let (mut time, mut running) = (0, 0);
    let mut events = Vec::new();
    let mut interrupts: Vec<u32> = Vec::new();
    for (what, which, passed) in actions {
        time += i64::from(*passed);
        let function = FunctionId(u32::from(which % 4));
        let mut push = |thread, kind| {
            events.push(Event {
                time: Time(time),
                stream: StreamId(0),
                cpu: Some(Cpu(0)),
                thread: Some(ThreadId(thread)),
                kind,
                named: true,
                record: true,
                stamp: None,
                name: "e".into(),
                fields: Vec::new(),
            });
        };
        match what % 8 {
            0..3 => push(
                running,
                EventKind::Enter {
                    function,
                    call_site: None,
                },
            ),
            3..5 => push(running, EventKind::Exit { function: None }),
            5 if interrupts.is_empty() => {
                push(running, EventKind::SwitchedOut);
                running = u32::from(which % 2);
                push(running, EventKind::SwitchedIn);
            }
            6 if interrupts.len() < 2 => {
                let irq = InterruptId(interrupts.len() as u32);
                interrupts.push(irq.0);
                push(running, EventKind::IsrEnter { irq });
            }
            7 => {
                if let Some(irq) = interrupts.pop() {
                    let irq = Some(InterruptId(irq));
                    push(running, EventKind::IsrExit { irq });
                }
            }
            _ => {}
        }
    }
    events
}

/// The ends of all calls, and the table of them.
fn replay(events: &[Event], window: Window, selection: Selection) -> (Vec<End>, Profile) {
    let info = info();
    let options = Options {
        window,
        selection,
        ..Options::default()
    };
    let mut replay = Replay::new(&info, &Arc::default(), options);
    let (mut ends, mut profile) = (Vec::new(), Profile::new());
    let mut open: HashMap<_, Vec<_>> = HashMap::new();
    let mut take = |_: Option<Origin>, step: Step<'_>| {
        profile.add(&step);
        match step {
            Step::Begin(begin) => {
                let stack = open.entry(begin.track).or_default();
                assert_eq!(begin.depth as usize, stack.len());
                stack.push(begin.call);
            }
            Step::End(end) => {
                if end.begin.is_some() {
                    let stack = open.entry(end.track).or_default();
                    assert_eq!(stack.pop(), Some(end.call), "ends are those of begins");
                }
                ends.push(end);
            }
            _ => {}
        }
    };
    let batches = events.chunks(7);
    let batches = batches.map(|chunk| Batch::from_iter(chunk.iter().cloned()));
    for batch in batches {
        if !replay.batch(&info, &batch, &mut take) {
            break;
        }
    }
    replay.finish(&info, &mut take);
    assert!(open.values().all(Vec::is_empty), "all that began ended");
    (ends, profile)
}

/// The self time of each callee, that of calls that were open at the end included.
fn self_times(ends: &[End]) -> HashMap<Callee, u64> {
    let mut times = HashMap::new();
    for end in ends {
        *times.entry(end.callee).or_default() += end.self_time.unwrap_or_default().0;
    }
    times.retain(|_, time| *time > 0);
    times
}

/// An end without what a selection may change: how deep it is shown.
fn without_depth(end: &End) -> End {
    End { depth: 0, ..*end }
}

/// What a replay of a trace shows, three events at a time; `elsewhere`: it takes steps that were made before.
fn shown(events: &[Event], elsewhere: bool) -> (Vec<String>, Counts) {
    let (info, symbols) = (info(), Arc::default());
    let mut options = Options::default();
    let replay = |options: &Options| Replay::new(&info, &symbols, options.clone());
    let feeder = elsewhere.then(|| Feeder::new(replay(&options)));
    options.steps = feeder.as_ref().map(Feeder::steps);
    let (mut feeder, mut replay) = (feeder, replay(&options));
    let mut lines = Vec::new();
    let mut each =
        |origin: Option<Origin>, step: Step<'_>| lines.push(format!("{origin:?} {step:?}"));
    for events in events.chunks(3) {
        let batch: Batch = events.iter().cloned().collect();
        if let Some(feeder) = &mut feeder {
            feeder.batch(&info, &batch);
        }
        assert!(replay.batch(&info, &batch, &mut each));
    }
    if let Some(feeder) = feeder {
        feeder.finish(&info);
    }
    replay.finish(&info, &mut each);
    (lines, *replay.counts())
}

proptest! {
    #[test]
    fn steps_made_elsewhere_are_the_same(
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..60)
    ) {
        let events = trace(&actions);
        prop_assert_eq!(shown(&events, true), shown(&events, false));
    }

    #[test]
    fn windows_add_up_to_the_whole(
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), 0u8..20), 1..200),
        cut in 0i64..2000,
    ) {
        let events = trace(&actions);
        let (whole, _) = replay(&events, Window::default(), Selection::default());
        let before = Window { end: Time(cut), ..Window::default() };
        let behind = Window { begin: Time(cut), ..Window::default() };
        let mut parts = replay(&events, before, Selection::default()).0;
        // An event at the cut itself is in both, and takes no time in either. An orphan of it is, too.
        parts.extend(replay(&events, behind, Selection::default()).0);
        prop_assert_eq!(self_times(&parts), self_times(&whole));
        for end in &parts {
            prop_assert!(!end.clipped || end.begin == Some(Time(cut)) || end.time == Time(cut));
        }
    }

    #[test]
    fn selections_change_no_call_that_remains(
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), 0u8..20), 1..200),
        thread in 0u64..2,
        least in 0u64..100,
        depth in 1u32..4,
    ) {
        let events = trace(&actions);
        let (whole, _) = replay(&events, Window::default(), Selection::default());
        let whole: Vec<End> = whole.iter().map(without_depth).collect();
        let functions = vec![FunctionChoice::new("f1"), FunctionChoice::new("f[")];
        let by_thread = Filter { threads: vec![ThreadChoice::Id(Tid(thread))], ..Filter::default() };
        let nothing = Selection::default;
        let selections = [
            Selection { events: by_thread, ..nothing() },
            Selection { functions, ..nothing() },
            Selection { hide: vec![FunctionChoice::new("f*")], ..nothing() },
            Selection { depth: Some(depth), ..nothing() },
            Selection { min_duration: Duration(least), ..nothing() },
        ];
        for selection in selections {
            let (ends, _) = replay(&events, Window::default(), selection.clone());
            for end in &ends {
                prop_assert!(whole.contains(&without_depth(end)), "{selection:?}: {end:?}");
                if let Some(duration) = end.duration {
                    prop_assert!(duration >= selection.min_duration);
                }
            }
            if selection.min_duration > Duration(0) {
                let long = |end: &&End| end.duration.is_some_and(|it| it >= selection.min_duration);
                let expected = whole.iter().filter(long).count();
                prop_assert_eq!(ends.iter().filter(long).count(), expected);
            }
        }
    }
}

/// Events of a whole call of `f0` in thread 0, with `f1` within it.
fn nested() -> Vec<Event> {
    let mut events = trace(&[(0, 0, 10), (0, 1, 10), (3, 0, 30), (3, 0, 50)]);
    events.push(Event {
        time: Time(200),
        kind: EventKind::Gap(Gap::Discarded { events: Some(1) }),
        ..events[0].clone()
    });
    events
}

#[test]
fn a_call_that_spans_a_window_has_its_length() {
    let window = Window {
        begin: Time(30),
        end: Time(40),
    };
    let (ends, _) = replay(&nested(), window, Selection::default());
    let seen: Vec<_> = ends
        .iter()
        .map(|end| (end.callee, end.duration, end.how, end.clipped))
        .collect();
    let function = |number| Callee::Function(FunctionId(number));
    assert_eq!(
        seen,
        [
            (function(1), Some(Duration(10)), How::Open, true),
            (function(0), Some(Duration(10)), How::Open, true),
        ]
    );
}

#[test]
fn a_clipped_call_is_chosen_by_the_event_that_it_began_with() {
    let mut events = nested();
    events[1].name = "inner".into();
    let window = Window {
        begin: Time(30),
        end: Time(40),
    };
    let keep = vec![Pattern::new("inner")];
    let events_named = Filter {
        events: Choice { keep, drop: vec![] },
        ..Filter::default()
    };
    let selection = Selection {
        events: events_named,
        ..Selection::default()
    };
    let (ends, _) = replay(&events, window, selection);
    let seen: Vec<_> = ends.iter().map(|end| (end.callee, end.depth)).collect();
    assert_eq!(seen, [(Callee::Function(FunctionId(1)), 0)]);
}

#[test]
fn a_thread_that_waits_when_a_window_begins_is_on_the_processor_that_it_had() {
    // Of two threads only calls tell, so that one of them is taken to wait while the other one is at work.
    let mut events = nested();
    events[1].thread = Some(ThreadId(1));
    events.truncate(2);
    events.push(Event {
        time: Time(50),
        kind: EventKind::Other,
        ..events[1].clone()
    });
    let window = Window {
        begin: Time(30),
        ..Window::default()
    };
    let on = |cpu| Selection {
        events: Filter {
            cpus: vec![Cpu(cpu)],
            ..Filter::default()
        },
        ..Selection::default()
    };
    let (all, _) = replay(&events, window, Selection::default());
    assert_eq!(all.len(), 2);
    assert_eq!(replay(&events, window, on(0)).0, all);
    assert_eq!(replay(&events, window, on(1)).0, []);
}

#[test]
fn a_window_behind_the_trace_never_begins() {
    let info = info();
    let options = Options {
        window: Window {
            begin: Time(1000),
            ..Window::default()
        },
        ..Options::default()
    };
    let mut replay = Replay::new(&info, &Arc::default(), options);
    let mut steps = 0;
    let batch = Batch::from_iter(nested());
    replay.batch(&info, &batch, &mut |_, _| steps += 1);
    replay.finish(&info, &mut |_, _| steps += 1);
    assert_eq!((steps, replay.has_begun()), (0, false));
}

#[test]
fn what_is_within_a_function_is_shown_from_level_0() {
    let selection = Selection {
        functions: vec![FunctionChoice::new("f1")],
        ..Selection::default()
    };
    let (ends, _) = replay(&nested(), Window::default(), selection);
    let seen: Vec<_> = ends.iter().map(|end| (end.callee, end.depth)).collect();
    assert_eq!(seen, [(Callee::Function(FunctionId(1)), 0)]);
}
