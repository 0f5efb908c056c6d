//! Parts of a trace behind losses, held against the same part of the whole.

use kymo_analysis::calls::{Callee, Calls, Counts, Options};
use kymo_analysis::profile::{Bounds, Profile};
use kymo_event::{Batch, Event, Time, TraceInfo};
use proptest::prelude::*;

use super::{Machine, actions, lose};

/// The profile of what lies behind `begin`, and what was counted there.
fn window(events: &[Event], begin: Time) -> (Profile, Counts) {
    let mut calls = Calls::new(&TraceInfo::default(), Options::default());
    let mut profile = Profile::new();
    let mut is_open = false;
    for event in Batch::from_iter(events.iter().cloned()).iter() {
        if event.row.time >= begin && !is_open {
            calls.open_window(begin, &mut |step| profile.add(&step));
            is_open = true;
        }
        calls.push(event, &mut |step| {
            if is_open {
                profile.add(&step);
            }
        });
    }
    if !is_open {
        calls.open_window(begin, &mut |step| profile.add(&step));
    }
    calls.finish(&mut |step| profile.add(&step));
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
    ) {
        let machine = Machine::run(&actions);
        let begin = machine.events[usize::from(begin) % machine.events.len()].time;
        let events = lose(&machine.events, &losses);
        let (whole, _) = window(&machine.events, begin);
        let (profile, counts) = window(&events, begin);
        let bounds = Bounds::of(&counts, &profile);
        for (callee, row) in profile.rows() {
            let Some(whole) = whole.row(callee) else {
                prop_assert!(row.count == 0 || callee == Callee::Unknown, "{callee:?} {row:?}");
                continue;
            };
            prop_assert!(row.count <= whole.count, "{row:?} {whole:?}");
            prop_assert!(row.total <= whole.total && row.self_time <= whole.self_time, "{row:?} {whole:?}");
            // What happened behind the last event that is left is not in any bound.
            if events.last() == machine.events.last() {
                prop_assert!(bounds.count(&row).is_none_or(|most| whole.count <= most), "{row:?} {whole:?}");
                prop_assert!(bounds.total(&row).is_none_or(|most| whole.total <= most), "{row:?} {whole:?} {bounds:?}");
                prop_assert!(bounds.self_time(&row).is_none_or(|most| whole.self_time <= most), "{row:?} {whole:?} {bounds:?}");
            }
        }
    }
}
