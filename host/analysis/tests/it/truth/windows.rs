//! Parts of a trace after losses, compared with the same part of the complete trace.

use kymo_analysis::by_wall::ByWall;
use kymo_analysis::calls::{Callee, Calls, Counts, Options, Step};
use kymo_analysis::profile::{Bounds, Profile};
use kymo_event::{Batch, Duration, Event, Time, TraceInfo};
use proptest::prelude::*;

use super::{Machine, actions, lose};

/// The profile of the events after `begin`, in CPU time or wall time, and the counts there.
fn window(events: &[Event], begin: Time, is_wall: bool) -> (Profile, Counts) {
    let mut calls = Calls::new(&TraceInfo::default(), Options::default());
    let mut profile = Profile::new();
    let mut by_wall = is_wall.then(ByWall::default);
    let mut add = |step: Step<'_>| {
        profile.add(&match &mut by_wall {
            Some(by_wall) => by_wall.step(step),
            None => step,
        });
    };
    let mut is_open = false;
    for event in Batch::from_iter(events.iter().cloned()).iter() {
        if event.row.time >= begin && !is_open {
            calls.open_window(begin, &mut add);
            is_open = true;
        }
        calls.push(event, &mut |step| {
            if is_open {
                add(step);
            }
        });
    }
    if !is_open {
        calls.open_window(begin, &mut add);
    }
    calls.finish(&mut add);
    (profile, *calls.counts())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_window_behind_losses_lies_within_its_bounds(
        actions in actions(),
        losses in prop::collection::vec((any::<u16>(), 1u8..30), 1..5),
        begin in any::<u16>(),
        is_wall in any::<bool>(),
    ) {
        let machine = Machine::run(&actions);
        let begin = machine.events[usize::from(begin) % machine.events.len()].time;
        let events = lose(&machine.events, &losses);
        let (whole, _) = window(&machine.events, begin, is_wall);
        let (profile, counts) = window(&events, begin, is_wall);
        let bounds = Bounds::of(&counts, &profile);
        for (callee, row) in profile.rows() {
            let Some(whole) = whole.row(callee) else {
                prop_assert!(row.count == 0 || callee == Callee::Unknown, "{callee:?} {row:?}");
                continue;
            };
            prop_assert!(row.count <= whole.count, "{row:?} {whole:?}");
            prop_assert!(row.total <= whole.total && row.self_time <= whole.self_time, "{row:?} {whole:?}");
            // Bounds do not include what happened after the last remaining event. Upper bounds exist only for CPU time.
            let most = |most: Option<Duration>| most.filter(|_| !is_wall);
            if events.last() == machine.events.last() {
                prop_assert!(bounds.count(&row).is_none_or(|most| whole.count <= most), "{row:?} {whole:?}");
                prop_assert!(most(bounds.total(&row)).is_none_or(|most| whole.total <= most), "{row:?} {whole:?} {bounds:?}");
                prop_assert!(most(bounds.self_time(&row)).is_none_or(|most| whole.self_time <= most), "{row:?} {whole:?} {bounds:?}");
            }
        }
    }
}
